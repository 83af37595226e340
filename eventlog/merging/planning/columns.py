"""Joins the schemas of two logs that have diverged.

No I/O. Columns are matched by name, which never changes; their ids differ between the logs.
"""

from __future__ import annotations

import msgspec

from eventlog.model.entries import Column, ColumnStats, Schema, Segment


def join_columns(theirs: Schema, ours: Schema) -> Schema | str:
    """Return the target's schema with the columns of the source; `ours` itself if it has them all.

    Args:
        theirs: the source's schema.
        ours: the target's schema.

    Returns:
        The next schema of the target, or a sentence about the column that does not fit.
    """
    known = {column.name.lower(): column for column in ours.columns}
    changed: dict[str, Column] = {}
    new: list[Column] = []
    for column in theirs.columns:
        same = known.get(column.name.lower())
        if same is None:
            added = Column(ours.last_column_id + len(new) + 1, column.name, column.type)
            new.append(added)
        elif (same.name, same.type) != (column.name, column.type):
            return (
                f"column {column.name!r} of type {column.type}, where the target has "
                f"{same.name!r} of type {same.type}"
            )
        elif column.nullable and not same.nullable:
            changed[same.name] = msgspec.structs.replace(same, nullable=True)
    if not new and not changed:
        return ours
    columns = (*(changed.get(c.name, c) for c in ours.columns), *new)
    return Schema(ours.id + 1, ours.last_column_id + len(new), columns)


def translated(entry: Segment, theirs: Schema, ours: Schema) -> Segment:
    """Return an entry of the source with the column ids and the schema of the target.

    Args:
        entry: the source's entry.
        theirs: a schema of the source that is not older than the entry.
        ours: the target's schema, which has those columns.
    """
    names = {column.id: column.name for column in theirs.columns}
    ids = {column.name: column.id for column in ours.columns}
    stats = (
        ColumnStats(ids[names[stat.column]], stat.min, stat.max, stat.nulls) for stat in entry.stats
    )
    ordered = tuple(sorted(stats, key=lambda stat: stat.column))
    return msgspec.structs.replace(entry, schema=ours.id, stats=ordered)
