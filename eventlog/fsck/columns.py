"""Some columns of a segment's rows, whose bytes are compared with the log before they are decoded.

What `eventlog.readers` does for whole scans, with one segment after another and in little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog import limits
from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import codec, keys
from eventlog.format.conversion import check_columns, leaf_count
from eventlog.format.parts import Parts, chunk_span, parse_footer, parse_tail
from eventlog.model.records import Segment
from eventlog.store.checksum import object_checksum
from eventlog.store.files import FetchedRanges
from eventlog.store.port import ObjectStore

# Rows that are decoded at once, as few as nothing tells their width before; tables of them are
# yielded once they have so many rows or so many bytes of Arrow data.
_DECODED_ROWS = 1024
_TABLE_ROWS, _TABLE_BYTES = 64 * 1024, 4 * 2**20
_ATTEMPTS = 3  # damage in transit is gone the next time
_OTHER = "the segment's bytes are not those that were committed"


def columns_of(store: ObjectStore, segment: Segment, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield columns of a segment's rows, as they are stored, in tables of few rows and bytes.

    Args:
        store: has the segment.
        segment: its entry.
        schema: the columns; one that the segment lacks is null in all rows.

    Raises:
        Corrupt: the object is missing, differs from its entry, or does not decode.
        Unavailable: the store does not answer.
    """
    try:
        yield from _Object(store, segment).tables(schema)
    except KeyNotFound:
        raise Corrupt("a live segment is missing") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).split("\n", 1)[0][:300]
        raise Corrupt(f"the segment does not decode: {why}") from None


class _Object:
    """One segment's object, opened."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        self._store, self._segment = store, segment
        self._key = keys.key_of(segment)
        self._whole: bytes | None = None
        self._parts: Parts | None = None
        if segment.bytes <= limits.WHOLE_BYTES:
            self._whole = self._checked(0, segment.bytes, segment.checksum)
            self.footer = parse_footer(self._whole)
        elif segment.tail is not None:
            start = segment.bytes - segment.tail.size
            end = self._checked(start, segment.tail.size, segment.tail.sha256)
            self.footer, self._parts = parse_tail(end, segment.bytes)
        else:  # a large object without checksums of its own is compared as a whole first
            if object_checksum(store, self._key, segment.bytes + 1) != segment.checksum:
                raise Corrupt(_OTHER)
            files, root = store.filesystem()
            with files.open_input_file(f"{root}/{self._key}") as file:
                self.footer = pq.read_metadata(file)
        if self.footer.num_rows != segment.rows:
            raise Corrupt(f"the segment has {self.footer.num_rows} rows, not {segment.rows}")

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the columns of `schema`."""
        stored = self.footer.schema.to_arrow_schema()
        check_columns(self.footer.schema, stored, schema)
        # By index: a name with dots is taken for a path.
        indexes = _leaves(stored, set(schema.names))
        for group in range(self.footer.num_row_groups):
            metadata = self.footer.row_group(group)
            if not indexes:
                yield _conformed(None, metadata.num_rows, schema)
                continue
            file = self._file(metadata, indexes)
            reader = pq.ParquetFile(file, metadata=self.footer, pre_buffer=False).reader
            batches = reader.iter_batches(
                _DECODED_ROWS, row_groups=[group], column_indices=indexes, use_threads=False
            )
            for rows in _together(batches):
                yield _conformed(rows, rows.num_rows, schema)

    def _file(self, group: Any, indexes: list[int]) -> pa.NativeFile:
        """Return a file that has these columns of a row group."""
        if self._whole is not None:
            return pa.BufferReader(self._whole)
        spans = [chunk_span(group.column(index)) for index in indexes]
        held = dict(piece for span in spans for piece in self._fetched(*span))
        return pa.PythonFile(FetchedRanges(sorted(held.items()), self._segment.bytes), mode="r")

    def _fetched(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Yield the checked bytes of a range, with those around it that are checked together."""
        if self._parts is None:
            yield start, memoryview(self._store.get(self._key, start=start, length=end - start))
            return
        known = self._parts.covering(start, end)
        bounds = self._parts.bounds[known.start : known.stop + 1]
        first, last = bounds[0], bounds[-1]
        for _ in range(_ATTEMPTS):
            body = memoryview(self._store.get(self._key, start=first, length=last - first))
            pieces = zip(known, pairwise(bounds), strict=True)
            if all(self._parts.check(n, body[a - first : b - first]) for n, (a, b) in pieces):
                yield first, body
                return
        raise Corrupt(_OTHER)

    def _checked(self, start: int, size: int, sha256: str) -> bytes:
        for _ in range(_ATTEMPTS):
            body = self._store.get(self._key, start=start, length=size + 1)
            if codec.sha256(body) == sha256:
                return body
        raise Corrupt(_OTHER)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches in tables of about `_TABLE_ROWS` or `_TABLE_BYTES`, whatever comes first."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _TABLE_ROWS or size >= _TABLE_BYTES:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _conformed(rows: pa.Table | None, count: int, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if rows is not None and field.name in rows.column_names:
            column = rows.column(field.name).cast(field.type)
            if pa.types.is_string(field.type):
                _check_text(column, field.name)
            columns.append(column)
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _check_text(column: pa.ChunkedArray, name: str) -> None:
    """Check that text is UTF-8. Raises `Corrupt`."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Corrupt(f"column {name!r} of the object has text that is no UTF-8") from error


def _leaves(stored: pa.Schema, names: set[str]) -> list[int]:
    """Return the indexes of the Parquet columns of flat top-level columns."""
    found: list[int] = []
    at = 0
    for field in stored:
        count = leaf_count(field.type)
        if field.name in names:
            found += range(at, at + count)
        at += count
    return found
