"""Values in SQL expressions: literals, columns, and terms, and how several become one type.

A term is an Arrow expression with its stored type. The expression has a value for every row, and
raises on none; `Term.fails` is true for the rows for which the value is wrong because an operation
overflowed, divided by zero or could not cast. So a CASE, a COALESCE, an AND or an OR can leave out
the failures of a part that does not decide its result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import TIME_TYPES, arrow_type
from eventlog.model.decimals import from_units
from eventlog.model.entries import Column
from eventlog.query import conditions
from eventlog.query.conditions import FLOATS, Condition, Op
from eventlog.query.sql.literals import (
    Moment,
    Value,
    compare_with_literal,
    decimal_type,
    exact,
    parse_moment,
)

INTEGERS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}  # and their most decimal digits
MAX_DIGITS = 38
MAX_PARTS = 256  # of COALESCE, CASE and CONCAT: all of them are in memory at once, as columns
_OPERATORS: dict[Op, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal."""

    value: Value


@dataclass(frozen=True, slots=True)
class Term:
    """An Arrow expression over rows.

    Attributes:
        expression: has a value for every row.
        type: the stored type; None: it is NULL for every row.
        names: the names of the columns that it reads.
        fails: for which rows the value is wrong, never null; None: for none.
    """

    expression: pc.Expression
    type: Any
    names: frozenset[str]
    fails: pc.Expression | None = None


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


def condition_term(condition: Condition) -> Term:
    """Return a condition as a term of type bool."""
    return Term(
        conditions.to_expression(condition),
        "bool",
        conditions.columns_read(condition),
        conditions.failing(condition),
    )


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
    used, fails = left.names | right.names, any_fails(left.fails, right.fails)
    if left.type is None or right.type is None:
        return Term(pc.scalar(pa.scalar(None, pa.bool_())), "bool", used, fails)
    families = {family_of(left.type), family_of(right.type)}
    if len(families) > 1 or None in families:
        quotes = ". Write a time in quotes: at >= '2013-01-07'" if "time" in families else ""
        raise InvalidInput(f"{left.type} and {right.type} cannot be compared{quotes}")
    a, b = left.expression, right.expression
    if left.type != right.type and families == {"time"}:
        a, b = _instant(left), _instant(right)
    floats = left.type in FLOATS or right.type in FLOATS
    if floats:
        a, b = as_float(left), as_float(right)
    elif left.type != right.type and families == {"number"}:
        scale = max(digits_of(left.type)[1], digits_of(right.type)[1])
        a, b = as_wide_decimal(left, scale), as_wide_decimal(right, scale)
    return Term(conditions.compare(op, a, b, nan="both" if floats else ""), "bool", used, fails)


def compare_literal(op: Op, term: Term, value: Value) -> Term:
    """Return `term op value`, exactly.

    Raises:
        InvalidInput: they have no order.
    """
    if value is None or term.type is None:
        null = pc.scalar(pa.scalar(None, pa.bool_()))
        return Term(null, "bool", term.names, term.fails)
    placed = compare_with_literal(op, value, term.type, "the expression")
    if isinstance(placed, bool):
        result = conditions.where_valid(term.expression, pc.scalar(placed))
    else:
        nan = "left" if term.type in FLOATS else ""
        result = conditions.compare(placed[0], term.expression, pc.scalar(placed[1]), nan=nan)  # type: ignore[arg-type]
    return Term(result, "bool", term.names, term.fails)


def coalesce(parts: Sequence[Operand], wanted: Any = None) -> Operand:
    """Return the first value that is not null. A later part does not fail where it does not count.

    Args:
        parts: the values, of one type or all of them numbers.
        wanted: the type of the result where all parts are literals that it can represent.

    Raises:
        InvalidInput: the values are of different types, or too many.
    """
    kind = _one_type("COALESCE", parts, wanted)
    if kind is None:
        return Lit(None)
    terms = [_converted(part, kind) for part in parts]
    used = frozenset[str]().union(*(term.names for term in terms))
    fails = None
    # against failure-that-a-coalesce-hides
    if any(term.fails is not None for term in terms):
        fails = first_true(
            [
                (condition, answer)
                for term in terms
                for condition, answer in (
                    (term.fails, pc.scalar(True)),
                    (term.expression.is_valid(), pc.scalar(False)),
                )
                if condition is not None
            ],
            pc.scalar(False),
        )
    return Term(pc.coalesce(*(term.expression for term in terms)), kind, used, fails)


