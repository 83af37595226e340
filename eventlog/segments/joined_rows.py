"""Rows of many small segments decoded together: each file by itself, everything else once.

Of a segment of a hundred rows, decoding is the least that a reader does: finding its columns,
bringing them to the table's types, checking, filtering and the step to another thread take longer.
Here they are done once for many segments whose bytes stand in commits. What is odd about one of
them is left to `eventlog.segments.fragments`, which reads it by itself and raises the right error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UnsetType

from eventlog.decoding import most_bytes
from eventlog.errors import DataLoss
from eventlog.inline import inline_objects
from eventlog.keyed.log_rows import empty_columns, odd_operation
from eventlog.model.entries import Segment
from eventlog.segments.batches import without_columns
from eventlog.segments.file_columns import FileColumns
from eventlog.segments.segment_object import is_object_of

if TYPE_CHECKING:
    from eventlog.segments.fragments import Reading

FAILURES = (DataLoss, pa.ArrowException, OSError, ValueError)
_MOST_SEGMENTS = 64
_MOST_BYTES = 2**20  # of their objects


@dataclass(slots=True)
class JoinedRows:
    """Some segments whose files have one schema, opened.

    Attributes:
        segments: the segments.
        parquet: the Parquet schema of their files.
        file: the columns of these.
        leaves: the Parquet columns that are read.
        fields: the columns that are read, in the types of the table.
        files: the opened files.
        size: a bound on the bytes that their rows take once decoded.
    """

    segments: list[Segment]
    parquet: Any
    file: FileColumns
    leaves: list[int]
    fields: pa.Schema
    files: list[Any] = field(default_factory=list)
    size: int = 0

    def rows(self, required: frozenset[str]) -> pa.Table:
        """Return the rows of all segments, also deleted ones, in the types of the table.

        Args:
            required: names of columns that have a value in each row but deletes.

        Raises:
            DataLoss: they are not what the log says.
            pa.ArrowException, OSError, ValueError: they do not decode to the table's columns.
        """
        counts = [segment.rows for segment in self.segments]
        if not self.leaves:
            decoded = pa.Table.from_batches([without_columns(sum(counts))])
        else:
            # What else a footer says, as Arrow's own schema, may lead to types that do not join.
            tables = [
                file.reader.read_all(self.leaves, use_threads=False).replace_schema_metadata()
                for file in self.files
            ]
            if [table.num_rows for table in tables] != counts:
                raise DataLoss("other rows than the footer says")
            decoded = pa.concat_tables(tables).combine_chunks()
        rows = self.file.conformed(decoded, self.fields)
        keyed = any(not isinstance(segment.slice, UnsetType) for segment in self.segments)
        if keyed and odd_operation(rows) is not None:
            raise DataLoss("a row is no operation")
        if empty_columns(rows, required):  # against unsound-rows-joined
            raise DataLoss("a column has nulls")
        return rows


def read_together(
    segments: Iterable[Segment], apart: Iterable[str] = ()
) -> Iterator[list[Segment]]:
    """Yield segments in order: in runs those that can be decoded together, each other by itself.

    Args:
        segments: the segments.
        apart: ids of some that are read by themselves.
    """
    run: list[Segment] = []
    size, alone = 0, frozenset(apart)
    for segment in segments:
        joins = not isinstance(segment.inline, UnsetType) and segment.id not in alone
        full = len(run) == _MOST_SEGMENTS or size + segment.bytes > _MOST_BYTES
        if run and (full or not joins):
            yield run
            run, size = [], 0
        if joins:
            run.append(segment)
            size += segment.bytes
        else:
            yield [segment]
    if run:
        yield run


def open_joined(reading: Reading, segments: Sequence[Segment]) -> list[JoinedRows] | None:
    """Return segments of a run, opened: those side by side together whose files have one schema.

    Args:
        reading: how they are read.
        segments: whose bytes stand in commits.

    Returns:
        None if one of them is better read by itself: its bytes are elsewhere or not those of the
        log, or the rows take more memory than is decoded at once.

    Raises:
        Unavailable: the store does not answer.
    """
    found: list[JoinedRows] = []
    bodies = inline_objects.fetch_objects(reading.store, segments)
    left = reading.piece_bytes()
    try:
        for segment in segments:
            body = bodies.get(segment.checksum)
            if body is None or not is_object_of(body, segment):
                return None
            source = pa.BufferReader(body)
            file = pq.ParquetFile(source, pre_buffer=False)
            footer = file.metadata
            groups = range(footer.num_row_groups)
            if footer.num_rows != segment.rows or len(groups) > 1:
                return None
            if not found or not found[-1].parquet.equals(footer.schema):
                found.append(_opened(reading, footer.schema, segment))
            last = found[-1]
            bound = most_bytes(source, footer, groups, last.leaves, left)
            left -= bound.size
            if not bound.sure or left < 0:  # against joined-rows-without-a-bound
                return None
            last.segments.append(segment)
            last.files.append(file)
            last.size += bound.size
    except FAILURES:
        return None
    return found


def _opened(reading: Reading, parquet: Any, segment: Segment) -> JoinedRows:
    """Return how files of a Parquet schema are read. Raises: one of `FAILURES`."""
    keyed = not isinstance(segment.slice, UnsetType)
    file = FileColumns(parquet, reading.columns, keyed=keyed)
    needed = {field.name for field in reading.table_schema if not field.nullable}
    file.check_present(needed | reading.required)
    names = frozenset(reading.schema.names) | reading.filter_columns
    fields = pa.schema([field for field in reading.table_schema if field.name in names])
    return JoinedRows([], parquet, file, file.leaves(names), fields)
