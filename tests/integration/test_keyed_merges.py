"""G4: copies of a keyed table that were merged show the same rows, whichever merged first."""

import itertools
from contextlib import suppress

import pyarrow as pa
import pytest
from support.builders import START_MS, Spy, check_sound, create
from support.crashes import MortalStore
from support.forked_histories import copied
from support.keyed_tables import merged

from eventlog import Table, compaction, errors, replication
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.keyed.repetition import repeats
from eventlog.merging.planning.keyed.ties import ties_of
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, overwrite, upsert

SCHEMA = pa.schema(
    [("k", pa.int64()), ("at", pa.timestamp("us")), ("v", pa.string()), ("w", pa.string())]
)


def keyed(buckets=4, **options):
    store = MemoryStore()
    # Which of two rows counts may depend on hashes of commits, so the tests chose seeds.
    own = {"tombstone_hours": "876000", "inline_bytes": None}
    properties = own | options.pop("properties", {})
    return Table.create(
        store.uri,
        SCHEMA,
        store=store,
        clock=ManualClock(START_MS, 1),
        time_column="at",
        key="k",
        buckets=buckets,
        properties=properties,
        **options,
    )


def cut_off(table, count=2):
    """Copies of a table, in the order of the names of what they will do; the table is the first.

    So the first is the lower side, into which a merge appends.
    """
    stores = [table.store, *(copied(table.store) for _ in range(count - 1))]
    return [
        Table.open("", store=s, clock=ManualClock(START_MS + 10**6 * n, 70 + n))
        for n, s in enumerate(stores)
    ]


def put(table, *rows, at=0):
    given = [{"k": k, "at": at, "v": v, "w": w} for k, v, w in rows]
    upsert(table, pa.Table.from_pylist(given, SCHEMA))


def merge_all(table):
    """One base for the whole table."""
    head = table.refresh()
    table.commit(merged(table, head, "all", 0, 3, 0, head.version))


def replace_all(table, k, v):
    overwrite(table, pa.Table.from_pylist([{"k": k, "at": 0, "v": v, "w": None}], SCHEMA))


UNIT = {"app_id": "job", "app_seq": 1}
UNIT_ROW = pa.Table.from_pylist([{"k": 1, "at": 0, "v": "unit"}], SCHEMA)


def as_units(*tables):
    """Each of them replaces everything by one row, in one unit of work."""
    for table in tables:
        overwrite(table, UNIT_ROW, **UNIT)


def merge_in_turn(*ways):
    for source, target in ways:
        replication.merge(source, target)


def shown(table):
    table.refresh()
    return {r["k"]: (r["v"], r["w"]) for r in scan(table, ["k", "v", "w"]).to_table().to_pylist()}


def repeated_in(table):
    """The live segments that repeat others."""
    entries = entry_columns.to_segments(table.refresh().entries())
    return {s.id for s in entries if repeats(s.id)}


def merged_both_ways(one, two, rounds=1):
    """The rows of both, for both orders of merging, which must agree after so many rounds."""
    found = []
    for order in ((0, 1), (1, 0)):
        pair = [
            Table.open("", store=copied(t.store), clock=ManualClock(START_MS + 10**9, 90 + n))
            for n, t in enumerate((one, two))
        ]
        for source in order * rounds:
            replication.merge(pair[source], pair[1 - source])
        for source in order:
            assert replication.merge(pair[source], pair[1 - source]).commits == 0
        found += [shown(t) for t in pair]
    assert all(rows == found[0] for rows in found)
    return found[0]


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(2))
def test_g4_rows_of_one_key_that_tie_come_out_alike(seed):
    """The names of origins, and so who wins, depend on the seed."""
    table = keyed()
    put(table, (1, "old", None), (2, "old", None))
    one, two = cut_off(table)
    one.set_properties({"user.seed": str(seed)})
    two.set_properties({"user.seed": str(seed)})
    put(one, (1, "one", None), (3, "one", None))
    delete(one, keys=pa.table({"k": pa.array([2])}))
    put(two, (1, "two", None), (2, "two", None), (4, "two", None))
    rows = merged_both_ways(one, two)
    assert rows[1][0] in ("one", "two")
    assert rows.get(2) == (("two", None) if rows[1][0] == "two" else None)
    assert rows[3] == ("one", None)
    assert rows[4] == ("two", None)
    check_sound(one.store)


@pytest.mark.hazard("G4")
def test_g4_either_side_wins_for_some_tables():
    """Else the test above would not say much."""
    winners = set()
    for seed in range(4):
        table = keyed(properties={"user.seed": str(seed)})
        one, two = cut_off(table)
        put(one, (1, "one", None))
        put(two, (1, "two", None))
        winners.add(merged_both_ways(one, two)[1][0])
    assert winners == {"one", "two"}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("merge", ["last", pytest.param("partial", marks=pytest.mark.long)])
def test_g4_the_order_stays_over_many_merges(merge):
    """What was seen before a row was written never wins over it, on either side."""
    one, two = cut_off(keyed(properties={"merge": merge}))
    for n, (t, other) in enumerate(itertools.islice(itertools.cycle([(one, two), (two, one)]), 4)):
        put(t, (1, f"{n}", None), (2 + n % 2, None, f"{n}"))
        put(other, (3 - n % 2, f"b{n}", None))
        replication.merge(other, t)
        put(t, (1, f"after {n}", f"{n}"))
        replication.merge(t, other)
        compaction.run(t if n % 3 else other)
        assert shown(other)[1] == (f"after {n}", f"{n}")
    put(one, (7, "one", None))
    put(two, (7, "two", None), (8, "two", None))
    assert merged_both_ways(one, two)[1] == ("after 3", "3")


@pytest.mark.hazard("G4")
def test_g4_sums_are_never_added_twice():
    named = {"merge.v": "max", "merge.w": "min", "merge.at": "max"}
    table = keyed(properties={"merge": "aggregate", **named})
    one, two = cut_off(table)
    put(one, (1, "a", "x"), at=5)
    put(two, (1, "b", "a"), at=7)
    assert merged_both_ways(one, two) == {1: ("b", "a")}
    replication.merge(one, two)
    done = replication.merge(two, one)
    assert done.segments == 1  # its own, and none of the other's again


@pytest.mark.hazard("G4")
def test_g4_a_rule_that_depends_on_the_order_alone_has_one_order_on_both_sides():
    for properties in ({"merge": "first"}, {"merge": "aggregate"}):
        found = []
        for turn in (1, -1):
            one, two = cut_off(keyed(properties=properties))
            put(one, (1, "one", None))
            put(two, (1, "two", None))
            replication.merge(*(one, two)[::turn])
            replication.merge(*(two, one)[::turn])
            found += [shown(one), shown(two)]
        assert found == [found[0]] * 4
        assert len(found[0]) == 1


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_replaces_what_its_side_had_seen_and_nothing_else():
    table = keyed()
    put(table, (1, "old", None), (2, "old", None))
    one, two = cut_off(table)
    put(one, (3, "beside", None))
    overwrite(two, pa.Table.from_pylist([{"k": 1, "at": 0, "v": "new", "w": None}], SCHEMA))
    assert merged_both_ways(one, two) == {1: ("new", None), 3: ("beside", None)}


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_of_what_was_merged_with_newer_rows_leaves_these():
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    put(one, (3, "beside", None))
    merge_all(one)
    overwrite(two, pa.Table.from_pylist([{"k": 1, "at": 0, "v": "new", "w": None}], SCHEMA))
    for source, target in ((two, one), (one, two), (two, one)):
        replication.merge(source, target)
    assert merged_both_ways(one, two) == {1: ("new", None), 3: ("beside", None)}


