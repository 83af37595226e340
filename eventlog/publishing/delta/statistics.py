"""Statistics of a segment in Delta's JSON. No I/O.

Source: Delta's PROTOCOL.md, "Per-file Statistics". Bounds enclose the values and need not be
reached (`tightBounds` is false): text is cut, and times have milliseconds, the minimum floored and
the maximum raised. A bound that cannot be written, such as an infinity, is left out.
"""

from __future__ import annotations

import json.encoder
import math
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from eventlog.model.chunks import DAY_US
from eventlog.model.entries import Column, Int, Schema, Segment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_quoted = json.encoder.encode_basestring  # as `json.dumps`, in half the time
_SIGN = 0x7FFF_FFFF_FFFF_FFFF


class StatisticsWriter:
    """Writes the statistics of segments of tables with one schema.

    Args:
        schema: of the version that is published.
    """

    def __init__(self, schema: Schema) -> None:
        self._columns = {
            column.id: (column, _quoted(column.name))
            for column in schema.columns
            if isinstance(column.type, str)
        }

    def text(self, segment: Segment) -> str:
        """Return the statistics of a segment, as JSON."""
        lows, highs, nulls = list[str](), list[str](), list[str]()
        for stats in segment.stats:
            column, name = self._columns.get(stats.column, (None, ""))
            if column is None:
                continue
            nulls.append(f"{name}:{stats.nulls}")
            low = None if stats.min is None else bound_text(column, stats.min, up=False)
            high = None if stats.max is None else bound_text(column, stats.max, up=True)
            if low is not None:
                lows.append(f"{name}:{low}")
            if high is not None:
                highs.append(f"{name}:{high}")
        return (
            f'{{"numRecords":{segment.rows},"minValues":{_object(lows)},'
            f'"maxValues":{_object(highs)},"nullCount":{_object(nulls)},"tightBounds":false}}'
        )


def bound_text(column: Column, bound: Int | str, *, up: bool) -> str | None:
    """Return a bound as JSON, or None if Delta has no form of it.

    Args:
        column: whose bound it is.
        bound: encoded as in `eventlog.model.stats`.
        up: whether it is the maximum, which may only be raised.
    """
    if isinstance(bound, str):
        return _quoted(bound) if column.type == "string" else None
    stored = str(column.type)
    if stored.startswith("int"):
        return str(bound)
    if stored in ("float32", "float64"):
        written = _float_text(bound)
        # Some engines order the two zeros, and bounds have only one of them.
        return "-0.0" if written == "0.0" and not up else written
    if stored.startswith("decimal"):
        return _decimal_text(bound, int(stored.removesuffix(")").rpartition(",")[2]))
    if stored == "date":
        moment = _moment(bound // DAY_US * 86_400_000)
        return moment and f'"{moment[:10]}"'
    if stored in ("timestamp", "timestamp_ntz"):
        # against maximum-cut-to-milliseconds
        moment = _moment(-(-bound // 1000) if up else bound // 1000)
        return moment and f'"{moment}{"Z" if stored == "timestamp" else ""}"'
    return None


def _float_text(bits: int) -> str | None:
    (value,) = struct.unpack(">d", struct.pack(">q", bits if bits >= 0 else bits ^ _SIGN))
    return repr(value) if math.isfinite(value) else None


def _decimal_text(units: int, scale: int) -> str:
    digits = f"{abs(units):0{scale + 1}d}"
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if units < 0 else ''}{whole}{'.' if part else ''}{part}"


def _moment(ms: int) -> str | None:
    if not _FIRST_MS <= ms <= _LAST_MS:
        return None
    moment = _EPOCH + timedelta(milliseconds=ms)
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{ms % 1000:03d}"


def _object(members: Iterable[str]) -> str:
    return f"{{{','.join(members)}}}"
