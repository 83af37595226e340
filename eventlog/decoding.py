"""Decoding of row groups within a bound on memory, however far they expand.

Imports nothing of the project. A footer does not say how large decoded rows are: a dictionary
stores a text once that every row may repeat. So a bound on their size is computed first; if it is
large, the rows are decoded a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_VALUE_BYTES = 8  # of a number, or of a value's offset


def leaves(schema: pa.Schema, names: frozenset[str]) -> list[int]:
    """Return the indexes of the Parquet columns that belong to the given top-level columns."""
    indexes: list[int] = []
    at = 0
    for field in schema:
        count = _leaf_count(field.type)
        if field.name in names:
            indexes.extend(range(at, at + count))
        at += count
    return indexes


def encoded_bytes(group: Any, columns: Sequence[int]) -> int:
    """Return the uncompressed bytes of columns of a row group, with numbers at full width.

    Args:
        group: the row group's metadata in a Parquet footer.
        columns: indexes of Parquet columns.
    """
    return sum(_encoded_bytes(group.column(place)) for place in columns)


def most_bytes(
    source: pa.NativeFile,
    footer: Any,
    groups: Iterable[int],
    columns: Sequence[int],
    enough: int,
) -> int:
    """Return a bound on the memory that columns of row groups take once decoded.

    Args:
        source: the Parquet file; the bytes of these columns suffice.
        footer: its metadata.
        groups: numbers of the row groups.
        columns: indexes of Parquet columns.
        enough: a bound in bytes. An estimate at or below it may be loose, which is cheaper.
    """
    size = 0
    doubtful: list[tuple[int, int, Any]] = []
    for group in groups:
        described = footer.row_group(group)
        for place in columns:
            column = described.column(place)
            size += _encoded_bytes(column)
            if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
                size += column.num_values * footer.schema.column(place).length
            if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY":
                doubtful.append((group, place, column))
    # No value is longer than its whole column chunk.
    loose = [column.num_values * column.total_uncompressed_size for _, _, column in doubtful]
    if size + sum(loose) <= enough:
        return size + int(sum(loose))
    for most, (group, place, column) in zip(loose, doubtful, strict=True):
        close = most <= enough // (8 * len(doubtful))
        size += most if close else column.num_values * _longest(source, footer, group, place)
    return size


def decode(
    source: pa.NativeFile, footer: Any, groups: Sequence[int], columns: Sequence[int], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of row groups in batches; memory is proportional to a batch.

    Args:
        source: the Parquet file; the bytes of these columns suffice.
        footer: its metadata.
        groups: numbers of row groups.
        columns: indexes of Parquet columns.
        rows: the largest number of rows in a batch.
    """
    # Columns by index: names with dots are ambiguous in a Parquet file. Not with Arrow's dataset,
    # which decodes a whole row group however small the batches are.
    reader = _opened(source, footer).reader
    yield from reader.iter_batches(
        rows, row_groups=list(groups), column_indices=list(columns), use_threads=False
    )


def _opened(source: pa.NativeFile, footer: Any, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, metadata=footer, pre_buffer=False, **options)


def _leaf_count(kind: pa.DataType) -> int:
    if not kind.num_fields:
        return 1
    return sum(_leaf_count(kind.field(place).type) for place in range(kind.num_fields))


def _encoded_bytes(column: Any) -> int:
    # Runs and dictionaries of numbers are expanded.
    return max(int(column.total_uncompressed_size), _VALUE_BYTES * int(column.num_values))


def _longest(source: pa.NativeFile, footer: Any, group: int, place: int) -> int:
    """Return the length of the longest value in a column chunk's dictionary."""
    path = footer.schema.column(place).path
    reader = _opened(source, footer, read_dictionary=[path]).reader
    batches = reader.iter_batches(1, row_groups=[group], column_indices=[place], use_threads=False)
    for batch in batches:
        values = batch.column(0)
        while not pa.types.is_dictionary(values.type):
            if not pa.types.is_nested(values.type):
                return int(footer.row_group(group).column(place).total_uncompressed_size)
            values = values.field(0) if pa.types.is_struct(values.type) else values.values
        return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 0)
    return 0
