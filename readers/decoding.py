"""Decoding row groups: within a bound on memory, whatever they expand to.

Imports nothing of the project but its words. How large rows get is not in a footer: a dictionary
holds a text once that stands in every row. So what the rows may take is found out first, and where
that is much they are decoded a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_VALUE_BYTES = 8  # of numbers, and of what tells where a value starts


def leaves(schema: pa.Schema, names: frozenset[str]) -> list[int]:
    """Return the places of the Parquet columns that some top-level columns consist of."""
    found: list[int] = []
    at = 0
    for field in schema:
        count = _leaf_count(field.type)
        if field.name in names:
            found.extend(range(at, at + count))
        at += count
    return found


def encoded_bytes(group: Any, columns: Sequence[int]) -> int:
    """Return the bytes of columns of a row group before compression, numbers at full width.

    Args:
        group: the row group's part of a Parquet footer.
        columns: places of Parquet columns.
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
        source: the Parquet file, as far as these columns need it.
        footer: its metadata.
        groups: numbers of the row groups.
        columns: places of Parquet columns.
        enough: a bound up to here need not be a close one, and costs less.
    """
    size = 0
    doubtful: list[tuple[int, int, Any]] = []
    for group in groups:
        for place in columns:
            column = footer.row_group(group).column(place)
            size += _encoded_bytes(column)
            if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY":
                doubtful.append((group, place, column))
    # No value is longer than all of its column chunk.
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
    """Yield columns of row groups in batches of at most so many rows; memory follows the batch.

    Args:
        source: the Parquet file, as far as these columns need it.
        footer: its metadata.
        groups: numbers of row groups.
        columns: places of Parquet columns.
        rows: in a batch.
    """
    # By their places: names with dots are ambiguous in a Parquet file. And not by Arrow's dataset,
    # which decodes a row group whole, however few rows a batch is to have.
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
