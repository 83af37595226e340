"""Reading the rows of given segments: checked against the log, bounded in memory, in order.

Imports eventlog only. Segments are read ahead by a few threads, in pieces of whole row groups; a
piece that failed is read again from its start before any of its rows is passed on, so that no row
is lost or doubled. A missing or damaged segment is `DataLoss` and never skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from eventlog import keys
from eventlog.errors import (
    Corrupt,
    DataLoss,
    EventLogError,
    InvalidInput,
    KeyNotFound,
    NotFound,
    TableNotFound,
    Unavailable,
    VersionVacuumed,
)
from eventlog.holds import check_kept
from eventlog.log import Log
from eventlog.model import Segment
from eventlog.store import ObjectStore
from readers.ahead import read_ahead, threads
from readers.batches import clashes, counted, decoded_bytes, exactly, holds_floats, unscanned

DEFAULT_BATCH_ROWS = 128 * 1024
_PIECE_BYTES = 16 * 2**20
_ATTEMPTS = 3
# A footer may claim more than its file can hold (arrow#49955). Writers bound a segment by its Arrow
# size (property segment_bytes), so that honest segments are far below both limits.
_BOMB_BYTES = 256 * 2**20
_BOMB_RATIO = 1000
_HASH_BYTES = 8 * 2**20
# Segments up to this size are fetched in one request and checked whole, whatever the columns.
_WHOLE_BYTES = 2**20

_Answer = TypeVar("_Answer")
_Rows = list[pa.RecordBatch]
# What a read can fail with; pyarrow says OSError for a broken page as for a broken connection.
_FAILURES = (EventLogError, pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Reading:
    """How segments of one version become batches. Can be pickled to another process.

    Attributes:
        store: where the segments lie.
        version: the version that is read, for messages.
        table_schema: the table's Arrow schema at that version, which `filter` refers to.
        schema: the fields wanted, in order; every batch has exactly this schema.
        filter: the rows wanted; None for all.
        filter_columns: names of the columns that `filter` reads, or a superset.
        batch_rows: at most so many rows in a batch.
        ahead_bytes: read ahead of what was asked for, decoded, about so many bytes.
        table: id of the table, which the log must still be of where a segment is missing.
    """

    store: ObjectStore
    version: int
    table_schema: pa.Schema
    schema: pa.Schema
    filter: pc.Expression | None = None
    filter_columns: frozenset[str] = frozenset()
    batch_rows: int = DEFAULT_BATCH_ROWS
    ahead_bytes: int = 128 * 2**20
    table: str | None = None

    def batches(self, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the segments, in the order given and as they lie in each.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the filter fails on the rows, such as by an overflow.
            Unavailable: the store does not answer.
        """
        with threads() as pool:
            most = self.ahead_bytes
            opened = read_ahead(
                pool, segments, self._open, lambda s: min(s.bytes, _WHOLE_BYTES), most
            )
            pieces = (piece for found in opened for piece in found)
            for piece, rows in read_ahead(pool, pieces, self._read, lambda piece: piece.size, most):
                yield from piece.stream() if rows is None else rows

    def count(self, segments: Iterable[Segment]) -> int:
        """Return the number of rows wanted, reading only what the filter needs.

        Raises: as `batches`.
        """
        with threads() as pool:
            return sum(read_ahead(pool, segments, self._count, lambda _: 0, self.ahead_bytes))

    def piece_bytes(self) -> int:
        """Return how many bytes are decoded at once, or a row group if that is more."""
        return min(_PIECE_BYTES, self.ahead_bytes // 8)

    def filter_in_scan(self) -> bool:
        """Say whether Arrow may prune row groups by the filter and the statistics in the file.

        Those of floats leave NaN out: pruned by them, rows that pass would not be found.
        """
        read = (f for f in self.table_schema if f.name in self.filter_columns)
        return self.filter is None or not (
            clashes(self.table_schema) or any(holds_floats(field.type) for field in read)
        )

    def _open(self, segment: Segment) -> list[_Piece]:
        source = _Source(self, segment)
        return source.retried(source.pieces)

    def _read(self, piece: _Piece) -> tuple[_Piece, _Rows | None]:
        return piece, piece.rows()

    def _count(self, segment: Segment) -> int:
        source = _Source(self, segment)
        return source.retried(source.count)


def check_sizes(store: ObjectStore, segments: Sequence[Segment], version: int) -> None:
    """Check that the objects are there and as large as the log says, for readers that do not.

    Raises:
        DataLoss: one is missing or has another size.
        Unavailable: the store does not answer.
    """
    files, root = store.filesystem()
    try:
        found = files.get_file_info([f"{root}/{keys.key_of(segment)}" for segment in segments])
    except OSError as error:
        why = f"the store does not answer: {error}; try again later"
        raise Unavailable(why, table=store.uri, version=version) from error
    for segment, there in zip(segments, found, strict=True):
        if there.size != segment.bytes:
            source = _Source(Reading(store, version, pa.schema([]), pa.schema([])), segment)
            if not there.is_file:
                raise source.missing()
            raise source.loss(f"the object has {there.size} bytes, not {segment.bytes}")


class _Source:
    """One segment's object."""

    def __init__(self, reading: Reading, segment: Segment) -> None:
        self.reading, self.segment = reading, segment
        self.key = keys.key_of(segment)

    def retried(self, read: Callable[[], _Answer]) -> _Answer:
        """Return what `read` returns; a failure that is the store's own is tried again."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return read()
            except _FAILURES as error:
                self.judge(error, last=attempt == _ATTEMPTS)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def judge(self, error: Exception, *, last: bool) -> None:
        """Raise what a failed read means, unless trying again may help."""
        if isinstance(error, MemoryError) or (
            isinstance(error, EventLogError) and (last or not isinstance(error, Unavailable))
        ):
            raise error
        if not isinstance(error, EventLogError):
            self.check_object(error)
            if last:
                raise self.verdict(error) from error

    def open(self) -> ds.ParquetFileFragment:
        """Return the object as a fragment whose footer is read and agrees with the log."""
        # Pages whose writer noted a checksum are checked; others are taken as they are.
        file_format = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(
                page_checksum_verification=True
            )
        )
        fragment = file_format.make_fragment(self.file())
        fragment.ensure_complete_metadata()
        self.check_footer(fragment)
        return fragment

    def file(self) -> pa.NativeFile:
        """Return the object for random access; its size is the one in the log.

        Arrow is never told the size: where an object is shorter than that, its S3 file system hands
        out memory that it did not fill.
        """
        segment, store = self.segment, self.reading.store
        if segment.bytes <= _WHOLE_BYTES:
            body = self.body()
            self.check_bytes(len(body), hashlib.sha256(body).hexdigest())
            return pa.BufferReader(body)
        files, root = store.filesystem()
        file = files.open_input_file(f"{root}/{self.key}")
        if file.size() != segment.bytes:
            raise self.loss(f"the object has {file.size()} bytes, not {segment.bytes}")
        return file

    def body(self) -> bytes:
        try:
            # One byte more than there should be, to notice one too many.
            return self.reading.store.get(self.key, length=self.segment.bytes + 1)
        except KeyNotFound:
            raise self.missing() from None

    def check_bytes(self, size: int, sha256: str) -> None:
        if size != self.segment.bytes or sha256 != self.segment.checksum:
            raise self.loss("the object's bytes are not those that were committed")

    def check_footer(self, fragment: ds.ParquetFileFragment) -> None:
        footer, segment = fragment.metadata, self.segment
        if footer.num_rows != segment.rows:
            raise self.loss(f"the object has {footer.num_rows} rows, not {segment.rows}")
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        size = sum(max(0, group.total_byte_size) for group in groups)
        if size > max(_BOMB_BYTES, _BOMB_RATIO * segment.bytes):
            raise self.loss(f"the object claims to hold {size} bytes in {segment.bytes}")
        there = set(fragment.physical_schema.names)
        for field in self.reading.table_schema:
            if not field.nullable and field.name not in there:
                raise self.loss(f"the object lacks column {field.name!r}")

    def pieces(self) -> list[_Piece]:
        """Return runs of row groups, each as large as may be decoded at once."""
        fragment = self.open()
        reading, footer = self.reading, fragment.metadata
        wanted = {*reading.schema.names, *reading.filter_columns}
        most = reading.piece_bytes()
        pieces: list[_Piece] = []
        run: list[int] = []
        size = 0
        for index in range(footer.num_row_groups):
            cost = decoded_bytes(footer.row_group(index), wanted)
            if run and size + cost > most:
                pieces.append(_Piece(self, fragment, tuple(run), size))
                run, size = [], 0
            run.append(index)
            size += cost
        if run:
            pieces.append(_Piece(self, fragment, tuple(run), size))
        return pieces

    def count(self) -> int:
        """Return the number of rows that pass."""
        reading = self.reading
        if not reading.filter_in_scan():
            return sum(batch.num_rows for piece in self.pieces() for batch in piece.scanned())
        fragment = self.open()
        if reading.filter is None:
            return int(fragment.metadata.num_rows)
        scanner = fragment.scanner(
            schema=reading.table_schema, columns=[], filter=reading.filter, use_threads=False
        )
        return int(scanner.count_rows())

    def check_object(self, error: Exception) -> None:
        """Find out whether the object is what the log says, after a read of it failed.

        Raises:
            DataLoss: it is missing or has other bytes.
            Unavailable: the store does not answer.
        """
        digest, at, store = hashlib.sha256(), 0, self.reading.store
        try:
            while at <= self.segment.bytes:
                part = store.get(self.key, start=at, length=_HASH_BYTES)
                if not part:
                    break
                digest.update(part)
                at += len(part)
        except KeyNotFound:
            raise self.missing() from error
        self.check_bytes(at, digest.hexdigest())

    def verdict(self, error: Exception) -> EventLogError:
        """Return what a failure means that stays although the object is whole."""
        why = str(error).split("\n", 1)[0][:300]
        place: dict[str, Any] = {"table": self.reading.store.uri, "key": self.key}
        if isinstance(error, OSError):
            return Unavailable(f"the segment could not be read: {why}", **place)
        if self.reading.filter is not None:
            return InvalidInput(f"the predicate fails on the rows: {why}", **place)
        return self.loss(f"the object does not decode to the table's columns: {why}")

    def missing(self) -> EventLogError:
        """Return what a missing object means: vacuumed below the newest horizon, else lost.

        Or the whole table was removed, and maybe another one created in its place.

        Raises:
            Unavailable: the store does not answer, so that nobody can tell.
        """
        store, version = self.reading.store, self.reading.version
        try:
            log = Log(store)
            log.table = self.reading.table
            newest = log.head()
            check_kept(newest.meta, newest.version, version, store.uri)
        except (TableNotFound, VersionVacuumed) as error:
            return error
        except (Corrupt, NotFound):
            pass  # a damaged log is no word of a vacuum
        return self.loss("the object is missing")

    def loss(self, what: str) -> DataLoss:
        return DataLoss(
            f"a segment that the version needs is lost: {what}; run `eventlog fsck`, "
            "and restore the object from a backup or an older version of it",
            table=self.reading.store.uri,
            key=self.key,
            version=self.reading.version,
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive row groups of one segment; `size` is an estimate of their decoded bytes."""

    source: _Source
    fragment: ds.ParquetFileFragment
    groups: tuple[int, ...]
    size: int

    def rows(self) -> _Rows | None:
        """Return all batches, or None where that is too much to hold: then stream them."""
        if self.size > 4 * self.source.reading.piece_bytes():
            return None
        return self.source.retried(lambda: list(self._scan()))

    def stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one large row group; after a failure go on where it stopped."""
        done = 0
        for attempt in range(1, _ATTEMPTS + 1):
            seen = 0
            try:
                for batch in self._scan():
                    if seen + batch.num_rows > done:
                        rest = batch.slice(max(0, done - seen))
                        done = seen + batch.num_rows
                        yield rest
                    seen += batch.num_rows
            except _FAILURES as error:
                self.source.judge(error, last=attempt == _ATTEMPTS)
            else:
                return

    def scanned(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows wanted, as they lie there."""
        reading, names = self.source.reading, self.source.reading.schema.names
        if reading.filter_in_scan():
            yield from self._batches(names, reading.filter)
            return
        there = [*names, *(n for n in reading.table_schema.names if n in reading.filter_columns)]
        for batch in self._batches(list(dict.fromkeys(there)), None):
            rows = pa.Table.from_batches([batch]).filter(reading.filter).select(names)
            yield from rows.to_batches() if names else [counted(rows.num_rows)]

    def _scan(self) -> Iterator[pa.RecordBatch]:
        for batch in self.scanned():
            if batch.num_rows:
                yield exactly(batch, self.source.reading.schema)

    def _batches(self, columns: list[str], where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        reading = self.source.reading
        if clashes(reading.table_schema):
            wanted = pa.schema([reading.table_schema.field(name) for name in columns])
            yield from unscanned(self.source.file(), self.groups, reading.batch_rows, wanted)
            return
        part = self.fragment.subset(row_group_ids=list(self.groups))
        scanner = part.scanner(
            schema=reading.table_schema,
            columns=columns,
            filter=where,
            batch_size=reading.batch_rows,
            batch_readahead=2,
            fragment_readahead=1,
            use_threads=False,  # the pieces run side by side already
        )
        yield from scanner.to_batches()
