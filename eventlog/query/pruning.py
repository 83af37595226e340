"""Pruning by statistics: which segments may contain rows that pass, and which contain only those.

Sound by construction: what is unknown counts as possible. Results are boolean arrays over the rows
of an entry table (`eventlog.format.frames.entry_columns`), or one bool for all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format.entry_order import first_key
from eventlog.model.chunks import DAY_MS, MAX_MS, MIN_MS
from eventlog.model.entries import Column
from eventlog.model.records import Piece
from eventlog.model.stats import encode, has_text_bounds
from eventlog.query import conditions as c

Mask: TypeAlias = Any  # a boolean array with one value per entry, or one bool for all
Span = tuple[int, int]  # closed, in units of the time column; empty if the first is greater

_WHOLE: Span = (-(2**63), 2**63 - 1)
_EMPTY: Span = (1, 0)
_FEW = 8
_MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known about the rows of each entry of an entry table.

    Attributes:
        entries: the entries: `chunk_start`, `chunk_end` and `rows`; statistics may be missing.
        time_column: name of the time column, which the chunk interval bounds; None: there is none.
    """

    entries: pa.Table
    time_column: str | None

    @classmethod
    def of_leaf(cls, leaf: Piece, time_column: str | None) -> Bounds:
        """Return the description of a leaf or a stem, in a root or a stem, as one entry."""
        row: dict[str, Any] = {
            "chunk_start": pa.array([first_key(leaf).start], pa.int64()),
            "chunk_end": pa.array([leaf.end], pa.int64()),
            "rows": pa.array([leaf.rows], pa.int64()),
        }
        for stat in leaf.stats:
            row[f"min_{stat.column}"] = pa.array([stat.min])
            row[f"max_{stat.column}"] = pa.array([stat.max])
            row[f"nulls_{stat.column}"] = pa.array([stat.nulls], pa.int64())
        return cls(pa.table(row), time_column)

    def low(self, column: Column) -> pa.ChunkedArray | None:
        """Return the lower bounds in their encoded form; null or None if there are none."""
        least = self._stat("min", column)
        if column.name != self.time_column:
            return least
        start = encoded_times(self.entries.column("chunk_start"), column)
        return start if least is None else pc.max_element_wise(least, start)

    def high(self, column: Column) -> pa.ChunkedArray | None:
        """Return the upper bounds in their encoded form; null or None if there are none."""
        greatest = self._stat("max", column)
        if column.name != self.time_column:
            return greatest
        # The end is exclusive: one unit less, or the day of the last millisecond.
        if column.type == "date":
            end = encoded_times(pc.subtract(self.entries.column("chunk_end"), 1), column)
        else:
            end = pc.subtract(encoded_times(self.entries.column("chunk_end"), column), 1)
        return end if greatest is None else pc.min_element_wise(greatest, end)

    def some_null(self, column: Column) -> Mask:
        """Return which entries may contain a null in the column."""
        nulls = self._nulls(column)
        return True if nulls is None else _known(pc.not_equal(nulls, 0))

    def some_valid(self, column: Column) -> Mask:
        """Return which entries may contain a value in the column."""
        nulls = self._nulls(column)
        return True if nulls is None else _known(pc.less(nulls, self.entries.column("rows")))

    def _nulls(self, column: Column) -> pa.ChunkedArray | None:
        name = f"nulls_{column.id}"
        return self.entries.column(name) if name in self.entries.column_names else None

    def _stat(self, stem: str, column: Column) -> pa.ChunkedArray | None:
        name = f"{stem}_{column.id}"
        if name not in self.entries.column_names:
            return None
        bounds = self.entries.column(name)
        is_encoded = pa.types.is_string if has_text_bounds(column.type) else pa.types.is_int64
        return bounds if is_encoded(bounds.type) else None


