"""SQL text to conditions and values: one expression over the columns of a table.

The text is parsed by sqlglot; the nodes of its tree are checked
against an allow-list. Size and nesting are bounded before the text is parsed, so a hostile
expression costs no more than an honest one. LIKE has no escape character unless ESCAPE gives one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import TIME_TYPES
from eventlog.model.entries import Column, Schema
from eventlog.model.schema import list_names
from eventlog.query import conditions as c
from eventlog.query.sql import arithmetic, casts, functions, values
from eventlog.query.sql.like import like
from eventlog.query.sql.literals import compare_with_literal, number, parse_moment
from eventlog.query.sql.size import bare, check_size
from eventlog.query.sql.tokens import (
    MAX_NESTING,
    check_grouping,
    check_nesting,
    check_spelling,
    too_deep,
)
from eventlog.query.sql.values import MAX_DIGITS, Lit, Operand, Term

MAX_TEXT_BYTES = 64 * 1024
_OPS: dict[str, c.Op] = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=",
}  # fmt: skip
_DAY_NS = 86_400 * 10**9
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# The types of a CAST, by sqlglot's names; a decimal has precision and scale.
_TYPES = {
    "BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64",
    "FLOAT": "float32", "DOUBLE": "float64", "VARCHAR": "string", "TEXT": "string",
    "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz", "DATETIME": "timestamp_ntz",
}  # fmt: skip


def parse_sql(text: str, schema: Schema) -> c.Condition:
    """Return the condition of a SQL expression over rows of `schema`.

    Raises:
        InvalidInput: the text is too large, is nested too deeply, is not exactly one boolean
            expression of the supported grammar, is ambiguous without parentheses, names an unknown
            column, or compares values that have no order.
    """
    _check_text(text)
    try:
        tree = _parse(text)
        check_size(tree)
        return _Reader(schema).condition(tree)
    except RecursionError:
        raise too_deep() from None


def parse_operand(
    text: str, schema: Schema, others: Mapping[str, Schema] | None = None, wanted: Any = None
) -> Operand:
    """Return the value of a SQL expression over rows of `schema`.

    Args:
        text: the expression.
        schema: of the rows.
        others: schemas of rows beside those, by the name that stands before a point and a column's
            name; see `eventlog.query.value_expressions.parse_value`.
        wanted: the type of a CASE or COALESCE of literals.

    Raises:
        InvalidInput: as for `parse_sql`, but the expression may have any type.
    """
    _check_text(text)
    try:
        tree = _parse(text)
        check_size(tree)
        return _Reader(schema, others or {}, wanted).operand(tree)
    except RecursionError:
        raise too_deep() from None


def renamed_columns(text: str, names: Mapping[str, str]) -> str:
    """Return an expression in which columns have other names; nothing else of it is changed.

    Args:
        text: an expression that `parse_operand` accepts.
        names: the new names, by the old ones; capitals do not matter in these.

    Raises:
        InvalidInput: the text is not one expression.
    """
    new = {old.lower(): name for old, name in names.items()}
    places = [
        (node.meta["start"], node.meta["end"] + 1, new[str(node.this).lower()])
        for node in _parse(text).find_all(_identifier())
        if str(node.this).lower() in new and type(node.parent).__name__ == "Column"
    ]
    for start, end, name in sorted(places, reverse=True):
        text = text[:start] + _written(name) + text[end:]
    return text


def _written(name: str) -> str:
    """Return the name of a column as an expression has it, in quotes where it needs them."""
    # Spaces, comments and quotes are no tokens, or not those of a name.
    plain = _PLAIN_NAME.fullmatch(name) is not None  # against name-with-a-comment-not-quoted
    kinds = [token.token_type.name for token in _dialect().tokenize(name)] if plain else []
    return name if kinds == ["VAR"] else '"' + name.replace('"', '""') + '"'


def _identifier() -> Any:
    from sqlglot.expressions import Identifier  # noqa: PLC0415 - it takes long to load

    return Identifier


def qualified(table: str, column: str) -> str:
    """Return the name, in the rows that an expression reads, of a column of another table.

    No column of a table can have it.
    """
    return f"{table}\n{column}"


def _check_text(text: str) -> None:
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise InvalidInput(f"the expression is longer than {MAX_TEXT_BYTES} bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the expression is not valid Unicode text") from None


def _parse(text: str) -> Any:
    from sqlglot.expressions import Condition as Wanted  # noqa: PLC0415 - it takes long to load

    try:
        dialect = _dialect()
        tokens = dialect.tokenize(text)
        check_nesting(tokens)
        check_spelling(tokens)
        trees = [tree for tree in dialect.parse_into(Wanted, text) if tree is not None]
    except (InvalidInput, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 - the parser fails in many ways on invalid text
        detail = (getattr(error, "errors", None) or [{}])[0]
        near = detail.get("highlight") or str(error).split("\n", 1)[0]
        raise InvalidInput(f"the text is not one SQL expression, near {near[:80]!r}") from None
    if len(trees) != 1:
        raise InvalidInput("the text must be exactly one SQL expression")
    check_grouping(tokens)
    return trees[0]


@functools.cache
def _dialect() -> Any:
    from sqlglot.dialects.dialect import Dialect  # noqa: PLC0415 - it takes long to load
    from sqlglot.tokens import Tokenizer as Base  # noqa: PLC0415

    class EventLogPredicate(Dialect):
        """The base dialect, where `backticks` quote names as well."""

        class Tokenizer(Base):
            """Tokens."""

            IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's own form

    return EventLogPredicate()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Translates sqlglot's tree, by the names of its classes.

    Attributes:
        schema: of the rows.
        others: schemas of rows beside those, by name.
        wanted: the type of the result if the whole expression is a choice between literals.
    """

    schema: Schema
    others: Mapping[str, Schema] = field(default_factory=dict)
    wanted: Any = None

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
            case Term(type="bool"):
                return _opaque(value)
        raise InvalidInput(f"{_shown(node)} is not a boolean condition")

    def compare(self, op: c.Op, left: Operand, right: Operand) -> c.Condition:
        """Return the condition that compares two operands."""
        if isinstance(left, Lit):
            left, right, op = right, left, c.FLIPPED[op]
        if isinstance(left, Lit) and isinstance(right, Lit):
            return c.Const(values.fold(op, left.value, right.value))
        if not isinstance(right, Lit):
            term = values.compare_terms(op, values.to_term(left), values.to_term(right))
            return _opaque(term)
        what = _called(left)
        if isinstance(left, Column):
            if right.value is None:
                return c.Const(None)
            placed = compare_with_literal(op, right.value, left.type, what)
            if isinstance(placed, bool):
                return c.Fixed(left, placed)
            return c.Compare(left, *placed)
        return _opaque(values.compare_literal(op, values.to_term(left), right.value))

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
            case Term():
                return _opaque(replace(operand, expression=operand.expression.is_null()))
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
            return _once(subject, parts)
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
            return values.condition_term(self.condition(node, depth + 1))
        inner: Callable[[Any], Operand] = functools.partial(self.operand, depth=depth + 1)
        wanted = None if depth else self.wanted
        if kind == "Neg":
            return arithmetic.negate(inner(node.this))
        if kind in ("Add", "Sub", "Mul", "Div", "Mod"):
            return arithmetic.arithmetic(kind, inner(node.this), inner(node.expression))
        if kind == "Coalesce":
            parts = [inner(part) for part in (node.this, *node.expressions)]
            return values.coalesce(parts, wanted)
        if kind == "Case":
            return self.case(node, inner, wanted)
        if kind == "Cast":
            return self.cast(node, inner(node.this))
        return self.function(node, kind, inner)

    def function(self, node: Any, kind: str, inner: Callable[[Any], Operand]) -> Operand:
        """Return the value of a function of texts, numbers or times."""
        if kind in ("Lower", "Upper", "Length"):
            return functions.text_function(kind, inner(_only(node)))
        if kind == "Abs":
            return arithmetic.absolute(inner(_only(node)))
        if kind in ("Year", "Month", "Day", "Hour"):
            return functions.part_of_time(kind, inner(node.this))
        if kind == "Extract":
            return functions.part_of_time(str(node.this.name), inner(node.expression))
        if kind == "Concat":
            return functions.joined_texts([inner(part) for part in node.expressions])
        if kind == "Substring" and node.args.get("start") is not None:
            length = node.args.get("length")
            start = inner(node.args["start"])
            return functions.substring(inner(node.this), start, length and inner(length))
        if kind == "DateTrunc" and not node.args.get("zone"):
            return functions.date_trunc(str(node.args["unit"].name), inner(node.this))
        raise _unsupported(node)

    def case(self, node: Any, inner: Callable[[Any], Operand], wanted: Any) -> Operand:
        """Return the value of `CASE WHEN condition THEN value … END`, or of `CASE x WHEN …`."""
        subject = None if node.this is None else inner(node.this)
        branches = []
        for branch in node.args["ifs"]:
            if subject is None:
                condition = self.condition(branch.this)
            else:
                condition = self.compare("=", subject, inner(branch.this))
            branches.append((condition, inner(branch.args["true"])))
        default = node.args.get("default")
        return values.case(branches, Lit(None) if default is None else inner(default), wanted)

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
        return None

    def cast(self, node: Any, inner: Operand) -> Operand:
        """Return a value that is cast to another type; text that is cast to a time is a literal."""
        to = _type_of(node)
        if to not in TIME_TYPES or not isinstance(inner, Lit) or not isinstance(inner.value, str):
            return casts.cast(inner, to)
        when = parse_moment(inner.value)
        if to == "date" and (when.zoned or when.ns % _DAY_NS):
            raise InvalidInput(
                "a DATE is a day without a time or an offset: write DATE '2013-01-07', or "
                f"TIMESTAMP {inner.value[:80]!r}"
            )
        return Lit(replace(when, kind=to))

    def column(self, node: Any) -> Column:
        """Return the column that a node names."""
        name, table = str(node.name), str(node.args["table"].name) if node.args.get("table") else ""
        table = table.lower() if table.lower() in self.others else table
        schema = self.others.get(table) if table else self.schema
        if schema is None or any(node.args.get(part) for part in ("db", "catalog")):
            known = f"; columns of {', '.join(self.others)} need their names" if self.others else ""
            raise InvalidInput(
                f"{_shown(node)}: write column names without a table, and quote names with a dot; "
                f"the fields of a struct are filtered in the rows that were read{known}"
            )
        columns = schema.columns
        exact = [column for column in columns if column.name == name]
        matches = exact or [column for column in columns if column.name.lower() == name.lower()]
        if len(matches) != 1:
            quoted = getattr(node.this, "args", {}).get("quoted")
            hint = "; write text in single quotes: 'Oslo'" if quoted else ""
            if not quoted and not table:
                hint = f"; write text in single quotes: '{name[:80]}'"
            known = list_names(schema)
            raise InvalidInput(f"unknown column {name[:80]!r}; columns: {known}{hint}")
        found = matches[0]
        return msgspec.structs.replace(found, name=qualified(table, found.name)) if table else found


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


