"""Scans: the rows of one version as Arrow, pandas, Polars or DuckDB.

Imports eventlog only. A scan is pinned to its version when it is created. Each time it is consumed
it reads the same rows in the same order.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Snapshot, Table
from eventlog.arguments import whole
from eventlog.display import Description
from eventlog.errors import DataLoss, InvalidInput
from eventlog.format.frames.entry_columns import with_live_rows
from eventlog.keyed.rule import reader_rule
from eventlog.keyed.slices import grouped
from eventlog.log.snapshot import plan_scan
from eventlog.quantities import count_text, size_text
from eventlog.query.engine_filters import EngineFilter
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers import lost_segments
from eventlog.readers.first_rows import FirstRows
from eventlog.readers.keyed import SliceReader
from eventlog.readers.pinned import kept_snapshot, table_at
from eventlog.readers.row_stream import RowStream, first_rows, needed
from eventlog.segments.fragments import DEFAULT_BATCH_ROWS, Reading, ahead_of
from eventlog.session.tags import VersionOrName
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.state.scan import SCAN_ORDER, ScanPlan, project
from eventlog.store.port import ObjectStore
from eventlog.telemetry.signals import streamed

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger(__name__)
_EXPANDED = 4  # how many times their stored size rows usually take in Arrow
_LEAST_AHEAD = 2 * 2**20


@dataclass(frozen=True, slots=True, repr=False)
class Scan(RowStream):
    """A query of one version. No rows are read until it is consumed.

    Rows are ordered by (time chunk, version, position in that version's commit), and within a
    segment as stored; this does not sort them fully by the time column. Every batch has exactly
    `schema`. Consuming methods may be called repeatedly; each call reads again. Consumers that read
    through the C interface report read errors as their own error type.

    Attributes:
        plan: the segments to read, and why the others were pruned. Without a predicate its entries
            may lack their statistics.
        reading: how they are read.
        snapshot: the snapshot of the version.
        fallback: whether lost segments are replaced by their sources; see `scan`.
        where: the predicate as it was given, if it is text.
        limit: the number of the first rows that are wanted; None: all.
    """

    plan: ScanPlan
    reading: Reading
    snapshot: Snapshot
    fallback: bool = False
    where: str | None = None
    limit: int | None = None

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
            reading, segments = lost_segments.with_stand_ins(self.plan, self.reading, self.snapshot)
            batches = first_rows(reading.batches(segments), self.limit)
        else:
            batches = self._batches()
        facts = {"version": self.version, "segments": self.plan.entries.num_rows}
        return streamed("eventlog.scan", batches, table=self.reading.store.uri, **facts)

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
            return known if self.limit is None else min(known, self.limit)
        if self.limit is not None:
            return sum(batch.num_rows for batch in self.of_columns([]).to_batches())
        try:
            if self.plan.rule is not None:
                bare = replace(self.reading, schema=pa.schema([]))
                slices = SliceReader(bare, self.plan.rule)
                return sum(batch.num_rows for batch in slices.batches(self.plan.runs))
            return self.reading.count(self.plan.in_scan_order())
        except DataLoss as error:
            if not self.fallback:
                lost_segments.advise(self.plan, self.reading, self.snapshot, error)
                raise
            logger.warning("%s", error)
        reading, segments = lost_segments.with_stand_ins(self.plan, self.reading, self.snapshot)
        return reading.count(segments)

    def head(self, n: int = 5) -> FirstRows:
        """Return the first rows, which a prompt shows as a table. See `to_batches` for its errors.

        Args:
            n: how many. No more segments are read than they need.
        """
        return FirstRows(self.limited(n).to_table())

    def limited(self, rows: int) -> Scan:
        """Return a scan of the first rows, as many as that or as there are.

        Raises:
            InvalidInput: the number is negative.
        """
        limit = whole(rows, "limit")
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))

    def to_dataset(self) -> Any:
        """Return the rows as a `pyarrow.dataset.Dataset`; see `dataset`.

        Raises:
            InvalidInput: the scan has a limit.
        """
        if self.limit is not None:
            raise InvalidInput(
                "a dataset has all rows of a query: give the limit to the engine, or use to_table()"
            )
        from eventlog.readers.engines.arrow_dataset import VersionDataset  # noqa: PLC0415 - it loads pandas

        predicate, rule = self.plan.predicate, self.plan.rule
        version = PinnedVersion(
            store=self.reading.store,
            snapshot=self.snapshot,
            overflow="error" if rule is None else rule.overflow,
            batch_rows=self.reading.batch_rows,
            ahead_bytes=self.reading.ahead_bytes,
            fallback=self.fallback,
        )
        own = None if predicate is None else predicate.to_arrow()
        return VersionDataset(version, self.schema, own)

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which reads them each time it runs.

        DuckDB pushes columns and filters into a scan without a limit. See `RowStream.to_duckdb`.

        Args:
            connection: a DuckDB connection; the default one if None.

        Raises:
            InvalidInput: DuckDB is not installed.
        """
        if self.limit is not None:
            return RowStream.to_duckdb(self, connection)
        module = needed("duckdb", "eventlog-tables[duckdb]")
        relation: duckdb.DuckDBPyRelation = (connection or module).from_arrow(self.to_dataset())
        return relation

    def of_columns(self, names: Sequence[str]) -> Scan:
        """Return the same scan with other columns.

        Raises:
            InvalidInput: a column is unknown or named twice.
        """
        schema = project(self.plan.table_schema, names, self.plan.columns)
        plan, reading = replace(self.plan, schema=schema), replace(self.reading, schema=schema)
        return replace(self, plan=plan, reading=reading)

    def parts(self, count: int) -> list[Scan]:
        """Return scans that have the rows of this one between them, in its order.

        For engines that read in parallel: each part can be pickled and read elsewhere.

        Args:
            count: the largest number of parts. There are fewer if there are fewer segments, or
                fewer time chunks and buckets of a keyed table; never none.

        Raises:
            InvalidInput: the number is not positive.
        """
        count = whole(count, "count", 1)
        if self.fallback or self.limit is not None:
            return [self]
        if self.plan.rule is not None:
            groups = grouped(self.plan.runs)
            sizes = [
                sum(one.bytes_in(run.width) for run in g for one in run.placed) for g in groups
            ]
            return [
                replace(self, plan=replace(self.plan, runs=tuple(chain(*groups[a:b]))))
                for a, b in _cuts(sizes, count)
            ]
        entries = self.plan.entries.sort_by(SCAN_ORDER)
        cuts = _cuts(entries.column("bytes").to_pylist(), count)
        return [self._of_entries(entries.slice(a, b - a)) for a, b in cuts]

    def _described(self) -> Description:
        read, plan = self.plan.pruning.read, self.plan
        size = size_text(pc.sum(plan.entries.column("bytes"), min_count=0).as_py())
        facts = [
            ("columns", ", ".join(self.schema.names) or "none"),
            ("where", self.where or str(plan.predicate and plan.predicate.to_arrow())),
            ("limit", "" if self.limit is None else count_text(self.limit, "row")),
            ("reads", f"{read:,} of {count_text(plan.pruning.considered, 'segment')}, {size}"),
        ]
        shown = facts if plan.predicate is not None else [facts[0], *facts[2:]]
        title = f"Scan of version {self.version} (no row is read before it is consumed)"
        return Description(title, [fact for fact in shown if fact[1]])

    def _of_entries(self, entries: pa.Table) -> Scan:
        return replace(self, plan=replace(self.plan, entries=entries))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the version's own segments."""
        plans, reading = iter([self.plan]), self.reading
        if self.limit is not None:
            plans, reading = _growing(self.plan, self.limit), self._reading_near(self.limit)
        try:
            rows = chain.from_iterable(_rows(plan, reading) for plan in plans)
            yield from first_rows(rows, self.limit)
        except DataLoss as error:
            if not self.fallback:
                lost_segments.advise(self.plan, self.reading, self.snapshot, error)
            raise

    def _reading_near(self, limit: int) -> Reading:
        """Return how to read so many of the first rows, without much more of a large segment."""
        plan = self.plan
        if plan.rule is not None or plan.filter is not None:
            return self.reading
        rows = plan.count() or 1
        size = pc.sum(plan.entries.column("bytes"), min_count=0).as_py() * limit // rows
        ahead = min(self.reading.ahead_bytes, max(_LEAST_AHEAD, _EXPANDED * size))
        return replace(self.reading, ahead_bytes=ahead)


@dataclass(frozen=True, slots=True)
class PinnedVersion:
    """A version of a table, and how it is scanned.

    Attributes:
        store: the table's.
        snapshot: the version.
        overflow: what becomes of sums that do not fit their column; see `scan`.
        batch_rows: the largest number of rows in a batch.
        ahead_bytes: about how many decoded bytes are read ahead.
        fallback: see `scan`.
    """

    store: ObjectStore
    snapshot: Snapshot
    overflow: str = "error"
    batch_rows: int = DEFAULT_BATCH_ROWS
    ahead_bytes: int = ahead_of(DEFAULT_MEMORY_BYTES)
    fallback: bool = False

    def scan(
        self, columns: Sequence[str] | None = None, where: Where | EngineFilter | None = None
    ) -> Scan:
        """Return a scan of the version. See the function `scan`.

        Raises:
            InvalidInput: an argument is wrong; the message names it.
        """
        # Rows are read by entries without statistics; what compares entries asks for those again.
        plan = plan_scan(self.snapshot, columns=columns, where=where, statistics=self.fallback)
        plan = replace(plan, rule=reader_rule(plan.rule, self.overflow))
        if self.fallback and plan.rule is not None:
            raise InvalidInput(
                "fallback is for tables without a key: in a keyed one nothing replaces a lost "
                "segment"
            )
        reading = Reading.of(self.store, plan, self.snapshot.header.table)
        reading = replace(reading, batch_rows=self.batch_rows, ahead_bytes=self.ahead_bytes)
        text = where if isinstance(where, str) else None
        return Scan(plan, reading, self.snapshot, self.fallback, text)


def _cuts(sizes: Sequence[float], count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of about the same size each, at most so many, and at least one."""
    share, total, start = sum(sizes) / count, 0.0, 0
    for end, size in enumerate(sizes, 1):
        total += size
        if total >= share and end < len(sizes) and count > 1:
            yield start, end
            start, count, total = end, count - 1, 0.0
    yield start, len(sizes)


def _rows(plan: ScanPlan, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan, in the order of a scan. Raises: as `Reading.batches`."""
    if plan.rule is not None:
        return SliceReader(reading, plan.rule).batches(plan.runs)
    return reading.batches(plan.in_scan_order())


def _growing(plan: ScanPlan, limit: int) -> Iterator[ScanPlan]:
    """Yield plans that have the rows of a plan between them, in order, each larger than the others.

    The first one has the segments that so many rows need if all rows pass.
    """
    if plan.rule is not None:
        groups = grouped(plan.runs)
        for start, end in _doubling(1, len(groups)):
            yield replace(plan, runs=tuple(chain(*groups[start:end])))
        return
    entries = plan.entries.sort_by(SCAN_ORDER)
    live = with_live_rows(entries).column("rows")
    needed_too = pc.less(pc.subtract(pc.cumulative_sum(live), live), limit)
    first = pc.sum(needed_too, min_count=0).as_py()
    for start, end in _doubling(first, len(entries)):
        yield replace(plan, entries=entries.slice(start, end - start))


def _doubling(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges up to a number, the first one with so many, each other twice as long."""
    start, length = 0, max(1, first)
    while start < count:
        yield start, min(start + length, count)
        start, length = start + length, 2 * length


def scan(  # noqa: PLR0913 - the parts of one query
    t: Table | str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    limit: int | None = None,
    overflow: str = "error",
    batch_rows: int = DEFAULT_BATCH_ROWS,
    fallback: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> Scan:
    """Return a scan of one version of a table. The version is pinned by this call.

    Args:
        t: the table, or its root: a handle that has read nothing yet, and a root, cost three
            requests for the newest version and two for any other.
        columns: names of the columns to read, in this order; all if None; may be empty.
        where: SQL text or a pyarrow expression that selects rows. An expression that casts to
            floats, tests floats against a list or compares with NaN reads every segment.
        version: the version to read, or the name of a tag; the newest if neither this nor
            `timestamp` is given.
        timestamp: the time whose version to read; see `Table.snapshot`.
        limit: the number of the first rows to read, in the order of a scan; all if None. Few more
            segments are read than have them.
        overflow: `error`, or `null` in place of a sum that does not fit its column (merge rules).
        batch_rows: the largest number of rows in a batch.
        fallback: if a segment that compaction wrote is missing or damaged, read the segments it was
            compacted from, with exactly the version's rows, and log a warning that names them. If
            those are gone too, raise `DataLoss`. A stream reads all segments once to find the lost
            ones before it yields the first row.
        memory_bytes: about how many bytes of Arrow data to hold; more rows to merge go to disk.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong; the message names it.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon, and its segments may be deleted. A scan
            of a root raises it when the first of them is missing.
    """
    t = table_at(t, storage_options)
    batch_rows = whole(batch_rows, "batch_rows", 1, 2**31 - 1)
    ahead = ahead_of(whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES))
    snapshot = kept_snapshot(t, version, timestamp)
    pinned = PinnedVersion(t.store, snapshot, overflow, batch_rows, ahead, fallback)
    found = pinned.scan(columns, where)
    return found if limit is None else found.limited(limit)


def count(
    t: Table | str | os.PathLike[str],
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Return the number of rows of one version. See `scan` for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon that the handle has read, or its segments
            are needed and gone (FORMAT.md R12.7).
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    t = table_at(t, storage_options)
    if version is not None or timestamp is not None:
        t.refresh()  # the log alone may answer, which has rows of before the horizon as well
    query = scan(
        t,
        [],
        where,
        version,
        timestamp,
        memory_bytes=memory_bytes,
    )
    return query.count()
