"""Keyed tables that are published: each version as engines read it, or refused."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest
from support.builders import Crash, CrashingStore, Spy, create, live
from support.keyed_publications import (
    FORMATS,
    PLACES,
    check_engines,
    objects_under,
    play_published,
    published_versions,
)
from support.published import actions_of, compact_all

from eventlog import Table
from eventlog.compaction.vacuum import vacuum
from eventlog.errors import DataLoss, EventLogError, InvalidInput
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.publishing.iceberg.translation.avro_files import EntryRecord, avro_records
from eventlog.publishing.positions import ShownRows
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, overwrite, upsert

DAY_US = 86_400_000_000
ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        ("value", pa.float64()),
        ("rank", pa.int32()),
    ]
)
OF_LOGS = pa.schema([*(field.with_nullable(True) for field in ROWS), ("_op", pa.string())])
every_format = pytest.mark.parametrize("form", FORMATS)


def rows(*numbers, name="first", rank=1, days=1):
    """Rows of these keys; the day of a key is always the same."""
    made = [
        {"id": n, "at": n % days * DAY_US + n, "name": f"{name} {n}", "value": n / 2, "rank": rank}
        for n in numbers
    ]
    return pa.Table.from_pylist(made, schema=ROWS)


def gone(*numbers, rank=None):
    """Deletes of these keys, which have nothing but the key, and a rank if it is given."""
    made = [{"id": n, "rank": rank, "_op": "d"} for n in numbers]
    return pa.Table.from_pylist(made, schema=OF_LOGS)


def mixed(upserts, deletes):
    """Upserts and deletes of one commit."""
    marked = upserts.append_column("_op", pa.array(["u"] * len(upserts))).cast(OF_LOGS)
    return pa.concat_tables([marked, deletes])


def table_of(store=None, **options):
    """A keyed table; `all` is its one time chunk unless that is said."""
    options = {"schema": ROWS, "key": "id", "buckets": 2, "granularity": "all"} | options
    return create(store, **options)


def history(store=None, **options):
    """Upserts, deletes by keys and by predicate, compactions between, a restore, late rows."""
    t = table_of(store, **options)
    upsert(t, rows(*range(12)))
    upsert(t, mixed(rows(3, 4, 20, name="second", rank=3), gone(5, 21)))
    delete(t, keys=pa.table({"id": pa.array([6, 22], pa.int64())}))
    compact_all(t)
    upsert(t, rows(5, 7, name="third", rank=2))
    t.restore(3)
    delete(t, where="id = 8")
    upsert(t, rows(3, 6, name="late", rank=2))
    compact_all(t)
    upsert(t, mixed(rows(1, name="last", rank=4), gone(2)))
    return t


def test_versions_read_as_scan_reads_them(tmp_path):
    t = table_of(LocalStore(str(tmp_path)))
    upsert(t, rows(*range(4)))
    upsert(t, mixed(rows(3, 4, name="second"), gone(1)))
    for form, options in FORMATS.items():
        name = form.split()[0]
        if form != "iceberg 3":
            publish(t, name, **options)
            check_engines(t, name, [2])


@pytest.mark.sample(0, verify=3)
@every_format
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order_by": "rank"},
        {"properties": {"merge": "first"}},
        {"properties": {"merge": "first"}, "order_by": "rank"},
    ],
    ids=["last", "last by rank", "first", "first by rank"],
)
def test_every_version_of_each_rule_reads_as_scan_reads_it(tmp_path, form, options):
    t = history(LocalStore(str(tmp_path)), **options)
    name = form.split()[0]
    done = publish(t, name, **FORMATS[form])
    assert (done.first, done.behind) == (0, 0)
    assert check_engines(t, name) == done.last + 1 == t.session.head().version + 1
    entries = ShownRows(t.store).entries(t.session.head())
    assert "vector_rows" in entries.column_names, "nothing is hidden at the end: this proves little"
    assert fsck(t).ok


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("form", ["iceberg 2", "iceberg 3"])
def test_renamed_and_widened_columns_of_logs_are_read_by_their_ids(tmp_path, form):
    t = history(LocalStore(str(tmp_path)))
    t.rename_column("rank", "grade")
    t.widen_column("grade", pa.int64())
    t.add_columns([pa.field("more", pa.string())])
    grades = rows(1, 30, name="evolved").rename_columns({"rank": "grade"})
    upsert(t, grades.append_column("more", pa.array(["x", "y"])))
    t.set_buckets(8)
    upsert(t, grades.slice(1).append_column("more", pa.array(["z"])))
    publish(t, "iceberg", **FORMATS[form])
    check_engines(t, "iceberg")
    with pytest.raises(InvalidInput, match="not published as Delta: column 'grade' was renamed"):
        publish(t, "delta")


@pytest.mark.sample(0, verify=2)
@every_format
def test_keys_of_several_time_chunks_are_merged_by_chunk(tmp_path, form):
    t = table_of(LocalStore(str(tmp_path)), granularity="day", key=("id", "at"))
    for number in range(4):
        upsert(t, rows(*range(number, 12, 2), name=f"number {number}", days=3))
    compact_all(t)
    overwrite(t, rows(0, 3, name="again", days=3), start="1970-01-01", end="1970-01-02")
    upsert(t, rows(1, 2, name="last", days=3))
    publish(t, form.split()[0], **FORMATS[form])
    check_engines(t, form.split()[0])


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_read_as_scan_reads_them(tmp_path, seed):
    play_published(seed, tmp_path)


# What is published


def test_columns_of_logs_are_not_shown_and_others_than_the_key_may_be_null():
    t = table_of()
    upsert(t, mixed(rows(1), gone(2)))
    publish(t, "delta")
    publish(t, "iceberg")
    (described,) = [a["metaData"] for a in actions_of(t, 0) if "metaData" in a]
    fields = json.loads(described["schemaString"])["fields"]
    newest = json.loads(t.store.get(f"metadata/v{t.session.head().version}.metadata.json"))
    (schema,) = newest["schemas"]
    wanted = [(name, name != "id") for name in ROWS.names]
    assert [(f["name"], f["nullable"]) for f in fields] == wanted
    assert [(f["name"], not f["required"]) for f in schema["fields"]] == wanted


def test_segments_that_show_nothing_are_not_listed():
    t = table_of()
    upsert(t, rows(1, 2))
    delete(t, keys=pa.table({"id": pa.array([1, 2], pa.int64())}))
    publish(t, "delta")
    adds = [a["add"]["path"] for a in actions_of(t, 2) if "add" in a]
    removes = [a["remove"]["path"] for a in actions_of(t, 2) if "remove" in a]
    assert adds == []
    assert removes == [a["add"]["path"] for a in actions_of(t, 1) if "add" in a]


def test_late_rows_below_no_log_are_in_no_manifest():
    t = table_of(order_by="rank")
    upsert(t, rows(1, 2, rank=5))
    upsert(t, mixed(rows(1, rank=3), gone(2, 3, rank=7)))
    compact_all(t)
    kinds = {s.slice.kind: s for s in live(t.session.head())}
    assert kinds.keys() == {"base", "late"}, "the compaction left no late rows: this proves nothing"
    publish(t, "iceberg", first=t.session.head().version)
    manifests = [key for key in objects_under(t, "iceberg") if "/manifest-" in key]
    entries = [e for k in manifests for e in avro_records(t.store.get(k), EntryRecord)]
    listed = {entry.data_file.file_path for entry in entries}
    assert not any(kinds["late"].id in path for path in listed)


def test_an_upsert_is_an_overwrite_to_readers_of_changes():
    t = table_of()
    upsert(t, rows(1, 2))
    compact_all(t)
    publish(t, "iceberg")
    newest = json.loads(t.store.get(f"metadata/v{t.session.head().version}.metadata.json"))
    words = [s["summary"]["operation"] for s in newest["snapshots"]]
    assert words[1] == "overwrite"
    assert set(words[2:]) <= {"replace", "append"}  # the compaction, and marks
    publish(t, "delta")
    changes = {
        (version, (a.get("add") or a["remove"])["dataChange"])
        for version in range(1, t.session.head().version + 1)
        for a in actions_of(t, version)
        if "add" in a or "remove" in a
    }
    assert {version for version, changed in changes if changed} == {1}


# Rules whose rows are made


@pytest.mark.parametrize("kind", ["partial", "aggregate"])
def test_rows_that_are_stored_nowhere_are_refused_or_passed_over(kind):
    loose = pa.schema([f.with_nullable(f.name not in ("id", "at")) for f in ROWS])
    t = table_of(schema=loose, properties={"merge": kind})
    upsert(t, rows(1, 2))
    made = t.session.head().version
    with pytest.raises(InvalidInput, match=f"merge={kind} is not published as Delta"):
        publish(t, "delta")
    compact_all(t)
    compacted = t.session.head().version
    upsert(t, rows(2, 3))
    done = publish(t, "iceberg")
    assert (done.last, done.behind) == (compacted, t.session.head().version - compacted)
    assert published_versions(t, "iceberg") == [v for v in range(compacted + 1) if v < made or
                                                _is_plain(t, v)]  # fmt: skip
    with pytest.raises(InvalidInput, match="merged of several stored ones: compact the table"):
        publish(t, "iceberg", version=t.session.head().version)
    assert fsck(t).ok


def _is_plain(t, version):
    return all(s.slice.kind == "base" for s in live(t.snapshot(version)))


def test_a_table_of_which_no_version_can_be_said_is_refused():
    loose = pa.schema([f.with_nullable(f.name not in ("id", "at")) for f in ROWS])
    t = table_of(schema=loose, properties={"merge": "partial"})
    upsert(t, rows(1, 2))
    with pytest.raises(InvalidInput, match="merged of several stored ones: compact the table"):
        publish(t, "iceberg", first=1)
    assert not published_versions(t, "iceberg")


@pytest.mark.verify
def test_compacted_versions_of_made_rows_read_as_scan_reads_them(tmp_path):
    loose = pa.schema([f.with_nullable(f.name not in ("id", "at")) for f in ROWS])
    t = table_of(LocalStore(str(tmp_path)), schema=loose, properties={"merge": "partial"})
    for number in range(3):
        upsert(t, rows(*range(number, 9, 2), name=f"number {number}"))
        compact_all(t)
    publish(t, "iceberg")
    assert check_engines(t, "iceberg") >= 4


# A function of the log, whoever publishes


@pytest.mark.sample(0, verify=2)
@every_format
def test_one_by_one_is_as_at_once(form):
    t, name = history(order_by="rank"), form.split()[0]
    publish(t, name, **FORMATS[form])
    at_once = objects_under(t, name)
    unpublish(t, name, dry_run=False)
    assert not objects_under(t, name)
    for version in range(t.session.head().version + 1):
        other = Table.open(t.uri, store=t.store)
        assert publish(other, name, version=version, **FORMATS[form]).put == 1
    assert objects_under(t, name) == at_once


@pytest.mark.sample(0, verify=2)
@every_format
def test_publishers_at_once_do_no_harm(form):
    t, name = history(), form.split()[0]
    publish(t, name, **FORMATS[form])
    whole = objects_under(t, name)
    unpublish(t, name, dry_run=False)
    with ThreadPoolExecutor(3) as pool:
        handles = [Table.open(t.uri, store=t.store) for _ in range(3)]
        tasks = [pool.submit(publish, one, name, **FORMATS[form]) for one in handles]
    assert {task.result().last for task in tasks} == {t.session.head().version}
    assert objects_under(t, name) == whole


@pytest.mark.sample(0, verify=2)
@every_format
@pytest.mark.parametrize("how", ["before", "after", "lost", "refused"])
def test_a_publisher_killed_at_any_call_is_continued_by_another(form, how):
    t, name = table_of(), form.split()[0]
    upsert(t, rows(*range(6)))
    upsert(t, mixed(rows(1, 2, name="second"), gone(3)))
    options = FORMATS[form] | {"first": 1}
    publish(t, name, **options)
    whole = objects_under(t, name)
    for at in range(1, 400):
        unpublish(t, name, dry_run=False)
        crashing = CrashingStore(t.store, 10**9, how)
        other = Table.open(t.uri, store=crashing)
        crashing.calls, crashing._at = 0, at
        with contextlib.suppress(Crash, EventLogError):
            publish(other, name, **options)
        if crashing.calls < at:
            return
        publish(t, name, **options)
        assert objects_under(t, name) == whole, at
    raise AssertionError("no end")


# What it costs


class Reads(Spy):
    """Records which objects are read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.gets = []

    def get(self, key, *, start=0, length=None):
        self.gets.append(key)
        return super().get(key, start=start, length=length)


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_only_chunks_that_changed_are_merged(name):
    spy = Reads(MemoryStore())
    t = table_of(spy, granularity="day", key=("id", "at"))
    upsert(t, rows(*range(6), days=3))
    upsert(t, rows(*range(6), name="second", days=3))
    publish(t, name)
    upsert(t, rows(1, name="third", days=3))
    spy.gets.clear()
    done = publish(Table.open(t.uri, store=spy), name)
    assert done.put == 1
    read = {key.split("/")[2] for key in spy.gets if key.startswith("data/")}
    assert read == {"1970-01-02"}
    spy.gets.clear()
    assert publish(Table.open(t.uri, store=spy), name).put == 0
    assert not [key for key in spy.gets if key.startswith("data/")]


