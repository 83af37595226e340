"""Segments that `fsck` compares with the log, read by the executors of a session.

Imports eventlog, readers and pyspark (extra `spark`). Tasks send back what they saw, no rows. A
task that Spark runs twice, or whose executor was killed, has read twice and changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import SparkSession

from eventlog import Segment, limits
from eventlog.errors import InvalidInput
from eventlog.fsck.contents.row_check import ReadSegments, SeenRows, read_segments
from eventlog.readers.spark.shares import SHARE, pack_shares
from eventlog.readers.spark.workers import prepare_workers
from eventlog.store.port import ObjectStore

SHARE_BYTES = 64 * 2**20  # of segments that one task reads
_SEEN = "seen"


class _Seen(Struct, frozen=True, array_like=True):
    """What a task saw of a segment: see `SeenRows`."""

    id: str
    digest: str | None
    problems: list[str]
    refused: bool


_segments = msgspec.json.Decoder(list[Segment])  # created once; safe to share between threads
_seen = msgspec.json.Decoder(_Seen)


@dataclass(frozen=True, slots=True)
class SegmentTasks:
    """Reads shares of segments. Can be pickled.

    Attributes:
        store: the store that has the segments.
        problems: returns what is wrong with the rows of one.
    """

    store: ObjectStore
    problems: Callable[[Segment], list[str]]

    def seen(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each segment, as `DataFrame.mapInArrow` expects them.

        Args:
            shares: batches of one column `share` (`SHARE`).

        Raises:
            Unavailable: the store does not answer; Spark retries the task.
        """
        for batch in shares:
            for share in batch.column(0):
                decoded = _segments.decode(share.as_py())
                rows = [
                    msgspec.json.encode(
                        _Seen(one.segment.id, one.digest, list(one.problems), one.refused)
                    )
                    for one in read_segments(self.store, decoded, self.problems)
                ]
                yield pa.record_batch([pa.array(rows, pa.binary())], [_SEEN])


def reader_on_executors() -> ReadSegments:
    """Return how the executors of the active session read segments.

    Executors need eventlog installed, and must reach the store as this process does.

    Raises:
        InvalidInput: there is no active session.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise InvalidInput("the driver spark needs an active SparkSession: start one first")
    session = spark

    def read(
        store: ObjectStore,
        segments: Iterable[Segment],
        problems: Callable[[Segment], list[str]],
    ) -> Iterator[SeenRows]:
        return _read_on(session, SegmentTasks(store, problems), list(segments))

    return read


def _read_on(
    spark: SparkSession, tasks: SegmentTasks, segments: list[Segment]
) -> Iterator[SeenRows]:
    """Yield what the executors saw, in the order of `read_segments`."""
    if not segments:
        return
    prepare_workers(spark)
    shares = [
        (bytearray(msgspec.json.encode(share)),) for share in pack_shares(segments, SHARE_BYTES)
    ]
    parts: Any = shares
    if hasattr(spark, "_jvm"):  # one task for each share
        parts = spark.sparkContext.parallelize(shares, len(shares))
    frame = spark.createDataFrame(parts, SHARE, verifySchema=False)
    rows = frame.mapInArrow(tasks.seen, f"{_SEEN} binary").collect()
    seen = {one.id: one for one in (_seen.decode(bytes(row[_SEEN])) for row in rows)}
    for segment in sorted(segments, key=lambda one: one.bytes > limits.WHOLE_BYTES):
        one = seen[segment.id]
        yield SeenRows(segment, one.digest, one.problems, one.refused)
