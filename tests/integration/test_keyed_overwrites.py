"""Overwrites of keyed tables from a version that is not the newest.

Their rows take their place at the version that they were computed from, so what arrived since lies
above them: the table is as if the overwrite had come first.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from support.forked_histories import copied

from eventlog import Table, errors, replication
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run
from eventlog.fsck.check import fsck
from eventlog.readers import changes, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, overwrite, upsert

AT = datetime(2013, 1, 7, tzinfo=UTC)
DAY = timedelta(days=1)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("seq", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.int64()),
    ]
)
SUMS = {"merge": "aggregate", "merge.v": "sum", "merge.w": "max"}
GROUPS = {"merge": "partial", "merge.group.w": "v"}
RULES = [
    ({}, None),
    ({}, "seq"),
    ({"merge": "first"}, None),
    ({"merge": "first"}, "seq"),
    ({"merge": "partial"}, None),
    ({"merge": "partial"}, "seq"),
    (GROUPS, "seq"),
    (SUMS, "seq"),
]
ALL = Policy(min_gain=0.0)


def create(properties=None, order=None, **options):
    return Table.create(
        "memory://t",
        SCHEMA,
        time_column="at",
        key="id",
        order_by=order,
        buckets=2,
        store=MemoryStore(),
        clock=ManualClock(1_700_000_000_000),
        properties=properties or {},
        **options,
    )


def rows(*some, day=0):
    """Rows of (id, seq, v, w)."""
    columns = zip(*some, strict=True) if some else ([], [], [], [])
    ids, seqs, vs, ws = (list(column) for column in columns)
    days = [AT + day * DAY] * len(ids)
    return pa.table([ids, days, seqs, vs, ws], schema=SCHEMA)


def held(t, version=None):
    found = scan(t, version=version).to_table().to_pylist()
    return sorted((r["id"], r["seq"], r["v"], r["w"]) for r in found)


def begin(t):
    upsert(t, rows((1, 1, 10, 1), (2, 1, 20, 1), (3, 1, 30, 1)))
    upsert(t, rows((4, 1, 40, 1)))
    return t.session.head().version


def corrected():
    return rows((1, 2, 11, 2), (2, 2, 21, 2), (4, 2, 41, 2), (6, 2, 61, 2))


def arrive(t, *, deletes):
    upsert(t, rows((1, 3, 12, None), (5, 1, 50, 1)))
    upsert(t, rows((2, 1, None, 9)))  # late, and without a value
    if deletes:
        delete(t, keys=pa.table({"id": [4, 6]}))
        upsert(t, rows((6, 1, 62, 1)))


@pytest.mark.sample(6, verify=8)
@pytest.mark.parametrize(("properties", "order"), RULES)
@pytest.mark.parametrize("between", ["nothing", "split", "compaction"])
def test_what_arrived_since_lies_above_it(properties, order, between):
    deletes = properties != SUMS
    expected = create(properties, order)
    begin(expected)
    overwrite(expected, corrected())
    arrive(expected, deletes=deletes)

    t = create(properties, order)
    seen = begin(t)
    arrive(t, deletes=deletes)
    if between == "split":
        t.set_buckets(4)
    before = t.session.head().version
    overwrite(t, corrected(), read_version=seen)
    assert held(t) == held(expected)
    done = t.session.head().version
    if between == "compaction":
        run(t, policy=ALL)
        assert held(t) == held(expected)
        assert {s.slice.level > 0 for s in t.snapshot().segments()} == {True}
    assert fsck(t, keys=True).errors == 0

    told = changes(t, before, done).to_table().to_pylist()
    gone = {r["id"] for r in told if r["_change"] in ("delete", "update_before")}
    after = [r for r in told if r["_change"] in ("insert", "update_after")]
    new = {(r["id"], r["seq"], r["v"], r["w"]) for r in after}
    kept = {row for row in held(t, before) if row[0] not in gone}
    assert sorted(kept | new) == held(t, done)

    for table in (t, expected):
        upsert(table, rows((1, 1, 1, 3), (4, 5, None, 3)))
    assert held(t) == held(expected)


@pytest.mark.parametrize("order", [None, "seq"])
def test_a_chunk_that_was_empty_is_filled_below_what_arrived(order):
    t = create({}, order, granularity="day")
    seen = begin(t)
    upsert(t, rows((7, 9, 70, 1), day=1))
    delete(t, keys=pa.table({"id": [8], "at": [AT + DAY]}))
    before = t.session.head().version
    news = rows((7, 2, 71, 2), (8, 2, 81, 2), (9, 2, 91, 2), day=1)
    overwrite(t, news, start=AT + DAY, end=AT + 2 * DAY, read_version=seen)
    wanted = [(7, 9, 70, 1), (9, 2, 91, 2)]
    assert [row for row in held(t) if row[0] > 4] == wanted
    told = changes(t, before).to_table().to_pylist()
    assert [(r["_change"], r["id"]) for r in told] == [("insert", 9)]
    run(t, policy=ALL)
    assert [row for row in held(t) if row[0] > 4] == wanted


def test_a_barrier_that_a_compaction_has_merged_away_is_a_conflict():
    t = create(granularity="day")
    seen = begin(t)
    upsert(t, rows((7, 1, 70, 1), day=1))
    delete(t, keys=pa.table({"id": [8], "at": [AT + DAY]}))
    run(t, policy=ALL)
    news = rows((8, 2, 81, 2), day=1)
    span = {"start": AT + DAY, "end": AT + 2 * DAY}
    with pytest.raises(errors.CommitConflict, match=r"arrived.*a compaction has merged"):
        overwrite(t, news, **span, read_version=seen)
    overwrite(t, news, **span, read_version=t.session.head().version)
    assert [row for row in held(t) if row[0] > 4] == [(8, 2, 81, 2)]


@pytest.mark.parametrize("verb", ["restore", "overwrite", "compaction"])
def test_rows_that_are_not_what_they_were_are_a_conflict(verb):
    t = create()
    seen = begin(t)
    upsert(t, rows((5, 1, 50, 1)))
    if verb == "restore":
        t.restore(seen - 1)
    elif verb == "overwrite":
        overwrite(t, rows((1, 1, 1, 1)))
    else:
        run(t, policy=ALL)
    before = held(t)
    with pytest.raises(errors.CommitConflict):
        overwrite(t, corrected(), read_version=seen)
    assert held(t) == before


def test_what_a_restore_brought_back_is_a_conflict_in_a_chunk_that_was_empty():
    t = create(granularity="day")
    upsert(t, rows((7, 1, 70, 1), day=1))
    span = {"start": AT + DAY, "end": AT + 2 * DAY}
    overwrite(t, rows(), **span)
    seen = t.session.head().version
    t.restore(1)
    with pytest.raises(errors.CommitConflict, match="not live at version 2"):
        overwrite(t, rows((8, 2, 81, 2), day=1), **span, read_version=seen)
    assert held(t) == [(7, 1, 70, 1)]


def test_a_delete_in_an_overwrite_is_as_old_as_its_commit():
    t = create({"tombstone_hours": "2"}, "seq")
    seen = begin(t)
    for hours in (3, 3):
        t.clock.advance(hours * 3_600_000)
        upsert(t, rows((3, 1, 31, 1)))
    gone = corrected().append_column("_op", pa.array(["u", "d", "u", "u"]))
    overwrite(t, gone, read_version=seen)
    upsert(t, rows((5, 1, 50, 1)))
    run(t, policy=ALL)
    upsert(t, rows((2, 1, 22, 1)))  # older than the delete, and in time
    assert 2 not in {row[0] for row in held(t)}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("seed", [7, 8, 9])
@pytest.mark.hazard("G4")
def test_a_merge_keeps_what_arrived_above_the_rows_of_an_overwrite(seed, early):
    t = create()
    seen = begin(t)
    if early:
        upsert(t, rows((1, 3, 12, 1)))
    copy = Table.open("", store=copied(t.store), clock=ManualClock(1_700_000_000_000, seed))
    upsert(copy, rows((9, 1, 90, 1)))
    if not early:
        upsert(t, rows((1, 3, 12, 1)))
    overwrite(t, corrected(), read_version=seen)
    wanted = sorted([*held(t), (9, 1, 90, 1)])
    assert (1, 3, 12, 1) in wanted
    replication.merge(t, copy)
    replication.merge(copy, t)
    assert sorted(held(t)) == sorted(held(copy)) == wanted
    replication.merge(t, copy)  # may record that nothing is left
    assert not replication.merge(copy, t).commits
    assert not replication.merge(t, copy).commits


def test_a_merge_carries_an_overwrite_of_the_newest_rows():
    t = create({}, "seq")
    begin(t)
    copy = Table.open("", store=copied(t.store), clock=ManualClock(1_700_000_000_000, 7))
    upsert(copy, rows((9, 1, 90, 1)))
    upsert(t, rows((1, 3, 12, 1)))
    overwrite(t, rows((1, 3, 13, 1)))
    replication.merge(t, copy)
    replication.merge(copy, t)
    assert held(t) == held(copy) == [(1, 3, 13, 1), (9, 1, 90, 1)]
