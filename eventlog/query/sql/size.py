"""How large the Arrow expression of a SQL predicate becomes: some operators name operands twice.

Pure layer. A text of 64 KiB could become an expression of gigabytes, so its size is counted in
sqlglot's tree before anything is built.
"""

from __future__ import annotations

from typing import Any

from eventlog.errors import InvalidInput

MAX_COPIES = 1_000  # of an operand by operators that are nested in each other
MAX_PARTS = 200_000  # of the Arrow expression

# How often the left and the right operand occur in what an operator becomes.
_LEFT = {"mod": 2, "between": 2, "nullsafeeq": 2, "nullsafeneq": 2}
_LEFT |= dict.fromkeys(("year", "month", "day", "hour"), 3)
_RIGHT = {"mod": 7, "div": 3, "nullsafeeq": 2, "nullsafeneq": 2, "extract": 3}
_PARTS = {"mod": 10, "div": 5}  # of the operator itself; one of the others


def check_size(tree: Any) -> None:
    """Bound the expression that comes out, in which some operators name an operand several times.

    Raises:
        InvalidInput: nested in each other they would make it too large.
    """
    # A node comes after the one above it, so that each is looked at once. Of each: how often it
    # occurs by nesting, and how often also by lists of values.
    found: dict[int, tuple[int, int]] = {}
    size = 0
    for node in tree.walk(bfs=True):
        above = node.parent
        copies, all_copies = found.get(id(above), (1, 1))
        if id(above) in found:
            times = _times_named(node, above)
            copies, all_copies = copies * times, all_copies * times * _listed(node, above)
        found[id(node)] = copies, all_copies
        size += all_copies * _PARTS.get(node.key, 1)
        if copies > MAX_COPIES or size > MAX_PARTS:
            raise InvalidInput(
                "the predicate nests too many of %, /, IN, BETWEEN, IS DISTINCT FROM and parts of "
                "times, each of which names an operand several times: compare columns and simple "
                "terms by them"
            )


def _times_named(node: Any, above: Any) -> int:
    """Return how often an operand occurs in what the operator above it becomes."""
    return (_LEFT if node.arg_key == "this" else _RIGHT).get(above.key, 1)


def _listed(node: Any, above: Any) -> int:
    """Return with how many values a term is compared by the IN above it; a column is looked up."""
    if above.key != "in" or node.arg_key != "this" or type(bare(node)).__name__ == "Column":
        return 1
    return max(1, len(above.args.get("expressions") or ()))


def bare(node: Any) -> Any:
    """Return what stands in parentheses."""
    while type(node).__name__ == "Paren":
        node = node.this
    return node
