"""Scans: the rows of one version as Arrow, and from there to pandas, Polars and DuckDB.

Imports eventlog only. A scan is pinned to its version when it is made; every time it is consumed it
reads the same rows in the same order.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.arguments import opened, whole
from eventlog.errors import DataLoss, EventLogError, InvalidInput
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.log.snapshot import plan as plan_of
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import Segment
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers.fragments import DEFAULT_BATCH_ROWS, Reading
from eventlog.recovery import fallback
from eventlog.state.scan import ScanPlan
from eventlog.state.small.holds import check_kept
from eventlog.store.parallel import each

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows that one question asks of one version; nothing is read before it is consumed.

    Rows come in the order of (time chunk, version, place in that version's commit), and within a
    segment as they lie there; the time column is sorted across rows only as far as that goes. Every
    batch has exactly `schema`. Consuming methods may be called again; each reads anew. Consumers
    that pull through the C interface see errors of reading as their own error type.

    Attributes:
        plan: the segments that are read, and why not the others.
        reading: how they are read.
        snapshot: the version.
        fallback: whether lost segments are read around; see `scan`.
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
        """The version that is read."""
        return self.plan.version

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; memory stays bounded whatever their number.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the predicate fails on the rows, such as by an overflow.
            Unavailable: the store does not answer.
        """
        if self.fallback:
            reading, segments = self._around()
            return reading.batches(segments)
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. See `to_batches` for what reading it raises."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows in memory. See `to_batches` for its errors."""
        if self.fallback:  # nothing is passed on before all of it is there
            try:
                return pa.Table.from_batches(self._batches(), self.schema)
            except DataLoss as error:
                logger.warning("%s", error)
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, every value as it is.

        See `to_batches` for errors of reading.

        Integers with nulls among them get pandas' nullable types (`Int64`), or are Python integers
        inside of lists and structs, where pandas would make them floats and round large ones. Times
        are of microseconds. Decimals, dates and what is nested are objects. Pandas knows one
        missing float only: null and NaN are both NaN there.

        Raises:
            InvalidInput: pandas is not installed, or Python has no form for a value, such as for
                dates outside the years 1 to 9999.
        """
        pandas = _need("pandas", "pandas")
        rows = self.to_table()
        try:
            frame = rows.to_pandas(integer_object_nulls=True)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise InvalidInput(
                f"a value has no form in pandas ({error}): leave its column out, or take "
                "to_table() or to_polars()"
            ) from None
        for place, column in enumerate(rows.columns):
            if pa.types.is_integer(column.type) and column.null_count:
                nullable = pandas.array([], dtype=f"Int{column.type.bit_width}").dtype
                whole = column.to_pandas(types_mapper={column.type: nullable}.get)
                whole.index = frame.index
                frame.isetitem(place, whole)
        return frame

    def to_polars(self) -> Any:
        """Return all rows as a Polars DataFrame, every value as it is.

        See `to_batches` for errors of reading.

        Raises:
            InvalidInput: Polars is not installed.
        """
        return _need("polars", "eventlog-tables[polars]").from_arrow(self.to_table())

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a DuckDB relation, which streams them each time it is run.

        Every value is as it is; what DuckDB's own SQL makes of them follows its rules and the zone
        of its session, such as for the text of a time without an offset.

        Args:
            connection: a DuckDB connection; the default one if None.

        Raises:
            InvalidInput: DuckDB is not installed.
        """
        duckdb = _need("duckdb", "eventlog-tables[duckdb]")
        return (duckdb if connection is None else connection).from_arrow(self)

    def count(self) -> int:
        """Return the number of rows: from metadata where it tells, else reading filter columns.

        See `to_batches` for its errors.
        """
        known = self.plan.count()
        if known is not None:
            return known
        try:
            return self.reading.count(self.plan.in_scan_order())
        except DataLoss as error:
            if not self.fallback:
                self._advise(error)
                raise
            logger.warning("%s", error)
        reading, segments = self._around()
        return reading.count(segments)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream of the rows for any library that speaks Arrow (PyCapsule)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the version's own segments."""
        try:
            yield from self.reading.batches(self.plan.in_scan_order())
        except DataLoss as error:
            if not self.fallback:
                self._advise(error)
            raise

    def _advise(self, error: DataLoss) -> None:
        """Say in the error that the rows can be read otherwise, if they can."""
        lost = [s for s in self.plan.segments() if keys.key_of(s) == error.key]
        try:
            found = fallback.find(Log(self.reading.store), self.snapshot, lost)
        except EventLogError:
            return  # the loss is what the caller has to hear of
        if lost and not found.missing:
            error.message += (
                "; what it was compacted from is still there: scan(..., fallback=True) "
                "(`eventlog scan --fallback`) reads its rows from that"
            )

    def _around(self) -> tuple[Reading, list[Segment]]:
        """Return what to read where segments are lost: others with the same rows, or DataLoss."""
        store, planned = self.reading.store, self.plan.in_scan_order()
        whole = each(lambda segment: fallback.is_whole(store, segment), planned)
        lost = [s for s, there in zip(planned, whole, strict=True) if not there]
        if not lost:
            return self.reading, planned
        found = fallback.find(Log(store), self.snapshot, lost)
        if found.out:
            logger.warning("version %d of %s: %s", self.version, store.uri, found)
        # What comes back may cover more than was asked for.
        predicate = self.plan.predicate
        reading = replace(self.reading, filter=predicate.to_arrow() if predicate else None)
        left = [segment for segment in planned if segment not in found.out]
        return reading, sorted([*left, *found.back], key=_scan_order)


