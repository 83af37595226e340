"""Functions of SQL expressions on texts and times. Each returns NULL if an argument is NULL.

Characters are code points. Times are in UTC, and weeks begin on Monday.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.query.sql.values import (
    MAX_PARTS,
    Lit,
    Operand,
    Term,
    any_fails,
    family_of,
    sure,
    to_term,
)

_TIME_PARTS: dict[str, Callable[[Any], Any]] = {
    "YEAR": pc.year,
    "MONTH": pc.month,
    "DAY": pc.day,
    "HOUR": pc.hour,
}
# What DATE_TRUNC cuts to; those after `day` need a time of day.
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_OF_DATES = UNITS[:5]
_DAY_US = 86_400 * 10**6
# The calendar repeats after 400 years, which are whole weeks: this many days (for dates), or
# microseconds.
_CYCLE = {True: 146_097, False: 146_097 * _DAY_US}
_MOST_CHARACTERS = 2**31 - 1


def text_function(kind: str, operand: Operand) -> Operand:
    """Return LOWER, UPPER or LENGTH (in characters) of a text.

    Raises:
        InvalidInput: the argument is not text.
    """
    term = to_term(operand)
    if term.type is None:
        return Lit(None)
    if term.type != "string":
        raise _not_text(kind.upper(), term)
    if kind == "Length":
        length = pc.utf8_length(term.expression).cast(pa.int64())
        return Term(length, "int64", term.names, term.fails)
    call = pc.utf8_lower if kind == "Lower" else pc.utf8_upper
    return Term(call(term.expression), "string", term.names, term.fails)


def substring(operand: Operand, start: Operand, length: Operand | None) -> Operand:
    """Return a part of a text.

    Args:
        operand: the text.
        start: the position of the first character: 1 is the first one, -1 the last one. A negative
            position may lie before the text.
        length: the number of characters from there on; None: to the end.

    Raises:
        InvalidInput: it is not text, or the numbers are not whole numbers in the text of the
            expression, or are 0 (start) or negative (length).
    """
    term = to_term(operand)
    first = _whole(start, "start")
    count = _MOST_CHARACTERS if length is None else _whole(length, "length")
    if first == 0:
        raise InvalidInput("the start of SUBSTR is 1 for the first character, or -1 for the last")
    if count < 0:
        raise InvalidInput(f"the length of SUBSTR is 0 or more, not {count}")
    if term.type is None:
        return Lit(None)
    if term.type != "string":
        raise _not_text("SUBSTR", term)
    begin = first - 1 if first > 0 else first
    # From a negative position to 0 or beyond is to the end.
    end = None if begin < 0 <= begin + count else min(begin + count, _MOST_CHARACTERS)
    value = pc.utf8_slice_codeunits(term.expression, begin, end)
    return Term(value, "string", term.names, term.fails)


def joined_texts(parts: Sequence[Operand]) -> Operand:
    """Return texts joined; NULL if one of them is.

    Raises:
        InvalidInput: a part is not text, or there are too many.
    """
    if len(parts) > MAX_PARTS:
        raise InvalidInput(f"CONCAT takes at most {MAX_PARTS} values, not {len(parts)}")
    terms = [to_term(part) for part in parts]
    for term in terms:
        if term.type not in ("string", None):
            raise _not_text("CONCAT", term)
    if any(term.type is None for term in terms):
        return Lit(None)
    used = frozenset[str]().union(*(term.names for term in terms))
    value = pc.binary_join_element_wise(*(term.expression for term in terms), pc.scalar(""))
    return Term(value, "string", used, any_fails(*(term.fails for term in terms)))


def part_of_time(part: str, operand: Operand) -> Operand:
    """Return YEAR, MONTH, DAY or HOUR of a time (UTC) or date.

    Raises:
        InvalidInput: another part is requested, or the operand is not a time with that part.
    """
    call = _TIME_PARTS.get(part.upper())
    if call is None:
        raise InvalidInput(f"only YEAR, MONTH, DAY and HOUR can be extracted, not {part[:80]!r}")
    term = to_term(operand)
    if term.type is None:
        return Lit(None)
    if family_of(term.type) != "time" or (term.type == "date" and part.upper() == "HOUR"):
        raise InvalidInput(f"{part.upper()} cannot be extracted from {term.type}")
    cycles, near = _in_cycle(term)
    value = call(near).cast(pa.int64())
    if call is pc.year:
        value = pc.add(value, pc.multiply(cycles, 400))
    return Term(value, "int64", term.names, term.fails)


def date_trunc(unit: str, operand: Operand) -> Operand:
    """Return the start of the year, quarter, month, week, day, hour, minute or second of a time.

    Args:
        unit: one of `UNITS`, in any capitals.
        operand: a time, in UTC, or a date; the result has its type.

    Raises:
        InvalidInput: the unit is another one, or the operand is not a time or has no such unit.
    """
    unit = unit.lower()
    if unit not in UNITS:
        raise InvalidInput(f"DATE_TRUNC cuts to one of {', '.join(UNITS)}, not {unit[:80]!r}")
    term = to_term(operand)
    if term.type is None:
        return Lit(None)
    is_date = term.type == "date"
    if family_of(term.type) != "time" or (is_date and unit not in _OF_DATES):
        raise InvalidInput(f"DATE_TRUNC of {term.type} cannot cut to {unit}")
    cycles, near = _in_cycle(term)
    floor = pc.floor_temporal(near, unit=unit, week_starts_monday=True).cast(pa.int64())
    if is_date:
        floor = pc.divide(floor, _DAY_US)  # exact: it is a midnight
    start = pc.add(floor, pc.multiply(cycles, _CYCLE[is_date]))
    before = _units(term)
    # The first values of the type may lie after the start of their week or year.
    least = pc.scalar(-(2**31)) if is_date else start
    fails = sure((start > before) | (start < least))  # against start-before-the-first-time
    if is_date:
        value = start.cast(pa.int32(), safe=False).cast(pa.date32())
    else:
        value = start.cast(pa.timestamp("us", tz="UTC" if term.type == "timestamp" else None))
    return Term(value, term.type, term.names, any_fails(term.fails, fails))


def _in_cycle(term: Term) -> tuple[pc.Expression, pc.Expression]:
    """Return a time without a zone in the cycle of the calendar around 1970, and its cycle.

    Arrow overflows far from 1970.
    """
    is_date = term.type == "date"
    units = _units(term)
    cycles = pc.divide(units, _CYCLE[is_date])
    near = pc.subtract(units, pc.multiply(cycles, _CYCLE[is_date]))
    if is_date:
        near = pc.multiply(near, _DAY_US)
    return cycles, near.cast(pa.timestamp("us"))


def _units(term: Term) -> pc.Expression:
    """Return the days or microseconds since 1970."""
    if term.type == "date":
        return term.expression.cast(pa.int32()).cast(pa.int64())
    return term.expression.cast(pa.int64())


def _whole(operand: Operand, what: str) -> int:
    value = operand.value if isinstance(operand, Lit) else None
    if isinstance(value, Fraction) and value == value // 1 and abs(value) <= _MOST_CHARACTERS:
        return int(value)
    raise InvalidInput(f"the {what} of SUBSTR is a whole number in the expression, such as 1")


def _not_text(what: str, term: Term) -> InvalidInput:
    return InvalidInput(f"{what} needs text, not {term.type}: write CAST(… AS STRING)")
