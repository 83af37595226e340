"""Compaction on executors: one task a partition, each of which commits by itself."""

import pyarrow as pa
import pytest

from compaction import Policy, plan, run
from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.fsck import fsck
from readers import scan
from writers import append

DAY_US = 86_400_000_000
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
CHUNKS = 1_000


def days(first, count, number):
    """One row a day, numbered so that each is another."""
    rows = range(first, first + count)
    return pa.table([[d * DAY_US + number for d in rows], [d * 10 + number for d in rows]], SCHEMA)


def test_s3_7_spark_driver_compacts_a_thousand_chunks(spark, tmp_path):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(2):
        append(t, days(0, CHUNKS, number))
    before = sorted(scan(t).to_table()["n"].to_pylist())
    # Tasks of a few dozen chunks each, so that there are many for the executors to share.
    policy = Policy(
        target_bytes=8192, max_task_bytes=65_536, small_task_bytes=65_536, max_tasks=100
    )
    tasks = plan(t, policy).tasks
    assert len(tasks) > 10
    report = run(t, driver="spark", policy=policy, spark=spark)
    assert report.count("done") == len(report.outcomes) == report.planned == len(tasks)
    head = t.snapshot()
    assert [(c.segments, c.rows) for c in head.chunks()] == [(1, 2)] * CHUNKS
    assert sorted(scan(t).to_table()["n"].to_pylist()) == before
    assert plan(t, policy).tasks == ()
    assert fsck(t).ok


def test_tasks_that_come_twice_and_at_once_have_one_effect(spark, tmp_path):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(3):
        append(t, days(0, 4, number))
    tasks = plan(t, Policy()).tasks
    # As by speculation: the same task in two partitions of one job.
    from compaction.spark import perform_on  # noqa: PLC0415

    outcomes = perform_on(spark, t, [*tasks, *tasks], Policy())
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len({outcome.version for outcome in outcomes}) == 1
    assert t.snapshot().totals.rows == 12
    assert t.snapshot().totals.segments == 4


def test_without_a_session_it_says_so(monkeypatch, tmp_path, spark):
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    for number in range(2):
        append(t, days(0, 1, number))
    monkeypatch.setattr(type(spark), "getActiveSession", classmethod(lambda _: None))
    with pytest.raises(InvalidInput, match="SparkSession"):
        run(t, driver="spark")
