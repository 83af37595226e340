"""The streaming source: each appended row once, through the reader as Spark calls it, and Spark."""

import datetime as dt
import json
import logging
import random
import shutil
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from support.parted_logs import aged_by_another_log
from support.replacements import rewrite
from support.stream_queries import TOLD, Died, Query
from support.updating import update_rows

import eventlog.writers.spark
from eventlog import Table, readers
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.errors import Corrupt, InvalidInput, TableNotFound, VersionNotFound, VersionVacuumed
from eventlog.readers.spark.source import load_schema, make_reader
from eventlog.readers.spark.streaming.stream_source import make_stream_reader
from eventlog.writers import append, delete, overwrite
from eventlog.writers.spark.source import make_writer

DAYS = 5
START_US = 1_357_516_800_000_000  # 2013-01-07T00:00Z
DAY_US = 86_400_000_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)
SMALL = Policy(target_bytes=65_536, max_task_bytes=262_144, small_task_bytes=0)
NOW = {"retention": timedelta(0), "staging": timedelta(0)}
FIRST_DAY = {"start": "2013-01-07", "end": "2013-01-08"}


def rows(*ids):
    times = [START_US + n % DAYS * DAY_US for n in ids]
    return pa.table([ids, times, [f"name-{n}" for n in ids]], schema=SCHEMA)


def ids_at(table, version=None):
    return sorted(readers.scan(table, ["id"], version=version).to_table()["id"].to_pylist())


@pytest.fixture
def table(local_uri):
    """Versions 1 to 3: rows 0 to 9, 10 to 19, and 20 to 29, each over all days."""
    table = Table.create(local_uri, SCHEMA, time_column="ts")
    for first in (0, 10, 20):
        append(table, rows(*range(first, first + 10)))
    return table


def change(table, chance, fresh):
    """Change the table in one way or another; return the ids of rows that were appended."""
    kinds = ["compact", "properties", "overwrite", "drop", "trim", "delete", "update"]
    kind = chance.choice(["append", "append", "append", *kinds])
    table.refresh()
    if kind == "append":
        ids = [next(fresh) for _ in range(chance.randint(1, 8))]
        append(table, rows(*ids))
        return ids
    live = table.session.head().segments()
    whole = [segment for segment in live if segment.rows == segment.live_rows]
    if kind == "compact":
        run(table, policy=SMALL)
    elif kind == "properties":
        table.set_properties({"user.note": str(chance.random())})
    elif kind == "overwrite":
        new = 1_000_000 + next(fresh) * DAYS
        overwrite(table, rows(new), **FIRST_DAY)
        if all(segment.chunk != "2013-01-07" for segment in live):
            return [new]  # it dropped nothing
    elif kind == "drop" and len(live) > 1:
        table.drop_segments(chance.sample(live, 1), reason="a test")
    elif kind == "delete":
        delete(table, where=f"id % 7 = {chance.randrange(7)}")
    elif kind == "update" and whole:
        update_rows(table, {chance.choice(whole).id: [0]}, lambda found: found)
    elif whole:
        keep = lambda found: pa.array([n > 0 for n in range(len(found))])
        table.commit(rewrite(table, chance.sample(whole, 1), keep=keep))
    return []


@pytest.mark.sample(0, verify=3)
@pytest.mark.parametrize("told", [True, False], ids=["4.2", "4.0"])
@pytest.mark.parametrize("seed", range(4))
def test_each_appended_row_is_read_once_through_any_history(table, seed, told):
    chance, fresh = random.Random(seed), iter(range(100, 10_000))
    limits = [{}, {"maxVersionsPerTrigger": "2"}, {"maxBytesPerTrigger": "4000"}][seed % 3]
    query = Query(table.uri, told=told, skipChangeCommits="true", **limits)
    wanted = []
    for _ in range(40):
        event = chance.choice(["change"] * 4 + ["trigger", "trigger", "start", "before", "after"])
        if event == "change":
            wanted += change(table, chance, fresh)
            continue
        if query.reader is None or event == "start":
            query.start()
            if not query.ends:  # the first snapshot is the one at the start
                query.reader.initialOffset()
                wanted = ids_at(table)
        try:
            query.trigger(event if event in ("before", "after") else None)
        except Died:
            query.reader = None
    assert query.start().drain().all_ids == sorted(wanted)
    assert len(query.ids) > 2


