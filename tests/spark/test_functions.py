"""`append`, `overwrite` and `read` as functions of DataFrames: versions, idempotence, requests."""

import datetime as dt
import runpy
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from eventlog import Table, readers
from eventlog.errors import CommitConflict, InvalidInput, TableNotFound
from eventlog.log.snapshot import plan_scan
from eventlog.readers.spark import choose_engine, engines, read
from eventlog.readers.spark.engines import MANY, SMALL, Facts, decide, gather_facts, jvm_refusal
from eventlog.writers.spark import append, overwrite

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_job.py"


def ids_of(frame):
    return sorted(row.id for row in frame.collect())


def staged(uri):
    return sum(1 for _ in Table.open(uri).store.list("data/"))


def test_what_is_no_frame_of_spark_is_refused(local_uri):
    with pytest.raises(InvalidInput, match="a Spark DataFrame was expected, not Table"):
        append(local_uri, pa.table({"id": [1]}), time_column="id")


def test_the_table_comes_first(local_uri):
    with pytest.raises(InvalidInput, match="Table is not the root of a table: its URI comes first"):
        append(pa.table({"id": [1]}), local_uri, time_column="id")


@pytest.mark.everyday
def test_the_rows_of_a_frame_become_a_version(events, root_uri, rows_of, spark):
    first = append(root_uri, events(25), time_column="ts", order_by=["id"])
    second = append(root_uri, events(5, first=25))
    assert (first, second) == (1, 2)
    assert rows_of(root_uri).column("id").to_pylist() == list(range(30))
    wanted = sorted(events(30).collect())
    for engine in ("arrow", "jvm") if root_uri.startswith("file") else ("arrow",):
        assert sorted(read(spark, root_uri, engine=engine).collect()) == wanted
        assert ids_of(read(spark, root_uri, engine=engine, version=1)) == list(range(25))


@pytest.mark.everyday
@pytest.mark.shows("idempotent re-run")
def test_a_unit_of_work_takes_effect_once_and_stages_nothing_again(events, local_uri, rows_of):
    unit = {"app_id": "load", "app_seq": 7}
    version = append(local_uri, events(5), time_column="ts", **unit)
    before = staged(local_uri)
    assert append(local_uri, events(5), **unit) == version
    assert append(local_uri, events(5), app_id="load", app_seq=6) == version
    assert overwrite(local_uri, events(1), **unit) == version
    assert staged(local_uri) == before
    assert rows_of(local_uri).num_rows == 5


def test_a_unit_of_work_before_the_last_one_is_warned_of(events, local_uri, caplog):
    append(local_uri, events(5), time_column="ts", app_id="load", app_seq=7)
    append(local_uri, events(5), app_id="load", app_seq=7)
    assert not caplog.records
    append(local_uri, events(5), app_id="load", app_seq=6)
    (record,) = caplog.records
    assert "app 'load' is at sequence 7 already (version 1), so that sequence 6" in record.message


def test_the_example_loads_days_in_any_order(spark, local_uri, rows_of):
    """A day that is loaded later than the next one is no repetition."""
    example = runpy.run_path(str(EXAMPLE))
    days = [dt.date(2013, 1, 8), dt.date(2013, 1, 7), dt.date(2013, 1, 8)]
    assert [example["load"](spark, local_uri, day) for day in days] == [1, 2, 1]
    found = rows_of(local_uri).column("time_hour").to_pylist()
    assert sorted({moment.date() for moment in found}) == days[1::-1]
    assert len(found) == 2 * 1440


@pytest.mark.everyday
def test_an_overwrite_replaces_a_range_or_everything(events, local_uri, rows_of):
    append(local_uri, events(30), time_column="ts")
    day = "ts >= '2013-01-08' AND ts < '2013-01-09'"
    assert overwrite(local_uri, events(2, first=10), where=day) == 2
    assert rows_of(local_uri).column("id").to_pylist() == [*range(12), *range(20, 30)]
    assert overwrite(local_uri, events(1), start="2013-01-07", end="2013-01-09") == 3
    assert rows_of(local_uri).column("id").to_pylist() == [0, *range(20, 30)]
    assert overwrite(local_uri, events(3)) == 4
    assert rows_of(local_uri).num_rows == 3


def test_an_overwrite_keeps_what_came_after_the_version_it_read(events, local_uri, rows_of):
    read_version = append(local_uri, events(5), time_column="ts")
    append(local_uri, events(3, first=5))
    overwrite(local_uri, events(2, first=20), read_version=read_version)
    assert rows_of(local_uri).column("id").to_pylist() == [5, 6, 7, 20, 21]
    with pytest.raises(CommitConflict):
        overwrite(local_uri, events(1), read_version=read_version, isolation="serializable")