def test_a_publisher_merges_a_slice_once():
    spy = Reads(MemoryStore())
    t = table_of(spy)
    upsert(t, rows(*range(6)))
    upsert(t, rows(1, name="second"))
    for number in range(5):
        t.set_properties({"user.n": str(number)})
    for name in ("delta", "iceberg"):
        spy.gets.clear()
        publish(t, name)
        assert sum(key.startswith("data/") for key in spy.gets) == 1 + 2  # one segment, then both


# With the table's life


@pytest.mark.verify
def test_a_vacuum_cuts_what_is_published_and_it_goes_on(tmp_path):
    t = history(LocalStore(str(tmp_path)))
    for name in ("delta", "iceberg"):
        publish(t, name)
    t.session.clock.sleep(3600)
    upsert(t, rows(40, name="later"))
    for name in ("delta", "iceberg"):
        publish(t, name)
    ages = {"retention": timedelta(minutes=30), "staging": timedelta(minutes=30)}
    assert vacuum(t, dry_run=False, **ages).gone["published"].objects
    horizon = t.refresh().meta.horizon
    upsert(t, rows(3, 40, name="last"))
    for name in ("delta", "iceberg"):
        other = Table.open(t.uri, store=t.store)
        assert publish(other, name).first == horizon > 5
        check_engines(t, name)
    assert not [f for f in fsck(t).findings if str(f.key).startswith(PLACES)]
    unpublish(t, "delta", dry_run=False)
    publish(t, "delta")
    check_engines(t, "delta")
    assert not [f for f in fsck(t).findings if str(f.key).startswith(PLACES)]


