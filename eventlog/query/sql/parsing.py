"""SQL text to conditions: one boolean expression over the columns of a table.

The text is parsed by sqlglot, which the extra `sql` installs; the nodes of its tree are checked
against an allow-list. Size and nesting are bounded before the text is parsed, so a hostile
predicate costs no more than an honest one. LIKE has no escape character unless ESCAPE gives one;
division by zero gives NULL; arithmetic is done in int64 or float64, and overflow is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput
from eventlog.model.entries import Column, Schema
from eventlog.model.schema import list_names
from eventlog.query import conditions as c
from eventlog.query.sql import values
from eventlog.query.sql.like import like
from eventlog.query.sql.literals import Value, compare_with_literal, number, parse_moment
from eventlog.query.sql.size import bare, check_size
from eventlog.query.sql.tokens import MAX_NESTING, check_grouping, check_nesting, too_deep
from eventlog.query.sql.values import Lit, Operand, Term

MAX_TEXT_BYTES = 64 * 1024
_OPS: dict[str, c.Op] = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=",
}  # fmt: skip
_DAY_NS = 86_400 * 10**9
_MOMENT_TYPES = {"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATETIME"}


def parse_sql(text: str, schema: Schema) -> c.Condition:
    """Return the condition of a SQL expression over rows of `schema`.

    Raises:
        InvalidInput: the text is too large, is nested too deeply, is not exactly one boolean
            expression of the supported grammar, is ambiguous without parentheses, names an unknown
            column, or compares values that have no order; or sqlglot is not installed.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise InvalidInput(f"the predicate is longer than {MAX_TEXT_BYTES} bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the predicate is not valid Unicode text") from None
    try:
        tree = _parse(text)
        check_size(tree)
        return _Reader(schema).condition(tree)
    except RecursionError:
        raise too_deep() from None


