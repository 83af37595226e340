"""`replaceWhere`: SQL text that names the time range that an overwrite replaces.

Imports eventlog only. An overwrite of a range drops whole segments, so only a range of event time
at chunk boundaries is accepted; another one is a predicate (`range_within_chunks`). Times without
an offset are UTC, as everywhere in the log.
"""

from __future__ import annotations

from eventlog.errors import InvalidInput
from eventlog.format.frames.entry_columns import to_segments
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import DAY_MS, MAX_MS, MIN_MS, chunk_of, parse_chunk, utc
from eventlog.model.entries import Column
from eventlog.query import predicate, pruning
from eventlog.query.conditions import And, Compare, Condition
from eventlog.query.predicate import SqlPredicate
from eventlog.staging.fitting import follows_data


def parse_replace_where(text: str, snapshot: Snapshot) -> tuple[int, int]:
    """Return the range [start, end) in ms UTC that the expression names.

    Args:
        text: comparisons of the time column with literals, joined by AND: `ts >= '2013-01-01' AND
            ts < '2013-02-01'`.
        snapshot: the table's snapshot, for its schema and granularity.

    Raises:
        InvalidInput: it is not such a range, is empty, or is not at chunk boundaries.
    """
    where = predicate.parse_predicate(text, snapshot.stored_schema)
    time_column = snapshot.layout.time_column
    if time_column is None:
        raise InvalidInput(
            "replaceWhere must be a range of the time column, and the table has none: overwrite "
            "all of it, or delete keys and upsert others"
        )
    if not isinstance(where, SqlPredicate) or not _is_range(where.condition, time_column):
        raise InvalidInput(
            f"replaceWhere must be a range of the time column, such as {time_column} >= "
            f"'2013-01-01' AND {time_column} < '2013-02-01', not {text[:200]!r}"
        )
    column = next(c for c in snapshot.stored_schema.columns if c.name == time_column)
    low, high = _bounds(where.condition, column)
    if low >= high:
        raise InvalidInput(f"replaceWhere names an empty range: {text[:200]!r}")
    check_aligned(low, high, snapshot)
    return low, high


def check_aligned(low: int, high: int, snapshot: Snapshot) -> None:
    """Check that a range [low, high) ms consists of whole chunks, before any row is written.

    Raises:
        InvalidInput: a bound is inside a chunk.
    """
    granularity = snapshot.layout.granularity
    for bound in (low, high):
        if bound < MAX_MS and chunk_of(bound, granularity).start != bound:
            raise InvalidInput(
                f"the range to overwrite must lie at boundaries of {granularity} chunks: a "
                f"bound is inside chunk {chunk_of(bound, granularity).name}"
            )


def range_within_chunks(low: int, high: int, snapshot: Snapshot) -> str | None:
    """Return a range [low, high) ms as a predicate if it is not one of whole chunks, else None.

    Only for tables whose granularity follows their data: chunks that a job overwrites whole today
    may be parts of larger ones tomorrow.
    """
    time_column = snapshot.layout.time_column
    if time_column is None or not follows_data(snapshot):
        return None
    granularity = snapshot.layout.granularity
    live = {parse_chunk(s.chunk) for s in to_segments(snapshot.entries(low, high))}
    chunks = {chunk_of(time, granularity) for time in (low, high - 1)} | live
    if all(low <= chunk.start and chunk.end <= high for chunk in chunks):
        return None
    name = time_column.replace('"', '""')
    ends = ((">=", low, MIN_MS), ("<", high, MAX_MS))
    return " AND ".join(f'"{name}" {op} {_literal(at)}' for op, at, end in ends if at != end)


def _literal(time_ms: int) -> str:
    return f"'{utc(time_ms).isoformat(timespec='milliseconds')}'"


def _is_range(condition: Condition, time_column: str) -> bool:
    if isinstance(condition, And):
        return all(_is_range(part, time_column) for part in condition.parts)
    return (
        isinstance(condition, Compare)
        and condition.column.name == time_column
        and condition.op != "<>"
    )


def _bounds(condition: Condition, column: Column) -> tuple[int, int]:
    """Return the range in ms. A bound between two milliseconds is refused as inside a chunk."""
    low, high = pruning.condition_span(condition, column)
    if low > high:
        return MIN_MS, MIN_MS
    unit = 1 if column.type == "date" else 1000  # to days, or to milliseconds
    if (low > -(2**63) and low % unit) or (high < 2**63 - 1 and (high + 1) % unit):
        raise InvalidInput(
            "the range to overwrite ends inside a chunk: write it as >= the start of a chunk and < "
            "the start of another"
        )
    width = DAY_MS if column.type == "date" else 1
    start, end = low // unit * width, (high + 1) // unit * width
    return max(start, MIN_MS), min(end, MAX_MS)
