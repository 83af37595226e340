"""Values in SQL predicates: literals, columns, and terms.

A term is an Arrow expression with its stored type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import TIME_TYPES, arrow_type
from eventlog.model.entries import Column
from eventlog.query import conditions
from eventlog.query.conditions import FLOATS, Op
from eventlog.query.sql.literals import Moment, Value, compare_with_literal, exact, parse_moment

_INTEGERS = ("int8", "int16", "int32", "int64")
_OPERATORS: dict[Op, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TIME_PARTS: dict[str, Callable[[Any], Any]] = {
    "YEAR": pc.year,
    "MONTH": pc.month,
    "DAY": pc.day,
    "HOUR": pc.hour,
}
_MAX_COALESCED = 256  # all of them are in memory at once, as columns
# The calendar repeats after 400 years: this many days (for dates), or microseconds.
_CYCLE = {True: 146_097, False: 146_097 * 86_400 * 10**6}


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal."""

    value: Value


@dataclass(frozen=True, slots=True)
class Term:
    """An Arrow expression over rows, its stored type, and the columns that it reads."""

    expression: pc.Expression
    type: Any
    names: frozenset[str]


Operand = Lit | Column | Term


def to_term(operand: Operand) -> Term:
    """Return the value as a term; a literal gets its natural type."""
    match operand:
        case Term():
            return operand
        case Column():
            return Term(pc.field(operand.name), operand.type, frozenset([operand.name]))
        case Lit(value):
            kind = _natural(value)
            scalar = pa.scalar(None) if kind is None else exact(value, kind, "the literal")
            return Term(pc.scalar(scalar), kind, frozenset())


def fold(op: Op, left: Value, right: Value) -> bool | None:
    """Return the result of `left op right` for two literals.

    Raises:
        InvalidInput: they have no order.
    """
    if left is None or right is None:
        return None
    if isinstance(left, Moment) and isinstance(right, str):
        right = parse_moment(right)
    if isinstance(right, Moment) and isinstance(left, str):
        left = parse_moment(left)
    if type(left) is not type(right):
        raise InvalidInput("two literals of different types cannot be compared")
    if isinstance(left, Moment) and isinstance(right, Moment):
        return _OPERATORS[op](left.ns, right.ns)
    return _OPERATORS[op](left, right)


def compare_terms(op: Op, left: Term, right: Term) -> Term:
    """Return `left op right` for two terms of one family of types.

    Raises:
        InvalidInput: they have no order.
    """
    used = left.names | right.names
    if left.type is None or right.type is None:
        return Term(pc.scalar(pa.scalar(None, pa.bool_())), "bool", used)
    families = {_family(left.type), _family(right.type)}
    if len(families) > 1 or None in families:
        raise InvalidInput(f"{left.type} and {right.type} cannot be compared")
    a, b = left.expression, right.expression
    if left.type != right.type and families == {"time"}:
        a, b = _instant(left), _instant(right)
    floats = left.type in FLOATS or right.type in FLOATS
    if floats:
        a, b = _as(left, pa.float64()), _as(right, pa.float64())
    return Term(conditions.compare(op, a, b, nan="both" if floats else ""), "bool", used)


def compare_literal(op: Op, term: Term, value: Value) -> Term:
    """Return `term op value`, exactly.

    Raises:
        InvalidInput: they have no order.
    """
    if value is None or term.type is None:
        null = pc.scalar(pa.scalar(None, pa.bool_()))
        return Term(null, "bool", term.names)
    placed = compare_with_literal(op, value, term.type, "the expression")
    if isinstance(placed, bool):
        result = conditions.where_valid(term.expression, pc.scalar(placed))
    else:
        nan = "left" if term.type in FLOATS else ""
        result = conditions.compare(placed[0], term.expression, pc.scalar(placed[1]), nan=nan)  # type: ignore[arg-type]
    return Term(result, "bool", term.names)


def negate(operand: Operand) -> Operand:
    """Return `-operand`.

    Raises:
        InvalidInput: it is not a number.
    """
    if isinstance(operand, Lit):
        if isinstance(operand.value, Fraction):
            return Lit(-operand.value)
        if operand.value is None:
            return operand
    return arithmetic("Sub", Lit(Fraction(0)), operand)


def arithmetic(kind: str, left: Operand, right: Operand) -> Operand:
    """Return a sum, difference, product, quotient (always float64) or remainder (of integers).

    Raises:
        InvalidInput: an operand is not a number, or not an integer for a remainder.
    """
    a, b = to_term(left), to_term(right)
    used = a.names | b.names
    if a.type is None or b.type is None:
        return Lit(None)
    if {_family(a.type), _family(b.type)} != {"number"}:
        raise InvalidInput(f"arithmetic needs numbers, not {a.type} and {b.type}")
    integers = a.type in _INTEGERS and b.type in _INTEGERS
    if kind == "Mod":
        if not integers:
            raise InvalidInput(
                f"% is the remainder of two integers, and here of {a.type} and {b.type}: filter "
                "the rows that were read by it"
            )
        return Term(_remainder(_as(a, pa.int64()), _as(b, pa.int64())), "int64", used)
    if kind == "Div":
        x, y = _as(a, pa.float64()), _as(b, pa.float64())
        safe = pc.if_else(y == 0.0, pc.scalar(pa.scalar(None, pa.float64())), y)
        return Term(pc.divide(x, safe), "float64", used)
    wide = pa.int64() if integers else pa.float64()
    call = {"Add": pc.add_checked, "Sub": pc.subtract_checked, "Mul": pc.multiply_checked}[kind]
    return Term(call(_as(a, wide), _as(b, wide)), "int64" if integers else "float64", used)


