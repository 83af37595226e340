"""Tasks of compaction on Spark: each runs on an executor, which reads, writes and commits.

Imports eventlog, readers and pyspark (extra `spark`). The driver sends tasks and collects outcomes;
no rows pass through it. A task that Spark runs twice (retry, speculation) has one effect, because
`perform` is idempotent (hazards I1, I4).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from eventlog import Table
from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, decode_tasks, encode_tasks
from eventlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMN = "outcome"


def perform_on(spark: SparkSession, t: Table, task: Task, policy: Policy) -> Outcome:
    """Perform a task on an executor, as a job of one partition, and return the outcome.

    Jobs of several threads run concurrently and end independently. Executors need this distribution
    installed, and must reach the store as this process does: storage options are sent with the
    table.

    Args:
        spark: the session.
        t: the table.
        task: a red task, which waits for no other.
        policy: the settings; `memory_bytes` is the limit for this task on its executor.

    Raises:
        Exception: Spark's own error if the executor returned no outcome.
    """
    shipped = encode_tasks([task])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield _performed(t, shipped, policy)

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(work, f"{_COLUMN} binary").collect()
    return msgspec.json.decode(bytes(row[_COLUMN]), type=Outcome)


def parallelism(spark: SparkSession) -> int | None:
    """Return the session's default parallelism; None on Spark Connect."""
    if getattr(spark, "_jvm", None) is None:
        return None
    return int(spark.sparkContext.defaultParallelism)


def spark_session() -> SparkSession:
    """Return the active session, or start one with Spark's own configuration.

    Raises:
        InvalidInput: PySpark is not installed.
    """
    try:
        return active()
    except InvalidInput:
        if find_spec("pyspark") is None:
            raise
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing

    # Otherwise local workers would run whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("eventlog").getOrCreate()


def active() -> SparkSession:
    """Return the active session.

    Raises:
        InvalidInput: PySpark is not installed, or there is no session.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise InvalidInput(
            "the driver spark needs PySpark: pip install 'eventlog-tables[spark]'"
        ) from None
    session = SparkSession.getActiveSession()
    if session is None:
        raise InvalidInput("the driver spark needs a SparkSession: start one first, or pass spark=")
    return session


def _performed(t: Table, shipped: bytes, policy: Policy) -> pa.RecordBatch:
    """Perform a task here. Return one row: the outcome as JSON in the column `outcome`."""
    (task,) = decode_tasks(shipped)
    outcome = msgspec.json.encode(perform(t, task, policy))
    return pa.RecordBatch.from_pydict({_COLUMN: pa.array([outcome], pa.binary())})
