"""Columns and fields of a schema, found by their ids. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eventlog.merging.planning.carried import Choice
from eventlog.model.columns.column_types import InnerField, all_fields, inner_fields, type_problem
from eventlog.model.columns.edits import path_text
from eventlog.model.entries import Column, ColumnType, Schema


@dataclass(frozen=True, slots=True)
class LeftPart:
    """What one of two logs made of a part of its schema, and what a choice leaves out.

    Attributes:
        loser: which of the two logs.
        what: the part, for a message.
        versions: the versions in which the log changed it.
    """

    loser: Choice
    what: str
    versions: tuple[int, ...]


def part_of(schema: Schema, number: int) -> Column | InnerField | None:
    """Return the column or field with an id; None if the schema has none."""
    for column in schema.columns:
        if column.id == number:
            return column
        inner = () if type_problem(column.type) else all_fields(column.type)
        for one in inner:
            if one.id == number:
                return one
    return None


def path_of(schema: Schema, number: int) -> list[str]:
    """Return the names that lead to the column or field with an id; none if there is none."""
    for column in schema.columns:
        if column.id == number:
            return [column.name]
        within = [] if type_problem(column.type) else _path_within(column.type, number)
        if within:
            return [column.name, *within]
    return []


def _path_within(stored: ColumnType, number: int) -> list[str]:
    for field in inner_fields(stored):
        within = [] if field.id == number else _path_within(field.type, number)
        if within or field.id == number:
            return [field.name, *within]
    return []


def drop_path(schema: Schema, number: int, beside: Collection[int] = ()) -> list[str]:
    """Return the names that lead to the column or field that can be dropped for an id.

    Elements, keys and values are dropped with what they lie in, and so is the last field of a
    struct.

    Args:
        schema: the schema.
        number: the id of a column or field.
        beside: the ids of fields that are dropped, too.

    Returns:
        No names if the schema has no such id.
    """
    path = path_of(schema, number)
    column = next((one for one in schema.columns if path and one.name == path[0]), None)
    if column is None:
        return []
    kind, found = column.type, 1
    for depth, name in enumerate(path[1:], 2):
        fields = inner_fields(kind)
        if isinstance(kind, dict) and "struct" in kind and any(f.id not in beside for f in fields):
            found = depth
        (kind,) = (field.type for field in fields if field.name == name)
    return path[:found]


def part_text(schemas: Sequence[Schema], number: int) -> str:
    """Return a column or field in words, as the first of some schemas has it that has it at all."""
    return path_text(next(path for schema in schemas if (path := path_of(schema, number))))
