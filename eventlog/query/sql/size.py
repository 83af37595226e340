"""The size of the Arrow expression of a SQL predicate, computed before it is built.

Some operators repeat their operands, so 64 KiB of text could become gigabytes. The size is
therefore computed from sqlglot's tree.
"""

from __future__ import annotations

from typing import Any

from eventlog.errors import InvalidInput

MAX_COPIES = 1_000  # the most copies of an operand that nested operators may make
MAX_PARTS = 200_000  # the most parts of the Arrow expression

# How often the left and the right operand occur in the expression of an operator.
_LEFT = {"mod": 2, "between": 2, "nullsafeeq": 2, "nullsafeneq": 2}
_LEFT |= dict.fromkeys(("year", "month", "day", "hour"), 3)
_RIGHT = {"mod": 7, "div": 3, "nullsafeeq": 2, "nullsafeneq": 2, "extract": 3}
_PARTS = {"mod": 10, "div": 5}  # the parts of the operator itself; others have one


def check_size(tree: Any) -> None:
    """Check the size of the Arrow expression of a sqlglot tree.

    Raises:
        InvalidInput: operators that repeat their operands are nested so that it is too large.
    """
    # By node: its copies due to nesting alone, and due to nesting and lists of values. A node comes
    # after its parent, so one pass is enough.
    counts: dict[int, tuple[int, int]] = {}
    size = 0
    for node in tree.walk(bfs=True):
        above = node.parent
        copies, all_copies = counts.get(id(above), (1, 1))
        if id(above) in counts:
            times = _times_repeated(node, above)
            copies, all_copies = copies * times, all_copies * times * _listed(node, above)
        counts[id(node)] = copies, all_copies
        size += all_copies * _PARTS.get(node.key, 1)
        if copies > MAX_COPIES or size > MAX_PARTS:
            raise InvalidInput(
                "the predicate nests too many of %, /, IN, BETWEEN, IS DISTINCT FROM and parts of "
                "times, each of which repeats an operand: use them only on columns and simple terms"
            )


def _times_repeated(node: Any, above: Any) -> int:
    """Return how often an operand occurs in the expression of the operator above it."""
    return (_LEFT if node.arg_key == "this" else _RIGHT).get(above.key, 1)


def _listed(node: Any, above: Any) -> int:
    """Return how often the IN above repeats a term: once per value; a column is not repeated."""
    if above.key != "in" or node.arg_key != "this" or type(bare(node)).__name__ == "Column":
        return 1
    return max(1, len(above.args.get("expressions") or ()))


def bare(node: Any) -> Any:
    """Return the node inside any parentheses."""
    while type(node).__name__ == "Paren":
        node = node.this
    return node