@pytest.mark.hazard("G4")
def test_g4_merges_of_slices_stay_at_their_side():
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    put(two, (1, "two", None), (2, "two", None))
    merge_all(two)
    put(one, (100, "one", None))
    done = replication.merge(two, one)
    assert done.declined >= 1
    assert done.segments == 1 + (done.segments > 1)  # and its own once more, if it wins
    merged_both_ways(one, two)


@pytest.mark.hazard("G4")
def test_g4_a_restore_undoes_what_its_side_did_and_nothing_else():
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    put(one, (2, "one", None))
    put(two, (1, "two", None))
    two.restore(1)
    for source, target in ((two, one), (one, two), (two, one)):
        replication.merge(source, target)
    assert merged_both_ways(one, two) == {1: ("old", None), 2: ("one", None)}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("what", ["overwrite", "restore", "drop"])
def test_g4_a_merge_repeats_nothing_that_is_dropped_beside_it(what, turn):
    """One of the two, by their turn, is the upper side, where a merge repeats rows."""
    for pause in itertools.count(4, 3):
        start = keyed(buckets=1)
        put(start, (1, "old", None))
        one, two = cut_off(start)[::turn]
        put(one, (2, "one", None))
        put(two, (3, "two", None))

        def dropped(store=two.store):
            table = Table.open("", store=store, clock=ManualClock(START_MS + 10**8, 80))
            if what == "overwrite":
                overwrite(table, SCHEMA.empty_table())
            elif what == "restore":
                table.restore(1)
            else:
                table.drop_segments(table.snapshot().segments(), reason="a test")

        busy = MortalStore(two.store, pause=pause, meanwhile=dropped)
        clock = ManualClock(START_MS + 10**9, 90)
        replication.merge(one, Table.open("", store=busy, clock=clock))
        if busy.calls < pause:
            break
        assert shown(two).keys() <= ({1, 2} if what == "restore" else {2})
    assert pause >= 10


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("turn", [1, -1])
def test_g4_an_overwrite_leaves_no_rows_that_were_merged_for_some_buckets_only(turn):
    """The base of the other buckets stays live beside what was made of its rows."""
    table = keyed(buckets=2)
    put(table, *((k, "old", None) for k in range(8)))
    one, two = cut_off(table)[::turn]
    replace_all(two, 99, "two")
    head = one.refresh()
    one.commit(merged(one, head, "all", 0, 1, 0, head.version))
    put(one, *((k, "one", None) for k in range(20, 24)))  # all of the second bucket
    head = one.refresh()
    one.commit(merged(one, head, "all", 1, 1, 0, head.version))
    found = merged_both_ways(one, two, rounds=2)
    assert found == {99: ("two", None)} | dict.fromkeys(range(20, 24), ("one", None))


def test_a_merge_that_others_overtake_at_every_try_ends_and_may_come_again():
    table = keyed(buckets=1, properties={"user.seed": "0"})
    one, two = cut_off(table)  # the second is the upper side, where an order is kept
    put(one, (1, "one", None))
    put(two, (2, "two", None))
    other = Table.open("", store=two.store, clock=ManualClock(START_MS + 10**8, 80))
    busy, wrote = Spy(two.store), []

    def written(key):
        if key.startswith(keys.LOG_PREFIX):
            wrote.append(len(wrote) + 10)
            put(other, (wrote[-1], "other", None))

    busy.before_put = written
    target = Table.open("", store=busy, clock=ManualClock(START_MS + 10**9, 90))
    with pytest.raises(errors.CommitConflict, match="merge again when fewer write"):
        replication.merge(one, target)
    busy.before_put = lambda _: None
    replication.merge(one, target)
    assert shown(two).keys() == {1, 2, *wrote}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("new", [True, False])
def test_g4_an_overwrite_beside_a_restore_of_the_same_chunk_is_a_conflict(new, turn):
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)[::turn]
    put(two, (2, "two", None))
    before = two.refresh().version
    replace_all(two, 3, "two")
    replication.merge(two, one)
    if new:
        replace_all(one, 4, "one")
    else:
        overwrite(one, SCHEMA.empty_table())
    two.restore(before)
    rows = shown(one), shown(two)
    for source, target in ((one, two), (two, one)):
        with pytest.raises(errors.CommitConflict, match="--take"):
            replication.merge(source, target)
    assert (shown(one), shown(two)) == rows
    replication.merge(one, two, take="target")
    replication.merge(two, one)
    assert merged_both_ways(one, two) == {1: ("old", None), 2: ("two", None)}


@pytest.mark.hazard("G4", "W18")
@pytest.mark.parametrize("take", ["source", "target"])
def test_w18_of_two_states_of_a_keyed_table_one_is_chosen(take):
    table = keyed()
    put(table, (1, "old", None), (2, "old", None))
    one, two = cut_off(table)
    for side, name in ((one, "one"), (two, "two")):
        put(side, (1, name, None))
        side.restore(side.refresh().version - 1)
        put(side, (3, name, None))
        merge_all(side)
        put(side, (4, name, None))
    for a, b in ((one, two), (one, two), (two, one), (two, one)):  # none is marked as merged
        with pytest.raises(errors.CommitConflict, match="--take source` or `--take target`"):
            replication.merge(a, b)
    name = "one" if take == "source" else "two"
    replication.merge(one, two, take=take)
    replication.merge(two, one)
    found = merged_both_ways(one, two)
    assert {k: found[k] for k in (2, 3, 4)} == {2: ("old", None), 3: (name, None), 4: (name, None)}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("turn", [1, -1])