def test_a_save_that_makes_many_small_segments_says_what_to_do(spark, local_uri, caplog):
    time = "timestamp_seconds(1357516800 + id % 26 * 86400) as ts"
    tasks = spark.range(0, 104, 1, 4).selectExpr("id", time)
    append(local_uri, tasks, time_column="ts", properties={"inline_bytes": "0"})
    [message] = [record.getMessage() for record in caplog.records]
    assert "104 segments for 26 chunks" in message
    assert "repartition the DataFrame" in message
    caplog.clear()
    append(local_uri, tasks.repartition(4, "ts"))
    assert not caplog.records


def test_an_empty_frame_commits_nothing_unless_it_replaces(events, local_uri, rows_of):
    version = append(local_uri, events(5), time_column="ts")
    assert append(local_uri, events(5).where("id > 9")) == version
    assert overwrite(local_uri, events(5).where("id > 9")) == version + 1
    assert rows_of(local_uri).num_rows == 0


def test_wrong_arguments_are_refused_before_any_task(events, local_uri):
    with pytest.raises(TableNotFound, match="time_column"):
        append(local_uri, events(5))
    append(local_uri, events(5), time_column="ts", granularity="day")
    before = staged(local_uri)
    for call, message in (
        (lambda: append(local_uri, events(5), time_column="id"), "the existing table has 'ts'"),
        (lambda: append(local_uri, events(5), granularity="hour"), "the existing table has 'day'"),
        (lambda: append(local_uri, events(5), app_id="a"), "app_id and app_seq together"),
        (lambda: append(local_uri, events(5).selectExpr("*", "1 x")), "unknown columns: 'x'"),
        (lambda: append(local_uri, events(5), memory_bytes=1), "memory_bytes"),
        (lambda: overwrite(local_uri, events(5), isolation="none"), "snapshot, serializable"),
        (lambda: overwrite(local_uri, events(5), where="id + 3"), "not a boolean condition"),
        (
            lambda: overwrite(local_uri, events(5), where="ts >= '2013-01-07'", start="2013-01-07"),
            "means the same as replaceWhere",
        ),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()
    assert (Table.open(local_uri).session.head().version, staged(local_uri)) == (1, before)


def test_rows_that_do_not_fit_fail_the_job_and_commit_nothing(events, local_uri):
    append(local_uri, events(5), time_column="ts")
    bad = events(20, partitions=1).selectExpr("id", "if(id % 10 = 7, null, ts) ts", "name")
    with pytest.raises(Exception, match="2 event times are null, for example row id=7"):
        append(local_uri, bad)
    assert Table.open(local_uri).session.head().version == 1


def test_requests_of_a_save_and_a_load(spark, s3, bucket, events):
    uri = f"s3://{bucket}/t"
    # Rows of no other table: Spark's workers keep those of commits that they have read.
    first, frame = (events(3, first=n, partitions=1) for n in (5001, 5004))
    append(uri, first, time_column="ts")  # proves once that the store is atomic
    frame.cache().count()
    with s3.measure() as counts:
        append(uri, frame)
    # Two to open, one commit, which has the rows; one more if the job took longer than a second.
    assert (counts.put, counts.list) == (1, 1)
    assert counts.get in (1, 2)
    with s3.measure() as counts:
        assert read(spark, uri, engine="arrow").count() == 6
    assert (counts.list, counts.put) == (1, 0)
    assert counts.get == 1 + 2  # the commit, and in the task the two that have the rows
    with s3.measure() as counts:
        assert read(spark, uri, version=1, engine="arrow").count() == 3
    assert (counts.list, counts.put) == (0, 0)
    assert counts.get in (1, 2)  # the worker may have read its rows


def test_requests_of_a_cold_read(s3, bucket, events):
    uri = f"s3://{bucket}/t"
    options = s3.storage_options()
    append(uri, events(3, partitions=1), time_column="ts", properties={"keyframe_commits": "1"})
    append(uri, events(3, first=3, partitions=1))
    for version, listings, gets in ((None, 1, 2), (1, 0, 1), (2, 0, 2)):
        with s3.measure() as counts:
            readers.scan(uri, version=version, storage_options=options)
        assert (counts.list, counts.get) == (listings, gets), version


SMALL_FILES = {"files": MANY + 1, "bytes": MANY * SMALL // 2}


@pytest.mark.parametrize(
    ("facts", "engine", "reason"),
    [
        (Facts("file"), "jvm", "local files"),
        (Facts("file", obstacle="cannot evaluate this where"), "arrow", "this where"),
        (Facts("file", remote=True), "arrow", "Spark Connect"),
        (Facts("memory"), "arrow", "memory locations"),
        (Facts("s3", s3a=False), "arrow", "hadoop-aws"),
        (Facts("s3", s3a=True), "jvm", "faster"),
        (Facts("s3", s3a=True, unknown_to_jvm="the endpoint"), "arrow", "lack the endpoint"),
        (Facts("s3", s3a=True, **SMALL_FILES), "arrow", "65 small segments"),
        (Facts("s3", s3a=True, files=MANY + 1, bytes=SMALL * (MANY + 1)), "jvm", "faster"),
        (Facts("file", **SMALL_FILES), "jvm", "local files"),
        (Facts("file", inline=9), "arrow", "9 small segments stand in commits"),
        (Facts("file", inline=9, files=1, bytes=SMALL - 1), "arrow", "few are in files"),
        (Facts("file", inline=9, files=1, bytes=SMALL), "jvm", "local files"),
        (Facts("s3", s3a=True, inline=9, files=1, bytes=SMALL), "jvm", "faster"),
    ],
)
def test_the_engine_follows_from_what_is_known(facts, engine, reason):
    choice = decide(facts)
    assert choice.engine == engine
    assert reason in choice.reason


def test_rows_in_commits_need_data_sources_on_spark_connect(monkeypatch):
    facts = Facts("file", remote=True, files=1, inline=2)
    monkeypatch.setattr(engines, "has_data_sources", lambda: True)
    assert jvm_refusal(facts) is None
    monkeypatch.setattr(engines, "has_data_sources", lambda: False)
    why = jvm_refusal(facts)
    assert "2 small segments, which stand in commits" in why
    assert "connect to a newer server" in why
    assert jvm_refusal(Facts("file", remote=True, files=1)) is None


KEYS = {"access_key_id": "AKIA", "secret_access_key": "secret"}


@pytest.mark.parametrize(
    ("settings", "storage_options", "lacks"),
    [
        ({}, {}, None),
        ({}, KEYS, "credentials"),
        ({"fs.s3a.access.key": "AKIA"}, KEYS, None),
        ({"fs.s3a.access.key": "another"}, KEYS, "credentials"),
        ({}, {"profile": "job"}, "credentials"),
        ({"fs.s3a.access.key": "AKIA"}, {"profile": "job"}, None),
        ({"fs.s3a.aws.credentials.provider": "Own"}, {"profile": "job"}, None),
    ],
)
def test_credentials_that_only_eventlog_has_are_no_help_to_the_jvm(
    local_uri, monkeypatch, settings, storage_options, lacks
):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    table = Table.create(
        local_uri, pa.schema([("ts", pa.timestamp("us", "UTC"))]), time_column="ts"
    )
    session = mock.MagicMock()  # one that has the s3a file system
    hadoop = session.sparkContext._jsc.hadoopConfiguration.return_value
    hadoop.get = settings.get
    hadoop.getPropertySources = lambda name: ["set" if name in settings else "core-default.xml"]
    facts = gather_facts(
        session, "s3://bucket/table", plan_scan(table.session.head()), storage_options
    )
    assert facts.s3a
    assert (lacks or "") in (facts.unknown_to_jvm or "")
    assert decide(facts).engine == ("arrow" if lacks else "jvm")


def test_the_choice_can_be_asked_for(spark, events, local_uri, s3, bucket):
    append(local_uri, events(3), time_column="ts")
    choice = choose_engine(spark, local_uri)
    assert (choice.engine, "stand in commits" in choice.reason) == ("arrow", True)
    Table.open(local_uri).set_properties({"inline_bytes": "0"})
    overwrite(local_uri, events(3))
    assert choose_engine(spark, local_uri).engine == "jvm"
    uri = f"s3://{bucket}/t"
    append(uri, events(3), time_column="ts")
    choice = choose_engine(spark, uri, storage_options=s3.storage_options())
    assert (choice.engine, "hadoop-aws" in choice.reason) == ("arrow", True)


def test_spark_takes_no_table_for_a_small_one(spark, events, local_uri):
    append(local_uri, events(3), time_column="ts")
    one, other = (read(spark, local_uri, engine="arrow") for _ in range(2))
    joined = one.join(other, on="name")
    assert "BroadcastHashJoin" not in joined._jdf.queryExecution().executedPlan().toString()