def case(
    branches: Sequence[tuple[Condition, Operand]], otherwise: Operand, wanted: Any = None
) -> Operand:
    """Return the value of the first branch whose condition is TRUE.

    Conditions after it, and the values of other branches, do not fail.

    Args:
        branches: conditions with values, of one type or all of them numbers.
        otherwise: the value where no condition is TRUE.
        wanted: the type of the result where all values are literals that it can represent.

    Raises:
        InvalidInput: the values are of different types, or too many.
    """
    results = [value for _, value in branches]
    kind = _one_type("CASE", [*results, otherwise], wanted)
    if kind is None:
        return Lit(None)
    tests = [condition_term(condition) for condition, _ in branches]
    terms = [_converted(value, kind) for value in results]
    last = _converted(otherwise, kind)
    used = frozenset[str]().union(*(term.names for term in (*tests, *terms, last)))
    pairs = list(zip(tests, terms, strict=True))
    value = first_true(
        [(test.expression, term.expression) for test, term in pairs], last.expression
    )
    fails = None
    # against failure-that-a-case-hides
    if any(term.fails is not None for term in (*tests, *terms, last)):
        fails = first_true(
            [
                (condition, answer)
                for test, term in pairs
                for condition, answer in (
                    (test.fails, pc.scalar(True)),
                    (test.expression, pc.scalar(False) if term.fails is None else term.fails),
                )
                if condition is not None
            ],
            pc.scalar(False) if last.fails is None else last.fails,
        )
    return Term(value, kind, used, fails)


def first_true(
    pairs: Sequence[tuple[pc.Expression, pc.Expression]], otherwise: pc.Expression
) -> pc.Expression:
    """Return for each row the second value of the first pair whose first value is true."""
    tests, answers = zip(*pairs, strict=True)
    names = [str(place) for place in range(len(tests))]
    return pc.case_when(pc.make_struct(*tests, field_names=names), *answers, otherwise)


def any_fails(*fails: pc.Expression | None) -> pc.Expression | None:
    """Return for which rows one of the operands fails."""
    some = [part for part in fails if part is not None]
    # Arrow does not join a chain through another function; see `conditions.balanced`.
    return pc.coalesce(conditions.balanced(some, lambda a, b: a | b)) if some else None


def sure(mask: pc.Expression) -> pc.Expression:
    """Return the mask with null as false."""
    return pc.coalesce(mask, pc.scalar(False))


def is_same_type(kind: Any, other: Any) -> bool:
    """Return whether two stored types have the same values, whatever the ids of their fields."""
    if isinstance(kind, dict) and isinstance(other, dict):
        return bool(arrow_type(kind) == arrow_type(other))
    return bool(kind == other)


def family_of(kind: Any) -> str | None:
    """Return the family of a stored type, whose values have an order; None for nested types."""
    if not isinstance(kind, str):
        return None
    if kind in INTEGERS or kind in FLOATS or kind.startswith("decimal"):
        return "number"
    if kind in TIME_TYPES:
        return "time"
    return {"string": "text", "bool": "bool", "binary": "binary"}.get(kind)


def digits_of(kind: str) -> tuple[int, int]:
    """Return precision and scale of an integer or decimal type."""
    if kind in INTEGERS:
        return INTEGERS[kind], 0
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def as_float(term: Term) -> pc.Expression:
    """Return the nearest float64 of a number."""
    if term.type == "float64":
        return term.expression
    return nearest_float(term, pa.float64())


def nearest_float(term: Term, arrow: pa.DataType) -> pc.Expression:
    """Return the nearest float of a number; beyond the type's range it is infinite."""
    if str(term.type).startswith("decimal"):
        # Arrow's own cast multiplies by a power of ten, which does not give the nearest double.
        return term.expression.cast(pa.string()).cast(arrow)
    return term.expression.cast(arrow, safe=False)


def as_wide_decimal(term: Term, scale: int, precision: int = 76) -> pc.Expression:
    """Return an integer or decimal with 256 bits and a scale that is not less than its own."""
    return term.expression.cast(pa.decimal256(precision, scale))


