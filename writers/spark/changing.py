"""Changes of rows from Spark, in tables without a key: its tasks find rows and stage new ones.

Imports eventlog, readers and pyspark. The driver decides and commits, as in
`eventlog.writers.changing`; what was found is sent to it as positions, a few bytes for each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from eventlog import Snapshot, Table
from eventlog.model.actions import Add, Update
from eventlog.model.entries import Segment
from eventlog.readers.spark.shares import DEFAULT_TARGET_BYTES, OPEN_BYTES, SHARE
from eventlog.readers.spark.workers import explained, prepare_workers
from eventlog.segments.fragments import Reading
from eventlog.segments.vectors import VectorReader
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.writers.changing.finding import Found, Hits, Place, Search, hits_of, rows_passing
from eventlog.writers.changing.landing import Staged
from eventlog.writers.changing.updating import (
    NewValues,
    Order,
    Updates,
    check_read_again,
    with_values,
)
from eventlog.writers.spark.jobs import pack_rows

_FOUND = "segment string, version bigint, positions binary, rows binary"
_STAGED = "adds binary, rows bigint, kept boolean, first bigint, last bigint"
_segments = msgspec.json.Decoder(list[Segment])  # created once; safe to share between threads
_adds = msgspec.json.Decoder(list[Add])


@dataclass(frozen=True, slots=True)
class SparkSearch(Search):
    """A search whose segments are read by the tasks of a Spark job. See `Search`.

    Rows that it keeps are sent to the driver; each task may send an equal share of what fits there.
    """

    spark: SparkSession

    def _search(
        self,
        snapshot: Snapshot,
        segments: Sequence[Segment],
        vectors: VectorReader,  # noqa: ARG002 - tasks read those of their own segments
        room: int,
    ) -> dict[Place, Hits]:
        """See `Search`."""
        if not segments:
            return {}
        shares = shares_of(segments)
        task = _Finding(*self.readings(snapshot), room // len(shares))
        found = {(s.id, s.version): Hits(BitMap64()) for s in segments}
        for row in run_shares(self.spark, shares, task.rows, _FOUND):
            rows = None if row.rows is None else pa.ipc.open_stream(row.rows).read_all()
            positions = BitMap64.deserialize(bytes(row.positions))
            found[row.segment, row.version] = Hits(positions, rows)
        return found

    def reading_of(self, found: Found, schema: pa.Schema) -> Reading:
        """Return how tasks read the rows that were found."""
        return self._reading(self._plan(found.snapshot), schema)


@dataclass(frozen=True, slots=True)
class _Finding:
    """The task that finds rows.

    Attributes:
        whole: see `Search.readings`.
        wanted: see `Search.readings`.
        room: how many bytes the rows that are sent to the driver may take.
    """

    whole: Reading
    wanted: Reading
    room: int

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows, a row for each segment that has some."""
        for share in decode_shares(given):
            hits = hits_of(share, rows_passing(self.whole, self.wanted, share, self.room))
            found = {place: one for place, one in hits.items() if one.positions}
            rows = [one.rows for one in found.values()]
            columns = {
                "segment": pa.array([name for name, _ in found], pa.string()),
                "version": pa.array([version for _, version in found], pa.int64()),
                "positions": pa.array(
                    [one.positions.serialize() for one in found.values()], pa.binary()
                ),
                "rows": pa.array(
                    [None if kept is None else pack_rows(kept) for kept in rows], pa.binary()
                ),
            }
            yield pa.record_batch(columns)


