"""Statistics of a segment in Delta's JSON. No I/O.

Source: Delta's PROTOCOL.md, "Per-file Statistics". Bounds enclose the values and need not be
reached (`tightBounds` is false): times have milliseconds, the minimum floored and the maximum
raised.

Only the time column has statistics there, which every segment has, and a property of the table
names it as the only one: deltalake's Arrow datasets skip a file without an error where a filter is
on a column that has no bound while another one has, as floats with NaN, booleans, and columns
beyond the first ones (docs/decisions/0040-published-as-delta.md).
"""

from __future__ import annotations

import json.encoder
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import DAY_US
from eventlog.model.entries import Column, Segment

# The properties of Delta that name the columns with statistics, and count them from the first.
_NAMES = "delta.dataSkippingStatsColumns"
_COUNT = "delta.dataSkippingNumIndexedCols"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_quoted = json.encoder.encode_basestring  # as `json.dumps`, in half the time
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class StatisticsWriter:
    """Writes the statistics of segments in a version that is published.

    Args:
        snapshot: the version.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._column = _time_column(snapshot)
        self._name = "" if self._column is None else _quoted(self._column.name)

    def text(self, segment: Segment) -> str:
        """Return the statistics of a segment, as JSON: its rows, and bounds of its times if any."""
        members, column = f'"numRecords":{segment.rows}', self._column
        for stats in segment.stats:
            if column is None or stats.column != column.id or not isinstance(stats.min, int):
                continue
            low = bound_text(column, stats.min, up=False)
            high = bound_text(column, int(stats.max or 0), up=True)
            if low is not None and high is not None:  # against half-of-the-bounds
                members += (
                    f',"minValues":{{{self._name}:{low}}},"maxValues":{{{self._name}:{high}}}'
                    f',"nullCount":{{{self._name}:{stats.nulls}}}'
                )
        return f'{{{members},"tightBounds":false}}'

    def texts(self, entries: pa.Table) -> pa.Array:
        """Return the statistics of entries, each as `text` does, in columns.

        Args:
            entries: as `eventlog.format.frames.entry_columns` has them.
        """
        rows = entries.column("rows").cast(pa.string()).combine_chunks()
        plain = _joined('{"numRecords":', rows, ',"tightBounds":false}')
        if self._column is None:
            return plain
        names = [f"{part}_{self._column.id}" for part in ("min", "max", "nulls")]
        if not {*names} <= {*entries.column_names}:
            return plain
        lows, highs, nulls = (entries.column(name).combine_chunks() for name in names)
        if not pa.types.is_integer(lows.type):
            return plain
        low = _bound_texts(self._column, lows, up=False)
        high = _bound_texts(self._column, pc.fill_null(highs, 0), up=True)
        bounds = _joined(
            *('{"numRecords":', rows, f',"minValues":{{{self._name}:', low),
            *(f'}},"maxValues":{{{self._name}:', high),
            *(f'}},"nullCount":{{{self._name}:', nulls.cast(pa.string()), '},"tightBounds":false}'),
        )
        return pc.coalesce(bounds, plain)  # a part that is null makes the whole null


def statistics_settings(snapshot: Snapshot) -> dict[str, str]:
    """Return the property by which Delta finds the columns with statistics.

    It names the time column; without one no column has statistics.
    """
    column = _time_column(snapshot)
    if column is None:
        return {_COUNT: "0"}
    name = column.name
    return {_NAMES: name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"}


def _time_column(snapshot: Snapshot) -> Column | None:
    name = snapshot.layout.time_column
    return next((c for c in snapshot.stored_schema.columns if c.name == name), None)


def bound_text(column: Column, bound: int, *, up: bool) -> str | None:
    """Return a bound of times as JSON, or None if Delta has no form of it.

    Args:
        column: a date or a timestamp.
        bound: encoded as in `eventlog.model.stats`: microseconds.
        up: whether it is the maximum, which may only be raised.
    """
    if column.type == "date":
        moment = _moment(bound // DAY_US * 86_400_000)
        return moment and f'"{moment[:10]}"'
    # against maximum-cut-to-milliseconds
    moment = _moment(-(-bound // 1000) if up else bound // 1000)
    return moment and f'"{moment}{"Z" if column.type == "timestamp" else ""}"'


def _bound_texts(column: Column, bounds: pa.Array, *, up: bool) -> pa.Array:
    """Return bounds of times as `bound_text` does, in a column."""
    unit = DAY_US if column.type == "date" else 1000
    ms = pc.divide(bounds, unit)  # towards zero
    off = pc.less(pc.multiply(ms, unit), bounds), pc.greater(pc.multiply(ms, unit), bounds)
    if column.type == "date":
        ms = pc.multiply(pc.subtract(ms, off[1].cast(pa.int64())), DAY_US // 1000)
    elif up:
        ms = pc.add(ms, off[0].cast(pa.int64()))
    else:
        ms = pc.subtract(ms, off[1].cast(pa.int64()))
    has_form = pc.and_(pc.greater_equal(ms, _FIRST_MS), pc.less_equal(ms, _LAST_MS))
    ms = pc.if_else(has_form, ms, pa.scalar(None, pa.int64()))
    moments = ms.cast(pa.timestamp("ms")).cast(pa.string())  # "2013-01-07 05:00:00.000"
    if column.type == "date":
        return _joined('"', pc.utf8_slice_codeunits(moments, 0, 10), '"')
    zone = "Z" if column.type == "timestamp" else ""
    return _joined('"', pc.replace_substring(moments, " ", "T"), f'{zone}"')


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _moment(ms: int) -> str | None:
    if not _FIRST_MS <= ms <= _LAST_MS:
        return None
    moment = _EPOCH + timedelta(milliseconds=ms)
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{ms % 1000:03d}"