def function(kind: str, operand: Operand) -> Operand:
    """Return LOWER, UPPER or LENGTH (in characters) of a text, or ABS of a number.

    Raises:
        InvalidInput: the argument is not of that type.
    """
    term = to_term(operand)
    wanted = "number" if kind == "Abs" else "text"
    if term.type is None:
        return Lit(None)
    if _family(term.type) != wanted:
        raise InvalidInput(f"{kind.upper()} needs a {wanted}, not {term.type}")
    if kind == "Abs":
        wide = "int64" if term.type in _INTEGERS else "float64"
        return Term(pc.abs_checked(_as(term, arrow_type(wide))), wide, term.names)
    if kind == "Length":
        return Term(pc.utf8_length(term.expression).cast(pa.int64()), "int64", term.names)
    call = pc.utf8_lower if kind == "Lower" else pc.utf8_upper
    return Term(call(term.expression), "string", term.names)


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
    if _family(term.type) != "time" or (term.type == "date" and part.upper() == "HOUR"):
        raise InvalidInput(f"{part.upper()} cannot be extracted from {term.type}")
    return Term(_part(call, term), "int64", term.names)


def _part(call: Callable[[Any], pc.Expression], term: Term) -> pc.Expression:
    """Return a part of a time or date, exact for any of them.

    Arrow overflows far from 1970, so the time is moved into one cycle of the calendar first.
    """
    is_date = term.type == "date"
    units = term.expression.cast(pa.int32() if is_date else pa.int64()).cast(pa.int64())
    cycles = pc.divide(units, _CYCLE[is_date])
    near = pc.subtract(units, pc.multiply(cycles, _CYCLE[is_date]))
    time = near.cast(pa.int32()).cast(pa.date32()) if is_date else near.cast(pa.timestamp("us"))
    part = call(time).cast(pa.int64())
    return pc.add(part, pc.multiply(cycles, 400)) if call is pc.year else part


def coalesce(parts: Sequence[Operand]) -> Operand:
    """Return the first value that is not null; numbers become int64 or float64.

    Raises:
        InvalidInput: the values are of different types, or too many.
    """
    if len(parts) > _MAX_COALESCED:
        raise InvalidInput(f"COALESCE takes at most {_MAX_COALESCED} values, not {len(parts)}")
    terms = [to_term(part) for part in parts]
    kinds = {term.type for term in terms if term.type is not None}
    if not kinds:
        return Lit(None)
    kind = next(iter(kinds))
    if {_family(k) for k in kinds} == {"number"}:
        kind = "int64" if kinds <= set(_INTEGERS) else "float64"
    elif len(kinds) > 1:
        raise InvalidInput(f"COALESCE needs values of one type, not {', '.join(sorted(kinds))}")
    used = frozenset[str]().union(*(term.names for term in terms))
    wide = [_as(term, arrow_type(kind)) for term in terms]
    return Term(pc.coalesce(*wide), kind, used)


def _natural(value: Value) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case str():
            return "string"
        case Moment():
            return "timestamp"
    return "int64" if value == value // 1 and -(2**63) <= value < 2**63 else "float64"


def _family(kind: Any) -> str | None:
    if kind in _INTEGERS or kind in FLOATS or str(kind).startswith("decimal"):
        return "number"
    if kind in TIME_TYPES:
        return "time"
    return {"string": "text", "bool": "bool", "binary": "binary"}.get(str(kind))


def _as(term: Term, wide: pa.DataType) -> pc.Expression:
    if term.type == str(wide).replace("double", "float64"):
        return term.expression
    if pa.types.is_floating(wide) and str(term.type).startswith("decimal"):
        # Arrow's own cast multiplies by a power of ten, which does not give the nearest double.
        return term.expression.cast(pa.string()).cast(wide)
    return term.expression.cast(wide, safe=False)


def _instant(term: Term) -> pc.Expression:
    """Return a time of any type as an instant; without a time zone it is UTC."""
    if term.type == "timestamp":
        return term.expression
    return term.expression.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))


def _remainder(x: pc.Expression, y: pc.Expression) -> pc.Expression:
    # The remainder by -1 is always 0, but dividing the least int64 by -1 would overflow.
    safe = pc.if_else((y == 0) | (y == -1), pc.scalar(1), y)
    rest = pc.subtract(x, pc.multiply(pc.divide(x, safe), safe))
    return pc.if_else(y == 0, pc.scalar(pa.scalar(None, pa.int64())), rest)
