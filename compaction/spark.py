"""Tasks of compaction on Spark: each runs on an executor, which reads, writes and commits.

Imports eventlog, readers and pyspark (extra `spark`). The driver sends tasks and collects outcomes;
no rows pass through it. A task that Spark runs twice (retry, speculation) has one effect, because
`perform` is idempotent (hazards I1, I4).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from eventlog import Table
from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, decode_tasks, encode_tasks
from eventlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        EventLogError: the task is refused.
        Exception: Spark's own error if the executor returned no outcome.
    """
    from eventlog.readers.spark.executors import run_tasks  # noqa: PLC0415 - the extra may be missing

    ((outcome,),) = run_tasks(spark, partial(_performed, t, policy), [encode_tasks([task])])
    return outcome


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


def _performed(t: Table, policy: Policy, shipped: bytes) -> list[Outcome]:
    """Perform a task here, and return its outcome."""
    (task,) = decode_tasks(shipped)
    return [perform(t, task, policy)]