def test_a_stream_of_appends_and_compactions_is_the_table(table):
    query = Query(table.uri, where="id % 3 = 0 AND ts < '2013-01-10'").start().drain()
    for first in range(30, 90, 10):
        append(table, rows(*range(first, first + 10)))
        if first % 20 == 0:
            assert run(table, policy=SMALL).count("done")
        query.trigger()
    found = readers.scan(table, ["id"], "id % 3 = 0 AND ts < '2013-01-10'").to_table()
    assert query.all_ids == sorted(found["id"].to_pylist())
    assert len(query.ids) == 7


def test_limits_are_kept_also_after_a_restart(table):
    by_version = Query(table.uri, startingVersion="0", maxVersionsPerTrigger="1").start()
    by_version.trigger()
    by_version.start().drain()
    assert by_version.ids == {k: [*range(10 * k, 10 * k + 10)] for k in range(3)}
    small = min(segment.bytes for segment in table.session.head().segments())
    by_bytes = Query(table.uri, maxBytesPerTrigger=str(2 * small)).start()
    by_bytes.trigger()
    run(table, policy=SMALL)  # the rest of the first snapshot is read as it was
    append(table, rows(*range(30, 40)))
    by_bytes.start().drain()
    assert by_bytes.all_ids == [*range(40)]
    assert all(len(batch) <= 4 for batch in list(by_bytes.ids.values())[:-1])
    assert len(by_bytes.ids[len(by_bytes.ids) - 1]) == 10  # a version is one batch at least


@pytest.mark.parametrize("limits", [{}, {"maxVersionsPerTrigger": "1"}])
def test_the_newest_version_is_reported_for_the_progress_of_a_query(table, limits):
    query = Query(table.uri, startingVersion="0", **limits).start()
    for first in (30, 40, 50):
        append(table, rows(*range(first, first + 10)))
        query.trigger()
        reported = query.reader.reportLatestOffset()
        assert reported == {"table": table.id, "version": table.refresh().version}
    behind = reported["version"] - query.ends[-1]["version"]
    assert (behind > 2) == bool(limits)


def test_a_report_costs_one_request_and_ends_no_query(s3, bucket):
    table = Table.create(f"s3://{bucket}/table", SCHEMA, time_column="ts")
    append(table, rows(0))
    query = Query(table.uri, startingVersion="0", maxVersionsPerTrigger="1").start()
    query.trigger()
    with s3.measure() as counts:
        query.reader.reportLatestOffset()
    assert (counts.list, counts.get) == (1, 0)
    table.store.delete([found.key for found in table.store.list("_log/")])
    assert query.reader.reportLatestOffset()["version"] == 1


@pytest.mark.parametrize("told", [True, False], ids=["4.2", "4.0"])
def test_a_first_batch_that_is_run_again_has_the_rows_it_had(table, told):
    query = Query(table.uri, told=told).start()
    with pytest.raises(Died):
        query.trigger("before")
    append(table, rows(*range(30, 40)))
    overwrite(table, rows(45), **FIRST_DAY)
    query.options["skipChangeCommits"] = "true"
    query.start().drain()
    assert query.ids == {0: [*range(30)], 1: [*range(30, 40)]}


def test_limits_hold_on_4_0_once_it_is_known_where_a_batch_ended(table):
    options = {"startingVersion": "0", "maxVersionsPerTrigger": "1"}
    query = Query(table.uri, told=False, **options).start()
    with pytest.raises(Died):
        query.trigger("before")
    for first in (30, 40):
        append(table, rows(*range(first, first + 10)))
    query.start()
    for _ in range(2):
        assert query.trigger()
    assert [len(query.ids[batch]) for batch in range(3)] == [30, 10, 10]


def test_what_comes_after_the_start_of_available_now_is_left_for_later(table):
    query = Query(table.uri, startingVersion="0", maxVersionsPerTrigger="2").start()
    query.reader.prepareForTriggerAvailableNow()
    append(table, rows(30))
    assert query.drain().ids == {0: [*range(20)], 1: [*range(20, 30)]}
    assert query.start().drain().all_ids == [*range(31)]


def test_versions_without_a_row_that_is_asked_for_make_no_batch(table):
    query = Query(table.uri, where="id >= 50").start().drain()
    append(table, rows(30))
    run(table, policy=SMALL)
    assert not query.trigger()
    append(table, rows(50))
    assert query.drain().ids == {0: [], 1: [50]}