def test_g4_what_its_writer_removed_before_it_was_merged_stays_away(take, turn):
    table = keyed()
    put(table, (1, "a", None))
    one, two = cut_off(table)[::turn]
    put(one, (2, "b", None))
    one.restore(1)
    put(two, (3, "c", None))
    replace_all(two, 1, "d")
    for _ in range(2):
        with pytest.raises(errors.CommitConflict, match="nothing was committed"):
            replication.merge(one, two)
    told = replication.merge(one, two, take=take, dry_run=True)
    assert shown(two) == {1: ("d", None)}
    assert replication.merge(one, two, take=take).left_out == told.left_out
    replication.merge(two, one)
    wanted = {1: ("a", None)} if take == "source" else {1: ("d", None)}
    assert shown(one) == shown(two) == wanted
    replication.merge(one, two)  # a record that both are the same
    assert (replication.merge(one, two).commits, replication.merge(two, one).commits) == (0, 0)


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_that_comes_by_way_of_another_copy_drops_only_what_it_dropped():
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    clock = ManualClock(START_MS + 2 * 10**6, 78)
    three = Table.open("", store=copied(table.store), clock=clock)
    overwrite(one, pa.Table.from_pylist([{"k": 1, "at": 0, "v": "new", "w": None}], SCHEMA))
    put(two, (3, "beside", None))
    replication.merge(one, two)
    put(three, (5, "other", None))
    replication.merge(two, three)
    assert shown(three) == {1: ("new", None), 3: ("beside", None), 5: ("other", None)}


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_drops_no_overwrite_that_its_side_had_not_seen():
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    put(one, (2, "one", None))
    replication.merge(one, two)
    replace_all(one, 3, "one")
    replace_all(two, 4, "two")
    assert merged_both_ways(one, two) == {3: ("one", None), 4: ("two", None)}


@pytest.mark.sample(2)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize("compacted", ["", "what it read", "what arrived", "both"])
def test_g4_an_overwrite_of_what_was_read_is_not_undone_by_rows_that_a_merge_repeats(compacted):
    """The corrected row is the newest one, or the overwrite is refused."""
    outcomes = set()
    for turn in (1, -1):
        table = keyed()
        put(table, (7, "old", None))
        sides = cut_off(table)
        for n, side in enumerate(sides):
            put(side, (1 + n, "wrong", None), (9, "wrong", None))
        one, two = sorted(sides, key=lambda side: side.refresh().commit_hash)[::turn]
        if compacted in ("what it read", "both"):
            merge_all(two)
        seen = two.refresh().version
        replication.merge(one, two)
        if compacted in ("what arrived", "both"):
            put(two, (8, "beside", None))
            head = two.refresh()
            two.commit(merged(two, head, "all", 0, 3, seen + 1, head.version))
        right = pa.Table.from_pylist([{"k": 9, "at": 0, "v": "right", "w": None}], SCHEMA)
        rows = right if turn == 1 else right.slice(0, 0)
        theirs = shown(one)
        try:
            overwrite(two, rows, read_version=seen)
        except errors.CommitConflict:
            outcomes.add("refused")
            overwrite(two, rows)
            wanted = {9: ("right", None)} if turn == 1 else {}
        else:
            outcomes.add("done")
            wanted = {k: v for k, v in theirs.items() if k != 7}  # one's rows came after the read
            wanted |= {8: ("beside", None)} if compacted in ("what arrived", "both") else {}
        assert shown(two) == wanted
        assert merged_both_ways(one, two) == wanted
    assert "refused" in outcomes
    if not compacted:
        assert "done" in outcomes


@pytest.mark.sample(2)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_g4_an_overwrite_drops_rows_that_got_other_places_when_the_states_were_made_one(
    compacted, back
):
    for turn in (1, -1):  # one of the two gets what it had once more, in the other's order
        table = keyed(properties={"merge": "aggregate", "merge.v": "max", "merge.w": "min"})
        put(table, (1, "old", None), (2, "old", None))
        sides = cut_off(table)
        for n, side in enumerate(sides):
            put(side, (3, str(n), None), (4 + n, "own", None))
        one, two = sorted(sides, key=lambda side: side.refresh().commit_hash)[::turn]
        beside = {k: v for k, v in shown(two).items() if k > 2}
        replication.merge(one, two)
        author, other = (two, one) if back else (one, two)
        if compacted:
            merge_all(author)
        overwrite(author, SCHEMA.empty_table())
        wanted = {} if back else beside
        replication.merge(author, other)
        assert shown(other) == wanted
        assert merged_both_ways(one, two, rounds=2) == wanted


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("deleted", [False, True])
def test_g4_rows_are_not_repeated_above_what_a_third_copy_did_to_them(deleted):
    """A branch deletes a row of a copy, in which a merge has repeated it meanwhile."""
    repeating = 0
    for seed in (0, 1):  # which of the logs is the lower one depends on it
        table = keyed(properties={"user.seed": str(seed)})
        clock = ManualClock(START_MS + 10**6, 71 + seed)
        hub = Table.open("", store=copied(table.store), clock=clock)
        branch = hub.branch("b")
        put(branch, (9, "of the branch", None))
        put(hub, (5, "first", None))
        replication.merge(hub, branch)
        if deleted:
            delete(branch, keys=pa.table({"k": [5]}))
        else:
            put(branch, (5, "newer", None))
        put(table, *((n, "beside", None) for n in range(10, 20)))
        replication.merge(table, hub)
        repeating += bool(repeated_in(hub))
        replication.merge(branch, hub)
        assert shown(hub).get(5) == (None if deleted else ("newer", None))
        found = merged_both_ways(hub, table, rounds=2)
        assert found.get(5) == (None if deleted else ("newer", None))
        assert len(found) == (11 if deleted else 12)
    assert repeating == 1


@pytest.mark.hazard("G4")
def test_g4_two_copies_that_both_repeated_what_both_had_are_made_one():
    """Each was merged with a copy of its own; nobody has to choose, as both only added rows."""
    for seed in (4, 6):  # so that both repeat some
        table = keyed()
        put(table, (1, "old", None))
        sides = cut_off(table)
        for n, side in enumerate(sides):
            side.set_properties({f"user.seed{n}": str(seed)})
        thirds = []
        for n, side in enumerate(sides):
            clock = ManualClock(START_MS + 10**7, 170 + n + seed)
            thirds.append(Table.open("", store=copied(side.store), clock=clock))
        for n, side in enumerate(sides):
            put(side, (1, f"of {n}", None), (2 + n, "own", None))
        for source, target in (sides, sides[::-1], sides):
            replication.merge(source, target)
        assert shown(sides[0]) == shown(sides[1])
        for n, (side, third) in enumerate(zip(sides, thirds, strict=True)):
            put(third, (1, f"beside {n}", None))
            before = repeated_in(side)
            replication.merge(third, side)
            assert repeated_in(side) - before
        found = merged_both_ways(*sides, rounds=2)
        assert found == {1: found[1], 2: ("own", None), 3: ("own", None)}
        assert found[1][0] in ("beside 0", "beside 1")


@pytest.mark.hazard("G4", "W18")
@pytest.mark.parametrize("further", [False, True])
def test_w18_two_merges_at_once_that_made_the_states_one_need_no_choice(further):
    """Each carried what the other one did, in an order of its own."""
    for turn in (1, -1):
        table = keyed(properties={"merge": "aggregate", "merge.v": "max", "merge.w": "min"})
        put(table, (1, "old", None))
        sides = cut_off(table)
        one, two = sides[::turn]
        put(one, (1, "a", "x"))
        put(two, (1, "z", "y"))
        before = Table.open("", store=copied(two.store), clock=ManualClock(START_MS + 10**8, 79))
        replication.merge(one, two)
        replication.merge(before, one)
        if further:
            put(one, (1, None, "d"), (2, "one", None))
            put(two, (1, None, "c"), (3, "two", None))
        wanted = {1: ("z", "c"), 2: ("one", None), 3: ("two", None)}
        rows = merged_both_ways(one, two, rounds=2)
        assert rows == (wanted if further else {1: ("z", "x")})


