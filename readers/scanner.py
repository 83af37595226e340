"""Scans: the rows of one version as Arrow, pandas, Polars or DuckDB.

Imports eventlog only. A scan is pinned to its version when it is created. Each time it is consumed
it reads the same rows in the same order.
"""

from __future__ import annotations

import importlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.arguments import opened, whole
from eventlog.errors import DataLoss, EventLogError, InvalidInput
from eventlog.format import keys
from eventlog.keyed.rule import reader_rule
from eventlog.log.log import Log
from eventlog.log.snapshot import plan as plan_of
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers.keyed import SliceReader
from eventlog.recovery import fallback
from eventlog.segments.fragments import DEFAULT_BATCH_ROWS, Reading, ahead_of
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.state.scan import ScanPlan
from eventlog.state.small.holds import check_kept
from eventlog.store.location import open_store
from eventlog.store.parallel import each

logger = logging.getLogger(__name__)


class Rows(ABC):
    """Rows that are read each time they are consumed: as Arrow, pandas, Polars or DuckDB.

    Every batch has exactly `schema`. Consumers that read through the C interface report read errors
    as their own error type.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, in bounded memory."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. See `to_batches` for the errors of reading it."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows in memory. See `to_batches` for its errors."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, with every value unchanged.

        See `to_batches` for the errors of reading.

        Integer columns with nulls get pandas' nullable types (`Int64`). Inside lists and structs
        such integers become Python integers, because pandas would turn them into floats and round
        large ones. Times have microseconds. Decimals, dates and nested values are objects. Pandas
        has only one missing float: both null and NaN become NaN.

        Raises:
            InvalidInput: pandas is not installed, or Python cannot represent a value, such as a
                date outside the years 1 to 9999.
        """
        pandas = _need("pandas", "pandas")
        rows = self.to_table()
        try:
            frame = rows.to_pandas(integer_object_nulls=True)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise InvalidInput(
                f"pandas cannot represent a value ({error}): leave its column out, or use "
                "to_table() or to_polars()"
            ) from None
        for place, column in enumerate(rows.columns):
            if pa.types.is_integer(column.type) and column.null_count:
                nullable = pandas.array([], dtype=f"Int{column.type.bit_width}").dtype
                values = column.to_pandas(types_mapper={column.type: nullable}.get)
                values.index = frame.index
                frame.isetitem(place, values)
        return frame

    def to_polars(self) -> Any:
        """Return all rows as a Polars DataFrame, with every value unchanged.

        See `to_batches` for the errors of reading.

        Raises:
            InvalidInput: Polars is not installed.
        """
        return _need("polars", "eventlog-tables[polars]").from_arrow(self.to_table())

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a DuckDB relation, which streams them each time it runs.

        Every value is unchanged. DuckDB's own SQL interprets them by its rules and the time zone of
        its session, for example when it reads a time without an offset.

        Args:
            connection: a DuckDB connection; the default one if None.

        Raises:
            InvalidInput: DuckDB is not installed.
        """
        duckdb = _need("duckdb", "eventlog-tables[duckdb]")
        return (duckdb if connection is None else connection).from_arrow(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream of the rows by Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True)
class Scan(Rows):
    """A query of one version. No rows are read until it is consumed.

    Rows are ordered by (time chunk, version, position in that version's commit), and within a
    segment as stored; this does not sort them fully by the time column. Every batch has exactly
    `schema`. Consuming methods may be called repeatedly; each call reads again. Consumers that read
    through the C interface report read errors as their own error type.

    Attributes:
        plan: the segments to read, and why the others were pruned.
        reading: how they are read.
        snapshot: the snapshot of the version.
        fallback: whether lost segments are replaced by their sources; see `scan`.
    """

    plan: ScanPlan
    reading: Reading
    snapshot: Snapshot
    fallback: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.plan.schema

    @property
    def version(self) -> int:
        """The version being read."""
        return self.plan.version

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, in bounded memory.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the predicate fails on the rows, for example by an overflow.
            Unavailable: the store does not answer.
        """
        if self.fallback:
            reading, segments = self._around()
            return reading.batches(segments)
        return self._batches()

    def to_table(self) -> pa.Table:
        """Return all rows in memory. See `to_batches` for its errors."""
        if self.fallback:  # no row is returned before all are read
            try:
                return pa.Table.from_batches(self._batches(), self.schema)
            except DataLoss as error:
                logger.warning("%s", error)
        return self.to_reader().read_all()

    def count(self) -> int:
        """Return the number of rows, from metadata if possible, else by reading filter columns.

        See `to_batches` for its errors.
        """
        known = self.plan.count()
        if known is not None:
            return known
        try:
            if self.plan.rule is not None:
                bare = replace(self.reading, schema=pa.schema([]))
                slices = SliceReader(bare, self.plan.rule)
                return sum(batch.num_rows for batch in slices.batches(self.plan.runs))
            return self.reading.count(self.plan.in_scan_order())
        except DataLoss as error:
            if not self.fallback:
                self._advise(error)
                raise
            logger.warning("%s", error)
        reading, segments = self._around()
        return reading.count(segments)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the version's own segments."""
        try:
            if self.plan.rule is not None:
                yield from SliceReader(self.reading, self.plan.rule).batches(self.plan.runs)
            else:
                yield from self.reading.batches(self.plan.in_scan_order())
        except DataLoss as error:
            if not self.fallback:
                self._advise(error)
            raise

    def _advise(self, error: DataLoss) -> None:
        """Add to the error how to read the rows from elsewhere, if that is possible."""
        lost = [s for s in self.plan.segments() if keys.key_of(s) == error.key]
        try:
            stand_ins = fallback.find(Log(self.reading.store), self.snapshot, lost)
        except EventLogError:
            return  # the caller needs the error of the loss itself
        if lost and not stand_ins.missing:
            error.message += (
                "; the segments it was compacted from still exist: scan(..., fallback=True) "
                "(`eventlog scan --fallback`) reads its rows from them"
            )

    def _around(self) -> tuple[Reading, list[Segment]]:
        """Return what to read, with stand-ins for lost segments; DataLoss without them."""
        store, planned = self.reading.store, self.plan.in_scan_order()
        intact = each(lambda segment: fallback.is_whole(store, segment), planned)
        lost = [s for s, is_intact in zip(planned, intact, strict=True) if not is_intact]
        if not lost:
            return self.reading, planned
        stand_ins = fallback.find(Log(store), self.snapshot, lost)
        if stand_ins.out:
            logger.warning("version %d of %s: %s", self.version, store.uri, stand_ins)
        # The stand-ins may have rows that the predicate excludes.
        predicate = self.plan.predicate
        reading = replace(self.reading, filter=predicate.to_arrow() if predicate else None)
        left = [segment for segment in planned if segment not in stand_ins.out]
        return reading, sorted([*left, *stand_ins.back], key=_scan_order)


def scan(  # noqa: PLR0913 - the parts of one query
    t: Table | str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
    *,
    overflow: str = "error",
    batch_rows: int = DEFAULT_BATCH_ROWS,
    fallback: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> Scan:
    """Return a scan of one version of a table. The version is pinned by this call.

    Args:
        t: the table; or its root, which costs three requests for the newest version and two for any
            other, where opening the table first costs four and five.
        columns: names of the columns to read, in this order; all if None; may be empty.
        where: SQL text or a pyarrow expression that selects rows. An expression that casts to
            floats, tests floats against a list or compares with NaN reads every segment.
        version: the version to read; the newest if neither this nor `timestamp` is given.
        timestamp: the time whose version to read; see `Table.snapshot`.
        overflow: `error`, or `null` in place of a sum that does not fit its column (merge rules).
        batch_rows: the largest number of rows in a batch.
        fallback: if a segment that compaction wrote is missing or damaged, read the segments it was
            compacted from, with exactly the version's rows, and log a warning that names them. If
            those are gone too, raise `DataLoss`. A stream reads all segments once to find the lost
            ones before it yields the first row.
        memory_bytes: about how many bytes of Arrow data to hold; more rows to merge go to disk.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong; the message says which.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon, and its segments may be deleted. A scan
            of a root raises it when the first of them is missing.
    """
    t = table_at(t, storage_options)
    batch_rows = whole(batch_rows, "batch_rows", 1, 2**31 - 1)
    ahead = ahead_of(whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES))
    snapshot = kept_snapshot(t, version, timestamp)
    plan = plan_of(snapshot, columns=columns, where=where)
    plan = replace(plan, rule=reader_rule(plan.rule, overflow))
    if fallback and plan.rule is not None:
        raise InvalidInput(
            "fallback is for tables without a key: what a merge left out is not kept"
        )
    reading = Reading(
        store=t.store,
        version=plan.version,
        table_schema=plan.table_schema,
        schema=plan.schema,
        filter=plan.filter,
        filter_columns=frozenset() if plan.predicate is None else plan.predicate.columns(),
        batch_rows=batch_rows,
        ahead_bytes=ahead,
        table=snapshot.header.table,
    )
    return Scan(plan, reading, snapshot, fallback)


def count(
    t: Table | str | os.PathLike[str],
    where: Where | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Return the number of rows of one version. See `scan` for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon, as far as the handle knows it, or its
            segments are needed and gone (FORMAT.md R12.7). What the log alone answers is given.
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    query = scan(
        t,
        [],
        where,
        version,
        timestamp,
        memory_bytes=memory_bytes,
        storage_options=storage_options,
    )
    return query.count()


def table_at(
    t: Table | str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Table:
    """Return the table, or a handle to the one at a root that has read nothing yet.

    Raises:
        InvalidInput: it is neither, or storage options were given for a table.
    """
    if isinstance(t, str | os.PathLike):
        return Table(open_store(t, storage_options))
    opened(t)
    if storage_options is not None:
        raise InvalidInput("storage_options are for a root: the table was opened with its own")
    return t


def kept_snapshot(
    t: Table, version: int | None = None, timestamp: Moment | None = None
) -> Snapshot:
    """Return `Table.snapshot` of a version whose rows can still be read.

    A handle that has read nothing yet reads only that version. If it was vacuumed, the first
    segment that is missing shows it.

    Raises:
        VersionNotFound: there is no such version.
        VersionVacuumed: it is below the newest horizon that this handle has read.
    """
    snapshot = t.snapshot(version, timestamp)
    newest = max((t.session.known or snapshot, snapshot), key=lambda known: known.version)
    check_kept(newest.meta, newest.version, snapshot.version, t.uri)
    return snapshot


def _scan_order(segment: Segment) -> tuple[int, int, int, int]:
    """See `eventlog.state.scan.SCAN_ORDER`."""
    chunk = parse_chunk(segment.chunk)
    return chunk.start, chunk.end, segment.version, segment.partition


def _need(module: str, requirement: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidInput(f"this needs {module}: pip install '{requirement}'") from None