def _parse(text: str) -> Any:
    try:
        from sqlglot.expressions import Condition as Wanted  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise InvalidInput(
            "SQL predicates need sqlglot: pip install 'eventlog-tables[sql]', or pass a pyarrow "
            "expression"
        ) from None
    try:
        dialect = _dialect()
        tokens = dialect.tokenize(text)
        check_nesting(tokens)
        trees = [tree for tree in dialect.parse_into(Wanted, text) if tree is not None]
    except (InvalidInput, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 - the parser fails in many ways on invalid text
        detail = (getattr(error, "errors", None) or [{}])[0]
        near = detail.get("highlight") or str(error).split("\n", 1)[0]
        raise InvalidInput(f"the predicate is not one SQL expression, near {near[:80]!r}") from None
    if len(trees) != 1:
        raise InvalidInput("the predicate must be exactly one SQL expression")
    check_grouping(tokens)
    return trees[0]


@functools.cache
def _dialect() -> Any:
    from sqlglot.dialects.dialect import Dialect  # noqa: PLC0415 - an optional extra
    from sqlglot.tokens import Tokenizer as Base  # noqa: PLC0415

    class EventLogPredicate(Dialect):
        """The base dialect, where `backticks` quote names as well."""

        class Tokenizer(Base):
            """Tokens."""

            IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's own form

    return EventLogPredicate()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Translates sqlglot's tree, by the names of its classes."""

    schema: Schema

    def condition(self, node: Any, depth: int = 0) -> c.Condition:
        """Return the condition that a node states; `depth` is how deep the node lies.

        Raises:
            InvalidInput: it is no condition that a predicate may have.
        """
        node = bare(node)
        if depth > 4 * MAX_NESTING:
            raise too_deep()
        deeper = functools.partial(self.condition, depth=depth + 1)
        kind = type(node).__name__
        if kind in ("And", "Or"):
            parts = tuple(deeper(part) for part in _chain(node, type(node)))
            return c.And(parts) if kind == "And" else c.any_of(parts)
        if kind == "Not":
            return c.Not(deeper(node.this))
        if kind in _OPS:
            return self.compare(_OPS[kind], self.operand(node.this), self.operand(node.expression))
        if kind in ("NullSafeEQ", "NullSafeNEQ"):
            same = self.same(self.operand(node.this), self.operand(node.expression))
            return same if kind == "NullSafeEQ" else c.Not(same)
        special = {"Between": self.between, "In": self.within, "Is": self.is_}.get(kind)
        if special:
            return special(node)
        if kind in ("Like", "ILike", "Escape"):
            return self.like(node)
        return self.truth(self.operand(node, depth), node)

    def truth(self, value: Operand, node: Any) -> c.Condition:
        """Return the condition that a value is true."""
        match value:
            case Lit(None | bool() as constant):
                return c.Const(constant)
            case Column(type="bool"):
                return c.Compare(value, "=", pa.scalar(True))
            case Term(expression, "bool", used):
                return c.Opaque(expression, used)
        raise InvalidInput(f"{_shown(node)} is not a boolean condition")

    def compare(self, op: c.Op, left: Operand, right: Operand) -> c.Condition:
        """Return the condition that compares two operands."""
        if isinstance(left, Lit):
            left, right, op = right, left, c.FLIPPED[op]
        if isinstance(left, Lit) and isinstance(right, Lit):
            return c.Const(values.fold(op, left.value, right.value))
        if not isinstance(right, Lit):
            term = values.compare_terms(op, values.to_term(left), values.to_term(right))
            return c.Opaque(term.expression, term.names)
        what = _called(left)
        if isinstance(left, Column):
            if right.value is None:
                return c.Const(None)
            placed = compare_with_literal(op, right.value, left.type, what)
            if isinstance(placed, bool):
                return c.Fixed(left, placed)
            return c.Compare(left, *placed)
        term = values.compare_literal(op, values.to_term(left), right.value)
        return c.Opaque(term.expression, term.names)

    def same(self, left: Operand, right: Operand) -> c.Condition:
        """Return `left IS NOT DISTINCT FROM right`."""
        if isinstance(left, Lit):
            left, right = right, left
        if isinstance(right, Lit) and right.value is None:
            return self.is_null(left)
        equal = c.Is(self.compare("=", left, right), value=True)
        if isinstance(right, Lit):
            return equal
        return c.Or((equal, c.And((self.is_null(left), self.is_null(right)))))

    def is_null(self, operand: Operand) -> c.Condition:
        """Return the condition that an operand is null."""
        match operand:
            case Lit(value):
                return c.Const(value is None)
            case Term(expression, _, used):
                return c.Opaque(expression.is_null(), used)
            case Column():
                return c.IsNull(operand)

    def between(self, node: Any) -> c.Condition:
        """Return the condition of `x BETWEEN low AND high`."""
        if node.args.get("symmetric"):
            raise _unsupported(node)
        subject = self.operand(node.this)
        low, high = self.operand(node.args["low"]), self.operand(node.args["high"])
        return c.And((self.compare(">=", subject, low), self.compare("<=", subject, high)))

    def within(self, node: Any) -> c.Condition:
        """Return the condition of `x IN (…)`."""
        listed = node.args.get("expressions")
        if not listed or any(node.args.get(other) for other in ("query", "unnest", "field")):
            raise _unsupported(node)
        subject = self.operand(node.this)
        parts = [self.compare("=", subject, self.operand(item)) for item in listed]
        if not isinstance(subject, Column):
            return c.Or(tuple(parts))
        equal = dict.fromkeys(part.value for part in parts if isinstance(part, c.Compare))
        rest: list[c.Condition] = [
            part for part in parts if not isinstance(part, c.Compare | c.Fixed)
        ]
        if equal:
            rest.insert(0, c.In(subject, tuple(equal)))
        elif not rest:
            rest = parts[:1]
        return rest[0] if len(rest) == 1 else c.Or(tuple(rest))

    def is_(self, node: Any) -> c.Condition:
        """Return the condition of `x IS NULL`, `IS TRUE` or `IS FALSE`."""
        right = bare(node.expression)
        if type(right).__name__ == "Null":
            return self.is_null(self.operand(node.this))
        if type(right).__name__ == "Boolean":
            return c.Is(self.condition(node.this), bool(right.this))
        raise _unsupported(node)

    def like(self, node: Any) -> c.Condition:
        """Return the condition of `x LIKE pattern`, also with `ILIKE`, `NOT` and `ESCAPE`."""
        escape = None
        outer = node
        if type(node).__name__ == "Escape":
            escape, node = self.operand(node.expression), bare(node.this)
        if type(node).__name__ not in ("Like", "ILike"):
            raise _unsupported(outer)
        subject, pattern = self.operand(node.this), self.operand(node.expression)
        if not isinstance(pattern, Lit) or not (escape is None or isinstance(escape, Lit)):
            raise InvalidInput(f"the pattern of LIKE must be a text literal: {_shown(outer)}")
        condition = like(
            subject,
            pattern.value,
            None if escape is None else escape.value,
            any_case=type(node).__name__ == "ILike",
        )
        return c.Not(condition) if node.args.get("negate") else condition

    def operand(self, node: Any, depth: int = 0) -> Operand:
        """Return the value that a node computes; `depth` is how deep the node lies.

        Raises:
            InvalidInput: it is no value that a predicate may compute.
        """
        node = bare(node)
        if depth > 4 * MAX_NESTING:
            raise too_deep()
        kind = type(node).__name__
        simple = self.simple(node, kind)
        if simple is not None:
            return simple
        if kind in _CONDITIONS:
            condition = self.condition(node, depth + 1)
            return Term(c.to_expression(condition), "bool", c.columns_read(condition))
        inner: Callable[[Any], Operand] = functools.partial(self.operand, depth=depth + 1)
        if kind == "Neg":
            return values.negate(inner(node.this))
        if kind in ("Add", "Sub", "Mul", "Div", "Mod"):
            return values.arithmetic(kind, inner(node.this), inner(node.expression))
        if kind in ("Lower", "Upper", "Length", "Abs"):
            return values.function(kind, inner(_only(node)))
        if kind in ("Year", "Month", "Day", "Hour"):
            return values.part_of_time(kind, inner(node.this))
        if kind == "Extract":
            return values.part_of_time(str(node.this.name), inner(node.expression))
        if kind == "Coalesce":
            return values.coalesce([inner(part) for part in (node.this, *node.expressions)])
        raise _unsupported(node)

    def simple(self, node: Any, kind: str) -> Operand | None:
        """Return a literal or a column, or None where the node is neither."""
        if kind == "Column":
            return self.column(node)
        if kind == "Null":
            return Lit(None)
        if kind == "Boolean":
            return Lit(bool(node.this))
        if kind == "Literal":
            return Lit(str(node.this) if node.is_string else number(str(node.this)))
        if kind == "Cast":
            return Lit(self.cast(node))
        return None

    def cast(self, node: Any) -> Value:
        """Return the value of a text literal that is cast to DATE or TIMESTAMP."""
        inner, to = self.operand(node.this), str(node.args["to"].this.name)
        if to not in _MOMENT_TYPES or not isinstance(inner, Lit) or node.args["to"].expressions:
            raise InvalidInput(
                f"only text literals can be cast, and only to DATE or TIMESTAMP: {_shown(node)}"
            )
        if inner.value is None:
            return None
        if not isinstance(inner.value, str):
            raise InvalidInput(f"only text can be cast to {to}: {_shown(node)}")
        when = parse_moment(inner.value)
        if to == "DATE" and (when.zoned or when.ns % _DAY_NS):
            raise InvalidInput(
                "a DATE is a day without a time or an offset: write DATE '2013-01-07', or "
                f"TIMESTAMP {inner.value[:80]!r}"
            )
        return when

    def column(self, node: Any) -> Column:
        """Return the column that a node names."""
        name = str(node.name)
        if any(node.args.get(part) for part in ("table", "db", "catalog")):
            raise InvalidInput(
                f"{_shown(node)}: write column names without a table, and quote names with a dot; "
                "the fields of a struct are filtered in the rows that were read"
            )
        columns = self.schema.columns
        exact = [column for column in columns if column.name == name]
        matches = exact or [column for column in columns if column.name.lower() == name.lower()]
        if len(matches) != 1:
            quoted = getattr(node.this, "args", {}).get("quoted")
            hint = "; write text in single quotes: 'Oslo'" if quoted else ""
            known = list_names(self.schema)
            raise InvalidInput(f"unknown column {name[:80]!r}; columns: {known}{hint}")
        return matches[0]


_CONDITIONS = {
    *_OPS, "And", "Or", "Not", "NullSafeEQ", "NullSafeNEQ", "Between", "In", "Is", "Like", "ILike",
    "Escape",
}  # fmt: skip


def _chain(node: Any, kind: type[Any]) -> list[Any]:
    """Return the operands of a run of one connective, in order, without recursion."""
    operands, pending = [], [node]
    while pending:
        part: Any = bare(pending.pop())
        if type(part) is kind:
            pending += [part.expression, part.this]
        else:
            operands.append(part)
    return operands


def _called(operand: Operand) -> str:
    return f"column {operand.name!r}" if isinstance(operand, Column) else "the expression"


def _shown(node: Any) -> str:
    try:
        return repr(str(node.sql())[:80])
    except Exception:  # noqa: BLE001 - only for an error message about an unsupported tree
        return type(node).__name__


def _only(node: Any) -> Any:
    """Return a function's only argument; some dialects of sqlglot have more, such as LENGTH's."""
    if any(value for name, value in node.args.items() if name != "this"):
        raise _unsupported(node)
    return node.this


def _unsupported(node: Any) -> InvalidInput:
    return InvalidInput(
        f"predicates do not support {_shown(node)} ({type(node).__name__}): they compare columns "
        "with values; filter the rows that were read by anything else"
    )