@pytest.mark.hazard("G4", "W18")
def test_w18_two_choices_at_once_are_a_conflict():
    """Each side has chosen its own state, and that of the other is in neither."""
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    for side, name in ((one, "one"), (two, "two")):
        put(side, (1, name, None))
        side.restore(side.refresh().version - 1)
        put(side, (3, name, None))
    before = Table.open("", store=copied(two.store), clock=ManualClock(START_MS + 10**8, 79))
    replication.merge(one, two, take="target")
    replication.merge(before, one, take="target")
    with pytest.raises(errors.CommitConflict, match="--take source` or `--take target`"):
        replication.merge(one, two)
    replication.merge(one, two, take="source")
    replication.merge(two, one)
    assert merged_both_ways(one, two)[3] == ("one", None)


@pytest.mark.hazard("G4", "W18")
@pytest.mark.parametrize("seed", [2, 10])
def test_w18_a_ring_of_three_copies_that_wrote_one_key_settles(seed):
    """Each pair has an order of its own, and no pair may bring the order of another one back."""
    table = keyed(properties={"user.seed": str(seed)})
    put(table, (2, "old", None))
    clocks = ManualClock(START_MS + 10**6, 71 + seed), ManualClock(START_MS + 10**7, 271 + seed)
    middle = Table.open("", store=copied(table.store), clock=clocks[0])
    middle.set_properties({"user.copy": "1"})
    end = Table.open("", store=copied(middle.store), clock=clocks[1])
    for n, side in enumerate((middle, end, table)):
        put(side, (1, str(n), None))
    ring = [(end, middle), (end, table), (table, end), (table, middle), (middle, table)]
    for _ in range(5):
        done = [replication.merge(*pair).commits for pair in (*ring, (middle, end))]
        if not any(done):
            break
    assert not any(done)
    assert shown(table) == shown(middle) == shown(end)


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("merged_meanwhile", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_g4_what_an_overwrite_of_a_third_copy_had_not_seen_stays(merged_meanwhile, repeated):
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)
    clock = ManualClock(START_MS + 2 * 10**6, 78)
    three = Table.open("", store=copied(table.store), clock=clock)
    for n, side in enumerate((one, two)):
        put(side, (1, str(n), None), (2 + n, str(n), None))
    sides = sorted((one, two), key=lambda side: side.refresh().commit_hash, reverse=not repeated)
    one, two = sides  # the upper one repeats rows
    for source, target in [(two, one), (one, two)][:: -1 if repeated else 1]:
        replication.merge(source, target)
    wanted = shown(two) | {5: ("three", None)}
    replace_all(three, 5, "three")
    replication.merge(three, one)
    if merged_meanwhile:
        merge_all(two)
    assert shown(one) == wanted
    # Where states are made one, a record of it goes back.
    assert merged_both_ways(one, two, rounds=2) == wanted


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("compacted", ["", "source", "target"])
def test_g4_what_a_carried_overwrite_had_not_seen_stays_where_the_copies_parted_later(compacted):
    winners = set()
    for seed in (4, 5):  # which of the first two is the lower one depends on it
        table = keyed(properties={"user.seed": str(seed)})
        put(table, (1, "old", None))
        hub = Table.open("", store=copied(table.store), clock=ManualClock(START_MS, 71 + seed))
        put(hub, (2, "hub", None))
        end = Table.open("", store=copied(hub.store), clock=ManualClock(START_MS, 81))
        put(end, (3, "end", None))
        put(table, (2, "table", None))
        replace_all(table, 2, "new")
        replication.merge(table, hub)
        replication.merge(hub, table)
        if compacted:
            merge_all(hub if compacted == "source" else end)
        replication.merge(hub, end)
        replication.merge(end, hub)
        wanted = {2: shown(hub)[2], 3: ("end", None)}
        assert shown(hub) == wanted
        winners.add(wanted[2][0])
        assert merged_both_ways(hub, end, rounds=2) == wanted
    assert winners == {"hub", "new"}


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_that_both_have_drops_no_rows_that_lie_above_it():
    """Rows that must come after those of the lower side are there twice, and go only together."""
    table = keyed()
    put(table, (1, "old", None), (6, "old", None))
    one, two = cut_off(table)
    clock = ManualClock(START_MS + 2 * 10**6, 78)
    three = Table.open("", store=copied(table.store), clock=clock)
    for n, side in enumerate((one, two)):
        put(side, (1, str(n), None), (2 + n, str(n), None))
    one, two = sorted((one, two), key=lambda side: side.refresh().commit_hash)
    replace_all(three, 5, "three")
    put(one, (1, "later", None))
    for source, target in ((three, two), (two, one), (one, two)):
        replication.merge(source, target)
    wanted = {1: shown(one)[1], 2: ("0", None), 3: ("1", None), 5: ("three", None)}
    assert wanted[1] != ("later", None)  # the rows of the upper side come after it
    assert merged_both_ways(one, two) == wanted


@pytest.mark.hazard("G4")
def test_g4_of_rows_that_came_in_one_version_an_overwrite_drops_its_own():
    """They were published together."""
    table = keyed()
    audit = table.branch("audit")
    author = audit.branch("author")
    copy = Table.open("", store=copied(table.store), clock=ManualClock(START_MS, 71))
    put(copy, (4, "copy", None))
    put(author, (7, "author", None))
    audit.merge(author)
    put(audit, (3, "audit", None))  # in the same bucket
    table.merge(audit)
    replication.merge(table, copy)
    replace_all(author, 0, "new")  # in another one
    sides = [(author, audit), (audit, table), (table, copy)]
    for source, target in [*sides, *((b, a) for a, b in reversed(sides))] * 2:
        replication.merge(source, target)
    assert not any(replication.merge(a, b).commits for a, b in sides)
    wanted = {3: ("audit", None), 4: ("copy", None), 0: ("new", None)}
    assert [shown(one) for one in (author, audit, table, copy)] == [wanted] * 4


WAYS = ["cp pt tp pc", "cp tp pt pc", "tp cp pc pt", "pt cp tp pt pc"]


