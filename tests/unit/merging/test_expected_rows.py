"""Which rows a target must have after a merge (MERGING.md R19.11), by what two logs did."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced
from support.acts import CHUNK, Log, name_of, segment_of, side_of

from eventlog.keyed.repetition import again
from eventlog.merging.log_acts import BOTH, CHOSEN, PURE, UNITED
from eventlog.merging.planning.by_state.expected_rows import ExpectedRows
from eventlog.merging.planning.by_state.one_by_one import objection
from eventlog.merging.planning.by_state.sides import differences
from eventlog.merging.planning.by_state.union import unite
from eventlog.merging.planning.carried import Carried, MergeConflict
from eventlog.model.actions import AppReset, AppRise, Drop, Restore, SetOrigin, Unchanged
from eventlog.model.chunks import parse_chunk

DAY = parse_chunk(CHUNK)
SPAN = Unchanged(DAY.start, DAY.end)


def carry(log, *acts, adds=(), drops=(), union=None, apps=None):
    """Commit what a merge carried, as a union if it is said of what kind."""
    names = [(act.version, act.commit) for act in acts]
    origin = SetOrigin(
        name_of("o"), None, 9, names[-1][1], apps or {}, commits=tuple(sorted(names))
    )
    state = [] if union is None else [Restore(9, origin=name_of("o")), SPAN]
    done = log.act(origin, *state, adds=adds, drops=drops)
    done.transaction.info.update({} if union is None else {UNITED: union})
    return done


def right(source, target, base, *results, keyed=False):
    """Return which of these results, each the letters of segments, are right."""
    sides = side_of(source, base), side_of(target, base)
    expected = ExpectedRows(*differences(*sides), once=not keyed)
    known = {s.id: s for side in sides for s in side.live.values()}
    known |= {s.id: s for side in sides for act in side.acts for s in act.adds}
    found = []
    for result in results:
        live = [known.get(name_of(name)) or segment_of(name) for name in result]
        found.append(not expected.differ(live, {CHUNK}))
    return found


def test_what_one_of_two_added_comes_and_what_one_removed_goes():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"])
    source.act(drops=["p"])
    target.act(adds=["y"], drops=["q"])
    results = "rxy", "rx", "ry", "xy", "prxy", "qrxy", "rxyz"
    assert right(source, target, "pqr", *results) == [True] + 6 * [False]


def test_what_a_log_removed_after_it_came_stays_away():
    source, target = Log("a"), Log("b")
    first = source.act(adds=["x"])
    carry(target, first, adds=["x"])
    target.act(drops=["x"])
    assert right(source, target, "", "", "x") == [True, False]
    assert right(target, source, "", "", "x") == [True, False]


def test_what_was_restored_after_the_other_log_had_it_comes_back():
    source, target = Log("a"), Log("b")
    first = source.act(adds=["x"])
    gone = source.act(drops=["x"])
    source.act(Restore(1), adds=["x"])
    carry(target, first, adds=["x"])
    carry(target, gone, drops=["x"])
    assert right(source, target, "", "x", "") == [True, False]


def test_rows_of_one_unit_are_the_same_whoever_did_it():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], app=("load", 1))
    target.act(adds=["y"], app=("load", 1))
    assert right(source, target, "", "x", "y", "xy", "") == [True, True, False, False]
    target.act(drops=["y"])
    assert right(source, target, "", "", "x", "y") == [True, False, False]


def test_a_unit_that_one_forgot_is_not_taken_for_the_other_doing():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], app=("load", 1))
    target.act(adds=["y"], app=("load", 1))
    target.act(Restore(0, apps={"load": AppReset(1, None)}), drops=["y"])
    assert right(source, target, "", "x", "", "xy") == [True, False, False]


def test_a_log_may_have_rows_of_a_unit_in_several_segments():
    source, target = Log("a"), Log("b")
    source.act(adds=["x", "z"], app=("load", 1))
    source.rewrite(["z", "q"], ["m"])
    target.act(adds=["y"])
    assert right(source, target, "q", "xmy", "xzqy", "xzmy", "my") == [True, True, False, True]


def test_rewritten_rows_are_the_same_rows():
    source, target = Log("a"), Log("b")
    source.rewrite(["p", "q"], ["x"])
    target.act(adds=["y"])
    assert right(source, target, "pq", "xy", "pqy", "xpy", "py") == [True, True, False, False]


def test_repeated_rows_are_the_same_rows_and_may_be_there_twice_with_a_key():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"])
    target.act(adds=["y"])
    repeat = again(32 * "7", name_of("y"))
    known = ExpectedRows(*differences(side_of(source), side_of(target)), once=False)
    x, y = (segment_of(name) for name in "xy")
    above = segment_of(bytes.fromhex(repeat))
    assert not known.differ([y, x, above], {CHUNK})
    assert not known.differ([x, above], {CHUNK})
    assert known.differ([x], {CHUNK})


def test_a_choice_brings_all_that_it_left():
    source, target = Log("a"), Log("b")
    gone = target.act(adds=["y"], drops=["p"])
    carry(source, gone, union=CHOSEN)
    assert right(source, target, "p", "p", "y", "py", "") == [True, False, False, False]


@pytest.mark.parametrize("united", [None, BOTH])
def test_what_came_at_once_may_have_been_brought_back(united):
    source, target = Log("a"), Log("b")
    third = Log("c")
    acts = [third.act(drops=["p"]), third.act(Restore(0), adds=["p"])]
    carry(source, *acts, union=united)
    carry(target, acts[0], drops=["p"])
    assert right(source, target, "pq", "pq", "q", "p") == [True, True, False]


def test_rows_that_a_union_brought_in_another_form_stay_as_they_are_in_both():
    """The third log had compacted them."""
    source, target, third = Log("a"), Log("b"), Log("c")
    first, second = third.act(adds=["q"]), third.act(adds=["r"])
    carry(source, first, adds=["x"], drops=["p"], union=PURE)
    carry(source, second, union=PURE)
    carry(target, first, union=PURE)
    assert right(source, target, "p", "p", "x") == [True, True]
    assert right(target, source, "p", "p", "x") == [True, True]
    source.rewrite(["x"], ["y"])
    assert right(source, target, "p", "p", "y") == [True, True]


def test_rows_that_both_or_neither_show_stay_so_where_nothing_tells_what_others_are():
    source, target = Log("a"), Log("b")
    first, second = source.act(adds=["x"]), source.act(adds=["y"])
    carry(target, first, second, adds=["z"], union=PURE)
    results = "pz", "pxy", "z", "xy", "pzr"
    assert right(source, target, "p", *results) == [True, True, False, False, False]


def test_rows_that_others_may_hide_stay_with_them_in_a_keyed_table():
    source, target = Log("a"), Log("b")
    source.act(drops=["p"])
    target.rewrite(["p", "q"], ["m"])
    assert right(source, target, "pq", "m", "q", "pq", keyed=True) == [True, True, False]
    assert right(source, target, "pq", "m", "q", "pq") == [False, True, False]


def test_equal_objects_of_which_nobody_knows_the_makers_may_be_one_unit_twice():
    source, target, third, other = map(Log, "abcd")
    acts = [third.act(adds=["x"], app=("load", 1)), third.act(adds=["z"])]
    carry(source, *acts, adds=["x", "z"], union=BOTH, apps={"load": AppRise(None, ((1, 1),))})
    target.act(adds=["y"], app=("load", 1))
    other.act(adds=["y"], app=("send", 1))
    sides = side_of(source), side_of(target)
    expected = ExpectedRows(*differences(*sides), once=True)
    theirs, (own,) = (list(side.live.values()) for side in sides)
    assert not expected.differ([*theirs, own], {CHUNK})  # the objects differ
    twin = segment_of("y", like="x")
    assert expected.differ([*theirs, twin], {CHUNK})
    alone = ExpectedRows(*differences(sides[0], side_of(other)), once=True)
    assert not alone.differ([*theirs, twin], {CHUNK})  # whoever wrote that did no unit of the app


def test_objects_that_both_logs_show_stay_in_a_keyed_table_whatever_their_names():
    """Each log dropped the segment of the other one, which has the same object."""
    source, target = Log("a"), Log("b")
    source.act(drops=["q"], adds=["z"])
    target.act(drops=["p"])
    twins = {s.id: s for s in (segment_of("p"), segment_of("q", like="p"))}
    sides = [
        replace(side, live={i: twins.get(i, s) for i, s in side.live.items()})
        for side in (side_of(source, "pq"), side_of(target, "pq"))
    ]
    new = sides[0].live[name_of("z")]
    for keyed in (True, False):
        expected = ExpectedRows(*differences(*sides), once=not keyed)
        for twin in twins.values():
            assert expected.differ([twin, new], {CHUNK}) is not keyed


def test_what_would_only_change_an_order_is_left_where_both_logs_agree():
    source, target = Log("a"), Log("b")
    first = source.act(adds=["x"])
    second = carry(source, target.act(adds=["y"]), adds=["y"])
    carry(target, first, adds=["x"])
    above = segment_of(bytes.fromhex(again(32 * "7", name_of("y"))))
    planned = [Carried(2, second.commit, adds=(above,))]
    sides = side_of(source), side_of(target)
    assert objection(*sides, planned, alone=True, keyed=True) is None
    found = objection(*sides, planned, alone=False, keyed=True)
    assert "both logs have the same rows" in str(found)


def test_a_union_with_a_log_that_records_more_than_it_did_is_a_conflict():
    """Another writer may have recorded a drop, and kept the rows."""
    source, target, third = Log("a"), Log("b"), Log("c")
    gone = third.act(drops=["p"])
    carry(source, gone, drops=["p"])
    carry(target, gone)
    target.act(adds=["y"])

    def united(take):
        sides = side_of(source, "p"), side_of(target, "p")
        return unite(
            *sides, common=0, upper=False, ties=None, take=take, renamed=lambda name, why: name
        )

    with pytest.raises(MergeConflict, match="exclude each other"):
        united(None)
    chosen = united("source").carried
    assert {name for name, _ in chosen.drops} == {name_of("p"), name_of("y")}
    assert united("target").carried.united == CHOSEN


@pytest.mark.parametrize("app", [None, ("load", 1)])
def test_changes_of_rows_beside_a_unit_that_each_log_did_are_not_united(app):
    whole = segment_of("p")
    parts = {name: replaced(whole, id=name) for name in (f"{whole.id}/0", f"{whole.id}/1")}
    sides = []
    for log, gone, new in (Log("a"), "/0", "m"), (Log("b"), "/1", "n"):
        log.act(adds=[log.name], app=app)
        change = log.act(adds=[new])
        change = replace(
            change, drops=(Drop(whole.id + gone, CHUNK, ""),), exchanged=frozenset([whole.id])
        )
        log.steps[-1] = replace(log.steps[-1], acts=(change,))
        side = side_of(log)
        live = {n: part for n, part in parts.items() if not n.endswith(gone)}
        sides.append(replace(side, live={**side.live, **live}))
    options = {"common": 0, "upper": False, "ties": None, "take": None, "renamed": lambda n, _: n}
    if app is not None:
        with pytest.raises(MergeConflict, match="in ways that exclude each other"):
            unite(*sides, **options)
        return
    carried = unite(*sides, **options).carried
    assert {s.id for s in carried.adds} == {name_of("a"), name_of("m")}
    assert {name for name, _ in carried.drops} == {f"{whole.id}/0"}
