"""`changes` of rows that were deleted or updated by their positions, in tables without a key."""

import random
from datetime import UTC, datetime, timedelta
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from support.builders import commit
from support.deleting import delete_rows, staged_deletes
from support.replacements import recipe
from support.updating import update_rows

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.commit.proposal import propose
from eventlog.compaction import execute
from eventlog.format import keys
from eventlog.model.actions import Update
from eventlog.readers import changes
from eventlog.staging.stager import Stager
from eventlog.state import fold
from eventlog.state.delta import add_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, update

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = compaction.Policy(target_bytes=2**20)


def table_of(store=None, **options):
    store = MemoryStore() if store is None else store
    clock = ManualClock(1_700_000_000_000, 1)
    return Table.create(store.uri, SCHEMA, store=store, clock=clock, time_column="at", **options)


def arrow(values, *, first=0, days=0):
    rows = [{"id": n, "at": NOON + days * DAY, "v": value} for n, value in enumerate(values, first)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def only(table):
    (segment,) = table.refresh().segments()
    return segment


def told(found, columns=("id", "v", "_change", "_version")):
    return [tuple(row[c] for c in columns) for row in found.to_table().to_pylist()]


def capitals(rows):
    return rows.set_column(2, "v", pc.utf8_upper(rows.column("v")))


def test_each_delete_has_the_rows_that_it_deleted():
    table = table_of()
    append(table, arrow("abcde"))
    segment = only(table)
    delete_rows(table, {segment.id: [3, 1]})
    delete_rows(table, {segment.id: [0]})
    assert told(changes(table, 1)) == [
        (1, "b", "delete", 2),
        (3, "d", "delete", 2),
        (0, "a", "delete", 3),
    ]
    delete(table, where="id >= 0")  # drops the segment, of which two rows are left
    assert told(changes(table, 3)) == [(2, "c", "delete", 4), (4, "e", "delete", 4)]
    assert told(changes(table, 0, 1)) == [(n, v, "insert", 1) for n, v in enumerate("abcde")]


def test_deleted_rows_are_read_by_columns_filters_and_without_columns():
    table = table_of()
    append(table, arrow("abcde"))
    delete_rows(table, {only(table).id: [0, 1, 4]})
    assert told(changes(table, 1, where="id > 0"), ["v"]) == [("b",), ("e",)]
    assert told(changes(table, 1, columns=["v"]), ["v"]) == [("a",), ("b",), ("e",)]
    assert changes(table, 1, columns=[]).to_table().column("_change").to_pylist() == ["delete"] * 3
    large = "id IN (" + ", ".join(map(str, range(1, 3000))) + ")"
    assert told(changes(table, 1, where=large), ["v"]) == [("b",), ("e",)]


def test_only_the_parts_with_deleted_rows_are_read():
    store = CountingStore(MemoryStore())
    table = table_of(store)
    count = 400_000
    chance = random.Random(1)
    at = pa.repeat(pa.scalar(NOON, SCHEMA.field("at").type), count)
    values = [chance.randbytes(4).hex() for _ in range(count)]
    append(table, pa.table([range(count), at, values], schema=SCHEMA))
    segment = only(table)
    delete_rows(table, {segment.id: [count - 1]})
    with store.measure() as counts:
        assert told(changes(table, 1)) == [(count - 1, values[-1], "delete", 2)]
    assert counts.bytes_read < segment.bytes / 2


def test_compaction_of_segments_with_deleted_rows_changes_nothing():
    table = table_of()
    append(table, arrow("abc"))
    append(table, arrow("de", first=3))
    (first,) = (s for s in table.refresh().segments() if s.version == 1)
    delete_rows(table, {first.id: [1]})
    made = execute.rewrite

    def rewrite(*args, **options):
        result = made(*args, **options)
        delete(Table.open(table.uri, store=table.store), where="v = 'd'")
        return result

    with mock.patch.object(execute, "rewrite", rewrite):
        compaction.run(table, policy=POLICY)
    assert only(table).live_rows == 3
    assert only(table).rows == 4  # its vector has the row that was deleted meanwhile
    assert told(changes(table, 3)) == [(3, "d", "delete", 4)]


def test_added_segments_have_only_live_rows():
    table = table_of()
    table.set_properties({"inline_bytes": "0"})
    append(table, arrow("abc"))
    segment = only(table)
    (deleted,) = staged_deletes(table, {segment.id: [1]})
    table.drop_segments([segment], reason="a test")
    commit(table, structs.replace(add_of(segment), vector=deleted.vector))
    append(table, arrow("d", first=3))
    assert told(changes(table, 3)) == [
        (0, "a", "insert", 4),
        (2, "c", "insert", 4),
        (3, "d", "insert", 5),
    ]


def test_a_paired_update_has_the_old_and_the_new_form_of_each_row():
    table = table_of()
    append(table, arrow("abC"))
    append(table, arrow("de", first=3))
    first, second = sorted(table.refresh().segments(), key=lambda s: s.version)
    update_rows(table, {first.id: [1, 2], second.id: [0]}, capitals)
    wanted = [
        (1, "b", "update_before", 3),
        (1, "B", "update_after", 3),
        (3, "d", "update_before", 3),
        (3, "D", "update_after", 3),
    ]
    assert told(changes(table, 2)) == wanted  # the value of C stays
    # A row that the filter selects in one form only has that one.
    assert told(changes(table, 2, where="v = 'b' OR v = 'D'")) == [wanted[0], wanted[3]]
    # Without the column that changed there is no change.
    assert not changes(table, 2, columns=["id", "at"]).to_table().num_rows
    assert not changes(table, 2, columns=[]).to_table().num_rows
    assert told(changes(table, 2, columns=["v"], where="id = 3"), ["v", "_change"]) == [
        ("d", "update_before"),
        ("D", "update_after"),
    ]


def test_the_verb_update_has_the_old_and_the_new_form_of_each_row():
    table = table_of()
    append(table, arrow("aBc"))
    append(table, arrow("de", first=3, days=1))
    update(table, {"v": "upper(v)"}, "id <> 2")
    assert told(changes(table, 2)) == [
        (0, "a", "update_before", 3),
        (0, "A", "update_after", 3),
        (3, "d", "update_before", 3),
        (3, "D", "update_after", 3),
        (4, "e", "update_before", 3),
        (4, "E", "update_after", 3),
    ]


def test_a_second_update_of_a_segment_has_its_own_pairs_only():
    table = table_of()
    append(table, arrow("abcd"))
    segment = only(table)
    update_rows(table, {segment.id: [0, 2]}, capitals)
    update_rows(table, {segment.id: [1]}, capitals)
    assert told(changes(table, 2)) == [
        (1, "b", "update_before", 3),
        (1, "B", "update_after", 3),
    ]


def test_an_update_of_whole_segments_is_paired_too():
    table = table_of()
    append(table, arrow("a"))
    append(table, arrow("b", first=1))
    update_rows(table, {s.id: [0] for s in table.refresh().segments()}, capitals)
    assert len(table.refresh().segments()) == 1
    assert told(changes(table, 2)) == [
        (0, "a", "update_before", 3),
        (0, "A", "update_after", 3),
        (1, "b", "update_before", 3),
        (1, "B", "update_after", 3),
    ]


def test_an_update_that_pairs_no_rows_deletes_and_inserts():
    table = table_of()
    append(table, arrow("abc"))
    update_rows(table, {only(table).id: [1, 0]}, capitals, paired=False)
    assert told(changes(table, 1)) == [
        (0, "a", "delete", 2),
        (1, "b", "delete", 2),
        (0, "A", "insert", 2),
        (1, "B", "insert", 2),
    ]


def test_pairs_are_whole_where_their_rows_lie_in_different_chunks():
    table = table_of()
    append(table, arrow("ab"))
    append(table, arrow("c", first=2, days=2))
    segments = {s.chunk: s.id for s in table.refresh().segments()}

    def later(rows):
        moved = pc.add(rows.column("at"), pa.scalar(DAY, pa.duration("us")))
        return rows.set_column(1, SCHEMA.field("at"), moved)

    update_rows(table, {segments["2024-01-01"]: [1], segments["2024-01-03"]: [0]}, later)
    days = [(1, 1, "before"), (1, 2, "after"), (2, 3, "before"), (2, 4, "after")]
    for day in range(1, 5):
        where = f"at >= '2024-01-0{day}T00:00:00Z' AND at < '2024-01-0{day + 1}T00:00:00Z'"
        assert told(changes(table, 2, where=where), ["id", "_change"]) == [
            (n, f"update_{kind}") for n, on, kind in days if on == day
        ]


def test_other_changes_of_the_version_of_a_paired_update_are_there_too():
    table = table_of()
    append(table, arrow("ab"))
    head, segment = table.refresh(), only(table)
    new, more = (stage(table, arrow(v, first=n)) for v, n in (("A", 0), ("c", 2)))
    update = [Update(1, True), *staged_deletes(table, {segment.id: [0]}), *new]
    both = [table.transaction("update", update), table.transaction("append", more)]
    log = table.session.log
    time = head.header.time + 1
    effect = fold.judge(both, log.load_view(head, both)[1], time)
    made = propose(head, both, effect, table_id=head.header.table, time_ms=time, log=log)
    table.store.put_if_absent(keys.commit_key(2), made.body)
    assert sorted(told(changes(table, 1))) == [
        (0, "A", "update_after", 2),
        (0, "a", "update_before", 2),
        (2, "c", "insert", 2),
    ]


def stage(table, rows):
    with Stager(table.store, table.clock, recipe(table)) as stager:
        for batch in rows.to_batches():
            stager.write(batch)
        return stager.finish()