@pytest.mark.sample(1, verify=2)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_g4_rows_that_a_third_copy_deleted_or_replaced_stay_away(replaced, way):
    """The copy between them may have them once more above those of the other copy."""
    winners = set()
    for seed in range(6):  # which of two sides is the lower one depends on it
        t = keyed(properties={"user.seed": str(seed)})
        c = Table.open("", store=copied(t.store), clock=ManualClock(START_MS, 71 + seed))
        put(t, (1, "t", None), (2, "t", None))
        p = Table.open("", store=copied(t.store), clock=ManualClock(START_MS, 81))
        if replaced:
            overwrite(t, pa.Table.from_pylist([{"k": 3, "at": 0, "v": "new"}], SCHEMA))
        else:
            delete(t, keys=pa.table({"k": pa.array([2])}))
        put(c, (1, "c", None), (4, "c", None))
        copies = {"c": c, "p": p, "t": t}
        for source, target in way.split():
            replication.merge(copies[source], copies[target])
        for _ in range(8):  # what is left to commit are records of what both have
            pairs = ["cp", "pc", "pt", "tp"]
            done = [replication.merge(copies[a], copies[b]).commits for a, b in pairs]
        assert not any(done)
        found = [shown(copy) for copy in copies.values()]
        assert all(rows == found[0] for rows in found)
        assert 2 not in found[0]
        assert found[0][4] == ("c", None)
        winners.add(found[0][1][0])
        assert found[0].get(3) == (("new", None) if replaced else None)
        check_sound(p.store)
    assert winners == ({"c"} if replaced else {"c", "t"})


def told(sides, story):
    """Have copies do what a story says: "a x" upserts x for key 1, "a>b" merges a into b.

    A word in capitals is a unit of work. "a =x" overwrites the table, "a =" with no rows; "a 7"
    and "a =7" do so with another key. "a compact" and "a restore" (version 1) have no word.
    """
    for event in story.split(", "):
        if event.endswith("restore"):
            sides[event[0]].restore(1)
        elif event.endswith("compact"):
            merge_all(sides[event[0]])
        elif ">" in event:
            source, target = event.split(">")
            replication.merge(sides[source], sides[target])
        else:
            name, word = event.split()
            unit = {"app_id": word, "app_seq": 1} if word.isupper() else {}
            key = int(word.strip("=")) if word.strip("=").isdecimal() else 1
            given = pa.Table.from_pylist([{"k": key, "at": 0, "v": word, "w": None}], SCHEMA)
            write = overwrite if word.startswith("=") else upsert
            write(sides[name], given.slice(0, 0) if word == "=" else given, **unit)


@pytest.mark.sample(2)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize(
    ("story", "wanted"),
    [
        ("a early, a UNIT, b UNIT", "UNIT"),
        ("a early, b other, a UNIT, b UNIT", "UNIT"),
        ("a early, b other, a UNIT, b UNIT, b late", "late"),
        ("b UNIT, a early, a>b, a UNIT", "UNIT"),
    ],
)
def test_g4_what_a_unit_of_work_that_both_did_has_replaced_stays_replaced(story, wanted):
    for turn in (1, -1):
        table = keyed()
        put(table, (1, "old", None))
        one, two = cut_off(table)[::turn]
        told({"a": one, "b": two}, story)
        assert merged_both_ways(one, two, rounds=2) == {1: (wanted, None)}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize(
    "story", ["b new, a compact, a restore", "a compact, a restore, b new, b 7"]
)
def test_g4_a_restore_of_what_was_compacted_hides_no_newer_row(story):
    for turn in (1, -1):
        table = keyed()
        put(table, (1, "old", None))
        one, two = cut_off(table)[::turn]
        told({"a": one, "b": two}, story)
        assert merged_both_ways(one, two, rounds=2)[1] == ("new", None)


@pytest.mark.sample(2)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize(
    ("story", "wanted"),
    [
        ("a 5, b UNIT, a UNIT, b =new", {1: "=new", 5: "5"}),
        ("b 5, a UNIT, b UNIT, a restore", {1: "old", 5: "5"}),
        ("b 5, b =UNIT, a =UNIT, a 9", {1: "=UNIT", 9: "9"}),
        ("a 5, b 9, b =UNIT, a =UNIT", {1: "=UNIT"}),
        ("b =UNIT, b 5, a =UNIT", {1: "=UNIT", 5: "5"}),
        ("b UNIT, a 4, a UNIT, a>b, a =7", {7: "=7"}),
    ],
)
def test_g4_what_was_dropped_beside_a_unit_of_work_that_both_did_stays_away(story, wanted):
    for turn in (1, -1):
        table = keyed(buckets=1)
        put(table, (1, "old", None))
        one, two = cut_off(table)[::turn]
        told({"a": one, "b": two}, story)
        rows = merged_both_ways(one, two, rounds=2)
        assert {k: v for k, (v, _) in rows.items()} == wanted


@pytest.mark.hazard("G4")
def test_g4_an_overwrite_drops_rows_that_a_state_has_put_in_their_places():
    """The target compacted them, and then got another overwrite of the chunk, all at once."""
    one, other = cut_off(keyed(buckets=1))
    told({"o": other, "a": one}, "o 6, a 7")
    # Which log is the lower one depends on the names, which a merge notes.
    stores = {"a": one.store, "o": other.store, "b": one.store, "c": one.store}
    sides = {
        name: Table.open(
            "",
            store=copied(store, f"memory://placed-{name}"),
            clock=ManualClock(START_MS + 10**8 * n, 80 + n),
        )
        for n, (name, store) in enumerate(stores.items())
    }
    told(sides, "o>a, a>b, a>c")
    policy = compaction.Policy(target_bytes=4096, max_task_bytes=2**14, backoff_s=1)
    assert compaction.run(sides["b"], policy=policy).planned
    told(sides, "c =, o =o, o>a, a>b, c>b")
    assert {7, 6}.isdisjoint(shown(sides["b"]))


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", [5, 7])  # the order of the names of the origins depends on it
def test_g4_rows_above_a_unit_of_work_stay_above_what_another_merge_brought_of_it(seed):
    """Of three copies that did the unit two are merged by their states."""
    table = keyed(buckets=1, properties={"user.seed": str(seed)})
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    told(sides, "a 5, a UNIT, b UNIT, c UNIT, a>b, c late, c>b")
    assert shown(sides["b"])[1][0] == "late"


@pytest.mark.hazard("G4")
def test_g4_units_of_work_in_two_orders_come_out_alike():
    for turn in (1, -1):
        table = keyed()
        put(table, (1, "old", None))
        one, two = cut_off(table)[::turn]
        told({"a": one, "b": two}, "a FIRST, a SECOND, b SECOND, b FIRST")
        assert merged_both_ways(one, two, rounds=2)[1][0] in {"FIRST", "SECOND"}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", [1, 3])  # the order of the names of the origins depends on it
def test_g4_what_one_copy_had_before_a_unit_of_work_is_not_repeated_above_it_by_a_third(seed):
    table = keyed(properties={"user.seed": str(seed)})
    put(table, (1, "old", None))
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    told(sides, "c early, c>b, a UNIT, c UNIT, a>b, b>c, c>b, b>a, a>b, b>c")
    assert [shown(side)[1][0] for side in sides.values()] == ["UNIT"] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", [3, 5])  # the order of the names of the origins depends on it
def test_g4_rows_above_a_unit_of_work_stay_above_what_three_copies_did_of_it(seed):
    table = keyed(properties={"user.seed": str(seed)})
    put(table, (1, "old", None))
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    told(sides, "b y, c x, b UNIT, c UNIT, c>b, a early, a UNIT, a new, a>b, b>a, b>c, c>b, b>a")
    assert [shown(side)[1][0] for side in sides.values()] == ["new"] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("turn", [1, -1])
