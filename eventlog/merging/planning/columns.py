"""Joins the schemas of two logs that have diverged.

No I/O. Columns are matched by id: both logs give a column that they add one id.
"""

from __future__ import annotations

import msgspec

from eventlog.model.entries import Column, Schema, Segment
from eventlog.model.schema_text import type_text


def join_columns(theirs: Schema, ours: Schema) -> Schema | str:
    """Return the target's schema with the columns of the source; `ours` itself if it has them all.

    Args:
        theirs: the source's schema.
        ours: the target's schema.

    Returns:
        The next schema of the target, or a sentence about the column that does not fit.
    """
    known = {column.id: column for column in ours.columns}
    names = {column.name.lower(): column for column in ours.columns}
    changed: dict[int, Column] = {}
    new: list[Column] = []
    for column in theirs.columns:
        same = known.get(column.id)
        named = names.get(column.name.lower())
        if named is not None and named.id != column.id:  # against one-name-of-two-columns
            return (
                f"column {column.name!r} with id {column.id}, where column {named.name!r} of the "
                f"target has id {named.id}: rename one of them"
            )
        if same is None:
            new.append(column)
        elif (same.name, same.type) != (column.name, column.type):
            return (
                f"column {column.name!r} of type {type_text(column.type)}, where the target has "
                f"{same.name!r} of type {type_text(same.type)}"
            )
        elif column.nullable and not same.nullable:
            changed[same.id] = msgspec.structs.replace(same, nullable=True)
    if not new and not changed:
        return ours
    columns = (*(changed.get(column.id, column) for column in ours.columns), *new)
    return Schema(ours.id + 1, columns, ours.retired)


def translated(entry: Segment, ours: Schema) -> Segment:
    """Return an entry of the source with the id of the target's schema, which has its columns."""
    return msgspec.structs.replace(entry, schema=ours.id)