def may_be(condition: c.Condition, wanted: bool, bounds: Bounds) -> Mask:  # noqa: C901 - a case a node
    """Return which entries may contain a row for which the condition is `wanted` (not NULL).

    Args:
        condition: the condition.
        wanted: TRUE or FALSE.
        bounds: what is known about the entries.
    """
    match condition:
        case c.Const(value):
            return value is wanted
        case c.Not(part):
            return may_be(part, not wanted, bounds)
        case c.Is(part, value):
            return may_be(part, value, bounds) if wanted else True
        case c.And(parts) | c.Or(parts):
            masks = (may_be(part, wanted, bounds) for part in parts)
            return _all(masks) if isinstance(condition, c.And) is wanted else _any(masks)
        case c.Opaque():
            return True
        case c.IsNull(column):
            return bounds.some_null(column) if wanted else bounds.some_valid(column)
        case c.Fixed(column, value):
            return bounds.some_valid(column) if value is wanted else False
        case c.Compare(column, op, value):
            mask = _may_compare(op if wanted else c.OPPOSITE[op], column, value, bounds)
        case c.In(column, values):
            mask = _may_in(column, values, wanted, bounds)
        case c.Prefix(column, text):
            mask = _may_prefix(column, text, wanted, bounds)
    return _all([bounds.some_valid(column), mask])


def must_be_true(condition: c.Condition, bounds: Bounds) -> Mask:
    """Return which entries are known to contain only rows that pass."""
    return _not(_any([may_be(condition, False, bounds), _may_be_null(condition, bounds)]))


def condition_span(condition: c.Condition, column: Column, wanted: bool = True) -> Span:
    """Return an interval of the time column that contains every row with the wanted result.

    Args:
        condition: the condition.
        column: the time column.
        wanted: the wanted result of the condition.
    """
    match condition:
        case c.Const(value) | c.Fixed(_, value) if value is not wanted:
            return _EMPTY
        case c.Not(part):
            return condition_span(part, column, not wanted)
        case c.Is(part, value) if wanted:
            return condition_span(part, column, value)
        case c.And(parts) | c.Or(parts):
            spans = [condition_span(part, column, wanted) for part in parts]
            return _intersection(spans) if isinstance(condition, c.And) is wanted else _hull(spans)
        case c.Compare(here, op, value) if here.id == column.id:
            return _compare_span(op if wanted else c.OPPOSITE[op], value.value)
        case c.In(here, values) if here.id == column.id and wanted:
            return _hull([(value.value, value.value) for value in values])
    return _WHOLE


def to_interval(limits: Span, column: Column) -> tuple[int, int]:
    """Return the half-open interval in ms UTC that contains a span of the time column."""
    low, high = limits
    if low > high:
        return MIN_MS, MIN_MS
    if column.type == "date":
        low, high = low * DAY_MS, (high + 1) * DAY_MS
    else:
        low, high = low // 1000, high // 1000 + 1
    return min(max(low, MIN_MS), MAX_MS), max(min(high, MAX_MS), MIN_MS)


def to_span_units(time_ms: int, column: Column) -> int:
    """Return a time in ms UTC in the units of the time column, rounded down."""
    return time_ms // DAY_MS if column.type == "date" else time_ms * 1000


