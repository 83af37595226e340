"""Reads the rows of given segments: checked against the log, in order, in bounded memory.

A few threads read segments ahead, in pieces of whole row groups. Bytes are checked before they are
decoded (`eventlog.segments.segment_object`), so only the store can fail half-way, and its requests
are retried before anything is decoded: no row is lost or doubled. A missing or damaged segment is
`DataLoss` and never skipped.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, chain
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType
from pyroaring import BitMap64

from eventlog import limits
from eventlog.decoding import Bound, decode, encoded_bytes, most_bytes
from eventlog.errors import DataLoss, EventLogError
from eventlog.format import keys
from eventlog.format.parts import chunk_span, decoded_sizes
from eventlog.inline import inline_objects
from eventlog.keyed.log_rows import empty_columns, odd_operation
from eventlog.keyed.rule import OP
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Pack
from eventlog.query.expression_pruning import trusted
from eventlog.segments import joined_rows
from eventlog.segments.batches import (
    clashes,
    filtered,
    given_up,
    holds_floats,
    join_tables,
    predicate_error,
    take_tables,
    with_schema,
    without_columns,
)
from eventlog.segments.file_columns import FileColumns
from eventlog.segments.joined_rows import JoinedRows
from eventlog.segments.large_filters import filter_in_bulk, is_large
from eventlog.segments.packed_rows import PackedRows
from eventlog.segments.segment_object import SegmentObject
from eventlog.segments.vectors import VectorReader, without_positions
from eventlog.state.scan import ScanPlan
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.port import ObjectStore

DEFAULT_BATCH_ROWS = 128 * 1024
# A column that readers may ask for: the position of a row in its segment, from 0. No table has a
# column of this name: column names are not empty.
POSITION = pa.field("", pa.int64(), nullable=False)
_MOST_BODIES = 256  # segments whose bytes are read ahead from commits
_PIECE_BYTES = 16 * 2**20
# Decoding is bound by the processors: more decoders than cores only slow each other down.
_decoders = BoundedSemaphore(max(2, os.cpu_count() or 2))
# Errors that decoding can raise on bytes that match the log.
_FAILURES = (pa.ArrowException, OSError, ValueError)

Only = Mapping[str, BitMap64]  # positions of rows, by the id of their segment
_EVERYWHERE: Only = MappingProxyType({})


def ahead_of(memory_bytes: int) -> int:
    """Return how many of the bytes that a reader may hold are read ahead.

    The others are for results that are made of the rows.
    """
    return memory_bytes // 4


class FileAudit(Protocol):
    """Looks at the Parquet files of segments while their rows are read."""

    def check_footer(self, end: bytes) -> None:
        """Check a footer before its parts are used; raises `ValueError`.

        Args:
            end: the last bytes of the file, the whole footer among them.
        """

    def look_at(self, group: Any, rows: pa.RecordBatch) -> None:
        """Look at some rows of a row group.

        Args:
            group: the row group's metadata in the footer.
            rows: in the types of the file.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """How segments of one version become batches. Can be pickled.

    Attributes:
        store: the store that has the segments.
        version: the version being read, for error messages.
        columns: the table's columns at that version, with the ids by which files have them.
        table_schema: the same as an Arrow schema, which `filter` refers to; or some of them.
        schema: the fields wanted, in order; every batch has exactly this schema.
        filter: the rows wanted; None for all.
        filter_columns: names of the columns that `filter` reads, or a superset.
        rare: whether few rows are expected to pass `filter`: other columns are then read only of
            the row groups where some do.
        batch_rows: the largest number of rows in a batch.
        ahead_bytes: about how many decoded bytes to read ahead of the consumer.
        table: the table's id. If a segment is missing, the log is checked to have this id still.
        required: names of columns that each segment has, with a value in each row but deletes,
            though `table_schema` may let them be null for those.
        audit: looks at footers, and at rows in the types of the file; None: nobody does, and row
            groups are decoded together.
        packs: those of the key frame of the version, which have rows of segments whose bytes stand
            in commits.
    """

    store: ObjectStore
    version: int
    columns: Schema
    table_schema: pa.Schema
    schema: pa.Schema
    filter: pc.Expression | None = None
    filter_columns: frozenset[str] = frozenset()
    rare: bool = False
    batch_rows: int = DEFAULT_BATCH_ROWS
    ahead_bytes: int = 128 * 2**20
    table: str | None = None
    required: frozenset[str] = frozenset()
    audit: FileAudit | None = None
    packs: tuple[Pack, ...] = ()

    @classmethod
    def of(cls, store: ObjectStore, plan: ScanPlan, table: str) -> Reading:
        """Return how the segments of a plan are read.

        Args:
            store: of the table.
            plan: the plan.
            table: the table's id.
        """
        return cls(
            store=store,
            version=plan.version,
            columns=plan.columns,
            table_schema=plan.table_schema,
            schema=plan.schema,
            filter=plan.filter,
            filter_columns=frozenset() if plan.predicate is None else plan.predicate.columns(),
            table=table,
            packs=plan.packs,
        )

    def batches(
        self, segments: Iterable[Segment], only: Only = _EVERYWHERE
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the segments in the given order, and in stored order within each.

        Args:
            segments: the segments. Their deleted rows are left out.
            only: by the id of a segment the positions of the rows that are wanted of it, also if
                they are deleted. Of other segments all rows are wanted.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the filter fails on the rows, for example by an overflow.
            Unavailable: the store does not answer.
        """
        if is_large(self.filter, self.filter_columns):
            yield from self._filter_in_bulk(segments, only)
        elif self._reads_packs(only):
            apart = POSITION.name in self.schema.names
            yield from (batch for _, batch in self._packed(list(segments), apart=apart))
        else:
            yield from (batch for _, batch in self._unpacked(segments, only, apart=False))

    def located(
        self,
        segments: Iterable[Segment],
        only: Only = _EVERYWHERE,
        vectors: VectorReader | None = None,
    ) -> Generator[tuple[Segment, pa.RecordBatch], None, None]:
        """Yield the rows as `batches` does, each batch with the segment that has them.

        If `schema` has the field `POSITION`, it is filled with the positions of the rows.

        Args:
            segments: as for `batches`.
            only: as for `batches`.
            vectors: the deletion vectors of the segments, where they are read already.

        Raises: as `batches`.
        """
        if self._reads_packs(only):
            yield from self._packed(list(segments), apart=True, vectors=vectors)
        else:
            yield from self._unpacked(segments, only, vectors, apart=True)

    def _reads_packs(self, only: Only) -> bool:
        return bool(self.packs) and not only and self.audit is None

    def _packed(
        self, segments: list[Segment], *, apart: bool, vectors: VectorReader | None = None
    ) -> Generator[tuple[Segment, pa.RecordBatch], None, None]:
        """Yield rows as `located` does, from packs where these have them.

        Args:
            segments: the segments.
            apart: whether the rows of each segment are yielded by themselves; else those of several
                come with the first of them.
            vectors: as for `located`.
        """
        vectors = vectors or self._vectors(segments)
        for run, rows in PackedRows(self, segments).runs(segments, vectors, apart=apart):
            if rows is None:
                yield from self._unpacked(run, vectors=vectors, apart=apart)
            else:
                yield from ((run[0], batch) for batch in _wanted(self, [rows], None))

    def _unpacked(
        self,
        segments: Iterable[Segment],
        only: Only = _EVERYWHERE,
        vectors: VectorReader | None = None,
        *,
        apart: bool,
    ) -> Generator[tuple[Segment, pa.RecordBatch], None, None]:
        """Yield rows as `located` does, from the bytes of each segment.

        Args:
            segments: as for `batches`.
            only: as for `batches`.
            vectors: the deletion vectors of the segments, where they are read already.
            apart: see `_packed`.
        """
        segments = list(segments)
        vectors = vectors or self._vectors(s for s in segments if s.id not in only)
        with threads() as pool, threads() as fetchers:
            most = self.ahead_bytes
            open_run = _Opening(self, vectors, fetchers, only, apart).pieces
            opened = read_ahead(
                pool,
                joined_rows.read_together(self._with_bodies(segments), only),
                open_run,
                weigh=lambda run: sum(min(one.bytes, limits.WHOLE_BYTES) for one in run),
                most=most,
            )
            pieces = (piece for run_pieces in opened for piece in run_pieces)
            for found in read_ahead(
                pool, pieces, lambda piece: piece.located(), weigh=lambda p: p.size, most=most
            ):
                for segment, rows in found:
                    for batch in rows:
                        yield segment, batch

    def _with_bodies(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        """Yield segments after their bytes were read, of those whose bytes stand in commits.

        A commit that has several of them is read once, and many commits at the same time.
        """
        for start in range(0, len(segments), _MOST_BODIES):
            some = segments[start : start + _MOST_BODIES]
            inline_objects.fetch_objects(self.store, some)
            yield from some

    def count(self, segments: Iterable[Segment]) -> int:
        """Return the number of rows that pass, reading only the columns of the filter.

        Raises: as `batches`.
        """
        if is_large(self.filter, self.filter_columns) or self.packs:
            bare = replace(self, schema=pa.schema([]))
            return sum(batch.num_rows for batch in bare.batches(segments))
        segments = list(segments)
        vectors = self._vectors(segments)
        with threads() as pool, threads() as fetchers:

            def counted_rows(segment: Segment) -> int:
                return _Source(self, segment, vectors, fetchers).count()

            return sum(read_ahead(pool, segments, counted_rows))

    def piece_bytes(self) -> int:
        """Return how many bytes are decoded at once. A larger row group is decoded as a whole."""
        return min(_PIECE_BYTES, self.ahead_bytes // 8)

    def filter_in_scan(self) -> bool:
        """Return whether Arrow may prune row groups by the filter and the statistics in the file.

        Statistics of floats leave NaN out: pruning by them would lose rows that pass.
        """
        read = [f.type for f in self.table_schema if f.name in self.filter_columns]
        return self.filter is None or not (
            clashes(self.table_schema)
            or any(map(holds_floats, read))
            or not all(trusted(self.filter, read))
        )

    def _filter_in_bulk(self, segments: Iterable[Segment], only: Only) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass, filtered many segments at a time. Raises: as `batches`."""
        names = self.schema.names
        more = [self.table_schema.field(name) for name in sorted({*self.filter_columns} - {*names})]
        schema = pa.schema([*self.schema, *more])
        rows = replace(self, schema=schema, filter=None, filter_columns=frozenset())
        yield from filter_in_bulk(
            rows.batches(segments, only), self.filter, names, self.batch_rows, self.store.uri
        )

    def _vectors(self, segments: Iterable[Segment]) -> VectorReader:
        return VectorReader(self.store, self.version, segments, self.table)


_Located = Iterable[tuple[Segment, Iterable[pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class _Opening:
    """How segments are opened.

    Attributes:
        reading: how they are read.
        vectors: their deletion vectors.
        fetchers: fetch ranges in parallel.
        only: see `Reading.batches`.
        apart: see `Reading._packed`.
    """

    reading: Reading
    vectors: VectorReader
    fetchers: Executor
    only: Only
    apart: bool

    def pieces(self, run: Sequence[Segment]) -> Sequence[_Piece | _JoinedPiece]:
        """Return pieces with the rows of a run of segments, in order."""
        if len(run) > 1 and self.reading.audit is None:
            joined = joined_rows.open_joined(self.reading, run)
            if joined is not None:
                return [_JoinedPiece(self, one) for one in joined]
        return self.one_by_one(run)

    def one_by_one(self, run: Sequence[Segment]) -> list[_Piece]:
        """Return the same, each piece of one segment."""
        pieces: list[_Piece] = []
        for segment in run:
            pieces += self._opened(segment).pieces()  # against missing-segment-skipped
        return pieces

    def _opened(self, segment: Segment) -> _Source:
        only = self.only.get(segment.id)
        return _Source(self.reading, segment, self.vectors, self.fetchers, only)


@dataclass(frozen=True, slots=True)
class _JoinedPiece:
    """All rows of some small segments."""

    opening: _Opening
    joined: JoinedRows

    @property
    def size(self) -> int:
        """A bound on their decoded bytes."""
        return self.joined.size

    def located(self) -> _Located:
        """Return the requested batches with their segments; the first of them, if not apart."""
        segments = self.joined.segments
        try:
            deleted = [self.opening.vectors.deleted(segment) for segment in segments]
            with _decoders:
                return self._located(deleted)
        except (EventLogError, *_FAILURES):  # which it raises for the right one
            pieces = self.opening.one_by_one(segments)
            return (found for piece in pieces for found in piece.located())

    def _located(self, deleted: Sequence[BitMap64]) -> list[tuple[Segment, list[pa.RecordBatch]]]:
        reading, segments = self.opening.reading, self.joined.segments
        rows = self.joined.rows(reading.required)
        counts = [segment.rows for segment in segments]
        if POSITION.name in reading.schema.names:
            rows = _with_positions(rows, [(0, count) for count in counts])
        starts = list(accumulate(counts, initial=0))
        if not self.opening.apart:
            gone = [n + at for at, some in zip(starts, deleted, strict=False) for n in some]
            rows = without_positions(rows, gone) if gone else rows
            return [(segments[0], list(_wanted(reading, [rows], None)))]
        found = []
        for segment, start, some in zip(segments, starts, deleted, strict=False):
            own = rows.slice(start, segment.rows)
            own = without_positions(own, list(some)) if some else own
            found.append((segment, list(_wanted(reading, [own], keys.key_of(segment)))))
        return found


class _Source:
    """One opened segment: the columns to read, and how they become the requested ones."""

    def __init__(
        self,
        reading: Reading,
        segment: Segment,
        vectors: VectorReader,
        fetchers: Executor,
        only: BitMap64 | None = None,
    ) -> None:
        self.reading, self.segment, self.only = reading, segment, only
        # against vector-never-read
        self.deleted = vectors.deleted(segment) if only is None else BitMap64()
        self.object = SegmentObject(
            reading.store, segment, reading.version, fetchers, table=reading.table
        )
        self.object.open()
        if reading.audit is not None:
            try:
                reading.audit.check_footer(self.object.end)
            except ValueError as error:
                raise self.undecodable(error) from error
        self.footer = self.object.footer
        self.file = self._file_columns()
        counts = [self.footer.row_group(n).num_rows for n in range(self.footer.num_row_groups)]
        self.first_rows = [0, *accumulate(counts)]
        self._by_column = decoded_sizes(self.footer, len(self.file.stored))
        self.choose(reading, only)
        self._check_footer()

    def choose(self, reading: Reading, only: BitMap64 | None) -> None:
        """Choose the columns and the rows to read."""
        self.reading, self.only = reading, only
        names = frozenset(reading.schema.names) | reading.filter_columns
        self.columns = self.file.leaves(names)
        # Decoded bytes of the columns, by row group; None if the file does not record them.
        wanted = self.file.places_of(names)
        self.sizes = None
        if self._by_column is not None:
            self.sizes = [sum(row[place] for place in wanted) for row in self._by_column]
        self.fields = pa.schema([field for field in reading.table_schema if field.name in names])

    def chosen(self, reading: Reading, only: BitMap64 | None) -> _Source:
        """Return the same opened segment for other columns, or other rows.

        Args:
            reading: the columns.
            only: see `Reading.batches`.
        """
        other = copy(self)
        other.choose(reading, only)
        return other

    def within(self, positions: BitMap64, groups: Iterable[int]) -> list[int]:
        """Return those of some row groups that have rows at some of the positions."""
        return [n for n in groups if _any_within(positions, *self.first_rows[n : n + 2])]

    def _file_columns(self) -> FileColumns:
        """Return the file's columns, if they become the table's without loss."""
        keyed = not isinstance(self.segment.slice, UnsetType)
        try:
            return FileColumns(self.footer.schema, self.reading.columns, keyed=keyed)
        except DataLoss as error:
            raise self.object.loss(error.message) from None
        except _FAILURES as error:
            raise self.undecodable(error) from error

    def _check_footer(self) -> None:
        footer, segment = self.footer, self.segment
        groups = (footer.row_group(index) for index in range(footer.num_row_groups))
        rows = sum(group.num_rows for group in groups)
        if not rows == footer.num_rows == segment.rows:
            raise self.object.loss(f"the object has {footer.num_rows} rows, not {segment.rows}")
        needed = {field.name for field in self.reading.table_schema if not field.nullable}
        try:
            self.file.check_present(needed | self.reading.required)
        except DataLoss as error:
            raise self.object.loss(error.message) from None

    def pieces(self) -> list[_Piece]:
        """Return runs of row groups, each about as large as is decoded at once."""
        most = self.reading.piece_bytes()
        pieces: list[_Piece] = []
        run: list[int] = []
        size = 0
        for index in self._groups():
            cost = self._size(index)
            if run and (size + cost > most or self.reading.audit is not None):
                pieces.append(_Piece(self, tuple(run), size))
                run, size = [], 0
            run.append(index)
            size += cost
        if run:
            pieces.append(_Piece(self, tuple(run), size))
        return pieces

    def _size(self, group: int) -> int:
        """Return an estimate of a row group's columns in memory, in bytes, from the footer."""
        if self.sizes is not None:
            return int(self.sizes[group])
        return encoded_bytes(self.footer.row_group(group), self.columns)

    def count(self) -> int:
        """Return the number of rows that pass."""
        if self.reading.filter is None:
            return self.segment.live_rows
        return sum(batch.num_rows for piece in self.pieces() for batch in piece.rows())

    def _groups(self) -> list[int]:
        """Return the row groups that may have matching rows, by the statistics in the file."""
        reading, every = self.reading, list(range(self.footer.num_row_groups))
        if self.only is not None:
            every = self.within(self.only, every)
        if reading.filter is None or len(every) < 2 or not reading.filter_in_scan():
            return every
        if not self.file.same_columns(reading.filter_columns):  # against pruned-by-another-column
            return every
        import pyarrow.dataset as ds  # noqa: PLC0415 - loads pandas where that is installed

        fragment = ds.ParquetFileFormat().make_fragment(pa.BufferReader(self.object.end))
        try:
            kept = fragment.subset(filter=reading.filter, schema=reading.table_schema)
        except (pa.ArrowException, ValueError):
            return every  # the filter fails on a bound; it may not fail on the rows
        return [group.id for group in kept.row_groups if group.id in every]

    def check_values(self, rows: pa.Table) -> None:
        """Refuse nulls in columns by which rows are merged, or that upserts must have.

        Raises:
            DataLoss: there are some.
        """
        empty = empty_columns(rows, self.reading.required)
        if empty:
            raise self.object.loss(f"column {empty[0]!r} of the object has nulls")

    def check_operations(self, rows: pa.Table) -> None:
        """Check that rows of a keyed table are upserts or deletes, where that was read (R15.6).

        Raises:
            DataLoss: one is neither. To take it for an upsert could bring a deleted row back.
        """
        odd = None if isinstance(self.segment.slice, UnsetType) else odd_operation(rows)
        if odd is not None:
            raise self.object.loss(f"a row has {odd[:80]!r} in {OP!r}, which is no operation")

    def undecodable(self, error: Exception) -> DataLoss:
        """Return the error for bytes that match the log but do not decode."""
        return self.object.loss(
            f"the object does not decode to the table's columns: {_first_line(error)}"
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive row groups of one segment; `size` is an estimate of their decoded bytes."""

    source: _Source
    groups: tuple[int, ...]
    size: int

    def located(self) -> _Located:
        """Return the requested batches with their segment."""
        return [(self.source.segment, self.rows())]

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Return the requested batches: a list, or lazily if they are too large to hold."""
        if self.source.reading.rare:
            return self._rows_that_pass()
        source, once = self.source, self.source.reading.piece_bytes()
        groups = [source.footer.row_group(index) for index in self.groups]
        count = sum(group.num_rows for group in groups)
        file = source.object.read(
            chunk_span(group.column(place)) for group in groups for place in source.columns
        )
        most = self._most_bytes(file, 4 * once)
        rows = source.reading.batch_rows
        if most.size > 4 * once:
            rows = min(max(1, count * once // most.size), rows)
        tables = self._decoded(file, count, rows, None if most.sure else once)
        first_tables: list[pa.Table] = []
        if most.size <= 4 * once:
            with _decoders:
                first_tables, more = take_tables(tables, 4 * once)
                if not more:
                    return list(self._wanted(first_tables))
        waiting = chain(given_up(first_tables), tables)
        return (batch for table in waiting for batch in self._wanted([table]))

    def _rows_that_pass(self) -> Iterable[pa.RecordBatch]:
        """Return the batches of `rows`, reading other columns than the filter's only for them."""
        source, reading = self.source, replace(self.source.reading, rare=False)
        places = replace(reading, schema=pa.schema([POSITION]))
        found = BitMap64()
        for batch in replace(self, source=source.chosen(places, source.only)).rows():
            found |= positions_in(batch)
        groups = source.within(found, self.groups)
        if not groups:
            return []
        rest = source.chosen(replace(reading, filter=None, filter_columns=frozenset()), found)
        return replace(self, source=rest, groups=tuple(groups)).rows()

    def _most_bytes(self, file: pa.NativeFile, enough: int) -> Bound:
        source = self.source
        claimed = None if source.sizes is None else self.size
        try:
            return most_bytes(
                file, source.footer, self.groups, source.columns, enough, claimed=claimed
            )
        except _FAILURES as error:
            raise self.source.undecodable(error) from error

    def _decoded(
        self, file: pa.NativeFile, count: int, rows: int, once: int | None
    ) -> Iterator[pa.Table]:
        """Yield the needed columns in the table's types, in tables of up to `rows` rows.

        Args:
            file: has the bytes of the columns.
            count: the number of all rows.
            rows: the largest number in a table.
            once: see `decode`.
        """
        source, seen = self.source, 0
        try:
            for batch in self._read(file, count, rows, once):
                seen += batch.num_rows
                if not batch.num_rows:
                    break
                if source.reading.audit is not None:
                    source.reading.audit.look_at(source.footer.row_group(self.groups[0]), batch)
                table = source.file.conformed(pa.Table.from_batches([batch]), source.fields)
                source.check_operations(table)
                source.check_values(table)
                if POSITION.name in source.reading.schema.names:
                    table = self._with_positions(table, seen - batch.num_rows)
                if source.only is not None:
                    yield _taken(table, self._places(source.only, seen - batch.num_rows, seen))
                    continue
                deleted = self._places(source.deleted, seen - batch.num_rows, seen)
                yield without_positions(table, deleted) if deleted else table
        except _FAILURES as error:
            if isinstance(error, EventLogError | MemoryError):
                raise
            raise source.undecodable(error) from error
        if seen != count:
            raise source.object.loss(f"row groups of {count} rows decode to {seen}")

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the positions in the segment of the piece's rows `start` to `end`, as spans."""
        place = 0  # in the piece, of the first row of the group
        for index in self.groups:
            first = self.source.first_rows[index]
            rows = self.source.first_rows[index + 1] - first
            low, high = max(start, place), min(end, place + rows)
            if low < high:
                yield low - place + first, high - place + first
            place += rows

    def _places(self, positions: BitMap64, start: int, end: int) -> list[int]:
        """Return which of the piece's rows `start` to `end` have positions, counted from `start`.

        Args:
            positions: positions in the segment.
            start: the first row of the piece.
            end: the row after the last one.
        """
        found, at = list[int](), 0
        for low, high in self._spans(start, end) if positions else ():
            for position in positions.iter_equal_or_larger(low):
                if position >= high:
                    break
                found.append(position - low + at)
            at += high - low
        return found

    def _with_positions(self, table: pa.Table, start: int) -> pa.Table:
        """Return rows of the piece, from `start` on, with their positions in the segment."""
        return _with_positions(table, self._spans(start, start + table.num_rows))

    def _read(
        self, file: pa.NativeFile, count: int, rows: int, once: int | None
    ) -> Iterator[pa.RecordBatch]:
        source = self.source
        if source.columns:
            return decode(file, source.footer, self.groups, source.columns, rows, once=once)
        return (without_columns(min(rows, count - start)) for start in range(0, count, rows))

    def _wanted(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass, in batches with exactly the requested schema."""
        return _wanted(self.source.reading, tables, self.source.object.key)


def _wanted(
    reading: Reading, tables: Iterable[pa.Table], key: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass, in batches with exactly the requested schema.

    Args:
        reading: says which.
        tables: the rows, with the columns wanted and those of the filter.
        key: of the object that has them, for the error.

    Raises:
        InvalidInput: the filter fails on the rows.
    """
    names = reading.schema.names
    if reading.filter is not None:
        tables = list(tables)
        if not tables:  # a segment without rows
            return
        rows = join_tables(tables)
        try:
            tables = [filtered(rows, reading.filter)]
        except _FAILURES as error:
            raise predicate_error(error, reading.store.uri, key) from error
    for table in tables:
        if not names:
            if table.num_rows:  # like to_batches, which yields no empty batch
                yield without_columns(table.num_rows)
            continue
        for batch in table.select(names).to_batches(max_chunksize=reading.batch_rows):
            yield with_schema(batch, reading.schema)


def _with_positions(table: pa.Table, spans: Iterable[tuple[int, int]]) -> pa.Table:
    """Return rows with their positions: those of spans, one after another."""
    positions = pa.chunked_array([_numbers(*span) for span in spans])
    if not table.num_columns:
        return pa.table([positions], schema=pa.schema([POSITION]))
    return table.append_column(POSITION, positions)


def positions_in(batch: pa.RecordBatch) -> BitMap64:
    """Return the positions in a batch that was read with them."""
    column = batch.column(batch.schema.get_field_index(POSITION.name))
    return BitMap64(column.to_pylist())


def _numbers(start: int, end: int) -> pa.Array:
    """Return the integers from `start` on and before `end`."""
    if end - start > DEFAULT_BATCH_ROWS:
        return pa.array(range(start, end), pa.int64())
    return pc.add(_first_numbers().slice(0, end - start), start)


@cache
def _first_numbers() -> pa.Array:
    # From a buffer: Arrow looks at each number of a range.
    return pa.Array.from_buffers(
        pa.int64(), DEFAULT_BATCH_ROWS, [None, pa.py_buffer(array("q", range(DEFAULT_BATCH_ROWS)))]
    )


def _taken(table: pa.Table, places: list[int]) -> pa.Table:
    if table.num_columns:
        return table.take(pa.array(places, pa.int64()))
    return pa.Table.from_batches([without_columns(len(places))])


def _any_within(positions: BitMap64, start: int, end: int) -> bool:
    """Return whether there is a position from `start` on and before `end`."""
    return next(iter(positions.iter_equal_or_larger(start)), end) < end


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