@dataclass
class SparkUpdates(Updates):
    """Stages the new forms of rows: of those that the driver has there, else in tasks.

    See `Updates`.
    """

    search: SparkSearch

    def _stage(self, found: Found) -> Staged:
        return super()._stage(found) if driver_has(found) else self._stage_by_tasks(found)

    def _stage_by_tasks(self, found: Found) -> Staged:
        t, head = self.search.t, found.snapshot
        recipe = dataclasses.replace(Recipe.of(head), inline_bytes=0)  # of many tasks
        recipe = replace(recipe, layout=msgspec.structs.replace(recipe.layout, order_by=()))
        task = _Updates(
            t,
            recipe,
            replace(self.search.reading_of(found, head.schema), rare=True),
            self.values,
            head.schema,
            self.search.memory_bytes,
        )
        shares = shares_of([one.segment for one in found.selected])
        done = run_shares(self.search.spark, shares, task.rows, _STAGED)
        adds = [add for row in done for add in _adds.decode(bytes(row.adds))]
        rows = sum(row.rows for row in done)
        check_read_again(t, found, rows)
        spans = [(row.first, row.last) for row in done if row.rows]
        in_order = all(before[1] <= after[0] for before, after in pairwise(spans))
        t.session.log.staged.vouch(adds)
        paired = in_order and all(row.kept for row in done)
        return sorted(adds, key=lambda add: add.chunk), Update(rows, paired=paired)


@dataclass(frozen=True, slots=True)
class _Updates:
    """The task that stages new forms of rows."""

    t: Table
    recipe: Recipe
    reading: Reading
    values: Mapping[str, NewValues]
    schema: pa.Schema
    memory_bytes: int

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what was staged, a row for each share."""
        layout = self.recipe.layout
        for share in decode_shares(given):
            order = Order(layout.time_column, layout.granularity)
            with Stager(self.t.store, self.t.clock, self.recipe, self.memory_bytes) as stager:
                for _, batch in self.reading.located(share):
                    rows = pa.Table.from_batches([batch])
                    table = with_values(rows, self.values, self.schema)
                    order.watch(table)
                    for new in table.to_batches():
                        stager.write(new)
                adds = msgspec.json.encode(stager.finish())
            columns = ([adds], [order.rows], [order.kept], [order.first or 0], [order.last or 0])
            kinds = (pa.binary(), pa.int64(), pa.bool_(), pa.int64(), pa.int64())
            arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
            yield pa.record_batch(arrays, ["adds", "rows", "kept", "first", "last"])


def driver_has(found: Found) -> bool:
    """Return whether tasks have sent all of the rows that they found to the driver."""
    kept = found.kept_rows(found.snapshot.schema.names) is not None
    return not found.selected or kept  # against rows-that-the-driver-has-read-again


def shares_of(segments: Sequence[Segment]) -> list[bytes]:
    """Return segments in shares of about equal weight, in their order."""
    weights = [segment.bytes + OPEN_BYTES for segment in segments]
    count = max(1, -(-sum(weights) // DEFAULT_TARGET_BYTES))
    most = -(-sum(weights) // count)
    shares, size = list[list[Segment]](), most
    for segment, weight in zip(segments, weights, strict=True):
        if size + weight > most:
            shares.append([])
            size = 0
        shares[-1].append(segment)
        size += weight
    return [msgspec.json.encode(share) for share in shares]


def run_shares(
    spark: SparkSession,
    shares: Sequence[bytes],
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> list[Any]:
    """Run a task for each share, and return the rows of their results, in the order of shares."""
    frame = frame_of(spark, shares)
    with explained():
        return frame.mapInArrow(task, schema).collect()


def frame_of(spark: SparkSession, shares: Sequence[bytes]) -> DataFrame:
    """Return a frame of shares, each in a partition of its own where Spark allows it."""
    prepare_workers(spark)
    listed = [(bytearray(share),) for share in shares]
    if hasattr(spark, "_jvm"):
        parts = spark.sparkContext.parallelize(listed, max(1, len(listed)))
        return spark.createDataFrame(parts, SHARE, verifySchema=False)
    return spark.createDataFrame(listed, SHARE)


def decode_shares(given: Iterator[pa.RecordBatch]) -> Iterator[list[Segment]]:
    """Yield the segments of the shares that a task is given."""
    for batch in given:
        for share in batch.column(0):
            yield _segments.decode(share.as_py())
