"""`replaceWhere`: SQL text that says which time range an overwrite replaces.

Imports eventlog only. An overwrite drops whole segments, so nothing but a range of event time at
chunk boundaries will do; everything else is refused instead of read loosely. Times without an offset
are UTC, as everywhere in the log.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from eventlog.chunks import DAY_MS, MAX_MS, MIN_MS, chunk_of
from eventlog.errors import InvalidInput
from eventlog.history import to_ms
from eventlog.model import Layout

_MIRRORED = {"gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte", "eq": "eq"}


def parse_replace_where(text: str, layout: Layout, *, dates: bool) -> tuple[int, int]:
    """Return the range [start, end) in ms UTC that the expression names.

    Args:
        text: comparisons of the time column with literals, joined by AND: `ts >= '2013-01-01' AND
            ts < '2013-02-01'`. Of a date column also `=`, `<=`, `>` and BETWEEN, which mean whole days.
        layout: of the table.
        dates: whether the time column is a date.

    Raises:
        InvalidInput: it is no such range, it is empty, or not at chunk boundaries.
    """
    low, high = MIN_MS, MAX_MS
    for kind, bound in _comparisons(text, layout.time_column):
        start, end = _range(kind, _to_ms(bound, text), text, dates=dates)
        low, high = max(low, start), min(high, end)
    if low >= high:
        raise InvalidInput(f"replaceWhere names an empty range: {text[:200]}")
    check_aligned(low, high, layout)
    return low, high


def check_aligned(low: int, high: int, layout: Layout) -> None:
    """Check that a range [low, high) ms consists of whole chunks, before any row is written.

    Raises:
        InvalidInput: a bound lies inside a chunk.
    """
    for bound in (low, high):
        if bound < MAX_MS and chunk_of(bound, layout.granularity).start != bound:
            raise InvalidInput(
                f"the range to overwrite does not lie at boundaries of {layout.granularity} chunks: "
                f"a bound is inside chunk {chunk_of(bound, layout.granularity).name}"
            )


def _comparisons(text: str, column: str) -> list[tuple[str, str]]:
    """Return (kind, literal) for each comparison, the column on the left."""
    import sqlglot  # noqa: PLC0415 - of the extra
    from sqlglot import expressions as sql  # noqa: PLC0415

    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInput(f"replaceWhere cannot be read as SQL: {error}") from None
    found: list[tuple[str, str]] = []
    for node in tree.flatten() if isinstance(tree, sql.And) else [tree]:
        part = node.unnest()
        if isinstance(part, sql.And):  # in brackets
            found += _comparisons(part.sql(dialect="spark"), column)
        elif isinstance(part, sql.Between) and _is_column(part.this, column):
            found.append(("gte", _literal(part.args["low"], text)))
            found.append(("lte", _literal(part.args["high"], text)))
        elif isinstance(part, sql.GT | sql.GTE | sql.LT | sql.LTE | sql.EQ):
            left, right, kind = part.this, part.expression, part.key
            if not _is_column(left, column):
                left, right, kind = right, left, _MIRRORED[kind]
            if not _is_column(left, column):
                raise _not_a_range(text)
            found.append((kind, _literal(right, text)))
        else:
            raise _not_a_range(text)
    return found


def _is_column(node: Any, column: str) -> bool:
    # Spark's own resolution of names: any case.
    return node.key == "column" and node.name.lower() == column.lower() and not node.table


def _literal(node: Any, text: str) -> str:
    """Return the text of '…', DATE '…' or TIMESTAMP '…'."""
    if node.key in ("cast", "trycast", "tsordstodate", "tsordstotimestamp"):
        node = node.this
    if node.key != "literal" or not node.is_string:
        raise _not_a_range(text)
    return str(node.this)


def _to_ms(literal: str, text: str) -> int:
    try:
        if len(literal) <= len("2013-01-01"):
            literal = f"{date.fromisoformat(literal).isoformat()}T00:00:00Z"
        moment = datetime.fromisoformat(literal)
    except ValueError:
        raise InvalidInput(f"{literal[:40]!r} in replaceWhere is not a time: {text[:200]}") from None
    if moment.microsecond % 1000:
        raise InvalidInput(f"replaceWhere has a bound within a millisecond: {text[:200]}")
    return to_ms(literal)


def _range(kind: str, at: int, text: str, *, dates: bool) -> tuple[int, int]:
    if kind == "gte":
        return at, MAX_MS
    if kind == "lt":
        return MIN_MS, at
    if not dates:
        raise InvalidInput(
            f"replaceWhere on a timestamp needs >= and <, which end at a chunk boundary: {text[:200]}"
        )
    if at % DAY_MS:
        raise InvalidInput(f"replaceWhere compares a date with a time of day: {text[:200]}")
    return {
        "gt": (at + DAY_MS, MAX_MS),
        "lte": (MIN_MS, at + DAY_MS),
        "eq": (at, at + DAY_MS),
    }[kind]


def _not_a_range(text: str) -> InvalidInput:
    return InvalidInput(
        "replaceWhere is a range of the table's time column, such as "
        f"ts >= '2013-01-01' AND ts < '2013-02-01', not {text[:200]!r}"
    )