def _opaque(term: Term) -> c.Condition:
    return c.Opaque(term.expression, term.names, term.fails)


def _once(subject: Operand, parts: list[c.Condition]) -> c.Condition:
    """Return the OR of comparisons of a subject, with its failures once rather than in each."""
    fails = subject.fails if isinstance(subject, Term) else None
    if fails is None or any(not isinstance(p, c.Opaque) or p.fails is not fails for p in parts):
        return c.Or(tuple(parts))
    whole = c.Or(tuple(replace(part, fails=None) for part in parts if isinstance(part, c.Opaque)))
    # Arrow does not join a chain through another function; see `conditions.balanced`.
    return c.Opaque(pc.coalesce(c.to_expression(whole)), c.columns_read(whole), fails)


def _type_of(node: Any) -> str:
    """Return the stored type of a CAST."""
    to = node.args["to"]
    name, sizes = str(getattr(to.this, "name", "")), [str(size.name) for size in to.expressions]
    others = any(value for part, value in node.args.items() if part not in ("this", "to", "_type"))
    if name == "DECIMAL" and 1 <= len(sizes) <= 2 and all(map(str.isdecimal, sizes)):
        precision, scale = int(sizes[0][:3]), int((sizes[1:] or ["0"])[0][:3])
        if 1 <= precision <= MAX_DIGITS and scale <= precision and not others:
            return f"decimal({precision},{scale})"
    if name not in _TYPES or sizes or others:
        raise InvalidInput(
            f"{_shown(node)}: CAST converts to BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, REAL, "
            "DOUBLE, DECIMAL(38,9) and the like, STRING, DATE, TIMESTAMP or TIMESTAMP_NTZ"
        )
    return _TYPES[name]


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
        f"expressions do not support {_shown(node)} ({type(node).__name__}): they have the "
        "functions of docs/expressions.md; compute anything else with the rows that were read"
    )