def test_g4_what_an_overwrite_that_both_did_dropped_is_not_repeated(turn):
    """Its rows lie in other buckets than those that it dropped."""
    table = keyed()
    put(table, (1, "old", None))
    one, two = cut_off(table)[::turn]
    put(two, (5, "early", None))
    told({"a": one, "b": two}, "b =UNIT, a =UNIT")
    put(one, (5, "new", None))
    assert merged_both_ways(one, two, rounds=2) == {1: ("=UNIT", None), 5: ("new", None)}


def test_a_branch_of_a_keyed_table_is_published_in_one_version():
    table = keyed()
    put(table, (1, "old", None), (2, "old", None))
    b = table.branch("audit")
    put(b, (1, "new", None))
    delete(b, keys=pa.table({"k": pa.array([2])}))
    put(table, (3, "beside", None))
    before = table.refresh().version
    table.merge(b)
    assert table.refresh().version == before + 1
    assert shown(table) == {1: ("new", None), 3: ("beside", None)}
    assert table.merge(b).commits == 0


@pytest.mark.parametrize(
    ("properties", "ties"),
    [
        ({}, "repeat"),
        ({"merge": "partial"}, "repeat"),
        ({"merge": "first"}, "refuse"),
        ({"merge": "aggregate"}, "refuse"),
        ({"merge": "aggregate", "merge.v": "max", "merge.w": "min"}, "refuse"),
        ({"merge": "aggregate", "merge.v": "max", "merge.w": "min", "merge.at": "max"}, "none"),
    ],
)
def test_what_depends_on_the_order(properties, ties):
    head = keyed(properties=properties).session.head()
    assert ties_of(head.merge_rule) == ties


@pytest.mark.hazard("G4")
def test_g4_a_delete_that_found_nothing_is_done_in_both():
    """Its program tries it again at the other copy."""
    one, two = cut_off(keyed())
    unit = {"where": "k = 7", "app_id": "job", "app_seq": 1}
    delete(one, **unit)
    put(two, (5, "early", None))
    replication.merge(one, two)
    put(two, (7, "late", None))
    delete(two, **unit)
    assert merged_both_ways(one, two) == {5: ("early", None), 7: ("late", None)}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(6))  # the order of the names of the origins depends on it
def test_g4_what_a_restore_brings_back_stays_where_others_have_the_undone_unit(seed):
    table = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(table, (1, "old", None))
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    told(sides, "b 5, c 6, a =UNIT, a>b, a restore, a>b, a>c, b>c, c>b, c>a, a>b, b>a, a>c")
    wanted = {1: ("old", None), 5: ("5", None), 6: ("6", None)}
    assert [shown(side) for side in sides.values()] == [wanted] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(8))  # the order of the names of the origins depends on it
def test_g4_copies_that_agree_agree_still_when_the_ring_is_closed(seed):
    """The row was written beside a unit of work that two of three copies did."""
    table = keyed(buckets=1, properties={"user.seed": str(seed)})
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    told(sides, "b beside, a UNIT, c UNIT, c>a, a>b, a>c, b>a, c>a, a>b, a>c, b>a")
    agreed = [shown(side) for side in sides.values()]
    told(sides, "c>b, b>a, b>c, a>c")
    assert [shown(side) for side in sides.values()] == agreed == [agreed[0]] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(3))  # the order of the names of the origins depends on it
def test_g4_what_a_restore_brings_back_above_a_union_with_a_unit_of_work_stays(seed):
    """The unit came from a branch, all at once; a third copy did it, too."""
    table = keyed(buckets=1, properties={"merge": "first", "user.seed": str(seed)})
    put(table, (1, "old", None))
    a, b = cut_off(table)
    c = b.branch("c")
    told({"a": a, "c": c}, "c 3, a 2")
    unit = {"app_id": "job", "app_seq": 1, "missing": "null"}
    new = pa.Table.from_pylist([{"k": 5, "at": 0, "v": "new", "w": None}], SCHEMA)
    overwrite(c, new, **unit)
    told({"a": a, "b": b, "c": c}, "a>c, c>b, b restore")
    overwrite(a, new, **unit)
    told({"a": a, "b": b, "c": c}, "a>b, b>a, a>b")
    assert shown(b)[1] == ("old", None)
    assert shown(a) == shown(b)


def third_copy(table, seed=200):
    return Table.open("", store=copied(table.store), clock=ManualClock(START_MS + 10**8, seed))


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("unit", [{}, {"app_id": "job", "app_seq": 1}], ids=["", "unit"])
def test_g4_an_overwrite_is_not_passed_over_where_a_union_brought_compacted_rows(unit):
    table = keyed()
    put(table, (1, "old", None))
    put(table, (1, "new", None))
    a, c = cut_off(table)
    b = a.branch("b")
    merge_all(a)
    version = a.refresh().version
    put(a, (2, "late", None))
    a.restore(version)
    overwrite(c, SCHEMA.empty_table(), **unit)
    replication.merge(a, b)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        replication.merge(c, b)
    assert shown(b) == {1: ("new", None)}
    replication.merge(c, b, take="source")
    assert shown(b) == {}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("take", ["source", "target"])
def test_g4_a_unit_of_work_that_the_chosen_log_did_itself_is_done(take):
    """What is left out is the same unit, as another copy did it."""
    unit = {"app_id": "job", "app_seq": 1}
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("n", pa.int64())])
    a = create(
        schema=schema, key="k", buckets=1, properties={"merge": "aggregate", "merge.n": "sum"}
    )

    def add(table, n, **unit):
        upsert(table, pa.Table.from_pylist([{"k": 1, "at": 0, "n": n}], schema), **unit)

    b = third_copy(a)
    add(b, 100, **unit)
    add(a, 1)
    c = third_copy(a, 201)
    add(a, 10)
    add(a, 100, **unit)
    replication.merge(c, b)
    replication.merge(b, c)
    with pytest.raises(errors.CommitConflict, match="--take"):
        replication.merge(a, c)
    replication.merge(a, c, take=take)
    replication.merge(c, a)
    for table in (a, c):
        add(table, 100, **unit)
        total = 111 if take == "source" else 101
        assert scan(table, ["n"]).to_table().to_pylist() == [{"n": total}]


