"""What is known of what a log did: units of work, originals, segments that are gone."""

from dataclasses import replace

import msgspec
import pytest
from support.acts import CHUNK, Log, name_of
from support.builders import HASH

from eventlog.merging.log_acts import (
    KnownCommits,
    Units,
    divided_segments,
    dropped_segments,
    shrunk_segments,
)
from eventlog.merging.sequences import common_runs, joined_runs, runs_without
from eventlog.model.actions import AppReset, Drop, Restore, SetOrigin


@pytest.mark.parametrize(
    ("some", "others", "expected"),
    [
        ((), (), ()),
        (((1, 2),), ((3, 4),), ((1, 4),)),
        (((1, 1),), ((3, 3),), ((1, 1), (3, 3))),
        (((1, 9),), ((3, 4),), ((1, 9),)),
        (((5, 6), (1, 2)), ((2, 5),), ((1, 6),)),
    ],
)
def test_runs_that_touch_are_one(some, others, expected):
    assert joined_runs(some, others) == joined_runs(others, some) == expected


@pytest.mark.parametrize(
    ("runs", "others", "rest"),
    [
        ((), ((1, 9),), ()),
        (((1, 9),), (), ((1, 9),)),
        (((1, 9),), ((3, 4), (6, 6)), ((1, 2), (5, 5), (7, 9))),
        (((1, 3), (5, 9)), ((2, 6),), ((1, 1), (7, 9))),
        (((4, 5),), ((1, 9),), ()),
    ],
)
def test_runs_without_others_are_the_rest_and_the_common_ones_what_is_missing(runs, others, rest):
    assert runs_without(runs, others) == rest
    assert joined_runs(rest, common_runs(runs, others)) == runs


def test_a_log_has_what_it_committed_and_what_it_carried():
    one, two = Log("a"), Log("b")
    first, second = one.act(adds=["x"]), one.act(adds=["y"])
    origin = SetOrigin(name_of("o"), None, 1, first.commit)
    carried = two.act(origin, adds=["x"])
    known = KnownCommits(two.steps)
    assert known.has(first)
    assert known.has(carried)
    assert not known.has(second)
    assert carried.originals == {first.commit: 1}


def test_a_unit_that_a_restore_forgot_is_not_shared():
    one, two = Log("a"), Log("b")
    mine = one.act(adds=["x"], app=("load", 1))
    theirs = two.act(adds=["y"], app=("load", 1))
    assert Units([theirs]).shared(mine) == [theirs]
    assert Units([theirs]).done == {"load": ((1, 1),)}
    back = two.act(Restore(0, apps={"load": AppReset(1, None)}), drops=["y"])
    assert Units([theirs, back]).shared(mine) == []
    again = two.act(adds=["z"], app=("load", 1))
    assert Units([theirs, back, again]).shared(mine) == [again]


def test_rows_are_gone_by_the_act_that_dropped_them_through_rewrites():
    log = Log("a")
    log.act(adds=["x", "y"])
    log.rewrite(["x", "y"], ["z"])
    assert dropped_segments(act for step in log.steps for act in step.acts) == {}
    overwrite = log.act(adds=["new"], drops=["z"])
    gone = dropped_segments(act for step in log.steps for act in step.acts)
    assert gone == {name_of(name): overwrite for name in "xyz"}


def acts_of(log):
    return [act for step in log.steps for act in step.acts]


def test_of_rewritten_rows_those_in_a_segment_that_is_left_are_not_dropped():
    log = Log("a")
    log.rewrite(["x", "y"], ["p", "q"])
    first = log.act(drops=["p"])
    assert dropped_segments(acts_of(log)) == {name_of("p"): first}
    assert shrunk_segments(acts_of(log)) == {name_of(name): first for name in "xy"}
    second = log.act(drops=["q"])
    assert shrunk_segments(acts_of(log)) == {}
    gone = {name_of(name): second for name in "qxy"}
    assert dropped_segments(acts_of(log)) == gone | {name_of("p"): first}
    log.act(adds=["q"])
    assert dropped_segments(acts_of(log)) == {name_of("p"): first}
    assert shrunk_segments(acts_of(log)) == {name_of(name): second for name in "xy"}


def test_a_form_of_a_rewritten_segment_has_the_rows_that_are_left():
    log = Log("a")
    log.rewrite(["x", "y"], ["z"])
    whole = name_of("z")
    rest = f"{whole}:{HASH}"
    act = log.act(adds=["z"], drops=["z"])
    form = msgspec.structs.replace(act.adds[0], id=rest)
    act = replace(act, adds=(form,), deletes=frozenset([rest]), exchanged=frozenset([whole]))
    acts = [*acts_of(log)[:-1], act]
    assert dropped_segments(acts) == {whole: act}
    assert shrunk_segments(acts) == {name_of(name): act for name in "xy"}
    last = replace(log.act(), drops=(Drop(rest, CHUNK, ""),))
    gone = {rest: last, whole: act} | {name_of(name): last for name in "xy"}
    assert dropped_segments([*acts, last]) == gone
    assert shrunk_segments([*acts, last]) == {}


def test_a_segment_of_a_unit_of_both_is_divided_if_both_logs_changed_it():
    """Not if one log did alone: the other one has these rows elsewhere."""
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], app=("load", 1))
    target.act(adds=["y"], app=("load", 1))
    exchange(source, "x")
    assert divided_segments(source.steps, target.steps) == set()
    exchange(target, "x")
    assert divided_segments(source.steps, target.steps) == {name_of("x")}


def exchange(log, name):
    """Commit another form of a segment, with a vector, by a unit of its own."""
    act = log.act(adds=[name], drops=[name], app=("clean", len(log.steps)))
    form = msgspec.structs.replace(act.adds[0], id=f"{name_of(name)}:{HASH}", vector=b"")
    act = replace(act, adds=(form,), exchanged=frozenset([name_of(name)]))
    log.steps[-1] = replace(log.steps[-1], acts=(act,))
