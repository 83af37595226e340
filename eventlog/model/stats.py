"""Column statistics of segments, in one order-preserving domain.

Bounds are stored as 64-bit integers in the order of the values (dates and timestamps as
microseconds, decimals unscaled, floats by their bits), or as text for strings. They are exact in
JSON, compact in leaves, and comparable without the type (FORMAT.md R7.4): a column that gets a
wider type keeps the bounds of its older segments. A bound of None means unknown and never prunes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.arguments import parse_names
from eventlog.errors import InvalidInput
from eventlog.model.chunks import DAY_US
from eventlog.model.columns.named_layout import (
    columns_text,
    ids_text,
    listed_ids,
    names_of,
    numbering,
)
from eventlog.model.decimals import to_units
from eventlog.model.entries import Column, ColumnStats, Schema

DEFAULT_COLUMNS = 16
TEXT_LIMIT = 32
PROPERTY = "stats_columns"

_MOST_DIGITS = 20
_MIN_INT = -(2**63) + 1
_MAX_INT = 2**63 - 1
_MAX_CODE_POINT = 0x10FFFF


def stats_columns(
    schema: Schema, setting: str | None, time_column: int | None
) -> tuple[Column, ...]:
    """Return the columns that get statistics, ordered by id; always includes the time column.

    Args:
        schema: the table's schema.
        setting: the property `stats_columns` as it is stored: a number of leading columns, or a
            list of ids, of which those of columns that were dropped do not count. Another text
            stands for the default (FORMAT.md R7.3).
        time_column: the id of the event-time column; None: the table has none.
    """
    text = setting if setting is not None else ""
    with_bounds = [column for column in schema.columns if isinstance(column.type, str)]
    listed = listed_ids(text)
    if listed is None:
        # As for all properties: a value of more than 19 digits stands for the default (R7.5).
        counted = _is_count(text) and len(text.strip()) < _MOST_DIGITS
        most = int(text) if counted else DEFAULT_COLUMNS
        listed = [column.id for column in with_bounds[:most]]
    chosen = {*listed, time_column}
    return tuple(sorted((c for c in with_bounds if c.id in chosen), key=lambda c: c.id))


def stored_setting(schema: Schema, text: str) -> str:
    """Return the stored form of the property `stats_columns`.

    Args:
        schema: the table's.
        text: a number of leading columns, or names of columns, comma-separated or as a JSON list.

    Raises:
        InvalidInput: it names an unknown column.
    """
    if _is_count(text):
        return text
    names = parse_names(text, f"property {PROPERTY}")
    unknown = {*names} - {column.name for column in schema.columns}
    if unknown:
        raise InvalidInput(
            f"property {PROPERTY} names unknown columns: {', '.join(sorted(unknown))}"
        )
    return ids_text(numbering(schema)(names))


def shown_setting(schema: Schema, text: str) -> str:
    """Return a stored property `stats_columns` with the names that its columns have."""
    listed = listed_ids(text)
    return text if listed is None else columns_text(names_of(listed, schema))


def _is_count(text: str) -> bool:
    return text.strip().isdecimal() and text.isascii()


def compute(table: pa.Table, columns: Iterable[Column]) -> tuple[ColumnStats, ...]:
    """Return the statistics of `columns` over the rows of `table`, ordered by column id."""
    return tuple(_column_stats(table.column(column.name), column) for column in columns)


def merge_stats(parts: Iterable[tuple[int, tuple[ColumnStats, ...]]]) -> tuple[ColumnStats, ...]:
    """Return the statistics of rows from those of their parts.

    The bounds enclose all values, and equal those that `compute` returns for all rows together
    (truncating strings keeps their order). They are unknown if a part has only values that cannot
    be encoded.

    Args:
        parts: number of rows of each part, and its statistics by `compute`; all of the same
            columns.
    """
    known = [part for part in parts if part[0]]
    columns = zip(*(part_stats for _, part_stats in known), strict=True)
    return tuple(_merged([rows for rows, _ in known], column) for column in columns)


def live_stats(stats: Iterable[ColumnStats], schema: Schema) -> tuple[ColumnStats, ...]:
    """Return the statistics of columns that a schema has: others cannot be committed (F6)."""
    live = {column.id for column in schema.columns}
    return tuple(one for one in stats if one.column in live)


def has_text_bounds(column_type: Any) -> bool:
    """Say whether bounds of this column type are text rather than integers."""
    return bool(column_type == "string")


def encode(value: Any, column_type: Any) -> int | str | None:
    """Return a value encoded as a bound of its column type, or None if it cannot be encoded.

    Args:
        value: an Arrow scalar of the column's Arrow type, valid.
        column_type: the stored type.
    """
    if column_type == "string":
        return str(value.as_py())
    if column_type == "binary" or not isinstance(column_type, str):
        return None
    if column_type in ("float32", "float64"):
        number = float(value.as_py())
        return None if number != number else _sortable(number)  # noqa: PLR0124 - NaN
    if column_type.startswith("decimal"):
        encoded = to_units(value.as_py(), value.type.scale)
    elif column_type == "date":
        encoded = value.value * DAY_US  # against bounds-of-a-date-in-days
    elif column_type in ("timestamp", "timestamp_ntz"):
        encoded = value.value
    else:
        encoded = int(value.as_py())
    return encoded if _MIN_INT <= encoded <= _MAX_INT else None


def lower_text(text: str) -> str:
    """Return a bound at or below `text`, at most `TEXT_LIMIT` characters long."""
    return text[:TEXT_LIMIT]


def upper_text(text: str) -> str | None:
    """Return a bound at or above `text`, at most `TEXT_LIMIT` characters long, or None."""
    if len(text) <= TEXT_LIMIT:
        return text
    for length in range(TEXT_LIMIT, 0, -1):
        code = ord(text[length - 1]) + 1
        if code == 0xD800:  # skip the surrogates, which are not characters
            code = 0xE000
        if code <= _MAX_CODE_POINT:
            return text[: length - 1] + chr(code)
    return None


def _column_stats(values: pa.ChunkedArray, column: Column) -> ColumnStats:
    nulls = values.null_count
    unknown = ColumnStats(column.id, None, None, nulls)
    if nulls == len(values) or column.type == "binary":
        return unknown
    if column.type in ("float32", "float64") and pc.any(pc.is_nan(values)).as_py():
        return unknown
    bounds = pc.min_max(values)
    low, high = encode(bounds["min"], column.type), encode(bounds["max"], column.type)
    if isinstance(low, str) and isinstance(high, str):
        low, high = lower_text(low), upper_text(high)
    return ColumnStats(column.id, low, high, nulls)


def _merged(rows: list[int], parts: tuple[ColumnStats, ...]) -> ColumnStats:
    nulls = sum(part.nulls for part in parts)
    # A part of nulls only has no bounds and needs none; any other part without bounds makes them
    # unknown.
    bounded = [part for count, part in zip(rows, parts, strict=True) if part.nulls < count]
    lows, highs = [part.min for part in bounded], [part.max for part in bounded]
    return ColumnStats(parts[0].column, _outermost(lows, min), _outermost(highs, max), nulls)


def _outermost(bounds: list[Any], choose: Callable[[list[Any]], Any]) -> Any:
    return None if not bounds or None in bounds else choose(bounds)


def _sortable(number: float) -> int | None:
    # -0.0 and 0.0 are equal as numbers but not as bits.
    (bits,) = struct.unpack(">q", struct.pack(">d", number + 0.0))
    encoded = bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF
    return int(encoded) if encoded >= _MIN_INT else None