def test_where_may_change_between_two_runs_in_the_first_snapshot(table):
    query = Query(table.uri, maxBytesPerTrigger="1", where="id < 10").start()
    query.trigger()
    first = query.all_ids
    query.options["where"] = "id >= 0"
    query.start().drain()
    assert len(query.all_ids) == len(set(query.all_ids))
    assert set(query.all_ids) >= {n for n in range(30) if n % DAYS}
    assert first == [0, 5]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingVersion": "0"}, 0),
        ({"startingVersion": "2"}, 10),
        ({"startingVersion": "4"}, 30),
        ({"startingTimestamp": "2000-01-01"}, 0),
        ({"startingTimestamp": "2200-01-01"}, 30),
    ],
)
def test_a_stream_starts_where_it_is_told(table, options, first):
    query = Query(table.uri, **options).start().drain()
    append(table, rows(*range(30, 40)))
    assert query.drain().all_ids == [*range(first, 40)]


def test_a_starting_time_includes_the_version_of_that_time(table):
    second = table.snapshot(2).timestamp
    if table.snapshot(1).timestamp == second:
        pytest.skip("two commits in one millisecond")
    query = Query(table.uri, startingTimestamp=second.isoformat()).start().drain()
    assert query.all_ids == [*range(10, 30)]


@pytest.mark.parametrize("changes", [{}, {"readChanges": "true"}], ids=["rows", "changes"])
def test_a_stream_does_not_start_by_the_time_of_a_commit_of_another_log(local_uri, changes):
    at = other_log(local_uri)
    with pytest.raises(Corrupt, match="of another log"):
        Query(local_uri, startingTimestamp=at, **changes).start().drain()


def other_log(uri):
    table = Table.create(uri, SCHEMA, time_column="ts", clock=ManualClock(START_US // 1000, 1))
    between = aged_by_another_log(table)
    return dt.datetime.fromtimestamp(between / 1000, dt.UTC).isoformat()


@pytest.mark.parametrize("verb", ["overwrite", "delete", "update"])
def test_a_version_that_removes_rows_ends_the_stream_after_what_was_before_it(table, verb):
    query = Query(table.uri).start().drain()
    append(table, rows(30))
    if verb == "overwrite":
        overwrite(table, rows(35), **FIRST_DAY)
    elif verb == "delete":
        delete(table, where="id = 3")
    else:
        update_rows(table, {table.refresh().segments()[0].id: [0]}, lambda found: found)
    append(table, rows(40))
    assert query.trigger()
    for _ in range(2):
        with pytest.raises(InvalidInput, match=rf"version 5 \({verb}\).*skipChangeCommits"):
            query.trigger()
        query.start()
    query.options["skipChangeCommits"] = "true"
    assert query.start().drain().all_ids == [*range(31), 40]


def test_a_stream_begins_with_the_rows_that_are_not_deleted(table):
    delete(table, where="id % 5 = 3")
    query = Query(table.uri, maxBytesPerTrigger="1").start().drain()
    assert query.all_ids == [n for n in range(30) if n % 5 != 3]
    assert len(query.ends) > 2


def test_new_columns_end_the_stream_and_a_restart_goes_on(table):
    query = Query(table.uri).start().drain()
    append(table, rows(30))
    wider = pa.schema([*SCHEMA, ("more", pa.int64())])
    table.add_columns(wider)
    append(table, rows(31).append_column("more", [[7]]))
    assert query.trigger()
    with pytest.raises(InvalidInput, match="version 5 changed the table's columns: load"):
        query.trigger()
    assert query.start().drain().all_ids == [*range(32)]
    (partition,) = query.reader.partitions(query.ends[-2], query.ends[-1])
    (batch,) = query.reader.read(partition)
    assert batch.to_pylist()[0]["more"] == 7


def test_new_columns_may_be_asked_for_in_the_rest_of_the_first_snapshot(table):
    query = Query(table.uri, maxBytesPerTrigger="1").start()
    query.trigger()
    table.add_columns(pa.schema([*SCHEMA, ("more", pa.int64())]))
    append(table, rows(30, 31).append_column("more", [[7, 8]]))
    query.options["where"] = "more IS NULL OR more > 7"
    assert query.start().drain().all_ids == [*range(30), 31]


def test_a_vacuumed_start_is_an_error_that_says_how_to_go_on(table, caplog):
    run(table, policy=SMALL)
    later = append(table, rows(30))
    vacuum(table, dry_run=False, **NOW)
    horizon = table.refresh().meta.horizon
    append(table, rows(31))
    query = Query(table.uri, startingVersion="1").start()
    with pytest.raises(VersionVacuumed, match=f"version 1 was.*from {horizon}.*failOnDataLoss"):
        query.trigger()
    lossy = Query(table.uri, startingVersion="1", failOnDataLoss="false").start()
    with caplog.at_level(logging.WARNING):
        lossy.drain()
    assert f"versions 1 to {horizon - 1} were vacuumed" in caplog.text
    assert horizon == later
    assert lossy.all_ids == [30, 31]


def test_the_checkpoint_of_another_table_is_refused(table, tmp_path):
    query = Query(table.uri).start().drain()
    query.options["path"] = (tmp_path / "other").as_uri()
    append(Table.create(query.options["path"], SCHEMA, time_column="ts"), rows(1))
    with pytest.raises(TableNotFound, match="belongs to another table"):
        query.start().trigger()


@pytest.mark.parametrize("told", [True, False], ids=["4.2", "4.0"])
def test_a_checkpoint_that_is_ahead_of_its_table_is_refused(table, tmp_path, told):
    """Else the stream would never read what is committed under the numbers that it has passed."""
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    for first in (30, 40):
        append(table, rows(first))
    query = Query(table.uri, told=told).start().drain()
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "older").rename(tmp_path / "table")
    append(Table.open(table.uri), rows(50))
    with pytest.raises(VersionNotFound, match=r"up to version 5.*newest.*is 4.*new checkpoint"):
        query.start().trigger()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"version": "1"}, "option version is for one version: give a stream startingVersion"),
        ({"timestamp": "2013-01-01"}, "option timestamp is for one version"),
        ({"startingVersion": "1", "startingTimestamp": "2013-01-01"}, "not both"),
        ({"startingVersion": "-1"}, "startingVersion: a version must be a whole number"),
        ({"maxVersionsPerTrigger": "0"}, "maxVersionsPerTrigger must be a whole number from 1"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger must be a whole number from 1"),
        ({"skipChangeCommits": "yes"}, "skipChangeCommits must be true or false"),
        ({"failOnDataLoss": "0"}, "failOnDataLoss must be true or false"),
        ({"timeColumn": "ts", "appId": "x"}, "option timeColumn, appId is for writes"),
        ({"readVersion": "1"}, "option readVersion is for writes"),
        ({"maxFilesPerTrigger": "1"}, "unknown option 'maxFilesPerTrigger'.*maxVersionsPerTrigger"),
    ],
)
def test_wrong_options_are_named_before_a_batch(table, options, why):
    pinned, schema = load_schema({"path": table.uri})
    with pytest.raises(InvalidInput, match=why):
        make_stream_reader({"path": table.uri, **options}, schema, pinned)


