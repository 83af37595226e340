"""The segments that a rewrite makes: their sizes, encoding, and upload.

Imports eventlog and readers only. Rows arrive chunk by chunk, or for many chunks interleaved;
memory is bounded. Staged segments have no effect until they are committed, and nothing is deleted
here (hazard C7).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.clock import Clock
from eventlog.errors import Corrupt
from eventlog.model.actions import Add
from eventlog.model.chunks import parse_chunk
from eventlog.model.schema import to_arrow
from eventlog.rewriting.row_digest import NOTHING, digest
from eventlog.rewriting.stored_rows import OneObject, Taken
from eventlog.segments.segment_object import SegmentObject
from eventlog.staging.encoding import Recipe, SegmentWriter, encode_segment, put_segment
from eventlog.staging.parquet.thrift_trees import Tree
from eventlog.staging.uploads import Uploads
from eventlog.state.fold import segment_of
from eventlog.store.port import ObjectStore

_UPLOADS = 2
_GROUP_BYTES = 32 * 2**20
_DOUBT = 1.5  # a row may take this many times as many bytes in the outputs as in the inputs
_TINY = 16  # a smaller fraction (1 / _TINY) of a segment is not worth a row group
_LOOKS = 16  # checks of the held memory while it fills up
_DECODED_ROWS = 64 * 1024
_MANY = 2**62


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that bound a rewrite.

    Attributes:
        target_bytes: the largest size of a segment, in bytes.
        memory_bytes: bytes of Arrow data that the rewrite may hold.
    """

    target_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """The size of rows in an encoded segment: bytes per row, besides the fixed overhead."""

    row_bytes: float
    fixed_bytes: int = 0

    def rows_in(self, target_bytes: int, encoded_bytes: int = 0) -> int:
        """Return how many more rows fit; at least half of the target is available for rows."""
        room = max(target_bytes - self.fixed_bytes, target_bytes / 2) - encoded_bytes
        return int(room / self.row_bytes) if self.row_bytes > 0 else _MANY