def encoded_times(times_ms: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Return times in ms UTC as bounds of the time column; of dates those of their midnights.

    Days are counted from the year 1, because Arrow's division truncates, and so rounds down only
    for positive numbers.
    """
    if column.type == "date":
        days = pc.divide(pc.subtract(times_ms, MIN_MS), DAY_MS)
        times_ms = pc.add(pc.multiply(days, DAY_MS), MIN_MS)
    return pc.multiply(times_ms, 1000)


def mask_to_array(mask: Mask, count: int) -> pa.BooleanArray:
    """Return a mask over `count` entries as one array."""
    if isinstance(mask, bool):
        return pa.repeat(pa.scalar(mask), count)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def _may_be_null(condition: c.Condition, bounds: Bounds) -> Mask:
    match condition:
        case c.Const(value):
            return value is None
        case c.IsNull() | c.Is():
            return False
        case c.Opaque():
            return True
        case c.Not(part):
            return _may_be_null(part, bounds)
        case c.And(parts) | c.Or(parts):
            return _any(_may_be_null(part, bounds) for part in parts)
        case c.Compare(column) | c.In(column) | c.Prefix(column) | c.Fixed(column):
            return bounds.some_null(column)


def _may_compare(op: c.Op, column: Column, value: pa.Scalar, bounds: Bounds) -> Mask:
    sought = encode(value, column.type)
    low, high = bounds.low(column), bounds.high(column)
    if sought is None:
        return True
    if op == "<>":
        if low is None or high is None:
            return True
        alone = pc.and_kleene(pc.equal(low, sought), pc.equal(high, sought))
        return _not(_sure(alone))
    masks: list[Mask] = []
    if op in ("=", "<", "<=") and low is not None:
        masks.append(_known((pc.less if op == "<" else pc.less_equal)(low, sought)))
    if op in ("=", ">", ">=") and high is not None:
        masks.append(_known((pc.greater if op == ">" else pc.greater_equal)(high, sought)))
    return _all(masks)


def _may_in(column: Column, values: tuple[pa.Scalar, ...], wanted: bool, bounds: Bounds) -> Mask:
    if not wanted:
        return _all(_may_compare("<>", column, value, bounds) for value in values[:_FEW])
    if len(values) <= _FEW:
        return _any(_may_compare("=", column, value, bounds) for value in values)
    sought = _encoded(values, str(column.type))
    low, high = bounds.low(column), bounds.high(column)
    if not sought or low is None or high is None:
        return True
    least, greatest = (pc.less_equal(low, sought[-1]), pc.greater_equal(high, sought[0]))
    hull = _known(pc.and_kleene(least, greatest))
    if isinstance(hull, bool):
        return hull
    pairs = zip(low.to_pylist(), high.to_pylist(), hull.to_pylist(), strict=True)
    return pa.array([h and _holds_one(sought, a, b) for a, b, h in pairs], pa.bool_())


@lru_cache(maxsize=8)
def _encoded(values: tuple[pa.Scalar, ...], column_type: str) -> list[Any]:
    """Return the encoded values in order; an empty list if one cannot be encoded.

    Cached, because one predicate is applied to many leaves.
    """
    encoded = [encode(value, column_type) for value in values]
    return [] if None in encoded else sorted(encoded)


def _holds_one(ordered: list[Any], low: Any, high: Any) -> bool:
    if low is None or high is None:
        return True
    at = bisect_left(ordered, low)
    return bool(at < len(ordered) and ordered[at] <= high)


def _may_prefix(column: Column, text: str, wanted: bool, bounds: Bounds) -> Mask:
    low, high = bounds.low(column), bounds.high(column)
    if low is None or high is None:
        return True
    if not wanted:
        both = pc.and_kleene(pc.starts_with(low, text), pc.starts_with(high, text))
        return _not(_sure(both))
    after = _after(text)
    reaches = _known(pc.greater_equal(high, text))
    return reaches if after is None else _all([reaches, _known(pc.less(low, after))])


def _after(prefix: str) -> str | None:
    """Return the least text above every text with this prefix, or None."""
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1]) + 1
        if code == 0xD800:  # surrogates are not characters
            code = 0xE000
        if code <= _MAX_CODE_POINT:
            return prefix[: length - 1] + chr(code)
    return None


def _compare_span(op: c.Op, value: int) -> Span:
    low = value if op in ("=", ">=") else value + 1 if op == ">" else _WHOLE[0]
    high = value if op in ("=", "<=") else value - 1 if op == "<" else _WHOLE[1]
    return low, high


def _intersection(spans: list[Span]) -> Span:
    return max(low for low, _ in spans), min(high for _, high in spans)


def _hull(spans: list[Span]) -> Span:
    some = [limits for limits in spans if limits[0] <= limits[1]]
    return (min(s[0] for s in some), max(s[1] for s in some)) if some else _EMPTY


def _known(mask: Any) -> Mask:
    """Return the mask with unknown as true."""
    return pc.fill_null(mask, True)


def _sure(mask: Any) -> Mask:
    """Return the mask with unknown as false."""
    return pc.fill_null(mask, False)


def _not(mask: Mask) -> Mask:
    return not mask if isinstance(mask, bool) else pc.invert(mask)


def _all(masks: Iterable[Mask]) -> Mask:
    joined: Mask = True
    for mask in masks:
        if joined is False or mask is False:
            return False
        joined = mask if joined is True else joined if mask is True else pc.and_(joined, mask)
    return joined


def _any(masks: Iterable[Mask]) -> Mask:
    return _not(_all(_not(mask) for mask in masks))
