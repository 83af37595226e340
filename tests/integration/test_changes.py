"""`changes`: what a caller sees of it, its errors, and what it costs."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.builders import commit
from support.effort import calls_of

from eventlog import Table, compaction, errors
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.commit import intents
from eventlog.format import codec, keys
from eventlog.model.actions import SetSchema
from eventlog.model.columns.ids import TOP, added_id
from eventlog.model.entries import Column, Schema
from eventlog.readers import Changes, changes, scan
from eventlog.session.session import Session
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite, upsert

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = compaction.Policy(target_bytes=2**20)


def table_of(store, **options):
    clock = ManualClock(1_700_000_000_000, 1)
    return Table.create(store.uri, SCHEMA, store=store, clock=clock, time_column="at", **options)


def arrow(*rows, days=0):
    rows = [{"id": k, "at": NOON + days * DAY, "v": v} for k, v in rows]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def told(found: Changes):
    columns = ("id", "v", "_change", "_version")
    return [tuple(row[c] for c in columns) for row in found.to_table().to_pylist()]


def test_images_of_each_version_whatever_is_compacted():
    table = table_of(MemoryStore(), key="id", buckets=2)
    upsert(table, arrow((1, "a"), (2, "b")))
    upsert(table, arrow((1, "c"), (2, "b")))  # the second changes nothing
    delete(table, keys=pa.table({"id": [2, 9]}))  # nor does 9
    wanted = [
        (1, "a", "insert", 1),
        (2, "b", "insert", 1),
        (1, "a", "update_before", 2),
        (1, "c", "update_after", 2),
        (2, "b", "delete", 3),
    ]
    assert sorted(told(changes(table, 0))) == sorted(wanted)
    compaction.run(table, policy=POLICY)
    assert sorted(told(changes(table, 0))) == sorted(wanted)
    assert told(changes(table, 3)) == []
    assert told(changes(table, 1, 2)) == wanted[2:4]


def test_what_a_forgotten_tombstone_had_hidden_is_told():
    """The one way in which compaction changes an answer (FORMAT.md R15.14)."""
    settings = {"order_by": "at", "properties": {"tombstone_hours": "1"}}
    table = table_of(MemoryStore(), key="id", **settings)
    upsert(table, arrow((1, "a"), days=1))
    delete(table, keys=arrow((1, "a"), days=9).select(["id", "at"]))
    for _ in range(2):
        table.clock.advance(2 * 3_600_000)
        append(table, arrow((2, "b")))
    planned = compaction.plan(table, policy=POLICY)
    upsert(table, arrow((1, "late"), days=5))
    assert scan(table, where="id = 1").count() == 0
    compaction.run(table, planned.tasks, policy=POLICY)
    upsert(table, arrow((1, "later"), days=6))
    newest = table.session.head().version
    assert scan(table, where="id = 1").count() == 1
    found = told(changes(table, 2))
    assert (1, "late", "insert") in [row[:3] for row in found]
    assert found[-2:] == [
        (1, "late", "update_before", newest),
        (1, "later", "update_after", newest),
    ]


def test_a_commit_that_forgets_a_tombstone_and_upserts_tells_each_row_once(monkeypatch):
    """Rows that were upserted in the commit of the merge are no news of the merge."""
    settings = {"order_by": "at", "properties": {"tombstone_hours": "1", "combine_after": "1"}}
    table = table_of(MemoryStore(), key="id", **settings)
    upsert(table, arrow((1, "a"), days=1))
    delete(table, keys=arrow((1, "a"), days=9).select(["id", "at"]))
    for _ in range(2):
        table.clock.advance(2 * 3_600_000)
        append(table, arrow((2, "b")))
    planned = compaction.plan(table, policy=POLICY)
    upsert(table, arrow((1, "late"), days=5))

    def publish(session, merge):
        head = session.head()
        merge = intents.published_form(merge, head)
        body = codec.encode_transaction(merge, head.header.table)
        session.store.put_if_absent(keys.intent_key(merge.until, merge.id), body)
        raise errors.Unavailable("the program was stopped")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "commit", publish)
        compaction.run(table, planned.tasks, policy=POLICY)
    clock = ManualClock(table.clock.now_ms(), 2)
    crowded = Table.open(table.uri, store=table.store, clock=clock)
    crowded.session.committer.writer.contention.expected = 8
    upsert(crowded, arrow((2, "c"), (3, "d"), days=20))
    newest = crowded.session.head()
    assert newest.header.changes.transactions == 2
    assert sorted(told(changes(crowded, newest.version - 1))) == [
        (1, "late", "insert", newest.version),
        (2, "b", "update_before", newest.version),
        (2, "c", "update_after", newest.version),
        (3, "d", "insert", newest.version),
    ]


@pytest.mark.parametrize("key", [(), "id"])
def test_nested_times_of_years_that_python_does_not_have(key):
    inner = pa.struct([("d", pa.date32()), ("m", pa.map_(pa.date32(), pa.timestamp("us")))])
    schema = SCHEMA.append(pa.field("l", pa.list_(inner)))
    numbers = pa.struct([("d", pa.int32()), ("m", pa.map_(pa.int32(), pa.int64()))])
    store = MemoryStore()
    clock = ManualClock(1_700_000_000_000, 1)
    table = Table.create(store.uri, schema, store=store, clock=clock, time_column="at", key=key)

    def rows(day, micros):
        values = pa.array([[{"d": day, "m": [(day, micros)]}]], pa.list_(numbers))
        return arrow((1, "a")).append_column("l", values.cast(schema.field("l").type))

    append(table, rows(2**30, 2**62))
    for micros in (2**62, 2**62 + 1):
        overwrite(table, rows(2**30, micros))
    kinds = ["update_before", "update_after"] if key else ["delete", "insert"]
    found = changes(table, 0).to_table()
    assert found.column("_change").to_pylist() == ["insert", *kinds]
    assert found.column("_version").to_pylist() == [1, 3, 3]


def test_only_columns_asked_for_are_compared():
    table = table_of(MemoryStore(), key="id")
    upsert(table, arrow((1, "a")))
    upsert(table, arrow((1, "a"), days=1))
    assert changes(table, 1, columns=["v"]).to_table().num_rows == 0
    found = changes(table, 1, columns=["at"]).to_table()
    assert found.schema.names == ["at", "_change", "_version", "_time"]
    assert found.column("at").to_pylist() == [NOON, NOON + DAY]


ORDERS = {
    "order_by": {"order_by": "seq"},
    "group": {"properties": {"merge": "partial", "merge.group.seq": "v"}},
}


@pytest.mark.verify
@pytest.mark.hazard("W14")
@pytest.mark.parametrize("order", ORDERS)
def test_what_orders_the_rows_of_a_key_is_compared_only_if_it_is_asked_for(tmp_path, order):
    """By the keys that were written, by whole slices, in one range and in several."""
    schema = SCHEMA.append(pa.field("seq", pa.int64()))
    uri = str(tmp_path / "t")
    table = Table.create(uri, schema, time_column="at", key="id", **ORDERS[order])
    with_seq = lambda seq: arrow((1, "a")).append_column("seq", pa.array([seq], pa.int64()))
    upsert(table, with_seq(1))
    upsert(table, with_seq(2))
    table.restore(1)
    upsert(table, with_seq(3))
    pairs = [
        (kind, version, seq)
        for version, seqs in ((2, (1, 2)), (3, (2, 1)), (4, (1, 3)))
        for kind, seq in zip(("update_before", "update_after"), seqs, strict=True)
    ]
    for columns in (["id", "v"], ["v"], ["id"], []):
        assert changes(uri, 1, columns=columns).to_table().num_rows == 0
        assert changes(uri, 1, columns=columns, where="id = 1").to_table().num_rows == 0
        shown = CliRunner().invoke(build(), ["changes", uri, "1", "--columns", "v,id", "--json"])
        assert (shown.exit_code, shown.stdout) == (0, "")
    for start, end in ((1, 4), (1, 2), (2, 3), (3, 4)):
        found = changes(uri, start, end, columns=["seq"]).to_table().to_pylist()
        wanted = [pair for pair in pairs if start < pair[1] <= end]
        assert [(c["_change"], c["_version"], c["seq"]) for c in found] == wanted


@pytest.mark.hazard("W14")
def test_an_update_of_which_both_rows_pass_alike_is_none():
    """What only the filter reads decides which rows there are, and makes no update."""
    table = table_of(MemoryStore(), key="id")
    upsert(table, arrow((1, "a")))
    for value in ("b", "z", "y", "a"):
        upsert(table, arrow((1, value)))
    table.restore(4)
    found = changes(table, 1, columns=["id"], where="v < 'c'").to_table().to_pylist()
    assert [(c["_change"], c["_version"]) for c in found] == [
        ("update_before", 3),
        ("update_after", 5),
        ("update_before", 6),
    ]


@pytest.mark.hazard("W14")
@pytest.mark.parametrize("where", [None, "id > 0"])
def test_rows_without_a_key_cancel_out_by_the_columns_asked_for(where):
    """Whatever chunks they lie in, and whatever the filter reads."""
    table = table_of(MemoryStore(), granularity="day")
    append(table, arrow((1, "a")))
    overwrite(table, arrow((2, "a"), (3, "b"), days=3))
    found = changes(table, 1, columns=["v"], where=where).to_table().to_pylist()
    assert [(c["_change"], c["v"]) for c in found] == [("insert", "b")]
    assert changes(table, 1, columns=["v"], where="v = 'a'").to_table().num_rows == 0


@pytest.mark.hazard("W14")
@pytest.mark.parametrize("seed", range(3))
def test_filtered_changes_that_are_applied_make_a_filtered_copy(seed):
    """As docs/guides/streaming.md says it: in batches whose rows come in any order."""
    chance, place = random.Random(seed), pa.field("place", pa.int64())
    store, copied = MemoryStore(), MemoryStore()
    table = table_of(store, key="id")
    copy = Table.create(
        copied.uri,
        SCHEMA.append(place),
        store=copied,
        clock=ManualClock(1_700_000_000_000, 1),
        time_column="at",
        key="id",
        order_by="place",
    )
    seen, where = 0, "v IN ('a', 'b')"
    for _ in range(4):
        for _ in range(3):
            upsert(table, arrow((chance.randrange(4), chance.choice("abyz"))))
            delete(table, keys=pa.table({"id": [chance.randrange(4)]}))
        news = changes(table, seen, where=where)
        found = news.to_table().to_pylist()
        chance.shuffle(found)
        for change in found:
            kept = change.pop("_change") in ("insert", "update_after")
            version = change.pop("_version")
            change |= {"_op": "u" if kept else "d", "place": 2 * version + kept}
        if found:
            whole = pa.schema([*SCHEMA, place, pa.field("_op", pa.string())])
            upsert(copy, pa.Table.from_pylist(found, schema=whole))
        seen = news.end
        wanted = scan(table, where=where).to_table().sort_by("id")
        assert scan(copy, SCHEMA.names).to_table().sort_by("id").equals(wanted)


def test_without_columns_the_rows_are_counted():
    table = table_of(MemoryStore())
    append(table, arrow((1, "a"), (2, "b")))
    overwrite(table, arrow((3, "c"), (4, "d"), (5, "e")))
    overwrite(table, arrow((6, "f")))
    columns = changes(table, 0, columns=[]).to_table().drop_columns(["_time"]).to_pylist()
    wanted = [("insert", 1)] * 2 + [("insert", 2)] + [("delete", 3)] * 2
    assert [tuple(row.values()) for row in columns] == wanted


def test_an_update_out_of_the_filter_shows_what_it_was():
    table = table_of(MemoryStore(), key="id")
    upsert(table, arrow((1, "a"), (2, "a")))
    upsert(table, arrow((1, "z")))
    assert told(changes(table, 1, where="v = 'a'")) == [(1, "a", "update_before", 2)]


def test_columns_that_were_added_later_are_null_before():
    table = table_of(MemoryStore(), key="id")
    upsert(table, arrow((1, "a")))
    table.add_columns(table.session.head().schema.append(pa.field("w", pa.int32())))
    wide = arrow((1, "a")).append_column("w", pa.array([5], pa.int32()))
    upsert(table, wide)
    found = changes(table, 0).to_table()
    assert found.column("w").to_pylist() == [None, None, 5]


def test_errors_say_what_to_do():
    table = table_of(MemoryStore(), granularity="day")
    append(table, arrow((1, "a")))
    with pytest.raises(errors.InvalidInput, match="the end is before the start"):
        changes(table, 1, 0)
    with pytest.raises(errors.VersionNotFound):
        changes(table, 0, 2)
    with pytest.raises(errors.InvalidInput, match="start"):
        changes(table, -1)
    older = table.session.head().stored_schema  # as other programs may write it
    column = Column(id=added_id(TOP, "_change", ()), name="_change", type="string", nullable=True)
    wider = Schema(older.id + 1, (*older.columns, column))
    commit(table, SetSchema(wider))
    with pytest.raises(errors.InvalidInput, match="leave it out with `columns`"):
        changes(table, 0)
    assert changes(table, 0, columns=["id"]).to_table().num_rows == 1


def test_a_vacuumed_start_is_refused():
    table = table_of(MemoryStore(), key="id", properties={"retention_hours": "0"})
    upsert(table, arrow((1, "a")))
    upsert(table, arrow((1, "b")))
    compaction.run(table, policy=POLICY)
    table.clock.advance(10 * 86_400_000)
    compaction.vacuum(table, dry_run=False)
    with pytest.raises(errors.VersionVacuumed):
        changes(table, 0)


def test_as_other_libraries_read_it(root_uri):
    pytest.importorskip("polars")
    table = table_of(open_store(root_uri), key="id")
    upsert(table, arrow((1, "a")))
    found = changes(root_uri, 0)
    assert found.to_polars().to_dicts() == found.to_table().to_pylist()
    assert found.to_pandas()["_change"].tolist() == ["insert"]


def test_the_cost_follows_the_changes():
    store = MemoryStore()
    table = table_of(store, key="id", buckets=16, properties={"bucket_bytes": "1024"})
    upsert(table, arrow(*((k, "a" * 50) for k in range(4000))))
    compaction.run(table, policy=POLICY)
    start = table.refresh().version
    upsert(table, arrow((5, "b")))
    counting = CountingStore(store)
    reader = Table.open(store.uri, store=counting)
    reader.refresh()
    with counting.measure() as counts:
        found = told(changes(reader, start))
    assert found == [
        (5, "a" * 50, "update_before", start + 1),
        (5, "b", "update_after", start + 1),
    ]
    # The commits of both versions, whether there is a newer one, the log and one base of 16.
    assert counts.total <= 6
    assert scan(reader).count() == 4000


@pytest.mark.verify
def test_a_poll_beside_many_logs_costs_each_of_them_once():
    """Not once for each other one, and no thread of its own."""

    def cost(logs):
        table = table_of(MemoryStore(), key="id", buckets=16)
        for number in range(logs):
            upsert(table, arrow(*((number * 40 + k, "a") for k in range(8))))
        start = table.refresh().version
        upsert(table, arrow(*((k * 7, "b") for k in range(8))))
        return calls_of(lambda: changes(table, start).to_table())

    few, many = cost(40), cost(160)
    assert many < 5 * few
