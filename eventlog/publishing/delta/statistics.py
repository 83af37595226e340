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

from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import DAY_US
from eventlog.model.entries import Column, Segment

# The property of Delta that names the columns with statistics.
COLUMNS = "delta.dataSkippingStatsColumns"

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
        self._name = _quoted(self._column.name)

    def text(self, segment: Segment) -> str:
        """Return the statistics of a segment, as JSON: its rows, and bounds of its times if any."""
        members = f'"numRecords":{segment.rows}'
        for stats in segment.stats:
            if stats.column != self._column.id or not isinstance(stats.min, int):
                continue
            low = bound_text(self._column, stats.min, up=False)
            high = bound_text(self._column, int(stats.max or 0), up=True)
            if low is not None and high is not None:  # against half-of-the-bounds
                members += (
                    f',"minValues":{{{self._name}:{low}}},"maxValues":{{{self._name}:{high}}}'
                    f',"nullCount":{{{self._name}:{stats.nulls}}}'
                )
        return f'{{{members},"tightBounds":false}}'


def statistics_columns(snapshot: Snapshot) -> str:
    """Return the value of the property `COLUMNS` in a version: its time column's quoted name."""
    name = _time_column(snapshot).name
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _time_column(snapshot: Snapshot) -> Column:
    name = snapshot.layout.time_column
    return next(c for c in snapshot.stored_schema.columns if c.name == name)


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


def _moment(ms: int) -> str | None:
    if not _FIRST_MS <= ms <= _LAST_MS:
        return None
    moment = _EPOCH + timedelta(milliseconds=ms)
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{ms % 1000:03d}"
