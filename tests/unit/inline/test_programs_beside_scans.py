"""Programs beside the plain scan read small segments where they are: in commits and packs."""

import random
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.builders import START_MS, create, events, reopen
from support.inline_tables import SMALL, forget, in_order, small, stored

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run
from eventlog.errors import DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.inline import inline_objects, pack_bytes
from eventlog.log.snapshot import plan_scan
from eventlog.readers import blame, changes, files, scan
from eventlog.readers.engines.file_list import by_place
from eventlog.segments.fragments import POSITION, Reading
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

KEYED = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64())]
)
OBJECTS = {"inline_bytes": "0", "keyframe_commits": "8"}


def keyed(properties, store=None, **options):
    """A keyed table."""
    store = MemoryStore() if store is None else store
    return Table.create(
        store.uri, KEYED, store=store, key="k", buckets=4, properties=properties,
        clock=ManualClock(START_MS, 3), **options,
    )  # fmt: skip


def upsert_some(table, count, seed=1):
    """Upserts and deletes of some keys, of which many are written again."""
    rng = random.Random(seed)
    for number in range(count):
        if number % 9 == 8:
            table.delete(keys=pa.table({"k": rng.sample(range(60), 3)}))
        else:
            some = rng.sample(range(60), 5)
            table.upsert(pa.table({"k": some, "v": [f"v{number}"] * 5, "n": [number] * 5}))
        if number % 25 == 24:
            run(table, policy=Policy(min_gain=0))


