"""What a keyed table must hold: a dictionary, fed row by row by the semantics alone.

Shares no code with the package. A row is a dict of all columns; `_op` is `u` or `d`. Rows come in
commit order; each gets its place, and the answer is computed from all rows of a key at once.
"""


def answer(rows, *, key, order=None, kind="last", functions=None, orders=None):
    """The rows that a reader sees, by key.

    Args:
        rows: dicts, in commit order.
        key: names of the key columns.
        order: the order column, or None.
        kind: last, first, partial or aggregate.
        functions: for `aggregate`, by column.
        orders: for `partial`, the order column of a column.
    """
    by_key = {}
    for place, row in enumerate(rows):
        by_key.setdefault(tuple(row[k] for k in key), []).append((place, row))
    seen = {}
    for name, placed in by_key.items():
        merged = _merge(placed, key, order, kind, functions or {}, orders or {})
        if merged is not None:
            seen[name] = merged
    return seen


def _merge(placed, key, order, kind, functions, orders):  # noqa: PLR0917 - as `answer`
    unordered = order is None or kind == "first" or bool(orders)
    barriers = [p for p, row in placed if _deletes(row) and (unordered or row[order] is None)]
    behind = [(p, row) for p, row in placed if p > max(barriers, default=-1)]
    if order is not None:
        behind.sort(key=lambda pair: (pair[1][order], pair[0]))
    live = []
    for pair in behind:  # in the order in which they count
        live = [] if _deletes(pair[1]) else [*live, pair]
    if not live:
        return None
    if kind == "last":
        return _plain(live[-1][1])
    if kind == "first":
        return _plain(live[0][1])
    merged = {}
    for column in live[0][1]:
        if column == "_op":
            continue
        own = orders.get(column)
        known = [(p, row) for p, row in live if row[column] is not None]
        if own is not None:
            known = [(p, row) for p, row in known if row[own] is not None]
            known.sort(key=lambda pair: (pair[1][own], pair[0]))
        values = [row[column] for _, row in known]
        function = "last" if column in key else functions.get(column, "last")
        merged[column] = _reduced(function, values)
    return merged


def _deletes(row):
    return row.get("_op") == "d"


def _plain(row):
    return {name: value for name, value in row.items() if name != "_op"}


def _reduced(function, values):
    if not values:
        return None
    match function:
        case "last":
            return values[-1]
        case "first":
            return values[0]
        case "min":
            return min(_numbers(values))
        case "max":
            return max(_numbers(values))
    return sum(values)  # sum; count, whose rows have a 1 each


def _numbers(values):
    """The values that bounds are of: without NaNs where there is a number, and one zero."""
    if not isinstance(values[0], float):
        return values
    return [value + 0.0 for value in values if value == value] or values  # noqa: PLR0124 - NaN
