"""Python values as values of a column: exact, or refused (hazard W3).

Text is not among the forms of a number or a time here: `update` reads text as an expression.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from eventlog import arguments
from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import arrow_type, inner_fields
from eventlog.model.decimals import from_units, to_units
from eventlog.model.entries import Column
from eventlog.query.conditions import FLOATS
from eventlog.query.sql.values import INTEGERS, digits_of, family_of

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a time without a zone


def value_literal(value: Any, column: Column) -> pa.Scalar:
    """Return a Python value as a scalar of a column's Arrow type, without changing it.

    Args:
        value: None; a bool; a whole number, float or `Decimal`, also of NumPy; text; bytes; a date;
            a datetime with a time zone for `timestamp`, without one for `timestamp_ntz`, also of
            pandas; a NumPy datetime64, in UTC; a list, a dict for a struct or a map, or pairs for a
            map; or a pyarrow scalar of one of these.
        column: the column.

    Raises:
        InvalidInput: the column cannot hold exactly this value, or no null.
    """
    if value is None and not column.nullable:
        raise InvalidInput(f"column {column.name!r} is required: it cannot be null")
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    try:
        return pa.scalar(_plain(value, column.type), arrow_type(column.type))
    except _Misfit as misfit:
        raise InvalidInput(
            f"column {column.name!r} of type {column.type} cannot hold {arguments.shown(value)}"
            f"{misfit}"
        ) from None


class _Misfit(Exception):
    """The type cannot hold the value; the text says what it can."""


def _plain(value: Any, kind: Any) -> Any:
    """Return a value as one that Arrow converts to a stored type without changing it."""
    if value is None:
        return None
    if isinstance(kind, dict):
        return _nested(value, kind)
    match family_of(kind):
        case "number":
            return _number(value, kind)
        case "time":
            return _time(value, kind)
        case "bool" if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        case "text" if isinstance(value, str) and arguments.is_unicode(value):
            return str(value)
        case "binary" if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
    raise _Misfit


def _number(value: Any, kind: str) -> Any:
    if kind in FLOATS:
        return _float(value, kind)
    return _integer(value, kind) if kind in INTEGERS else _decimal(value, *digits_of(kind))


def _integer(value: Any, kind: str) -> int:
    number = arguments.index(value)
    bits = 8 * arrow_type(kind).byte_width
    if number is None or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise _Misfit
    return number


def _float(value: Any, kind: str) -> float:
    number = arguments.index(value)
    if number is not None:
        if abs(number).bit_length() > 1024 or Fraction(_rounded(float(number), kind)) != number:
            raise _Misfit(": it is not exactly a float; write it as an expression, in text")
        return float(number)
    if isinstance(value, float) or type(value).__name__ in ("float32", "float16"):
        wide = float(value)
        if math.isnan(wide) or _rounded(wide, kind) == wide:
            return wide
        raise _Misfit(': write numpy.float32(value), or the expression "0.1" in text')
    raise _Misfit


def _rounded(number: float, kind: str) -> float:
    if kind == "float64" or not math.isfinite(number):
        return number
    try:
        (single,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return math.inf
    return float(single)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = arguments.index(value)
    try:
        if number is not None:
            units = number * 10**scale
        elif isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 100:
            units = to_units(value, scale)
        else:
            raise _Misfit(": write a Decimal")
    except ValueError:
        raise _Misfit(f": it has at most {scale} digits after the point") from None
    if abs(units) >= 10**precision:
        raise _Misfit(f": it has at most {precision} digits")
    return from_units(units, scale)


def _time(value: Any, kind: str) -> Any:
    """Return days or microseconds since 1970."""
    if kind == "date":
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        raise _Misfit(": write a date")
    if type(value).__module__ == "numpy" and type(value).__name__ == "datetime64":
        micros = value.astype("datetime64[us]")
        if micros != value:  # also NaT
            raise _Misfit(": it has microseconds")
        return int(micros.astype("int64"))
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124 - NaT
        raise _Misfit(": write a datetime")
    zoned = value.utcoffset() is not None
    if zoned is not (kind == "timestamp"):
        raise _Misfit(f": write a datetime with{'' if kind == 'timestamp' else 'out'} a time zone")
    if getattr(value, "nanosecond", 0):
        raise _Misfit(": it has microseconds")
    plain = datetime(*value.timetuple()[:6], value.microsecond)  # noqa: DTZ001
    since = plain - _EPOCH - (value.utcoffset() or _EPOCH - _EPOCH)
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds


def _nested(value: Any, kind: dict[str, Any]) -> Any:
    (name, _), *_ = kind.items()
    fields = inner_fields(kind)
    if name == "list" and _is_list(value):
        return [_plain(item, fields[0].type) for item in value]
    if name == "map" and (isinstance(value, Mapping) or _is_list(value)):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if all(_is_list(pair) and len(pair) == 2 and pair[0] is not None for pair in pairs):
            return [(_plain(k, fields[0].type), _plain(v, fields[1].type)) for k, v in pairs]
    if name == "struct" and isinstance(value, Mapping):
        if set(value) == {field.name for field in fields}:
            return {field.name: _plain(value[field.name], field.type) for field in fields}
        names = ", ".join(field.name for field in fields)
        raise _Misfit(f": write a dict with exactly the fields {names}")
    raise _Misfit


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
