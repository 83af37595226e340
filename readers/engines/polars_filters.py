"""Predicates of Polars as filters of Arrow, to choose what is read.

A filter passes every row that the predicate passes, and maybe others: Polars applies the whole
predicate again. What is not known here is left out, so a new form of an expression costs time and
no row. Polars' JSON of expressions may change with any release.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": lambda left, right: left == right,
    "NotEq": lambda left, right: left != right,
    "Lt": lambda left, right: left < right,
    "LtEq": lambda left, right: left <= right,
    "Gt": lambda left, right: left > right,
    "GtEq": lambda left, right: left >= right,
}
_MIRRORED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_CLOSED = {
    "Both": ("GtEq", "LtEq"),
    "Left": ("GtEq", "Lt"),
    "Right": ("Gt", "LtEq"),
    "None": ("Gt", "Lt"),
}
_FLOATS = {
    ("Dyn", "Float"): pl.Float64,
    ("Scalar", "Float64"): pl.Float64,
    ("Scalar", "Float32"): pl.Float32,
}
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
# Errors that a form of JSON causes which is not the expected one, or a value that does not fit.
_UNKNOWN = (KeyError, TypeError, ValueError, IndexError, AttributeError, pl.exceptions.PolarsError)


def pushed_filter(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return a filter that passes every row that a predicate passes; None if none is known.

    Comparisons in it order NaN above every number, as in Polars.

    Args:
        predicate: the predicate.
        schema: the Arrow schema of the rows.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (*_UNKNOWN, RecursionError):
        return None
    return _some_of(tree, schema)


def _some_of(node: Any, schema: pa.Schema) -> pc.Expression | None:
    """Return the parts of a conjunction that are known; None if there are none."""
    try:
        if _is_binary(node, "And", "LogicalAnd"):
            sides = node["BinaryExpr"]
            known = [_some_of(sides[side], schema) for side in ("left", "right")]
            left, right = known
            return right if left is None else left if right is None else left & right
        if _is_binary(node, "Or", "LogicalOr"):
            sides = node["BinaryExpr"]
            known = [_some_of(sides[side], schema) for side in ("left", "right")]
            left, right = known
            return None if left is None or right is None else left | right
        return _condition(node, schema)
    except (*_UNKNOWN, RecursionError):
        return None


def _is_binary(node: Any, *operators: str) -> bool:
    return "BinaryExpr" in node and node["BinaryExpr"]["op"] in operators


def _condition(node: Any, schema: pa.Schema) -> pc.Expression:
    """Return one condition of a column. Raises: one of `_UNKNOWN`."""
    if "BinaryExpr" in node:
        left, operator, right = (node["BinaryExpr"][part] for part in ("left", "op", "right"))
        if "Column" in right:
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        return _compared(left["Column"], operator, right, schema)
    if "Column" in node and pa.types.is_boolean(schema.field(node["Column"]).type):
        return pc.field(node["Column"])
    column, *others = node["Function"]["input"]
    name, function = column["Column"], node["Function"]["function"]
    if function.get("StringExpr") == "StartsWith":
        return _prefixed(name, _value(others[0], schema.field(name).type).as_py())
    return _boolean(name, function["Boolean"], others, schema)


def _boolean(name: str, kind: Any, others: list[Any], schema: pa.Schema) -> pc.Expression:
    if kind == "IsNull":
        return pc.field(name).is_null()
    if kind == "IsNotNull":
        return pc.field(name).is_valid()
    if "IsBetween" in kind:
        low, high = _CLOSED[kind["IsBetween"]["closed"]]
        above = _compared(name, low, others[0], schema)
        return above & _compared(name, high, others[1], schema)
    if kind["IsIn"]["nulls_equal"]:
        raise ValueError(name)
    wanted = schema.field(name).type
    if pa.types.is_floating(wanted):  # NaN is equal to NaN for Polars alone
        raise ValueError(name)
    values = _literal(others[0]).item().drop_nulls().to_arrow().cast(wanted)
    return pc.field(name).isin(values)


def _compared(name: str, operator: str, value: Any, schema: pa.Schema) -> pc.Expression:
    return _COMPARISONS[operator](pc.field(name), _value(value, schema.field(name).type))


def _prefixed(name: str, prefix: str) -> pc.Expression:
    """Return the range of the texts that have a prefix, by which segments are pruned."""
    last = ord(prefix[-1]) + 1
    lower = pc.field(name) >= prefix
    if 0xD800 <= last < 0xE000 or last > 0x10FFFF:  # no characters
        return lower
    return lower & (pc.field(name) < prefix[:-1] + chr(last))


def _value(node: Any, wanted: pa.DataType) -> pa.Scalar:
    """Return a literal in the type of its column. Raises: one of `_UNKNOWN`."""
    given = _literal(node).to_arrow()
    of_text = [kind in _TEXTS for kind in (given.type, wanted)]
    cast = given.cast(wanted)
    if pa.types.is_nested(wanted) or len({*of_text}) > 1 or cast.cast(given.type) != given:
        raise ValueError(node)
    (value,) = cast
    return value


def _literal(node: Any) -> pl.Series:
    if "Literal" not in node:
        raise ValueError(node)
    for given, kinds in node["Literal"].items():
        for kind, value in kinds.items() if isinstance(kinds, dict) else ():
            # Polars' own reader of JSON loses the last bit.
            # against float-read-by-polars
            if (given, kind) in _FLOATS and isinstance(value, float):
                return pl.Series([value], dtype=_FLOATS[given, kind])
    expression = pl.Expr.deserialize(json.dumps(node).encode(), format="json")
    return pl.select(expression).to_series()
