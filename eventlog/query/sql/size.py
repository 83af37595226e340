"""The size of the Arrow expression of a SQL expression, computed before it is built.

Some operators repeat their operands, so 64 KiB of text could become gigabytes. The size is
therefore computed from sqlglot's tree.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from eventlog.errors import InvalidInput

MAX_COPIES = 1_000  # the most copies of an operand that nested operators may make
MAX_PARTS = 400_000  # the most parts of the Arrow expression

# How often the left and the right operand occur in the expression of an operator.
_LEFT = {"mod": 2, "between": 2, "nullsafeeq": 2, "nullsafeneq": 2, "cast": 4, "datetrunc": 3}
_TO_TIMESTAMP = 7  # copies of what is cast to a timestamp
_LEFT |= dict.fromkeys(("year", "month", "day", "hour"), 3)
_RIGHT = {"mod": 6, "nullsafeeq": 2, "nullsafeneq": 2, "extract": 3}
# How often an operand occurs in the expression that says for which rows an operator fails.
_IN_FAILURE = {"add": 3, "sub": 3, "neg": 3, "mul": 2, "cast": 11, "datetrunc": 7}
_IN_FAILURE |= dict.fromkeys(("div", "mod", "abs", "and", "or", "case", "if", "coalesce"), 1)
# The operators that can fail for a row, and those that repeat the failures of their operands.
_CAN_FAIL = {"add", "sub", "mul", "div", "mod", "neg", "abs", "cast", "datetrunc"}
_CONNECTIVES = ("and", "or")
# The parts of the operator itself in a value, and in an expression that says where it fails.
_PARTS = {"mod": 10, "div": 5, "cast": 50, "datetrunc": 20}
_FAILURE_PARTS = dict.fromkeys(("add", "sub", "neg", "mul", "div", "mod", "abs"), 6)
_FAILURE_PARTS |= {"cast": 20, "datetrunc": 20}


@dataclass(frozen=True, slots=True)
class _Copies:
    """How often a node occurs.

    Attributes:
        values: its value, in the value of the whole, due to nesting alone.
        in_failures: its value, in the failures of the whole.
        failures: its failures.
        listed: how often lists repeat each of `values`.
        listed_failures: how often lists repeat each of the others.
    """

    values: int = 1
    in_failures: int = 0
    failures: int = 1
    listed: int = 1
    listed_failures: int = 1


def check_size(tree: Any) -> None:
    """Check the size of the Arrow expression of a sqlglot tree.

    Raises:
        InvalidInput: operators that repeat their operands are nested so that it is too large.
    """
    failing = _can_fail(tree)
    # A node comes after its parent, so one pass is enough.
    counts: dict[int, _Copies] = {}
    repeating: set[int] = set()
    size = 0
    for node in tree.walk(bfs=True):
        copies = counts.get(id(node.parent), _Copies())
        if id(node.parent) in counts:
            copies = _repeated(node, copies, repeating)
        if node.key == "case" or any(id(item) in failing for item in _items(node)):
            repeating.add(id(node))
        if id(node) not in failing:
            copies = replace(copies, failures=0)
        counts[id(node)] = copies
        failures = copies.in_failures + copies.failures
        size += copies.values * copies.listed * _PARTS.get(node.key, 1)
        size += failures * copies.listed_failures * _FAILURE_PARTS.get(node.key, 1)
        if copies.values + failures > MAX_COPIES or size > MAX_PARTS:
            raise InvalidInput(
                "the expression nests too many of %, /, CAST, DATE_TRUNC, IN, BETWEEN, "
                "IS DISTINCT FROM and parts of times, each of which repeats an operand: use them "
                "only on columns and simple terms"
            )


def _can_fail(tree: Any) -> set[int]:
    """Return the ids of the nodes that can fail for a row, or contain one that can."""
    found: set[int] = set()
    for node in tree.walk(bfs=True):
        above = node if node.key in _CAN_FAIL else None
        while above is not None and id(above) not in found:
            found.add(id(above))
            above = above.parent
    return found


def _repeated(node: Any, above: _Copies, repeating: AbstractSet[int]) -> _Copies:
    """Return the copies of a node.

    Args:
        node: of the tree.
        above: the copies of the node above it.
        repeating: the ids of the nodes, that one among them, whose failures repeat an operand.
    """
    parent = node.parent
    times = (_LEFT if node.arg_key == "this" else _RIGHT).get(parent.key, 1)
    if parent.key == "cast" and "TIME" in str(getattr(parent.args["to"].this, "name", "")):
        times = _TO_TIMESTAMP
    in_failure = _IN_FAILURE.get(parent.key, 0)
    failures = above.failures
    if parent.key in _CONNECTIVES:
        if _operator(parent.parent) == parent.key:
            in_failure = 0  # of a chain, whose parts are not nested
        else:
            failures *= 2
    listed = _listed(node, parent)
    return _Copies(
        above.values * times,
        above.in_failures * times + above.failures * in_failure,
        failures,
        above.listed * listed,
        above.listed_failures * (listed if id(parent) in repeating else 1),
    )


def _operator(node: Any) -> str:
    """Return the key of a node, or of the first one above it that is no parenthesis."""
    while node is not None and node.key == "paren":
        node = node.parent
    return "" if node is None else str(node.key)


def _listed(node: Any, above: Any) -> int:
    """Return how often the IN or CASE above repeats a term; a column is not repeated."""
    if node.arg_key != "this" or type(bare(node)).__name__ == "Column":
        return 1
    return max(1, len(_items(above)))


def _items(node: Any) -> list[Any]:
    """Return the values of an IN, or the branches of a CASE; of others, none."""
    items = node.args.get({"in": "expressions", "case": "ifs"}.get(node.key, ""))
    return items if isinstance(items, list) else []


def bare(node: Any) -> Any:
    """Return the node inside any parentheses."""
    while type(node).__name__ == "Paren":
        node = node.this
    return node
