"""Statistics of a segment as the metrics of an Iceberg data file. No I/O.

Bounds enclose the values (FORMAT.md R7.4). In Iceberg's binary form a bound has the type that its
column has at the published version (Iceberg's spec, appendix D).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eventlog.model.chunks import DAY_US
from eventlog.model.entries import ColumnStats, ColumnType

_SIGN = 0x7FFF_FFFF_FFFF_FFFF
_INTEGERS = {"int8": "<i", "int16": "<i", "int32": "<i", "date": "<i"}
_LONGS = ("int64", "timestamp", "timestamp_ntz")
_FLOATS = {"float32": "<f", "float64": "<d"}


class Metrics(NamedTuple):
    """The metrics of one file: counts and bounds by column id, as key-value pairs."""

    values: list[dict[str, Any]]
    nulls: list[dict[str, Any]]
    nans: list[dict[str, Any]]
    lower: list[dict[str, Any]]
    upper: list[dict[str, Any]]


def file_metrics(
    stats: Sequence[ColumnStats], rows: int, types: Mapping[int, ColumnType]
) -> Metrics:
    """Return the metrics of a segment.

    Args:
        stats: of its entry.
        rows: of its object, deleted ones included.
        types: the types of the columns of the schema, by id; others are left out.
    """
    found = Metrics([], [], [], [], [])
    for stat in stats:
        kind = types.get(stat.column)
        if not isinstance(kind, str):
            continue
        low = bound_bytes(kind, stat.min, lower=True)
        high = bound_bytes(kind, stat.max, lower=False)
        found.values.append({"key": stat.column, "value": rows})
        found.nulls.append({"key": stat.column, "value": stat.nulls})
        if low is not None:
            found.lower.append({"key": stat.column, "value": low})
        if high is not None:
            found.upper.append({"key": stat.column, "value": high})
        if kind in _FLOATS and low is not None and high is not None:
            found.nans.append({"key": stat.column, "value": 0})  # a NaN leaves no bounds (R7.4)
    return found


def bound_bytes(kind: str, bound: int | str | None, *, lower: bool) -> bytes | None:
    """Return a bound in Iceberg's binary form; None: unknown.

    Args:
        kind: the stored type of the column.
        bound: as the entry has it.
        lower: whether it is the lower one.
    """
    try:
        if isinstance(bound, str):
            return bound.encode() if kind == "string" else None
        if bound is None or kind in ("string", "binary"):
            return None
        return _number(kind, bound, lower=lower)
    except (struct.error, UnicodeEncodeError, OverflowError):
        return None  # of no value that the column can have: it says nothing


def _number(kind: str, bound: int, *, lower: bool) -> bytes:
    if kind == "bool":
        return b"\x01" if bound else b"\x00"
    if kind == "date":
        days = bound // DAY_US if lower else -(-bound // DAY_US)
        return struct.pack("<i", days)
    if kind in _INTEGERS:
        return struct.pack(_INTEGERS[kind], bound)
    if kind in _LONGS:
        return struct.pack("<q", bound)
    if kind in _FLOATS:
        bits = bound if bound >= 0 else bound ^ _SIGN
        (value,) = struct.unpack("<d", struct.pack("<q", bits))
        if lower and value == 0:  # against lower-zero-hides-negative-zero
            value = -0.0  # which is below 0.0 in Iceberg's order, and equal to it in ours
        return struct.pack(_FLOATS[kind], value)
    # A decimal: the least number of bytes, big-endian, two's complement.
    size = (bound if bound >= 0 else ~bound).bit_length() // 8 + 1
    return bound.to_bytes(size, "big", signed=True)