@pytest.mark.verify
def test_of_overtaken_keyed_publications_the_horizon_is_the_next_version(tmp_path):
    t = history(LocalStore(str(tmp_path)))
    publish(t, "delta", version=2)
    t.session.clock.sleep(3600)
    upsert(t, rows(40))
    ages = {"retention": timedelta(minutes=30), "staging": timedelta(minutes=30)}
    vacuum(t, dry_run=False, **ages)
    horizon = t.refresh().meta.horizon
    assert publish(t, "delta").first == horizon > 3
    check_engines(t, "delta")
    assert not [f for f in fsck(t).findings if str(f.key).startswith(PLACES)]


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_fsck_compares_which_rows_are_hidden(name):
    t = table_of()
    upsert(t, rows(1, 2, 3))
    upsert(t, rows(2, name="second"))
    publish(t, name)
    assert fsck(t).ok
    if name == "delta":
        key = f"_delta_log/{2:020d}.json"
        lines = t.store.get(key).splitlines(keepends=True)
        spoiled = b"".join(line for line in lines if b"deletionVector" not in line)
    else:
        (key,) = [k for k in objects_under(t, name) if "/deletes-" in k]
        spoiled = b"PAR1"
    t.store.delete([key])
    t.store.put_if_absent(key, spoiled)
    assert key in {finding.key for finding in fsck(t).findings}


def test_a_lost_segment_stops_the_publisher_and_is_named():
    t = table_of()
    upsert(t, rows(1, 2))
    upsert(t, rows(2, name="second"))
    lost = keys.key_of(max(live(t.session.head()), key=lambda segment: segment.version))
    t.store.delete([lost])
    with pytest.raises(DataLoss, match="is missing"):
        publish(t, "delta")
    assert published_versions(t, "delta") == [0, 1]
    assert scan(t, version=1).count() == 2
