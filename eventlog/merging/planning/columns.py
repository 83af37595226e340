"""Joins the schemas of two logs that have diverged.

No I/O. Columns are matched by id: both logs give a column that they add one id.
"""

from __future__ import annotations

import msgspec

from eventlog.model.columns.uniting import united_schema
from eventlog.model.entries import Schema, Segment
from eventlog.model.stats import live_stats


def join_columns(before: Schema, theirs: Schema, ours: Schema) -> Schema | str:
    """Return the target's schema with what the source changed; `ours` itself if it has it all.

    Args:
        before: the source's schema before its change.
        theirs: the source's schema after it.
        ours: the target's schema.

    Returns:
        The next schema of the target, or a sentence about the changes that exclude each other.
    """
    joined = united_schema(before, theirs, ours)
    twice = _same_name(theirs, ours)
    if twice and (isinstance(joined, str) or _same_name(joined, joined)):
        return twice  # against one-name-of-two-columns
    return joined


def _same_name(one: Schema, other: Schema) -> str | None:
    """Return which column has another id in each of two schemas, in any capitals, or None."""
    names = {column.name.lower(): column for column in other.columns}
    for column in one.columns:
        named = names.get(column.name.lower(), column)
        if named.id != column.id:
            return (
                f"column {column.name!r} with id {column.id}, where column {named.name!r} of the "
                f"target has id {named.id}: rename one of them"
            )
    return None


def translated(entry: Segment, ours: Schema) -> Segment:
    """Return an entry of the source with the id of the target's schema, and its columns alone."""
    # against statistics-of-dropped-columns-merged
    return msgspec.structs.replace(entry, schema=ours.id, stats=live_stats(entry.stats, ours))
