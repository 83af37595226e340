"""Casts of SQL expressions: what converts to what, exactly, and which rows fail.

CAST rounds only where it is asked for a type with fewer digits. An assignment to a column, which
nobody asked to round, takes a type that represents every value or fails for the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import arrow_type
from eventlog.query.conditions import FLOATS
from eventlog.query.sql.literals import exact
from eventlog.query.sql.values import (
    INTEGERS,
    Lit,
    Operand,
    Term,
    any_fails,
    as_wide_decimal,
    clamped,
    digits_of,
    family_of,
    in_digits,
    is_same_type,
    nearest_float,
    sure,
    to_term,
)

# The names that SQL has for the stored types; a decimal is written as it is stored.
SQL_NAMES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "float32": "REAL", "float64": "DOUBLE", "string": "STRING", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EXACT_BITS = {"float32": 16, "float64": 32}  # integers of so many bits are all floats
_DAY_US = 86_400 * 10**6
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_MOST_DAYS = 106_751_991  # that microseconds in 64 bits can count

_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|(?:[0-9][0-9]{_LEAP}|{_LEAP}00)-02-29)"
)
_CLOCK = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_INTEGER = r"\A[+-]?0*[0-9]{1,38}\z"
_NUMBER = r"\A[+-]?(?:0*[0-9]{1,38}(?:\.[0-9]{0,38})?|\.[0-9]{1,38})\z"
_FLOAT = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


def cast(operand: Operand, kind: str) -> Operand:
    """Return a value converted to a stored type.

    Raises:
        InvalidInput: values of its type cannot be cast to that type.
    """
    term = to_term(operand)
    if term.type is None:
        return Lit(None)
    if is_same_type(term.type, kind):
        return term
    convert = _CASTS.get((family_of(term.type), family_of(kind)))
    if convert is None:
        raise InvalidInput(f"{term.type} cannot be cast to {kind}{_instead(term.type, kind)}")
    return convert(term, kind)


def assign(operand: Operand, kind: Any, text: str) -> Term:
    """Return a value as one of a column of a stored type, without rounding it.

    A number in the text of the expression becomes the nearest float of a float column.

    Args:
        operand: the value.
        kind: the column's type.
        text: the expression, for the error.

    Raises:
        InvalidInput: the type does not represent every value of the operand's type; the message
            has the cast to write.
    """
    if isinstance(operand, Lit) and (operand.value is None or _casts_literal(operand, kind)):
        try:
            return Term(pc.scalar(exact(operand.value, kind, "the column")), kind, frozenset())
        except InvalidInput:
            raise InvalidInput(f"{text[:200]!r} is no value of type {kind}") from None
    term = to_term(operand)
    if is_same_type(term.type, kind):
        return term
    if term.type is None:
        return Term(pc.scalar(pa.scalar(None, arrow_type(kind))), kind, term.names, term.fails)
    if _is_exact_cast(term.type, kind):
        return to_term(cast(term, kind))
    raise _unlike(text, term.type, kind)


def _casts_literal(operand: Lit, kind: Any) -> bool:
    """Return whether a literal may be a value of a type: text may be that of a time."""
    families = family_of(to_term(operand).type), family_of(kind)
    return families[0] == families[1] or families == ("text", "time")


def _is_exact_cast(kind: Any, to: Any) -> bool:
    """Return whether a cast changes no value, or fails where it would."""
    if family_of(kind) != "number" or family_of(to) != "number":
        return bool(kind == "date" and to == "timestamp_ntz")
    if kind in FLOATS:
        return bool(to == "float64")
    if to in FLOATS:
        return kind in INTEGERS and _BITS[kind] <= _EXACT_BITS[to]
    return digits_of(kind)[1] <= digits_of(to)[1]


def _unlike(text: str, kind: Any, to: Any) -> InvalidInput:
    """Return the error for a value that a column does not take as it is."""
    advice = _instead(kind, to)
    if not advice and (family_of(kind), family_of(to)) in _CASTS:
        advice = f": write CAST({text[:200]} AS {SQL_NAMES.get(to, to.upper())})"
    return InvalidInput(f"{text[:200]!r} has type {kind}, and the column has {to}{advice}")


def _instead(kind: Any, to: Any) -> str:
    if kind in FLOATS and to == "string":
        return ": engines write floats in different ways; CAST to a DECIMAL first"
    if to == "bool":
        return ": write a comparison, such as x <> 0"
    if kind == "bool":
        return ": write CASE WHEN x THEN 1 ELSE 0 END"
    return ""


# ------------------------------------------------------------------------------------ of numbers


def _number(term: Term, kind: str) -> Term:
    source = str(term.type)
    if kind in FLOATS:
        return _to_float(term, kind)
    if kind in INTEGERS:
        return _float_to_int(term, kind) if source in FLOATS else _to_int(term, kind)
    precision, scale = digits_of(kind)
    if source in FLOATS:
        wide, fails = _float_to_wide(term, precision, scale)
    else:
        wide, fails = _rounded(as_wide_decimal(term, max(scale, digits_of(source)[1])), scale), None
    value, too_large = in_digits(wide, precision, scale)
    return Term(value, kind, term.names, any_fails(term.fails, fails, too_large))


def _to_float(term: Term, kind: str) -> Term:
    value = nearest_float(term, arrow_type(kind))
    if term.type != "float64":
        return replace(term, expression=value, type=kind)
    fails = sure(pc.is_inf(value) & pc.is_finite(term.expression))  # against float-that-overflows
    return Term(value, kind, term.names, any_fails(term.fails, fails))


def _to_int(term: Term, kind: str) -> Term:
    """Return an integer or decimal as an integer, without its digits after the point."""
    most = 2 ** (_BITS[kind] - 1)
    if term.type in INTEGERS:
        if _BITS[kind] >= _BITS[str(term.type)]:
            return replace(term, expression=term.expression.cast(arrow_type(kind)), type=kind)
        number, arrow = term.expression.cast(pa.int64()), pa.int64()
    else:
        wide = as_wide_decimal(term, digits_of(str(term.type))[1])
        arrow = pa.decimal256(76, 0)
        number = pc.round(wide, 0, round_mode="towards_zero").cast(arrow)
    low, high = (pc.scalar(pa.scalar(bound, arrow)) for bound in (-most, most - 1))
    fails = sure((number < low) | (number > high))  # against cast-out-of-range
    value = clamped(number, low, high).cast(arrow_type(kind))
    return Term(value, kind, term.names, any_fails(term.fails, fails))


def _float_to_int(term: Term, kind: str) -> Term:
    most = float(2 ** (_BITS[kind] - 1))
    whole = pc.trunc(term.expression.cast(pa.float64()))
    fails = ~pc.coalesce((whole >= -most) & (whole < most), term.expression.is_null())
    value = whole.cast(arrow_type(kind), safe=False)
    return Term(value, kind, term.names, any_fails(term.fails, fails))


def _float_to_wide(term: Term, precision: int, scale: int) -> tuple[pc.Expression, pc.Expression]:
    """Return the shortest decimal that stands for a float, rounded, and for which rows it fails."""
    arrow = arrow_type(term.type)
    size = pc.abs(term.expression.cast(pa.float64()))
    fails = ~pc.coalesce(size <= 10.0 ** (precision - scale), term.expression.is_null())
    # What rounds to zero would have too many digits after the point; others have at most 17.
    tiny = size < 10.0 ** -(scale + 1)
    kept = pc.if_else(
        tiny, pc.scalar(pa.scalar(0.0, arrow)), _without(fails, term.expression, arrow)
    )
    return _rounded(kept.cast(pa.string()).cast(pa.decimal256(76, scale + 18)), scale), fails


def _rounded(wide: pc.Expression, scale: int) -> pc.Expression:
    """Return a decimal of 256 bits with fewer digits after the point; halves go away from zero."""
    rounded = pc.round(wide, scale, round_mode="half_towards_infinity")
    return rounded.cast(pa.decimal256(76, scale))


# -------------------------------------------------------------------------------------- of texts


def _text_to_number(term: Term, kind: str) -> Term:
    if kind in FLOATS:
        return _text_to_float(term, kind)
    whole = kind in INTEGERS
    good = pc.match_substring_regex(term.expression, _INTEGER if whole else _NUMBER)
    fails = _unless(good, term)
    digits = _without(fails, term.expression, pa.string())
    if whole:
        parsed = Term(digits.cast(pa.decimal128(38, 0)), "decimal(38,0)", term.names)
        number = _to_int(parsed, kind)
        return replace(number, fails=any_fails(term.fails, fails, number.fails))
    precision, scale = digits_of(kind)
    wide = _rounded(digits.cast(pa.decimal256(76, 38)), scale)
    value, too_large = in_digits(wide, precision, scale)
    return Term(value, kind, term.names, any_fails(term.fails, fails, too_large))


def _text_to_float(term: Term, kind: str) -> Term:
    words = r"(?i:nan|[+-]?inf(?:inity)?)"
    good = pc.match_substring_regex(term.expression, rf"\A(?:{_FLOAT}|{words})\z")
    value = pc.if_else(good, term.expression, pc.scalar("0")).cast(arrow_type(kind))
    is_number = pc.match_substring_regex(term.expression, rf"\A{_FLOAT}\z")
    too_large = sure(is_number & pc.is_inf(value))  # against text-of-a-float-that-overflows
    return Term(value, kind, term.names, any_fails(term.fails, _unless(good, term), too_large))


def _text_to_bool(term: Term, kind: str) -> Term:
    text = pc.ascii_lower(term.expression)
    fails = _unless((text == "true") | (text == "false"), term)
    return Term(text == "true", kind, term.names, any_fails(term.fails, fails))


def _text_to_time(term: Term, kind: str) -> Term:
    """Return a time of ISO 8601; without an offset it is UTC, and `timestamp_ntz` has none."""
    text = term.expression
    rest = {"date": "", "timestamp_ntz": f"(?:{_CLOCK})?", "timestamp": f"(?:{_CLOCK}{_OFFSET}?)?"}
    fails = _unless(pc.match_substring_regex(text, rf"\A{_DATE}{rest[kind]}\z"), term)
    if kind == "timestamp":  # Arrow reads those with a clock and an offset
        day_alone = pc.utf8_length(text) == 10
        zoned = pc.match_substring_regex(text, rf":[^-+Z]*{_OFFSET}\z")
        clock, utc = (
            pc.binary_join_element_wise(text, pc.scalar(end), pc.scalar(""))
            for end in (" 00:00Z", "Z")
        )
        text = pc.if_else(day_alone, clock, pc.if_else(zoned, text, utc))
    value = _without(fails, text, pa.string()).cast(arrow_type(kind))
    return Term(value, kind, term.names, any_fails(term.fails, fails))


# -------------------------------------------------------------------------------------- to texts


def _number_to_text(term: Term, kind: str) -> Term:
    source = str(term.type)
    if source in FLOATS:
        raise InvalidInput(f"{source} cannot be cast to {kind}{_instead(source, kind)}")
    if source in INTEGERS or digits_of(source)[1] == 0:
        return replace(term, expression=term.expression.cast(pa.string()), type=kind)
    # Arrow writes decimals near zero with an exponent, so those below 1 are written beside a 1.
    scale = digits_of(source)[1]
    size = pc.abs(as_wide_decimal(term, scale, 39 + scale))
    one = pc.scalar(pa.scalar(Decimal(1), pa.decimal256(1, 0)))
    beside = pc.add(size, one).cast(pa.string())
    zero = pc.scalar(pa.scalar(Decimal(0), arrow_type(source)))
    sign = pc.if_else(term.expression < zero, pc.scalar("-0"), pc.scalar("0"))
    small = pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(beside, 1, None), pc.scalar("")
    )
    is_small = size < pc.scalar(pa.scalar(Decimal(1), pa.decimal256(76, scale)))
    value = pc.if_else(is_small, small, term.expression.cast(pa.string()))
    return replace(term, expression=value, type=kind)


def _bool_to_text(term: Term, kind: str) -> Term:
    return replace(term, expression=term.expression.cast(pa.string()), type=kind)


def _time_to_text(term: Term, kind: str) -> Term:
    """Return ISO 8601 with a space, in UTC, without an offset and without zeros at the end."""
    if term.type == "date":
        time, arrow, unit, number = term.expression, pa.date32(), 1, pa.int32()
    else:
        arrow, unit, number = pa.timestamp("us"), _DAY_US, pa.int64()
        time = term.expression.cast(pa.int64()).cast(arrow)
    units = time.cast(number)
    fails = sure((units < _FIRST_DAY * unit) | (units >= (_LAST_DAY + 1) * unit))
    text = _without(fails, time, arrow).cast(pa.string())
    for zeros, rest in ((r"\.0+\z", ""), (r"(\.[0-9]*[1-9])0+\z", r"\1")):
        text = pc.replace_substring_regex(text, pattern=zeros, replacement=rest)
    return Term(text, kind, term.names, any_fails(term.fails, fails))


# -------------------------------------------------------------------------------------- of times


def _time(term: Term, kind: str) -> Term:
    if kind == "date":
        return replace(term, expression=_days(term).cast(pa.int32()).cast(pa.date32()), type=kind)
    if term.type != "date":
        time = term.expression.cast(pa.int64()).cast(arrow_type(kind))
        return replace(term, expression=time, type=kind)
    days = _days(term)
    fails = sure((days < -_MOST_DAYS) | (days > _MOST_DAYS))  # against date-out-of-range
    micros = pc.multiply(days, _DAY_US)  # it wraps around where it fails
    return Term(micros.cast(arrow_type(kind)), kind, term.names, any_fails(term.fails, fails))


def _days(term: Term) -> pc.Expression:
    """Return the days since 1970, rounded down."""
    if term.type == "date":
        return term.expression.cast(pa.int32()).cast(pa.int64())
    micros = term.expression.cast(pa.int64())
    days = pc.divide(micros, _DAY_US)  # it truncates
    return pc.if_else(micros < pc.multiply(days, _DAY_US), pc.subtract(days, 1), days)


def _without(fails: pc.Expression, value: pc.Expression, arrow: pa.DataType) -> pc.Expression:
    """Return the value, with null where it fails."""
    return pc.if_else(fails, pc.scalar(pa.scalar(None, arrow)), value)


def _unless(good: pc.Expression, term: Term) -> pc.Expression:
    """Return for which rows a value is not good; a null is."""
    return ~pc.coalesce(good, pc.scalar(True)) & term.expression.is_valid()


_CASTS: dict[tuple[str | None, str | None], Callable[[Term, str], Term]] = {
    ("number", "number"): _number,
    ("number", "text"): _number_to_text,
    ("bool", "text"): _bool_to_text,
    ("time", "text"): _time_to_text,
    ("text", "number"): _text_to_number,
    ("text", "bool"): _text_to_bool,
    ("text", "time"): _text_to_time,
    ("time", "time"): _time,
}