def in_digits(
    wide: pc.Expression, precision: int, scale: int
) -> tuple[pc.Expression, pc.Expression]:
    """Return a decimal of 256 bits and this scale as `decimal(precision, scale)`.

    Returns:
        the value, the nearest one where it does not fit, and for which rows it does not.
    """
    most, arrow = 10**precision - 1, pa.decimal256(76, scale)
    low, high = (pc.scalar(pa.scalar(from_units(n, scale), arrow)) for n in (-most, most))
    fails = sure((wide < low) | (wide > high))  # against digits-that-do-not-fit
    return clamped(wide, low, high).cast(pa.decimal128(precision, scale)), fails


def clamped(value: pc.Expression, low: pc.Expression, high: pc.Expression) -> pc.Expression:
    """Return the nearest value that is not outside two bounds; null for null."""
    return pc.min_element_wise(
        pc.max_element_wise(value, low, skip_nulls=False), high, skip_nulls=False
    )


def _one_type(what: str, parts: Sequence[Operand], wanted: Any) -> Any:
    """Return the type that values have in common; None: all are NULL.

    Literals take the type of the others if it represents them.

    Raises:
        InvalidInput: there is none, or there are too many values.
    """
    if len(parts) > MAX_PARTS:
        raise InvalidInput(f"{what} takes at most {MAX_PARTS} values, not {len(parts)}")
    literals = [part for part in parts if isinstance(part, Lit) and part.value is not None]
    terms = [to_term(part) for part in parts if not isinstance(part, Lit)]
    kinds = [term.type for term in terms if term.type is not None]
    kind = _joined(what, kinds) if kinds else wanted
    if literals and (kind is None or not all(_is_exact(part.value, kind) for part in literals)):
        return _joined(what, [*kinds, *(_natural(part.value) for part in literals)])
    return kind if literals or kinds else None


def _joined(what: str, kinds: Sequence[Any]) -> Any:
    """Return the type that every value of these types is converted to."""
    first = kinds[0]
    if all(is_same_type(kind, first) for kind in kinds):
        return first
    if any(family_of(kind) != "number" for kind in kinds):
        shown = ", ".join(sorted({str(kind)[:40] for kind in kinds}))
        raise InvalidInput(f"{what} needs values of one type, not {shown}: CAST them to one")
    if any(kind in FLOATS for kind in kinds):
        return "float64"
    if all(kind in INTEGERS for kind in kinds):
        return max(kinds, key=lambda kind: INTEGERS[kind])
    digits = [digits_of(kind) for kind in kinds]
    scale = max(scale for _, scale in digits)
    whole = max(precision - scale for precision, scale in digits)
    return f"decimal({min(MAX_DIGITS, whole + scale)},{scale})"


def _is_exact(value: Value, kind: Any) -> bool:
    try:
        exact(value, kind, "the literal")
    except InvalidInput:
        return False
    return True


def _converted(operand: Operand, kind: Any) -> Term:
    """Return a value as one of the type that `_one_type` chose."""
    if isinstance(operand, Lit):
        return Term(pc.scalar(exact(operand.value, kind, "the literal")), kind, frozenset())
    term = to_term(operand)
    if is_same_type(term.type, kind):
        return term
    if term.type is None:
        return Term(pc.scalar(pa.scalar(None, arrow_type(kind))), kind, term.names, term.fails)
    if kind == "float64":
        return replace(term, expression=as_float(term), type=kind)
    if kind in INTEGERS:
        return replace(term, expression=term.expression.cast(arrow_type(kind)), type=kind)
    precision, scale = digits_of(kind)
    value, fails = in_digits(as_wide_decimal(term, scale), precision, scale)
    return Term(value, kind, term.names, any_fails(term.fails, fails))


def _natural(value: Value) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case str():
            return "string"
        case Moment():
            return value.kind
    if value == value // 1 and -(2**63) <= value < 2**63:
        return "int64"
    return decimal_type(value) or "float64"


def _instant(term: Term) -> pc.Expression:
    """Return a time of any type as an instant; without a time zone it is UTC."""
    if term.type == "timestamp":
        return term.expression
    return term.expression.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