def test_a_start_beyond_the_table_is_refused(table):
    with pytest.raises(InvalidInput, match="startingVersion is 5, but the newest version is 3"):
        Query(table.uri, startingVersion="5").start().trigger()


def test_batches_refuse_what_is_for_streams(table):
    options = {"path": table.uri, "skipChangeCommits": "true"}
    pinned, schema = load_schema(options)
    with pytest.raises(InvalidInput, match=r"option skipChangeCommits is for streams.*readStream"):
        make_reader(options, schema, pinned)
    with pytest.raises(InvalidInput, match="option skipChangeCommits is for reads"):
        make_writer(options, schema, overwrite=False)


def put_back(tmp_path, *ids):
    """Put the table back from `older`, a copy of it, and append a row in each version after it."""
    shutil.rmtree(tmp_path / "table")
    shutil.copytree(tmp_path / "older", tmp_path / "table")
    for n in ids:
        append(Table.open((tmp_path / "table").as_uri()), rows(n))


@pytest.mark.parametrize("told", [True, False], ids=["4.2", "4.0"])
@pytest.mark.parametrize("changes", ["false", "true"])
@pytest.mark.parametrize("later", [[53, 54], [53, 54, 55]])
def test_versions_that_were_replaced_by_others_end_the_stream(
    table, tmp_path, later, changes, told
):
    """Else the stream would never read what stands in place of the versions that it has read."""
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    query = Query(table.uri, told=told, readChanges=changes).start().drain()
    for first in (30, 40):
        append(table, rows(first))
    query.drain()
    put_back(tmp_path, *later)
    for _ in range(2):
        with pytest.raises(VersionNotFound, match=r"version 5 .*another commit.*new checkpoint"):
            query.start().trigger()


def test_the_rest_of_a_first_snapshot_that_was_replaced_ends_the_stream(table, tmp_path):
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    append(table, rows(*range(30, 40)))
    query = Query(table.uri, maxBytesPerTrigger="1").start()
    query.trigger()
    put_back(tmp_path, 54, 55)
    with pytest.raises(VersionNotFound, match=r"version 4 .*another commit"):
        query.start().trigger()