def by_key(rows):
    """Rows as values, in the order of their keys."""
    return sorted(rows.to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize(
    ("rule", "options"),
    [({}, {}), ({}, {"order_by": "n"}), ({"merge": "partial"}, {}), ({"merge": "first"}, {})],
    ids=str,
)
def test_keyed_scans_read_packs(rule, options):
    first, second = (keyed({**inline, **rule}, **options) for inline in (SMALL, OBJECTS))
    for table in (first, second):
        upsert_some(table, 64)
    assert stored(second, "data/")
    for version in range(0, first.refresh().version + 1, 5):
        forget()
        reader = reopen(first.store)
        assert by_key(scan(reader, version=version).to_table()) == by_key(
            scan(second, version=version).to_table()
        )
    for where in ("k = 7", "n > 40", "v = 'v50' or k < 3"):
        forget()
        rows = scan(reopen(first.store), where=where).to_table()
        assert by_key(rows) == by_key(scan(second, where=where).to_table())


def test_keyed_scans_send_few_requests():
    store = CountingStore(MemoryStore())
    table = keyed({**SMALL, "keyframe_commits": "16"}, store)
    for number in range(100):
        table.upsert(pa.table({"k": [number, 200 - number], "v": ["a", "b"], "n": [1, 2]}))
    forget()
    reader = Table(store)
    with store.measure() as counts:
        assert scan(reader).count() == 200
    # Those since the key frame, a few packs, and what opens the version.
    assert counts.get <= 16 + 8


@pytest.mark.parametrize("column", ["_op", "k"])
def test_a_pack_without_what_merges_need_is_passed_over(column):
    """The segments are read by themselves, which says what is wrong with one."""
    table = keyed(SMALL)
    table.upsert(pa.table({"k": [1], "v": ["a"], "n": [1]}))
    for number in range(8):
        table.delete(keys=pa.table({"k": [number]}))
    forget()
    changed = 0
    for pack in table.snapshot().base.packs:
        opened = pack_bytes.open_pack(table.store.get(keys.pack_key(pack.last, pack.sha256)))
        rows = pack_bytes.pack_columns(opened)
        if "_op" in rows.column_names:
            place = rows.schema.get_field_index(column)
            field = rows.schema.field(place).with_nullable(True)
            other = pa.array([None if column == "k" else "x"] * rows.num_rows, field.type)
            body = pack_bytes.encode_pack(opened.segments, [rows.set_column(place, field, other)])
            inline_objects.remember_pack(pack.sha256, body)
            changed += 1
    assert changed
    assert scan(reopen(table.store)).count() == 0


@pytest.mark.hazard("W14")
@pytest.mark.parametrize("packed", [True, False])
def test_rows_without_a_column_that_came_later_are_rows(packed):
    table = small(properties={} if packed else {"keyframe_commits": "64"})
    for number in range(20):
        table.append(events(4, first=4 * number))
    table.add_columns({"more": "int64"})
    table.append(events(1, first=80).append_column("more", pa.array([3])))
    if packed:
        table.write_keyframe()
        assert table.snapshot().base.packs
    forget()
    other = reopen(table.store)
    assert other.scan(["more"]).to_table()["more"].to_pylist() == [None] * 80 + [3]
    assert other.count(where="more is null") == 80
    assert other.delete(where="more is null").deleted == 80


@pytest.mark.parametrize("packed", [True, False])
def test_positions_and_segments_of_rows_are_those_of_the_files(packed):
    seldom = {} if packed else {"keyframe_commits": "64"}
    tables = [small(properties=seldom), create(properties=OBJECTS)]
    for table in tables:
        for number in range(20):
            table.append(events(4, first=4 * number))
        table.delete(where="value = 3 or value = 20.5 or value = 21")
        if packed:
            table.write_keyframe()
    found = []
    for table in tables:
        forget()
        snapshot = reopen(table.store).snapshot()
        plan = plan_scan(snapshot)
        reading = Reading.of(table.store, plan, snapshot.header.table)
        schema = pa.schema([plan.schema.field("name"), POSITION])
        rows = [
            (segment.version, *row.values())
            for segment, batch in replace(reading, schema=schema).located(plan.in_scan_order())
            for row in batch.to_pylist()
        ]
        found.append(rows)
        bare = replace(reading, schema=pa.schema([POSITION]))
        places = [b.column(0).to_pylist() for _, b in bare.located(plan.in_scan_order())]
        assert [row[2] for row in rows] == [place for some in places for place in some]
    assert found[0] == found[1]
    assert len(found[0]) == 77


def test_a_delete_of_rows_of_many_small_appends_sends_few_requests():
    store = CountingStore(MemoryStore())
    table = small(store)
    for number in range(50):
        table.append(events(2, first=2 * number))
    forget()
    reader = Table(store)
    with store.measure() as counts:
        reader.delete(where="name LIKE '%9'")
    assert counts.get <= 8 + 14
    assert scan(reopen(store.inner)).count() == 90


def packed(appends, **options):
    """A table of small appends, and a handle of a process that has read nothing of it."""
    store = CountingStore(MemoryStore())
    table = keyed(SMALL, store) if options.get("key") else small(store)
    for number in range(appends):
        if options.get("key"):
            table.upsert(pa.table({"k": [number, 200 - number], "v": ["a", "b"], "n": [1, 2]}))
        else:
            table.append(events(2, first=2 * number))
    forget()
    return store, reopen(store)


@pytest.mark.parametrize("key", [True, False])
def test_changes_read_each_commit_once(key):
    store, reader = packed(40, key=key)
    with store.measure() as counts:
        found = changes(reader, 0, 40)
        planned = counts.get
        rows = found.to_table()
    assert rows.num_rows >= 80
    assert planned <= 40 + 8
    assert counts.get <= planned + 8  # leaves and packs


def test_changes_that_another_process_reads_come_from_packs():
    store, reader = packed(60)
    found = changes(reader, 0, 60)
    forget()
    with store.measure() as counts:
        rows = pa.Table.from_batches(found.to_batches())
    assert sorted(rows["name"].to_pylist()) == sorted(events(120)["name"].to_pylist())
    assert counts.get <= 8 + 8


@pytest.mark.parametrize("key", [True, False])
def test_compaction_reads_packs(key):
    store, reader = packed(100, key=key)
    before = by_key(scan(reader).to_table()) if key else in_order(scan(reader).to_table())
    forget()
    with store.measure() as counts:
        outcomes = run(reader, policy=Policy(min_gain=0)).outcomes
    assert [outcome.status for outcome in outcomes] == ["done"] * len(outcomes) != []
    assert counts.get <= 8 + 40  # of the commits since the last pack, and of what planning reads
    rows = scan(reader).to_table()
    assert (by_key(rows) if key else in_order(rows)) == before


def test_a_few_segments_of_a_large_pack_are_read_by_themselves():
    store, chance = CountingStore(MemoryStore()), random.Random(1)
    table = small(store)
    for _ in range(64):
        names = [chance.randbytes(60).hex() for _ in range(100)]
        table.append(events(100).set_column(1, "name", pa.array(names)))
    forget()
    head = reopen(store).snapshot()
    pack, plan = head.base.packs[0], plan_scan(head)
    reading, segments = Reading.of(store, plan, head.header.table), plan.in_scan_order()
    inside = [s for s in segments if pack.first <= s.inline <= pack.last]
    for some, most in ((inside[:2], pack.size // 4), (inside, pack.size + 1)):
        forget()
        with store.measure() as counts:
            rows = sum(batch.num_rows for batch in reading.batches(some))
        assert rows == 100 * len(some)
        assert counts.bytes_read <= most


@pytest.mark.hazard("W16")
def test_packs_are_held_within_the_memory():
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
    seldom = {"keyframe_commits": "64", "inline_bytes": "65536"}
    table = small(schema=columns, properties=seldom)
    times = pa.array([0] * 100, columns.field("at").type)
    for number in range(140):
        table.append(pa.table([times, [f"{number}".ljust(4000)] * 100], schema=columns))
    table.write_keyframe()
    forget()
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    for batch in scan(reopen(table.store), memory_bytes=32 * 2**20).to_batches():
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 14_000
    assert peak < 40 * 2**20  # of 56 MB


def test_a_list_of_files_has_them_stored():
    store = CountingStore(MemoryStore())
    table = small(store)
    for number in range(5):
        table.append(events(3, first=3 * number))
    listed = files(table)
    assert len(listed) == 5
    assert len(stored(table, "data/")) == 5
    rows = pa.concat_tables(
        pq.read_table(pa.BufferReader(store.get(row.key))) for row in store.list("data/")
    )
    assert len(rows) == 15
    with store.measure() as counts:
        assert files(table) == listed
    assert counts.put == 0


def test_who_may_not_write_is_told_what_leads_to_files(monkeypatch):
    table = small()
    table.append(events(3))

    def refused(key, body):
        raise InvalidInput("access is denied", key=key)

    monkeypatch.setattr(table.store, "put_if_absent", refused)
    with pytest.raises(InvalidInput, match="compact or publish the table first"):
        files(table)


def test_blame_and_fallback_find_segments_in_commits():
    table = small()
    for number in range(4):
        table.append(events(3, first=3 * number))
    written = table.snapshot().version
    run(table, policy=Policy(min_gain=0))
    forget()
    found = blame(reopen(table.store), where="value >= 0")
    assert set(found["_version"].to_pylist()) == set(range(1, written + 1))
    (made,) = table.snapshot().segments()
    table.store.delete([keys.key_of(made)])
    forget()
    with pytest.raises(DataLoss, match="still exist"):
        scan(reopen(table.store)).to_table()
    assert in_order(scan(reopen(table.store), fallback=True).to_table()) == in_order(events(12))


def test_lists_of_segments_name_the_commit():
    table = small()
    table.append(events(2))
    listed = table.inspect.segments().to_pylist()
    assert [row["inline"] for row in listed] == [1]


@pytest.mark.parametrize("target", [128 * 2**20, 3 * 2**20, 1])
def test_tasks_of_spark_read_packs(target):
    """Tasks share packs out: none of them fetches what others have, commit by commit."""
    shares = pytest.importorskip("eventlog.readers.spark.shares")
    store = CountingStore(MemoryStore())
    table = small(store)
    for number in range(200):
        table.append(events(2, first=2 * number))
    table.append(pa.concat_tables([events(1, first=n) for n in range(400, 402)]))
    plan = plan_scan(table.snapshot())
    reading = Reading.of(store, plan, table.session.head().header.table)
    parts = shares.segment_shares(plan, target)
    assert sorted(s.id for part in parts for s in part) == sorted(
        s.id for s in plan.in_scan_order()
    )
    work = shares.ScanWork(reading, [msgspec.json.encode(part) for part in parts])
    with store.measure() as counts:
        rows = 0
        for share in work.shares:
            forget()  # another process
            rows += sum(batch.num_rows for batch in work.batches(share))
    assert rows == 402
    assert counts.get <= 8 + 2 * len(plan.packs)
    located = shares.LocatedWork(reading, pa.schema([*plan.schema, *shares.SEGMENT_COLUMNS]), [])
    forget()
    with store.measure() as counts:
        found = pa.Table.from_batches(
            batch for part in parts for batch in located.batches(msgspec.json.encode(part))
        )
    assert set(found["_version"].to_pylist()) == set(range(1, 202))
    assert counts.get <= 8 + 2 * len(plan.packs)


def test_a_plan_has_its_files_and_what_stands_in_commits_apart():
    """Of which Spark's own reader is given the files."""
    table = small()
    table.append(events(2))
    table.set_properties({"inline_bytes": "0"})
    table.append(events(3, first=2))
    plan = plan_scan(table.snapshot())
    stored, inline = by_place(plan)
    assert [segment.rows for segment in stored.segments()] == [3]
    assert [segment.rows for segment in inline.segments()] == [2]
    assert [part.packs for part in (stored, inline)] == [plan.packs] * 2
    nothing = by_place(stored)
    assert nothing[0].entries.equals(stored.entries)
    assert nothing[1].entries.num_rows == 0
    assert by_place(nothing[1])[0].entries.schema == nothing[1].entries.schema


def test_a_plan_of_a_keyed_table_stays_whole():
    """Logs in commits are merged with the others."""
    table = keyed(SMALL)
    upsert_some(table, 3)
    plan = plan_scan(table.snapshot())
    whole, inline = by_place(plan)
    assert (whole.runs, whole.entries.num_rows) == (plan.runs, 3)
    assert inline.entries.num_rows == 0