def scan(
    t: Table,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
    *,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    fallback: bool = False,
) -> Scan:
    """Return the scan of one version of a table, pinned by this call.

    Args:
        t: the table.
        columns: names of the columns wanted, in this order; all if None; may be empty.
        where: SQL text or a pyarrow expression that rows have to pass. An expression that casts to
            floats, looks floats up or compares with NaN reads every segment.
        version: which version; the newest if neither this nor `timestamp` is given.
        timestamp: see `Table.snapshot`.
        batch_rows: at most so many rows in a batch.
        fallback: read around lost segments: where one that compaction wrote is missing or damaged,
            read what it was compacted from, with all of its group and exactly the version's rows,
            and log a warning that names them. Where that is gone too it stays `DataLoss`. A stream
            first reads all segments once to find what is lost, before it yields a row.

    Raises:
        InvalidInput: an argument is wrong; the message names the part.
        VersionNotFound: there is no such version.
        VersionVacuumed: it was given up, and its segments may be gone.
    """
    opened(t)
    batch_rows = whole(batch_rows, "batch_rows", 1, 2**31 - 1)
    snapshot = kept_snapshot(t, version, timestamp)
    plan = plan_of(snapshot, columns=columns, where=where)
    reading = Reading(
        store=t.store,
        version=plan.version,
        table_schema=plan.table_schema,
        schema=plan.schema,
        filter=plan.filter,
        filter_columns=frozenset() if plan.predicate is None else plan.predicate.columns(),
        batch_rows=batch_rows,
        table=snapshot.header.table,
    )
    return Scan(plan, reading, snapshot, fallback)


def count(
    t: Table,
    where: Where | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
) -> int:
    """Return the number of rows of one version. See `scan` for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: it was given up.
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    return scan(t, [], where, version, timestamp).count()


def kept_snapshot(
    t: Table, version: int | None = None, timestamp: Moment | None = None
) -> Snapshot:
    """Return a version whose rows can be read: `Table.snapshot`, but none that was given up.

    Raises:
        VersionNotFound: there is no such version.
        VersionVacuumed: it lies below the newest horizon that this handle knows.
    """
    snapshot = t.snapshot(version, timestamp)
    head = t.head()
    newest = max((head, snapshot), key=lambda known: known.version)
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