@pytest.mark.sample(4, verify=8)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize("rule", ["last", "first"])
@pytest.mark.parametrize("unit", [{}, {"app_id": "job", "app_seq": 1}], ids=["", "unit"])
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_what_came_at_once_with_what_dropped_it_stays_away(rule, unit, seed):
    table = keyed(properties={"merge": rule, "user.seed": str(seed)})
    put(table, (2, "old", None))
    a, b = cut_off(table)
    overwrite(a, SCHEMA.empty_table(), **unit)
    c, d = third_copy(a), third_copy(a, 201)
    sides = {"a": a, "b": b, "c": c, "d": d}
    told(sides, "d 7, b 1, b>a")
    overwrite(b, SCHEMA.empty_table(), **unit)
    told(sides, "b>c, c>d, a>c, a>d")
    assert (shown(c), shown(d)) == ({}, {7: ("7", None)})
    told(sides, "c>a, d>b, d>c, d>a")
    assert [shown(side) for side in sides.values()] == [{7: ("7", None)}] * 4


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", [2, 3, 4])  # the order of the names of the origins depends on it
def test_g4_rows_that_came_at_once_with_a_unit_of_work_and_its_restore_are_not_lost(seed):
    """Nothing tells whether the copy that did the unit, too, had dropped the row by it."""
    table = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(table, (1, "old", None))
    b = table.branch("b")
    a, c = cut_off(table)
    version = c.session.head().version
    unit = {"app_id": "job", "app_seq": 1}
    row = pa.Table.from_pylist([{"k": 1, "at": 0, "v": "new", "w": None}], SCHEMA)
    overwrite(c, row, **unit)
    c.restore(version)
    overwrite(a, row, **unit)
    replication.merge(c, b)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        replication.merge(b, a)
    replication.merge(b, a, take="source")
    replication.merge(a, c)
    replication.merge(c, a)
    assert [shown(side) for side in (a, b, c)] == [{1: ("old", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(2))  # the order of the names of the origins depends on it
def test_g4_a_unit_of_work_is_not_lost_where_another_copys_doing_of_it_was_left_out(seed):
    properties = {"merge": "aggregate", "merge.v": "first", "user.seed": str(seed)}
    a = keyed(buckets=1, properties=properties)
    b, c = third_copy(a), a.branch("c")
    unit = {"app_id": "job", "app_seq": 1}

    def replace(table, v, **unit):
        overwrite(
            table, pa.Table.from_pylist([{"k": 1, "at": 0, "v": v, "w": None}], SCHEMA), **unit
        )

    replace(a, "thirty")
    replace(b, "fifty", **unit)
    replication.merge(b, c)
    replication.merge(a, b, take="source")
    replace(a, "fifty", **unit)
    replication.merge(a, c)
    with pytest.raises(errors.CommitConflict, match="--take"):
        replication.merge(b, c)
    replication.merge(c, a)
    assert shown(a) == shown(c) == {1: ("fifty", None)}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", [4, 5, 6])  # the order of the names of the origins depends on it
def test_g4_copies_that_agree_are_left_as_they_are(seed):
    """A delete was undone at one, two did a unit of work, somebody chose a state without it."""
    table = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(table, (1, "old", None))
    sides = dict(zip("abc", cut_off(table, 3), strict=True))
    a, version = sides["a"], table.session.head().version
    delete(a, keys=pa.table({"k": [1]}))
    told(sides, "b UNIT")
    a.restore(version)
    told(sides, "c word")
    replication.merge(sides["c"], sides["b"], take="target")
    told(sides, "c UNIT, a>c, a>b, b>a")
    replication.merge(sides["c"], a, take="target")
    told(sides, ", ".join(["a>c, a>b, a>c, c>a, b>a"] * 3))
    agreed = [shown(side) for side in sides.values()]
    told(sides, "b>c, c>a, a>b, a>c")
    assert [shown(side) for side in sides.values()] == agreed == [agreed[0]] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_an_overwrite_replaces_a_unit_of_work_that_came_elsewhere_in_a_union(seed):
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("n", pa.int64())])
    properties = {"merge": "aggregate", "merge.n": "sum", "user.seed": str(seed)}
    a = create(schema=schema, key="k", buckets=1, properties=properties)
    b, c = a.branch("b"), third_copy(a)
    unit = {"app_id": "job", "app_seq": 1}

    def rows(n):
        return pa.Table.from_pylist([{"k": 1, "at": 0, "n": n}], schema)

    version = b.session.head().version
    upsert(b, rows(64))
    upsert(c, rows(250), **unit)
    b.restore(version)
    upsert(b, rows(250), **unit)
    ways = [(b, a), (a, b), (c, a), (a, c), (b, a), (a, b), (c, b), (b, c)]
    for source, target in ways * 2:
        replication.merge(source, target)
    overwrite(c, rows(7))
    for source, target in ways * 2:
        replication.merge(source, target)
    for side in (a, b, c):
        assert scan(side.refresh() and side, ["n"]).to_table().to_pylist() == [{"n": 7}]


@pytest.mark.hazard("G4")
def test_g4_a_chosen_state_stays_where_the_unit_that_it_left_out_was_done_too():
    a = keyed(buckets=1)
    put(a, (1, "old", None))
    version = a.session.head().version
    put(a, (1, "new", None))
    b, c = third_copy(a), a.branch("c")
    before = b.session.head().version
    unit = {"app_id": "job", "app_seq": 1}
    b.restore(version)
    overwrite(c, SCHEMA.empty_table(), **unit)
    replication.merge(b, a)
    b.restore(before)
    overwrite(a, SCHEMA.empty_table(), **unit)
    replication.merge(a, c)
    replication.merge(b, c, take="source")
    replication.merge(c, a)
    assert shown(a) == shown(b) == shown(c) == {1: ("new", None)}


