"""Decides by the values how columns of a segment are written as Parquet.

A dictionary of values that hardly repeat costs CPU, at the writer and at each reader, and bytes
besides. A context of ZSTD costs more than a small page does: where thousands of segments of a few
rows are read, it was most of the work. No I/O.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format.conversion import leaf_paths

# Past this many bytes a dictionary costs more than it saves (ids, measurements).
_DICTIONARY_BYTES = 128 * 1024
_FEW_ROWS, _LOOKED_AT = 1024, 2048
# So few rows get no dictionaries: to look for repetition costs as much as to write them, and Snappy
# finds it, too.
_FEWEST_ROWS = 256
# Columns that take fewer bytes in Arrow are compressed by Snappy.
_SNAPPY_BYTES = 16 * 1024
# Arrow makes one page of so few rows and bytes of a column, and an index of one page says nothing.
_PAGE_ROWS, _PAGE_BYTES = 16 * 1024, 512 * 1024
# What every segment is written with.
_ALWAYS: dict[str, Any] = {
    "dictionary_pagesize_limit": _DICTIONARY_BYTES,
    "write_page_checksum": True,
    "store_schema": False,  # the log holds the schema
}


def are_few(rows: pa.Table) -> bool:
    """Return whether rows are so few that how they are written follows from their schema.

    Args:
        rows: those of a segment.
    """
    return bool(rows.num_rows <= _FEWEST_ROWS and rows.nbytes <= _SNAPPY_BYTES)


def parquet_options(rows: pa.Table, key: str | None = None) -> dict[str, Any]:
    """Return the arguments of pyarrow's Parquet writer for a segment.

    Args:
        rows: its rows, or those of its first row group.
        key: the column by which they are sorted, no value of which comes often; None: there is
            none. Its differences are stored where they are numbers: each scan that merges rows
            reads all keys, and these are decoded in a fifth of the time and take fewer bytes.
    """
    if are_few(rows):
        return _options_of_few(rows.schema)
    coded: list[str] = []
    codecs: dict[str, str] = {}
    levels: dict[str, int] = {}
    differences: dict[str, str] = {}
    largest = 0
    for field, column in zip(rows.schema, rows.columns, strict=True):
        leaves = list(leaf_paths(field.name, field.type))
        size = column.nbytes // len(leaves)
        largest = max(largest, size)
        if field.name == key and rows.num_rows > _FEW_ROWS and _is_whole(field.type):
            codecs[field.name], differences[field.name] = "none", "DELTA_BINARY_PACKED"
            continue
        small = size <= _SNAPPY_BYTES
        codecs |= dict.fromkeys(leaves, "snappy" if small else "zstd")
        if not small:
            levels |= dict.fromkeys(leaves, 1)
        if pa.types.is_nested(field.type) or suits_dictionary(column):
            coded += leaves
    return {
        **_ALWAYS,
        "compression": codecs,
        "compression_level": levels or None,
        "use_dictionary": coded,
        "column_encoding": differences or None,
        "write_page_index": rows.num_rows > _PAGE_ROWS or largest > _PAGE_BYTES,
        "write_statistics": _with_statistics(rows.schema),
    }


@lru_cache(maxsize=64)
def _options_of_few(schema: pa.Schema) -> dict[str, Any]:
    """Return `parquet_options` of the smallest tables, which follow from their schema."""
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    return {
        **_ALWAYS,
        "compression": "snappy",
        "use_dictionary": [path for one in nested for path in leaf_paths(one.name, one.type)],
        "write_page_index": False,
        "write_statistics": _with_statistics(schema),
    }


def _is_whole(kind: pa.DataType) -> bool:
    """Return whether values of a type are whole numbers in Parquet."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def suits_dictionary(column: pa.ChunkedArray) -> bool:
    """Return whether a dictionary of a column's values takes clearly less than the values.

    It looks at the first values. Where these hardly repeat and there are many more, it looks how
    many of those in a later place are among them, and judges by that how many there are in all.

    Args:
        column: of a type that is not nested.
    """
    rows = len(column)
    width = max(1, column.nbytes // max(1, rows))
    # To look at all of a few would take as long as to write them.
    some = min(rows, _LOOKED_AT) if rows > _FEW_ROWS else min(rows, _FEWEST_ROWS)
    if some < 2:
        return False
    first = column.slice(0, some).unique()
    if _takes_less(len(first), some, width):
        return True
    if rows <= _FEW_ROWS:
        return False
    later = column.slice(5 * (rows - some) // 8, some)
    known = pc.sum(pc.is_in(later, value_set=first)).as_py()
    distinct = min(rows, len(first) * some // max(1, known))
    return distinct * width <= _DICTIONARY_BYTES and _takes_less(distinct, rows, width)


def _takes_less(distinct: int, rows: int, width: int) -> bool:
    """Return whether a dictionary and its indexes take at most three quarters of the values."""
    indexes = rows * (distinct - 1).bit_length() // 8
    return 4 * (distinct * width + indexes) <= 3 * rows * width


def _with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns that get statistics in the file.

    Floats get none: Arrow leaves NaN out of them, and engines in which NaN is greater than every
    number would prune wrongly. Nor do nested columns: Parquet's writer cannot distinguish field `b`
    of column `a` from a column called `a.b`.
    """
    inside = tuple(f"{field.name}." for field in schema if pa.types.is_nested(field.type))
    return [
        field.name
        for field in schema
        if not pa.types.is_floating(field.type)
        and not pa.types.is_nested(field.type)
        and not field.name.startswith(inside)
    ]
