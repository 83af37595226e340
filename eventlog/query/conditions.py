"""Conditions: the meaning of a SQL predicate, as a tree of frozen values.

Every condition is TRUE, FALSE or NULL for a row, as in SQL; a row passes only if it is TRUE. Floats
compare as in Spark, DuckDB and PostgreSQL: NaN equals itself and is greater than every number, so
NOT always turns a comparison into the opposite one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.model.entries import Column

Op = Literal["=", "<>", "<", "<=", ">", ">="]
OPPOSITE: dict[Op, Op] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED: dict[Op, Op] = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
FLOATS = ("float32", "float64")
_FEW = 8  # up to this many values stay equalities: Arrow prunes row groups by them, not by lists
# What the error of Arrow contains where a filter fails for a row.
FAILURE = (
    "an operation overflows, divides by zero or cannot cast: guard it, as in "
    "CASE WHEN b <> 0 THEN a / b END"
)
_CHAIN = 256  # the most parts that one connective joins


@dataclass(frozen=True, slots=True)
class Const:
    """The same value for every row; None is NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; the value is valid, never NaN, and of the column's Arrow type."""

    column: Column
    op: Op
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`; the values are valid, never NaN, and of the column's Arrow type."""

    column: Column
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The text column starts with `text`."""

    column: Column
    text: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`."""

    column: Column


@dataclass(frozen=True, slots=True)
class Fixed:
    """`value` for every row whose column is not null, NULL for the others."""

    column: Column
    value: bool


@dataclass(frozen=True, slots=True)
class Opaque:
    """An Arrow expression that filters rows but cannot be compared with statistics.

    Attributes:
        expression: the expression; it raises for no row.
        names: the names of the columns that it reads.
        fails: for which rows the result is wrong, since a value of it cannot be computed; never
            null. None: for none.
    """

    expression: pc.Expression
    names: frozenset[str]
    fails: pc.Expression | None = None


@dataclass(frozen=True, slots=True)
class Is:
    """`part IS TRUE` or `part IS FALSE`: never NULL."""

    part: Condition
    value: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; NULL stays NULL."""

    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    """TRUE if every part is TRUE, FALSE if a part is FALSE, else NULL."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """TRUE if a part is TRUE, FALSE if every part is FALSE, else NULL."""

    parts: tuple[Condition, ...]


Condition = Const | Compare | In | Prefix | IsNull | Fixed | Opaque | Is | Not | And | Or


def to_expression(condition: Condition) -> pc.Expression:  # noqa: C901 - one case a node
    """Return the condition as an Arrow expression over rows of the table's schema.

    It raises for no row. See `failing` for rows for which its result is wrong.
    """
    match condition:
        case Const(value):
            return pc.scalar(pa.scalar(value, pa.bool_()))
        case Compare(column, op, value):
            return compare(op, pc.field(column.name), pc.scalar(value), nan=_nan(column))
        case In(column, values):
            return _is_in(column, values)
        case Prefix(column, text):
            return pc.starts_with(pc.field(column.name), text)
        case IsNull(column):
            return pc.field(column.name).is_null()
        case Fixed(column, value):
            return where_valid(pc.field(column.name), pc.scalar(value))
        case Opaque(expression):
            return expression
        case Is(part, value):
            inner = to_expression(part)
            return pc.coalesce(inner if value else ~inner, pc.scalar(False))
        case Not(part):
            return ~to_expression(part)
        case And(parts):
            return balanced([_inside(part) for part in parts], lambda a, b: a & b)
        case Or(parts):
            return balanced([_inside(part) for part in parts], lambda a, b: a | b)


def to_filter(condition: Condition) -> pc.Expression:
    """Return the filter of a condition: an Arrow expression that raises where it fails."""
    passes, fails = to_expression(condition), failing(condition)
    if fails is None:  # against filter-that-fails
        return passes
    # Only a cast can raise with a text of our own. Where it does not, it is true.
    text = pc.if_else(fails, pc.scalar(FAILURE), pc.scalar("true"))
    return passes & text.cast(pa.bool_())


def failing(condition: Condition) -> pc.Expression | None:
    """Return for which rows a condition fails, never null; None: for none.

    AND and OR do not fail for rows for which a part that does not fail decides their result, in
    whatever order the parts stand.
    """
    match condition:
        case Opaque(_, _, fails):
            return fails
        case Is(part) | Not(part):
            return failing(part)
        case And(parts) | Or(parts):
            each = [failing(part) for part in parts]
            parts_that_fail = [fails for fails in each if fails is not None]
            if not parts_that_fail:
                return None
            decides = isinstance(condition, Or)
            decided = []
            for part, fails in zip(parts, each, strict=True):
                alone = to_expression(Is(part, decides))
                # against failure-that-decides
                decided.append(alone if fails is None else alone & ~fails)
            some, sure = (
                balanced(masks, lambda a, b: a | b) for masks in (parts_that_fail, decided)
            )
            return pc.coalesce(some & ~sure)  # no chain; see `balanced`
    return None


def _inside(part: Condition) -> pc.Expression:
    """Return a part of a connective, wrapped so that its own many parts do not join the chain."""
    expression = to_expression(part)
    long = isinstance(part, And | Or) and len(part.parts) > _FEW
    return pc.coalesce(expression) if long else expression


def columns_read(condition: Condition) -> frozenset[str]:
    """Return the names of the columns that the condition reads."""
    match condition:
        case Const():
            return frozenset()
        case Compare(column) | In(column) | Prefix(column) | IsNull(column) | Fixed(column):
            return frozenset([column.name])
        case Opaque(_, used):
            return used
        case Is(part) | Not(part):
            return columns_read(part)
        case And(parts) | Or(parts):
            return frozenset().union(*(columns_read(part) for part in parts))


def size(condition: Condition) -> int:
    """Return the number of parts; a list of values counts as one."""
    match condition:
        case Is(part) | Not(part):
            return 1 + size(part)
        case And(parts) | Or(parts):
            return 1 + sum(map(size, parts))
    return 1


def any_of(parts: Sequence[Condition]) -> Condition:
    """Return the OR of the parts, with many equalities of a column as one list of values."""
    equal: dict[int, dict[pa.Scalar, None]] = {}
    columns: dict[int, Column] = {}
    rest: list[Condition] = []
    for part in parts:
        match part:
            case Compare(column, "=", value):
                columns[column.id] = column
                equal.setdefault(column.id, {})[value] = None
            case _:
                rest.append(part)
    for number, values in equal.items():
        if len(values) > _FEW:
            rest.append(In(columns[number], tuple(values)))
        else:
            rest += [Compare(columns[number], "=", value) for value in values]
    return rest[0] if len(rest) == 1 else Or(tuple(rest))


def compare(
    op: Op, left: pc.Expression, right: pc.Expression, *, nan: Literal["", "left", "both"] = ""
) -> pc.Expression:
    """Return `left op right` over values of one type.

    Args:
        op: the operator.
        left: the left value.
        right: the right value.
        nan: which sides may be NaN; "": neither.
    """
    if nan == "both":
        return _compare_floats(op, left, right)
    plain: dict[Op, Callable[[], pc.Expression]] = {
        "=": lambda: left == right,
        "<>": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    compared = plain[op]()
    return compared | pc.is_nan(left) if nan == "left" and op in (">", ">=") else compared


def where_valid(value: pc.Expression, then: pc.Expression) -> pc.Expression:
    """Return `then` for rows where `value` is not null, else NULL."""
    return pc.if_else(value.is_valid(), then, pc.scalar(pa.scalar(None, pa.bool_())))


def _nan(column: Column) -> Literal["", "left"]:
    return "left" if column.type in FLOATS else ""


def _compare_floats(op: Op, left: pc.Expression, right: pc.Expression) -> pc.Expression:
    if op in ("<>", "<=", ">="):
        return ~_compare_floats(OPPOSITE[op], left, right)
    if op == ">":
        left, right = right, left
    if op == "=":
        return (left == right) | (pc.is_nan(left) & pc.is_nan(right))
    return (left < right) | (pc.is_nan(right) & ~pc.is_nan(left))


def _is_in(column: Column, values: Sequence[pa.Scalar]) -> pc.Expression:
    field, kind = pc.field(column.name), values[0].type
    known = [value.as_py() for value in values] if column.type in FLOATS else []
    # Arrow looks floats up by their bits: 0.0 would not match -0.0.
    zeros = [pa.scalar(zero, kind) for zero in (0.0, -0.0)] if 0.0 in known else []
    # Built from scalars: nanoseconds, decimals and days do not survive as Python values.
    value_set = pa.concat_arrays([_array(value) for value in (*values, *zeros)])
    return where_valid(field, pc.is_in(field, value_set=value_set))


def _array(value: pa.Scalar) -> pa.Array:
    return pa.repeat(value, 1)


def balanced(parts: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Join the parts in a tree of logarithmic depth, because Arrow walks expressions recursively.

    Before that, Arrow flattens everything that one connective joins into a chain. The cost is
    quadratic in the chain's length, and beyond 10,000 parts the process crashes. Arrow does not
    flatten through another function, so groups are wrapped in one.
    """
    while len(parts) > _CHAIN:
        groups = [parts[i : i + _CHAIN] for i in range(0, len(parts), _CHAIN)]
        parts = [pc.coalesce(balanced(group, join)) for group in groups]
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]