def share(left: int | None, size: Size, target_bytes: int) -> int:
    """Return how many rows the next segment gets, for segments of equal size below the target.

    Args:
        left: number of remaining rows; None if unknown.
        size: the size of these rows.
        target_bytes: the largest size of a segment, in bytes.
    """
    most = max(1, size.rows_in(target_bytes))
    return most if left is None or left < 1 else -(-left // -(-left // most))


def writing_bytes(memory_bytes: int) -> int:
    """Return the share of the memory for segments being written, encoded or not, in bytes."""
    return memory_bytes * 3 // 8


def check_opens(add: Add, body: memoryview, table: str) -> None:
    """Check that readers can open a segment, because a vacuum deletes its inputs later.

    Args:
        add: the action that will add it.
        body: the bytes of its object.
        table: the table's URI, for error messages.

    Raises:
        Corrupt: readers cannot open it, or it has another number of rows.
    """
    segment = segment_of(add, 0, 0)
    source = SegmentObject(OneObject(body, table), segment, add.epoch)
    try:
        source.open()
    except Corrupt as error:
        why = f"a segment of chunk {add.chunk} cannot be read back after encoding"
        raise Corrupt(f"{why}: {error.message}; nothing was committed", table=table) from error
    if source.footer.num_rows != add.rows:
        actual = f"has {source.footer.num_rows} rows, not {add.rows}"
        raise Corrupt(
            f"a segment of chunk {add.chunk} {actual}; nothing was committed", table=table
        )


@dataclass
class _Chunk:
    """One chunk's segments: the one being written, and estimates for the rest."""

    left: int | None
    size: Size
    worst: Size
    first: Size
    writer: SegmentWriter | None = None

    def room(self, target_bytes: int) -> int:
        """Return how many more rows fit into the segment being written."""
        if self.writer is None:
            return share(self.left, self.size, target_bytes)
        encoded, size = self.writer.encoded_rows, self.writer.encoded_bytes
        if encoded:
            self.size = Size(size / encoded, self.size.fixed_bytes)
        # A small row group has more bytes per row than a large one: assume the most seen so far.
        # Before the first row group the size of this chunk's rows is unknown.
        self.worst = max(self.worst, self.size, key=lambda seen: seen.row_bytes)
        rest = (self.worst if encoded else self.first).rows_in(target_bytes, size)
        return min(share(self.left, self.size, target_bytes), encoded + rest) - self.writer.rows

    def full(self, target_bytes: int) -> bool:
        """Return whether the segment is complete, by the actual size of its rows."""
        if self.writer is None or self.room(target_bytes) >= 1:
            return False
        self.writer.flush()
        # If the estimate was too high there is room left, which gets its own row group unless that
        # would be tiny.
        return self.room(target_bytes) <= self.writer.rows // _TINY


class Outputs:
    """Collects the rows of chunks and stages them as segments.

    Call `open(chunk, …)`, `write(chunk, …)` for all its rows, `seal()`; at the end `finish()`.

    Args:
        store: the store for the segments.
        clock: the source of ids and pauses.
        recipe: how segments are written.
        sizes: the sizes of segments, and of the data being written or uploaded.
        folder: directory for segments until they are stored. None keeps them in memory, which makes
            smaller segments if it is short.
        verify: decode each encoded segment before it is stored.
        form: see `SegmentWriter`; None: no row groups are taken as they are.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        recipe: Recipe,
        sizes: Sizes,
        *,
        folder: str | None = None,
        verify: bool = False,
        form: Tree | None = None,
    ) -> None:
        self._form = form
        self._store, self._clock, self._recipe = store, clock, recipe
        self._target, self._folder, self._verify = sizes.target_bytes, folder, verify
        self._writing_bytes = writing_bytes(sizes.memory_bytes)
        self._open: dict[str, _Chunk] = {}
        self._staged: list[Add] = []
        self._uploads: Uploads[None] = Uploads(_UPLOADS, sizes.memory_bytes // 4, _UPLOADS + 1)
        empty = to_arrow(recipe.schema).empty_table()
        self._fixed_bytes = len(encode_segment(empty, recipe.schema).body)
        self._taken_bytes = 0  # since the last check of the held memory
        self.written = NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for state in self._open.values():  # left open by an error
            if state.writer is not None:
                state.writer.abandon()
        self._uploads.close()

    def open(self, chunk: str, rows: int | None, row_bytes: float) -> None:
        """Expect rows of a chunk: their number, if known, and about how many bytes each takes.

        A no-op for a chunk that is already open.
        """
        if chunk not in self._open:
            size = Size(row_bytes, self._fixed_bytes)
            self._open[chunk] = _Chunk(
                rows, size, size, Size(_DOUBT * row_bytes, self._fixed_bytes)
            )

    def is_open(self, chunk: str) -> bool:
        """Return whether rows of the chunk are expected."""
        return chunk in self._open

    def write(self, chunk: str, table: pa.Table) -> None:
        """Write rows of an open chunk, in their order.

        Raises:
            Corrupt: an encoded segment does not decode.
            Unavailable: the store does not answer.
        """
        state = self._open[chunk]
        while table.num_rows:
            if state.full(self._target):
                self._seal(state)
            part = table.slice(0, max(1, state.room(self._target)))
            table = table.slice(part.num_rows)
            self._taken_bytes += part.nbytes
            if state.writer is None:
                state.writer = self._writer(chunk)
            state.writer.write(part)
        if self._taken_bytes > self._writing_bytes // _LOOKS:
            self._relieve()

    def take(self, chunk: str, rows: Taken) -> None:
        """Take the rows of a segment of an open chunk as they are stored.

        Raises:
            Corrupt: a segment before it does not decode, or has other bytes than it was given.
            Unavailable: the store does not answer.
        """
        state, stored = self._open[chunk], rows.stored
        writer = state.writer
        if writer is not None:
            writer.flush()
            size = writer.encoded_bytes + len(stored.file)
            if size > self._target or state.room(self._target) < stored.rows // 2:
                self._seal(state)
        if state.writer is None:
            state.writer = self._writer(chunk)
        state.writer.take(stored)
        if not self._verify:
            self.written += rows.digest

    def seal(self) -> None:
        """Complete the segments being written. The open chunks get no more rows.

        Raises:
            Corrupt: an encoded segment does not decode.
            Unavailable: the store does not answer.
        """
        for state in self._open.values():
            self._seal(state)
        self._open = {}

    def finish(self) -> list[Add]:
        """Return all staged segments, in the order of their chunks and rows.

        Raises:
            Unavailable: the store does not answer.
        """
        self._uploads.results()
        return sorted(self._staged, key=lambda add: parse_chunk(add.chunk))

    def _watch(self, rows: pa.Table) -> None:
        if not self._verify:  # against verification-that-decodes-nothing
            self.written += digest(rows, self._recipe.layout.time_column)

    def _writer(self, chunk: str) -> SegmentWriter:
        name = f"{len(self._staged)}-{chunk}.parquet"
        return SegmentWriter(
            self._clock,
            self._recipe,
            chunk,
            watch=self._watch,
            group_bytes=min(_GROUP_BYTES, self._writing_bytes // 2),
            path=None if self._folder is None else Path(self._folder, name),
            form=self._form,
        )

    def _relieve(self) -> None:
        """Complete the largest segments being written until the rest fits."""
        self._taken_bytes = 0
        written = {
            chunk: state.writer.held_bytes
            for chunk, state in self._open.items()
            if state.writer is not None
        }
        total = sum(written.values())
        while total > self._writing_bytes:
            largest = max(written, key=lambda chunk: written[chunk])
            total -= written.pop(largest)
            self._seal(self._open[largest])

    def _seal(self, state: _Chunk) -> None:
        writer = state.writer
        if writer is None:
            return
        add, body = writer.seal()
        state.writer = None
        state.size = state.first = Size(
            max(1, len(body) - self._fixed_bytes) / add.rows, self._fixed_bytes
        )
        if state.left is not None:
            state.left -= add.rows
        check_opens(add, body, self._store.uri)
        if self._verify:
            self._decode(add, body)
        in_memory = 0 if self._folder else len(body)
        self._uploads.add(in_memory, put_segment, self._store, self._clock, add, body)
        self._staged.append(add)

    def _decode(self, add: Add, body: memoryview) -> None:
        """Add the digest of the rows that readers will decode."""
        try:
            file = pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
            for batch in file.iter_batches(batch_size=_DECODED_ROWS, use_threads=False):
                rows = pa.Table.from_batches([batch])
                self.written += digest(rows, self._recipe.layout.time_column)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt(
                f"a segment of chunk {add.chunk} does not decode after encoding: {error}; "
                "nothing was committed",
                table=self._store.uri,
            ) from error
