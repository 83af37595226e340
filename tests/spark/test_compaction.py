"""Compaction on executors: one job a task, each of which commits by itself."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pyarrow as pa
import pytest

import eventlog.compaction.spark
from eventlog import Table
from eventlog.compaction import Policy, plan, run
from eventlog.errors import InvalidInput
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import append, delete

DAY_US = 86_400_000_000
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def days(first, count, number):
    """One row a day, numbered so that each is another."""
    rows = range(first, first + count)
    return pa.table([[d * DAY_US + number for d in rows], [d * 10 + number for d in rows]], SCHEMA)


@pytest.fixture
def elsewhere(monkeypatch):
    """Whatever this process performs by itself fails: only executors can."""

    def here(*_, **__):
        raise AssertionError("a task was performed in the driver's process")

    for name in (
        "eventlog.compaction.execute",
        "eventlog.compaction.runner",
        "eventlog.compaction.spark",
    ):
        monkeypatch.setattr(import_module(name), "perform", here)


def jobs(spark):
    """The jobs of the session so far, by id."""
    tracker = spark.sparkContext.statusTracker()
    return {number: tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(None)}


def test_executors_leave_out_deleted_rows(spark, local_uri, elsewhere):
    t = Table.create(local_uri, SCHEMA, time_column="at")
    for number in range(3):
        append(t, days(0, 4, number))
    delete(t, where="n IN (0, 12, 31)")
    report = run(t, driver="spark", spark=spark)
    assert [outcome.status for outcome in report.outcomes] == ["done"]
    left = [10 * d + k for d in range(4) for k in range(3)]
    assert sorted(scan(t).to_table()["n"].to_pylist()) == [n for n in left if n not in (0, 12, 31)]
    assert all(s.rows == s.live_rows for s in t.refresh().segments())


@pytest.mark.scenario("S3.7")
@pytest.mark.parametrize(
    "root_uri", [pytest.param("local", marks=pytest.mark.long), "s3"], indirect=True
)
def test_s3_7_spark_driver_compacts_a_thousand_chunks(spark, root_uri, elsewhere):
    """A thousand of them in a directory; fewer on S3, where the server runs in this process."""
    chunks = 60 if root_uri.startswith("s3:") else 1_000
    t = Table.create(root_uri, SCHEMA, time_column="at")
    for number in range(2):
        append(t, days(0, chunks, number))
    before = sorted(scan(t).to_table()["n"].to_pylist())
    # A few tasks of many chunks, for the executors to share.
    most = 16_384 * (1 if root_uri.startswith("s3:") else 16)
    policy = Policy(target_bytes=4096, max_task_bytes=most, small_task_bytes=most, max_tasks=100)
    tasks = plan(t, policy).tasks
    assert len(tasks) >= 4
    known = jobs(spark)
    report = run(t, driver="spark", policy=policy, spark=spark)
    assert [outcome.error for outcome in report.outcomes if outcome.error] == []
    assert report.count("done") == len(report.outcomes) == report.planned == len(tasks)
    started = [job for number, job in jobs(spark).items() if number not in known]
    assert len(started) == len(tasks)
    assert {job.status for job in started} == {"SUCCEEDED"}
    head = t.snapshot()
    assert [(c.segments, c.rows) for c in head.chunks()] == [(1, 2)] * chunks
    assert sorted(scan(t).to_table()["n"].to_pylist()) == before
    assert plan(t, policy).tasks == ()
    assert fsck(t).ok


def test_tasks_that_come_twice_and_at_once_have_one_effect(spark, tmp_path, elsewhere):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(3):
        append(t, days(0, 4, number))
    (task,) = plan(t, Policy()).tasks
    # As by speculation: the same task twice at once.
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(
            pool.map(
                lambda _: eventlog.compaction.spark.perform_on(spark, t, task, Policy()), range(2)
            )
        )
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len({outcome.version for outcome in outcomes}) == 1
    assert t.snapshot().totals.rows == 12
    assert t.snapshot().totals.segments == 4


def test_a_job_that_fails_ends_its_own_task_only(spark, tmp_path, monkeypatch, elsewhere):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(2):
        append(t, days(0, 3, number))
    policy = Policy(small_task_bytes=0)
    first, *_ = tasks = plan(t, policy).tasks
    assert len(tasks) == 3
    encode = eventlog.compaction.spark.encode_tasks
    # What an executor cannot read it cannot perform: the job itself fails, and so does its retry.
    monkeypatch.setattr(
        eventlog.compaction.spark, "encode_tasks", lambda of: b"{" if of == [first] else encode(of)
    )
    report = run(t, driver="spark", policy=policy, spark=spark)
    assert (report.count("done"), report.count("failed")) == (2, 1)
    (failed,) = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert failed.task == first.id
    assert "these are not tasks of compaction" in failed.error
    assert len(failed.error) <= 500
    ((name, state),) = t.snapshot().meta.chunks.items()
    assert (name, state.state, state.failures) == (first.chunks[0], "unstable", 1)


def test_the_session_says_how_many_tasks_run_at_once(spark):
    assert (
        eventlog.compaction.spark.parallelism(spark) == spark.sparkContext.defaultParallelism == 2
    )


def test_without_a_session_it_says_so(monkeypatch, tmp_path, spark):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(2):
        append(t, days(0, 1, number))
    monkeypatch.setattr(type(spark), "getActiveSession", classmethod(lambda _: None))
    with pytest.raises(InvalidInput, match="SparkSession"):
        run(t, driver="spark")
