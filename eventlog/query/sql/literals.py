"""Literals of SQL predicates, converted to the type of the value they are compared with.

Comparisons are exact: an integer is compared with 5.5, a day with noon, a microsecond with
nanoseconds, without rounding either side. Only for a float column the literal is rounded to the
nearest float. A literal that cannot be compared is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import TIME_TYPES, arrow_type
from eventlog.model.decimals import from_units
from eventlog.query.conditions import FLOATS, Op

_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
# More digits than any type of the format can distinguish; an unbounded number takes unbounded time.
_MAX_DIGITS = 400
_NS_PER_UNIT = {"timestamp": 1_000, "timestamp_ntz": 1_000, "date": 86_400_000_000_000}
_INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time.

    Attributes:
        ns: nanoseconds since 1970 UTC.
        zoned: whether the text had an offset.
        kind: the stored type of a literal that is not compared with a column.
    """

    ns: int
    zoned: bool = False
    kind: str = "timestamp"


Value = Fraction | str | bool | Moment | None


def number(text: str) -> Fraction:
    """Return the exact value of an unsigned SQL number.

    Raises:
        InvalidInput: it is not a number, or has too many digits.
    """
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{text[:80]!r} is not a number that a column can hold")
    return Fraction(text)


def parse_moment(text: str) -> Moment:
    """Return the point in time of ISO 8601 text; without an offset it is UTC.

    Raises:
        InvalidInput: it is not a date or time.
    """
    match = _MOMENT.fullmatch(text.strip())
    refusal = InvalidInput(
        f"{text[:80]!r} is not a date or time: write 2013-01-07 or 2013-01-07 05:00:00"
    )
    if match is None:
        raise refusal
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
        offset_s = _offset_seconds(match[8])
    except (ValueError, OverflowError):
        raise refusal from None
    seconds = since.days * 86_400 + since.seconds - offset_s
    return Moment(seconds * 10**9 + int((match[7] or "").ljust(9, "0")), match[8] is not None)


def compare_with_literal(op: Op, value: Value, kind: Any, what: str) -> bool | tuple[Op, pa.Scalar]:
    """Translate `x op value` for non-null values x of stored type `kind`.

    Args:
        op: the operator.
        value: the literal.
        kind: the stored type of x.
        what: a description of x, for the error.

    Returns:
        The result itself if it is the same for every x; else an equivalent operator and a scalar of
        the type.

    Raises:
        InvalidInput: a value of this type cannot be compared with the literal.
    """
    if kind == "string" and isinstance(value, str):
        return op, pa.scalar(value, pa.string())
    if kind == "bool" and isinstance(value, bool):
        return op, pa.scalar(value)
    if kind in FLOATS and isinstance(value, Fraction):
        return op, _float(value, kind, what)
    units = _units(value, kind, what)
    floor, lowest, highest = units // 1, *_range(kind)
    if units != floor:
        if op in ("=", "<>"):
            return op == "<>"
        op = "<=" if op in ("<", "<=") else ">"
    if floor > highest:
        return op in ("<", "<=", "<>")
    if floor < lowest:
        return op in (">", ">=", "<>")
    return op, _scalar(floor, kind)


def exact(value: Value, kind: Any, what: str) -> pa.Scalar:
    """Return the value as a scalar of stored type `kind`.

    Args:
        value: the literal.
        kind: the stored type.
        what: a description of the value, for the error.

    Raises:
        InvalidInput: the type cannot represent the value.
    """
    if value is None:
        return pa.scalar(None, arrow_type(kind))
    placed = compare_with_literal("=", value, kind, what)
    if isinstance(placed, bool):
        raise _mismatch(value, kind, what)
    return placed[1]


def decimal_type(value: Fraction) -> str | None:
    """Return the smallest decimal type that represents a number; None: there is none."""
    scale, rest = 0, value.denominator
    for factor in (10, 5, 2):
        while rest % factor == 0:
            rest, scale = rest // factor, scale + 1
    precision = max(len(str(abs(value * 10**scale).numerator)), scale) if scale <= 38 else 39
    return f"decimal({precision},{scale})" if rest == 1 and precision <= 38 else None


def _offset_seconds(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(text)
    return (hours * 3600 + minutes * 60) * (-1 if text[0] == "-" else 1)


def _float(value: Fraction, kind: str, what: str) -> pa.Scalar:
    try:
        scalar = pa.scalar(float(value), arrow_type(kind))
    except OverflowError:
        raise _mismatch(value, kind, what) from None
    if scalar.as_py() in (float("inf"), float("-inf")):
        raise _mismatch(value, kind, what)
    return scalar


def _units(value: Value, kind: Any, what: str) -> Fraction:
    """Return the value in the integer units of the type; it may have a fraction."""
    if kind in TIME_TYPES:
        if isinstance(value, str):
            value = parse_moment(value)
        if isinstance(value, Moment) and kind == "timestamp_ntz" and value.zoned:
            raise InvalidInput(f"{what} has no time zone: write the time without an offset")
        if isinstance(value, Moment):
            return Fraction(value.ns, _NS_PER_UNIT[kind])
    elif isinstance(value, Fraction) and isinstance(kind, str) and (_scale(kind) is not None):
        return value * Fraction(10 ** (_scale(kind) or 0))
    raise _mismatch(value, kind, what)


def _scale(kind: str) -> int | None:
    if kind.startswith("decimal"):
        return int(kind.rstrip(")").split(",")[1])
    return 0 if kind in _INT_BITS else None


def _range(kind: str) -> tuple[int, int]:
    if kind in TIME_TYPES:
        bits = 32 if kind == "date" else 64
    elif kind in _INT_BITS:
        bits = _INT_BITS[kind]
    else:
        most = 10 ** arrow_type(kind).precision - 1
        return -most, most
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _scalar(units: int, kind: str) -> pa.Scalar:
    if kind.startswith("decimal"):
        return pa.scalar(from_units(units, _scale(kind) or 0), arrow_type(kind))
    return pa.scalar(units, arrow_type(kind))


def _mismatch(value: Value, kind: Any, what: str) -> InvalidInput:
    shown = repr(value) if isinstance(value, str | bool) else "a time"
    if isinstance(value, Fraction):
        shown = f"number {float(value):g}" if abs(value) < 10**300 else "such a large number"
    return InvalidInput(f"{what} has type {kind} and cannot be compared with {shown[:80]}")
