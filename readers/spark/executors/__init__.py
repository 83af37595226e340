"""Work that is shared out among the executors of a Spark session, whose answers come back.

Imports eventlog, readers and pyspark (extra `spark`). The work is a function of values, which any
attempt may do again: a task that Spark runs twice, or whose executor was killed, does no harm.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from eventlog.clock import SystemClock
from eventlog.errors import EventLogError, InvalidInput
from eventlog.readers.spark.shares import OPEN_BYTES, SHARE, pack_shares
from eventlog.readers.spark.workers import explained, prepare_workers
from eventlog.store.retry import retrying

SHARE_BYTES = 64 * 2**20  # that one task reads
_TRIES = 3  # of a task whose store does not answer

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class SessionExecutors:
    """The executors of a session, as `eventlog.store.parallel.Executors`.

    They need eventlog installed, and must reach the stores as this process does.

    Attributes:
        spark: the session.
    """

    spark: SparkSession

    def __call__(
        self,
        work: Callable[[Sequence[_Item]], Iterable[_Answer]],
        items: Sequence[_Item],
        weigh: Callable[[_Item], int],
    ) -> list[_Answer]:
        """See `eventlog.store.parallel.Executors`."""
        if sum(weigh(item) + OPEN_BYTES for item in items) <= SHARE_BYTES:
            return [*work(items)]  # a job would take longer
        numbers = range(len(items))
        shares = pack_shares(numbers, SHARE_BYTES, lambda number: weigh(items[number]))
        done = run_tasks(self.spark, work, [[items[n] for n in share] for share in shares])
        answers = {
            number: answer
            for share, answers in zip(shares, done, strict=True)
            for number, answer in zip(share, answers, strict=True)
        }
        return [answers[number] for number in numbers]


def active_executors() -> SessionExecutors:
    """Return the executors of the active session.

    Raises:
        InvalidInput: there is no active session.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise InvalidInput("the driver spark needs an active SparkSession: start one first")
    return SessionExecutors(spark)


def run_tasks(
    spark: SparkSession,
    work: Callable[[_Item], Iterable[_Answer]],
    given: Sequence[_Item],
) -> list[list[_Answer]]:
    """Run a task for each of some values; return the answers of each, in their order.

    Args:
        spark: the session.
        work: what a task does. It can be pickled, and may be called several times for one value.
        given: the values, which can be pickled.

    Raises:
        EventLogError: the first one that a task raised.
        InvalidInput: the executors' Python lacks eventlog, or a package that it needs.
    """
    prepare_workers(spark)
    rows = [(bytearray(pickle.dumps((n, one))),) for n, one in enumerate(given)]
    parts: Any = rows
    if hasattr(spark, "_jvm"):  # one task for each
        parts = spark.sparkContext.parallelize(rows, max(1, len(rows)))
    frame = spark.createDataFrame(parts, SHARE, verifySchema=False)
    with explained():
        found = frame.mapInArrow(_Task(work), "answer binary").collect()
    # From tasks of this program.
    answers = dict(pickle.loads(bytes(row.answer)) for row in found)  # noqa: S301
    ordered = [answers[number] for number in range(len(given))]
    for answer in ordered:
        if isinstance(answer, EventLogError):
            raise answer
    return ordered


@dataclass(frozen=True, slots=True)
class _Task:
    """Does work for the values in a column `share`, as `DataFrame.mapInArrow` calls it."""

    work: Callable[[Any], Iterable[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0):
                number, given = pickle.loads(share.as_py())  # noqa: S301 - from this program's driver
                answer = pickle.dumps((number, self._answer(given)))
                yield pa.record_batch([pa.array([answer], pa.binary())], ["answer"])

    def _answer(self, given: Any) -> list[Any] | EventLogError:
        """Return the answers, or an error of ours: Spark would wrap it in one of its own."""
        try:
            return retrying(SystemClock(), tries=_TRIES)(lambda: [*self.work(given)])
        except EventLogError as error:
            return error