@pytest.mark.hazard("G4")
def test_g4_equal_rows_that_two_copies_wrote_count_twice():
    """Their objects are the same, byte by byte; both copies have the rows of a third one."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("n", pa.int64())])
    a = create(
        schema=schema, key="k", buckets=1, properties={"merge": "aggregate", "merge.n": "sum"}
    )
    b, c = third_copy(a), third_copy(a, 201)
    for table, n in ((a, 5), (b, 5), (c, 64)):
        upsert(table, pa.Table.from_pylist([{"k": 1, "at": 0, "n": n}], schema))
    for source, target in ((c, a), (c, b), (a, b), (b, a)):
        replication.merge(source, target)
    for table in (a, b):
        assert scan(table.refresh() and table, ["n"]).to_table().to_pylist() == [{"n": 74}]


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_a_row_that_is_repeated_beside_a_unit_of_work_is_not_dropped_with_that(seed):
    """A copy got the unit from a second one; a third one did it, too, and overwrote it."""
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    b, c = third_copy(a), third_copy(a, 300)
    put(b, (1, "own", None))
    for copy in (c, a):
        overwrite(copy, UNIT_ROW, **UNIT)
    overwrite(c, SCHEMA.empty_table())
    merge_in_turn((a, b), (c, b), (b, a), (b, c), (c, a))
    assert [shown(copy) for copy in (a, b, c)] == [{1: ("own", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("rule", ["last", "first"])
def test_g4_what_a_branch_restored_is_not_dropped_by_another_doing_of_the_unit(rule):
    a = keyed(buckets=1, properties={"merge": rule})
    put(a, (1, "old", None))
    b, c = a.branch("b"), a.branch("c")
    as_units(b, a)
    replication.merge(b, c)
    c.restore(c.session.head().version - 1)
    merge_in_turn((c, a), (b, a), (a, b), (a, c))
    assert [shown(side) for side in (a, b, c)] == [{1: ("old", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_a_unit_of_work_that_came_in_a_union_is_replaced_by_a_later_overwrite(seed):
    a = keyed(buckets=1, properties={"merge": "aggregate", "user.seed": str(seed)})
    b, c = a.branch("b"), third_copy(a)
    put(a, (1, "early", None))
    a.restore(a.session.head().version - 1)
    as_units(b, a)
    merge_in_turn((a, b), (b, a), (b, c), (c, a), (a, b), (b, c))
    replace_all(c, 2, "new")
    merge_in_turn((c, b), (c, a), (a, b))
    assert [shown(side) for side in (a, b, c)] == [{2: ("new", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_a_unit_of_work_that_was_overwritten_does_not_come_back_where_it_is_forgotten(seed):
    """A choice forgets it: it leaves out all that its log had of the unit."""
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(a, (1, "old", None))
    b, c = third_copy(a), third_copy(a, 300)
    upsert(c, UNIT_ROW, **UNIT)
    replace_all(c, 1, "new")
    b.restore(b.session.head().version - 1)
    upsert(a, UNIT_ROW, **UNIT)
    replication.merge(c, a)
    replication.merge(b, c, take="source")
    with pytest.raises(errors.CommitConflict, match="which of the two counts"):
        replication.merge(c, a)  # it did the unit by itself
    replication.merge(c, a, take="source")
    assert (shown(c), shown(a)) == ({}, {})


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_forgotten_units_are_loaded_again_in_another_order_on_the_other_side(seed):
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    b = third_copy(a)
    version = a.session.head().version
    put(b, (2, "b", None))
    other = pa.Table.from_pylist([{"k": 1, "at": 0, "v": "other"}], SCHEMA)
    upsert(a, UNIT_ROW, **UNIT)
    upsert(a, other, app_id="other", app_seq=1)
    a.restore(version, forget_units=True)
    merge_in_turn((a, b), (b, a))
    upsert(b, other, app_id="other", app_seq=1)
    upsert(b, UNIT_ROW, **UNIT)
    merge_in_turn((b, a), (a, b))
    assert [shown(side) for side in (a, b)] == [{1: ("unit", None), 2: ("b", None)}] * 2


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_what_a_unit_of_work_replaced_in_a_union_is_replaced_along_a_tree(seed):
    """The first copy gets the unit from the third one, which had nothing that it replaced."""
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    b = third_copy(a)
    c = b.branch("c")
    put(a, (2, "early", None))
    as_units(c)
    replication.merge(a, b)
    as_units(b)
    merge_in_turn((c, a), (c, b), (b, c), (a, c), (c, a), (c, b))
    assert [shown(side) for side in (a, b, c)] == [{1: ("unit", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("rule", [{}, {"merge": "aggregate", "merge.v": "max", "merge.w": "max"}])
def test_g4_rows_that_their_unit_of_work_replaced_stay_away_where_a_choice_brought_it(rule):
    a = keyed(buckets=1, properties=rule)
    put(a, (1, "old", None))
    b, c = third_copy(a), third_copy(a, 300)
    put(a, (2, "early", None))
    as_units(a, c)
    overwrite(b, SCHEMA.empty_table())
    replication.merge(c, b, take="source")
    merge_in_turn((b, c), (a, b), (b, c), (b, a))
    assert [shown(side) for side in (a, b, c)] == [{1: ("unit", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_a_row_from_before_a_branch_that_a_union_brought_back_is_overwritten(seed):
    """It was compacted with a row that another copy had dropped."""
    a = keyed(properties={"user.seed": str(seed)})
    put(a, (1, "old", None))
    c = third_copy(a)
    put(a, (2, "early", None))
    merge_all(a)
    overwrite(c, SCHEMA.empty_table())
    b = a.branch("b")
    replace_all(a, 3, "new")
    replication.merge(c, b)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        replication.merge(a, b)
    replication.merge(a, b, take="source")
    merge_in_turn((b, a), (b, c), (c, a))
    assert [shown(side) for side in (a, b, c)] == [{3: ("new", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(4))  # the order of the names of the origins depends on it
def test_g4_a_row_that_a_union_put_elsewhere_is_not_repeated_once_it_is_overwritten(seed):
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(a, (1, "old", None))
    b, d = third_copy(a), third_copy(a, 300)
    put(b, (1, "own", None))
    d.restore(d.session.head().version - 1)
    replication.merge(d, b)
    overwrite(b, SCHEMA.empty_table())
    put(a, (1, "new", None))
    merge_in_turn((a, b), (b, a), (b, d))
    assert [shown(side) for side in (a, b, d)] == [{1: ("new", None)}] * 3


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(6))  # the order of the names of the origins depends on it
def test_g4_copies_that_got_a_unit_of_work_from_different_ones_are_left_as_they_are(seed):
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    put(a, (1, "old", None))
    b, c = third_copy(a), third_copy(a, 300)
    put(a, (1, "new", None))
    d = third_copy(a, 400)
    for side in (b, c):
        upsert(side, UNIT_ROW, **UNIT)
    sides = [a, b, c, d]
    along_a_tree = (a, b), (b, a), (b, d), (d, b), (d, c), (c, d)
    with suppress(errors.CommitConflict):  # of some orders
        for source, target in ((d, b), (c, d), (b, a), (d, c), *along_a_tree):
            replication.merge(source, target)
    before = [shown(side) for side in sides]
    with suppress(errors.CommitConflict):
        for source, target in ((a, c), (c, b), (d, a)) if before == before[:1] * 4 else ():
            replication.merge(source, target)
    assert before == [shown(side) for side in sides]


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", range(6))  # the order of the names of the origins depends on it
def test_g4_a_choice_that_changes_nothing_is_taken_over(seed):
    """Of two copies each has the same rows in another order, and one keeps its own."""
    a = keyed(buckets=1, properties={"user.seed": str(seed)})
    b, c, d = third_copy(a), a.branch("c"), third_copy(a, 300)
    replace_all(b, 1, "own")
    upsert(c, UNIT_ROW, **UNIT)
    replication.merge(b, d)
    replication.merge(b, c)
    upsert(a, UNIT_ROW, **UNIT)
    replication.merge(a, d)
    replication.merge(c, d, take="target")
    replication.merge(d, c)
    assert shown(c) == shown(d)


@pytest.mark.hazard("G4")
def test_g4_a_restore_puts_rows_where_they_were_before_a_union():
    """The union brings back a segment that its log has merged with others meanwhile."""
    table = keyed()
    put(table, (1, "common", None))
    a, b = cut_off(table)
    for n in range(4):
        put(b, (2, f"b{n}", None))
    merge_all(b)
    put(a, (3, "a", None))
    replication.merge(a, b)
    before, wanted = b.refresh().version, shown(b)
    assert wanted.keys() == {1, 2, 3}
    for n in range(4):
        put(b, (5, f"b{n}", None))
    merge_all(b)
    back = a.refresh().version
    put(a, (9, "a", None))
    a.restore(back)
    replication.merge(a, b)
    b.restore(before)
    assert shown(b) == wanted
    replication.merge(b, a)
    assert shown(a) == wanted