def test_a_batch_whose_last_version_was_replaced_is_not_run_again(table, tmp_path):
    query = Query(table.uri).start().drain()
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    append(table, rows(30))
    with pytest.raises(Died):
        query.trigger("before")
    put_back(tmp_path, 50, 51)
    with pytest.raises(VersionNotFound, match=r"version 4 .*another commit"):
        query.start()


@pytest.mark.parametrize("limit", [{}, {"maxBytesPerTrigger": "1"}])
def test_a_checkpoint_of_before_commits_were_in_it_goes_on(table, limit):
    query = Query(table.uri, **limit).start()
    assert query.trigger()
    for end in query.ends:
        assert len(end.pop("commit")) == 16
    append(table, rows(30))
    assert query.start().drain().all_ids == [*range(31)]
    assert "commit" in query.ends[-1]


@pytest.mark.verify
def test_requests_of_a_stream(s3, bucket):
    table = Table.create(f"s3://{bucket}/table", SCHEMA, time_column="ts")
    append(table, rows(0))
    query = Query(table.uri)
    with s3.measure() as counts:
        query.start().drain()
    # LIST and GET to load, which has the rows; is there a newer version, and now; the same table?
    assert (counts.list, counts.get) == (1, 4)
    with s3.measure() as counts:
        assert not query.trigger()
    assert (counts.list, counts.get) == (0, 1)
    for versions in (1, 2, 5, 40):
        for n in range(versions):
            append(table, rows(n * DAYS))
        with s3.measure() as counts:
            assert query.trigger()
        # A GET of each version, which has its rows, and one request to learn that there is no more.
        assert counts.list == int(versions > 1)
        assert counts.list + counts.get == versions + 1
    assert counts.put == 0


@pytest.mark.parametrize("versions", [0, 1, 3])
def test_that_a_restart_is_still_of_the_same_log_costs_no_request(s3, bucket, versions):
    table = Table.create(f"s3://{bucket}/table", SCHEMA, time_column="ts")
    append(table, rows(0))
    query, before = Query(table.uri).start().drain(), Query(table.uri)
    for n in range(versions):
        append(table, rows(n))
    before.ends, before.done = [dict(end) for end in query.ends], query.done
    before.ends[-1].pop("commit")
    sent = []
    for one in (before, query):
        with s3.measure() as counts:
            one.start().drain()
        sent.append((counts.list, counts.get))
    assert sent[0] == sent[1]


@pytest.fixture
def stream(spark, table, tmp_path):
    """A function: run a query from the table into another one; return its progress."""

    def run_query(trigger, **options):
        def save(batch, number):
            eventlog.writers.spark.append(
                target, batch, time_column="ts", app_id="copy", app_seq=number
            )

        frame = spark.readStream.format("eventlog").options(**options).load(table.uri)
        query = (
            frame.writeStream.foreachBatch(save)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        try:
            if "availableNow" in trigger:
                query.awaitTermination()
            else:
                query.processAllAvailable()
                append(table, rows(*range(50, 60)))
                query.processAllAvailable()
        finally:
            query.stop()
        return [done for done in query.recentProgress if done["numInputRows"]]

    target = (tmp_path / "copy").as_uri()
    run_query.target = target
    return run_query


@pytest.mark.everyday
def test_spark_reads_what_is_available_and_a_restart_goes_on(stream, table):
    done = stream({"availableNow": True}, startingVersion=0, maxVersionsPerTrigger=2)
    assert [batch["numInputRows"] for batch in done] == ([20, 10] if TOLD else [30])
    if TOLD:
        reported = [json.loads(batch["sources"][0]["latestOffset"]) for batch in done]
        assert [one["version"] for one in reported] == [table.refresh().version] * 2
    append(table, rows(*range(30, 50)))
    run(table, policy=SMALL)
    done = stream({"processingTime": "0 seconds"}, columns="id,ts,name")
    assert [batch["numInputRows"] for batch in done] == [20, 10]
    assert ids_at(Table.open(stream.target)) == [*range(60)]


@pytest.mark.long  # the reasons are tested without Spark
def test_spark_ends_a_stream_with_the_reason(stream, table):
    overwrite(table, rows(35), **FIRST_DAY)
    append(table, rows(36))
    start = {"trigger": {"availableNow": True}, "startingVersion": 4}
    with pytest.raises(
        StreamingQueryException, match=r"version 4 \(overwrite\).*skipChangeCommits"
    ):
        stream(**start)
    stream(**start, skipChangeCommits=True)
    assert ids_at(Table.open(stream.target)) == [36]
