"""Reads the deletion vectors of segments: checked against the log, each object fetched once.

Small ones stand in the entries. A delete stores the larger ones of all segments that it touches in
one object. A reader of many of these segments fetches the part of the object that it needs in one
request, and keeps it while it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

import pyarrow as pa
from msgspec import UnsetType
from pyroaring import BitMap64

from eventlog.errors import DataLoss, KeyNotFound
from eventlog.format import keys
from eventlog.format.deletion_vectors import decode_vector, positions_in_entry
from eventlog.model.entries import Segment, StoredBitmap, Vector, stored_bitmap
from eventlog.segments.segment_object import loss_error, missing_error
from eventlog.store.port import ObjectStore

_ATTEMPTS = 3  # of one fetch: damage in transit is gone the next time
_MOST_BYTES = 32 * 2**20  # vectors that span more are fetched one by one
# Runs of rows between deleted ones are not copied if they have more rows than this on average: a
# batch of fewer costs its readers more than the copy.
_FEW_ROWS = 2048


class VectorReader:
    """The deletion vectors of some segments of one version.

    Args:
        store: the store that has them.
        version: the version that is read, for messages.
        segments: the segments that may be asked for.
        table: the table's id. If an object is missing, the log is checked to have this id still.
    """

    def __init__(
        self,
        store: ObjectStore,
        version: int,
        segments: Iterable[Segment],
        table: str | None = None,
    ) -> None:
        self._store, self._version, self._table = store, version, table
        self._spans: dict[str, tuple[int, int]] = {}
        for segment in segments:
            stored = stored_bitmap(segment.vector)
            if stored is not None:
                start, end = stored.offset, stored.offset + stored.size
                key = keys.vectors_key(stored)
                low, high = self._spans.get(key, (start, end))
                self._spans[key] = min(low, start), max(high, end)
        self._locks = {key: Lock() for key in self._spans}
        self._fetched: dict[str, bytes] = {}

    def deleted(self, segment: Segment) -> BitMap64:
        """Return the positions, from 0, of the segment's deleted rows; none without a vector.

        Raises:
            DataLoss: the vector is missing or damaged.
            Unavailable: the store does not answer.
        """
        vector = segment.vector
        if isinstance(vector, UnsetType):
            return BitMap64()
        stored = stored_bitmap(vector)
        if stored is None:
            return self._in_entry(segment, vector)
        key = keys.vectors_key(stored)
        problem = ""
        for attempt in range(_ATTEMPTS):
            try:
                bitmap = self._bitmap(key, stored, again=attempt > 0)
                return decode_vector(bitmap, vector, segment.rows)
            except KeyNotFound:
                raise missing_error(
                    self._store, key, self._version, self._table, what="deletion vector"
                ) from None
            except DataLoss as error:
                problem = error.message
        raise loss_error(self._store, key, self._version, problem, what="deletion vector")

    def _in_entry(self, segment: Segment, vector: Vector) -> BitMap64:
        try:
            return positions_in_entry(vector, segment.rows)
        except DataLoss as error:
            key, what = keys.key_of(segment), "deletion vector"
            raise loss_error(self._store, key, self._version, error.message, what=what) from None

    def _bitmap(self, key: str, stored: StoredBitmap, *, again: bool) -> bytes:
        """Return the bytes where the bitmap should be; `again` if they were wrong before."""
        low, high = self._spans[key]
        if again or high - low > _MOST_BYTES:
            return self._store.get(key, start=stored.offset, length=stored.size)
        with self._locks[key]:
            if key not in self._fetched:
                self._fetched[key] = self._store.get(key, start=low, length=high - low)
        return self._fetched[key][stored.offset - low : stored.offset - low + stored.size]


def fetch_positions(store: ObjectStore, vector: Vector, rows: int) -> BitMap64:
    """Return the positions that one vector deletes; one request if it is stored.

    Args:
        store: the store that has it.
        vector: the vector.
        rows: the number of rows of its segment.

    Raises:
        DataLoss: it is damaged.
        KeyNotFound: the object is missing.
        Unavailable: the store does not answer.
    """
    return decode_vector(_fetched(store, vector), vector, rows)


def fetch_bitmap(store: ObjectStore, vector: Vector, rows: int) -> bytes:
    """Return the bytes of the bitmap of a vector, checked; see `fetch_positions`."""
    bitmap = _fetched(store, vector)
    decode_vector(bitmap, vector, rows)
    return bitmap


def _fetched(store: ObjectStore, vector: Vector) -> bytes:
    stored = stored_bitmap(vector)
    if stored is None:
        return b"" if isinstance(vector.bitmap, UnsetType) else vector.bitmap
    return store.get(keys.vectors_key(stored), start=stored.offset, length=stored.size)


def without_positions(table: pa.Table, deleted: Sequence[int]) -> pa.Table:
    """Return the rows of a table, in order, without those at the given positions.

    Args:
        table: the rows.
        deleted: positions from 0 in the table, at least one, ascending.
    """
    if not table.num_columns:
        return table.slice(0, table.num_rows - len(deleted))
    if len(deleted) * _FEW_ROWS > table.num_rows:
        return table.filter(_all_but(deleted, table.num_rows))
    ends = [*deleted, table.num_rows]
    starts = [0, *(position + 1 for position in deleted)]
    runs = [(a, b) for a, b in zip(starts, ends, strict=True) if a < b] or [(0, 0)]
    return pa.concat_tables(table.slice(start, end - start) for start, end in runs)


def _all_but(positions: Iterable[int], rows: int) -> pa.BooleanArray:
    """Return a mask of rows that is false at the positions."""
    bits = bytearray(b"\xff" * ((rows + 7) // 8))
    for position in positions:
        bits[position >> 3] &= ~(1 << (position & 7))
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])
