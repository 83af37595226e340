"""Adds to a schema the columns that a change of another one added, under their first names. No I/O.

The id of an added column or field follows from the name under which it is added (FORMAT.md R7.11).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET

from eventlog.model.columns.column_types import InnerField, ascii_lower, inner_fields, with_fields
from eventlog.model.columns.evolution import check_successor, needs_ids
from eventlog.model.columns.ids import all_ids
from eventlog.model.columns.uniting import united_schema
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import retired_ids

_Part = TypeVar("_Part", Column, InnerField)


def with_added_columns(now: Schema, old: Schema, new: Schema) -> Schema | None:
    """Return the schema after another one that also has the columns and fields of a change.

    A column that has the name of one that comes gets another one for now.

    Args:
        now: the schema.
        old: the schema before the change.
        new: the schema after it.

    Returns:
        None if the change added nothing that can come to this schema, or nothing that it lacks.
    """
    known = {*all_ids(now), *retired_ids(now)}
    if known.issuperset(all_ids(new)):
        return None
    grown = tuple(_grown(old.columns, new.columns, known))
    base, ours = (
        msgspec.structs.replace(old, columns=columns, checks=UNSET)
        for columns in (old.columns, grown)
    )
    room = msgspec.structs.replace(now, columns=tuple(_room(now.columns, grown)))
    following = united_schema(base, ours, room)
    if isinstance(following, str) or following == room:
        return None
    if needs_ids(now, following):
        following = msgspec.structs.replace(following, by_id=True)
    return None if check_successor(now, following) else following


def _grown(old: Sequence[_Part], new: Sequence[_Part], known: Collection[int]) -> list[_Part]:
    """Return the columns or fields before a change, with those that it adds and that are new."""
    after = {part.id: part for part in new}
    found = [_with_type(part, _grown_type(part, after.get(part.id), known)) for part in old]
    before = {part.id for part in old}
    found += [part for part in new if part.id not in before and part.id not in known]
    return found


def _grown_type(
    old: Column | InnerField, new: Column | InnerField | None, known: Collection[int]
) -> ColumnType:
    fields = inner_fields(old.type)
    if new is None or not fields or not inner_fields(new.type):
        return old.type
    return with_fields(old.type, _grown(fields, inner_fields(new.type), known))


def _room(parts: Sequence[_Part], coming: Sequence[_Part]) -> list[_Part]:
    """Return the columns or fields without the names of those that come beside them."""
    own, inside = {part.id for part in parts}, {part.id: part.type for part in coming}
    taken = {ascii_lower(part.name) for part in coming if part.id not in own}
    found = []
    for part in parts:
        fields, others = inner_fields(part.type), inner_fields(inside.get(part.id, ""))
        kind = with_fields(part.type, _room(fields, others)) if fields and others else part.type
        moved = _with_type(part, kind)
        # against name-of-an-added-column-taken
        if ascii_lower(part.name) in taken:
            moved = _with_name(moved, f"{part.name}_{part.id}")
        found.append(moved)
    return found


def _with_type(part: _Part, kind: ColumnType) -> _Part:
    if isinstance(part, InnerField):
        return part._replace(type=kind)
    return msgspec.structs.replace(part, type=kind)


def _with_name(part: _Part, name: str) -> _Part:
    if isinstance(part, InnerField):
        return part._replace(name=name)
    return msgspec.structs.replace(part, name=name)
