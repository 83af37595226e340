"""Changes in Spark: batch reads and streams have what `readers.changes` tells."""

import datetime as dt
import json
import pickle
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.parted_logs import aged_by_another_log
from support.updating import update_rows

from eventlog import Table, readers
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, plan, run, vacuum
from eventlog.errors import Corrupt, InvalidInput, VersionVacuumed
from eventlog.readers.spark.source import load_schema, make_reader
from eventlog.readers.spark.streaming.stream_source import make_stream_reader
from eventlog.writers import append, delete, overwrite, upsert

START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])
POLICY = Policy(target_bytes=2**20)
NOW = {"retention": dt.timedelta(0), "staging": dt.timedelta(0)}


def rows(chance, count):
    found = [
        {"id": chance.randrange(9), "ts": START, "n": chance.randrange(4)} for _ in range(count)
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def act(chance, table):
    match chance.choice("uuuuuddpoc"):
        case "u":
            append(table, rows(chance, 4))  # of a keyed table an upsert
        case "d" if table.session.head().layout.keyed:
            delete(table, keys=pa.table({"id": [chance.randrange(9)]}))
        case "d":
            delete(table, where=f"id = {chance.randrange(9)}")
        case "p" if not table.session.head().layout.keyed:
            live = {s.id: s for s in table.refresh().segments() if not s.vector}
            update_rows(table, {name: [0] for name in live}, twice)
        case "o":
            overwrite(table, rows(chance, 3), read_version=table.refresh().version)
        case "c":
            run(table, policy=POLICY)


def twice(found):
    return found.set_column(
        2, SCHEMA.field("n"), pc.multiply(found.column("n"), pa.scalar(2, "int32"))
    )


def history(uri, seed, count=10, **options):
    chance = random.Random(seed)
    table = Table.create(uri, SCHEMA, time_column="ts", **options)
    append(table, rows(chance, 4))
    for _ in range(count):
        act(chance, table)
    table.refresh()
    return table


def counted(batches):
    return Counter(repr(row) for batch in batches for row in batch.to_pylist())


def expected(table, start, end=None, where=None, columns=None):
    return counted([readers.changes(table, start, end, columns, where).to_table()])


def read(uri, **options):
    """What the tasks of a batch read return."""
    options = {"path": uri, "readChanges": "true", **options}
    pinned, schema = load_schema(options)
    reader = pickle.loads(pickle.dumps(make_reader(options, schema, pinned)))
    parts = make_reader(options, schema, pinned).partitions()
    return [batch for part in parts for batch in reader.read(pickle.loads(pickle.dumps(part)))]


class Stream:
    """What Spark does with a source: a checkpoint, and a reader for each run of the query."""

    def __init__(self, uri, **options):
        self.options = {"path": uri, "readChanges": "true", **options}
        self.ends, self.found = [], []

    def reader(self):
        pinned, schema = load_schema(self.options)
        return make_stream_reader(self.options, schema, pinned)

    def drain(self):
        reader = self.reader()
        while True:
            begin = self.ends[-1] if self.ends else reader.initialOffset()
            end = json.loads(json.dumps(reader.latestOffset(begin, None)))
            if end == begin:
                return self.found
            again = [self._batch(reader, begin, end) for _ in range(2)]
            assert counted(again[0]) == counted(again[1])
            self.found += again[0]
            self.ends.append(end)

    @staticmethod
    def _batch(reader, begin, end):
        task = pickle.loads(pickle.dumps(reader))
        parts = reader.partitions(begin, end)
        return [batch for part in parts for batch in task.read(pickle.loads(pickle.dumps(part)))]


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("keyed", [True, False])
def test_batch_reads_and_streams_have_the_changes(local_uri, keyed):
    options = {"key": "id", "buckets": 4} if keyed else {"granularity": "all"}
    table = history(local_uri, 1, **options)
    newest = table.session.head().version
    assert counted(read(local_uri)) == expected(table, 0)
    assert counted(read(local_uri, targetBytes="1")) == expected(table, 0)
    table.tag("fourth", 4)
    table.tag("last", newest - 1)
    for first, last in (("4", str(newest - 1)), ("fourth", "last")):
        some = read(local_uri, startingVersion=first, endingVersion=last, where="n > 1")
        assert counted(some) == expected(table, 3, newest - 1, "n > 1")
    narrow = read(local_uri, columns="id", where="n > 1", targetBytes="1")
    assert counted(narrow) == expected(table, 0, where="n > 1", columns=["id"])
    named = Stream(local_uri, startingVersion="fourth")
    assert counted(named.drain()) == expected(table, 3)
    stream = Stream(local_uri, startingVersion="0", maxVersionsPerTrigger="2")
    assert counted(stream.drain()) == expected(table, 0)
    assert len(stream.ends) > 2
    chance = random.Random(2)
    for _ in range(6):
        act(chance, table)
    assert counted(stream.drain()) == expected(table, 0)  # with its checkpoint


@pytest.mark.parametrize("keyed", [True, False])
def test_a_stream_begins_with_the_rows_that_are_there(local_uri, keyed):
    options = {"key": "id", "buckets": 4} if keyed else {"granularity": "all"}
    table = history(local_uri, 3, **options)
    newest = table.session.head().version
    stream = Stream(local_uri, columns="id,n")
    found = pa.Table.from_batches(stream.drain())
    assert set(found.column("_change").to_pylist()) == {"insert"}
    assert set(found.column("_version").to_pylist()) == {newest}
    there = readers.scan(table, ["id", "n"]).to_table()
    assert counted([found.select(["id", "n"])]) == counted([there])
    append(table, rows(random.Random(4), 5))
    later = expected(table, newest)
    known = found.num_rows
    assert sum(batch.num_rows for batch in stream.drain()) == known + later.total() > known


def test_a_delete_is_shared_out_by_segments_and_what_a_restore_brings_back_is_not(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts", granularity="all")
    for _ in range(3):
        append(table, rows(random.Random(9), 6))
    delete(table, where="id < 5")
    assert len(shares(local_uri, startingVersion="4", targetBytes="1")) == 3
    assert counted(read(local_uri, targetBytes="1")) == expected(table, 0)


def shares(uri, **options):
    options = {"path": uri, "readChanges": "true", **options}
    pinned, schema = load_schema(options)
    return make_reader(options, schema, pinned).partitions()


def test_a_stream_that_a_vacuum_passed_says_so(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts", key="id")
    chance = random.Random(5)
    append(table, rows(chance, 4))
    stream = Stream(local_uri)
    stream.drain()
    for _ in range(3):
        append(table, rows(chance, 4))
    run(table, policy=POLICY)
    vacuum(table, dry_run=False, **NOW)
    vacuum(table, dry_run=False, **NOW)
    with pytest.raises(VersionVacuumed, match="failOnDataLoss"):
        stream.drain()
    stream.options["failOnDataLoss"] = "false"
    known = len(stream.drain())
    upsert(table, rows(chance, 4))
    newest = table.session.head().version
    assert counted(stream.drain()[known:]) == expected(table, newest - 1)


def test_a_stream_passes_a_merge_that_may_forget_before_a_vacuum_does(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts", key="id", order_by="n")
    chance = random.Random(8)
    append(table, rows(chance, 4))
    planned = plan(table, policy=POLICY)
    append(table, rows(chance, 4))
    stream = Stream(local_uri, startingVersion="0")
    stream.drain()
    assert run(table, planned.tasks, policy=POLICY).outcomes[0].status == "done"
    stream.drain()
    assert stream.ends[-1]["version"] == table.refresh().version
    vacuum(table, dry_run=False, **NOW)
    vacuum(table, dry_run=False, **NOW)
    append(table, rows(chance, 4))
    newest = table.session.head().version
    known = len(stream.found)
    assert counted(stream.drain()[known:]) == expected(table, newest - 1)


def test_a_batch_of_a_snapshot_that_was_vacuumed_may_be_left_out(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts")
    chance = random.Random(7)
    for _ in range(3):
        append(table, rows(chance, 4))
    stream = Stream(local_uri, failOnDataLoss="false")
    reader = stream.reader()
    begin = reader.initialOffset()
    first, second = (begin | {"snapshot": f"2013-01-07/{version}/0"} for version in (1, 2))
    assert len(reader.partitions(first, second)) == 1  # planned, and not read before a restart
    run(table, policy=POLICY)
    append(table, rows(chance, 4))
    vacuum(table, dry_run=False, **NOW)
    vacuum(table, dry_run=False, **NOW)
    assert stream.reader().partitions(first, second) == []
    stream.ends = [second]
    append(table, rows(chance, 4))
    assert counted(stream.drain()) == expected(table, table.session.head().meta.horizon)


def test_options_that_do_not_fit_say_what_to_do(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts", key="id")
    append(table, rows(random.Random(6), 4))
    for options, why in [
        ({"version": "1"}, "startingVersion and endingVersion"),
        ({"startingVersion": "9"}, "version 9 is the first to read, but 1 is the last"),
        ({"startingVersion": "1", "startingTimestamp": "2013-01-07"}, "not both"),
        ({"maxVersionsPerTrigger": "2"}, "is for streams"),
        ({"readChanges": "yes"}, "true or false"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            read(local_uri, **options)
    with pytest.raises(InvalidInput, match="readChanges=true, or leave it out"):
        read(local_uri, readChanges="false", endingVersion="1")
    with pytest.raises(InvalidInput, match="option readChanges=true"):
        Stream(local_uri, readChanges="false").drain()
    with pytest.raises(InvalidInput, match="not both"):
        Stream(local_uri, skipChangeCommits="true").drain()


def test_changes_do_not_start_by_the_time_of_a_commit_of_another_log(local_uri):
    clock = ManualClock(int(START.timestamp() * 1000), 1)
    table = Table.create(local_uri, SCHEMA, time_column="ts", key="id", clock=clock)
    at = dt.datetime.fromtimestamp(aged_by_another_log(table) / 1000, dt.UTC)
    with pytest.raises(Corrupt, match="of another log"):
        read(local_uri, startingTimestamp=at.isoformat())


@pytest.mark.scenario("S4.6")
def test_s4_6_a_stream_of_changes_keeps_a_copy(spark, local_uri, tmp_path):
    """A query with Spark itself: what a keyed table gets is applied to another one."""
    from eventlog.writers.spark import upsert as spark_upsert  # noqa: PLC0415

    table = Table.create(local_uri, SCHEMA, time_column="ts", key="id", buckets=4)
    copy, chance = str(tmp_path / "copy"), random.Random(7)

    def keep(batch, number):
        changes = batch.where("_change <> 'update_before'").selectExpr(
            "id", "ts", "n", "_version AS at", "if(_change = 'delete', 'd', 'u') AS _op"
        )
        keyed = {"time_column": "ts", "key": "id", "order_by": "at"}
        spark_upsert(copy, changes, app_id="copy", app_seq=number, **keyed)

    for _ in range(2):
        for _ in range(4):
            act(chance, table)
        stream = spark.readStream.format("eventlog").option("readChanges", "true").load(local_uri)
        query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        kept = readers.scan(copy, ["id", "ts", "n"]).to_table()
        assert counted([kept]) == counted([readers.scan(table).to_table()])
