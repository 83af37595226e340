"""Tasks of compaction on Spark: each one on an executor, which reads, writes and commits by itself.

Imports eventlog, readers and pyspark (extra `spark`). The driver ships tasks and collects outcomes;
no row passes through it. A task that Spark runs twice (retry, speculation) has one effect, because
`perform` is idempotent (hazards I1, I4).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from compaction.perform import Outcome, perform
from compaction.policy import Policy
from compaction.tasks import Task, decode, encode
from eventlog import Table
from eventlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMN = "outcome"


def perform_on(
    spark: SparkSession | None, t: Table, tasks: Sequence[Task], policy: Policy
) -> list[Outcome]:
    """Perform the tasks on the executors, each in a partition of its own; return the outcomes.

    Executors need this distribution installed, and reach the store as this process does: storage
    options travel with the table.

    Args:
        spark: the session; the active one if None.
        t: the table.
        tasks: red ones: none waits for another.
        policy: the settings.

    Raises:
        InvalidInput: there is no session.
    """
    session = spark or _active()
    shipped = [encode([task]) for task in tasks]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                (task,) = decode(shipped[number])
                outcome = msgspec.json.encode(perform(t, task, policy))
                yield pa.RecordBatch.from_pydict({_COLUMN: pa.array([outcome], pa.binary())})

    numbers = session.range(0, len(shipped), 1, len(shipped))
    rows: list[Any] = numbers.mapInArrow(work, f"{_COLUMN} binary").collect()
    return [msgspec.json.decode(bytes(row[_COLUMN]), type=Outcome) for row in rows]


def session() -> SparkSession:
    """Return the active session, or one started as Spark's own configuration says.

    Raises:
        InvalidInput: PySpark is not installed.
    """
    try:
        return _active()
    except InvalidInput:
        if find_spec("pyspark") is None:
            raise
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing

    # Workers of this machine would else be whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("eventlog compact").getOrCreate()


def _active() -> SparkSession:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise InvalidInput(
            "the driver spark needs PySpark: pip install 'eventlog[spark]'"
        ) from None
    session = SparkSession.getActiveSession()
    if session is None:
        raise InvalidInput("the driver spark needs a SparkSession: start one first, or pass spark=")
    return session
