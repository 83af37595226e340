"""Which ids columns and the fields of nested types get: the same in every copy of a table.

Segments are copied byte for byte between logs, and their columns are found by id. So two logs of a
table that both add a column must give it one id without asking each other (FORMAT.md R7.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from eventlog.model.columns.column_types import (
    InnerField,
    all_fields,
    inner_fields,
    type_problem,
    with_fields,
)
from eventlog.model.entries import Column, ColumnType, Schema

TOP = 0  # the parent of columns
FIRST_ADDED = 2**30  # the least id that an added column or field can get
LAST = 2**31 - 203  # the greatest id of a column of a table
# Those of the columns that segments of keyed tables may have beside the table's. Iceberg keeps the
# ids above these for itself.
OF_LOGS = {"_op": 2**31 - 201, "_version": 2**31 - 202}


def added_id(parent: int, name: str, taken: Collection[int]) -> int:
    """Return the id of a column or field that is added.

    Args:
        parent: the id of the column or field that it lies in; `TOP` for a column.
        name: its name; of elements, keys and values `element`, `key` and `value`.
        taken: the ids that are in use, and those that are retired.
    """
    count = 0
    while True:
        digest = hashlib.sha256(f"{parent}/{name}/{count}".encode()).digest()
        found = FIRST_ADDED + (int.from_bytes(digest[:4], "big") >> 3)
        if found not in taken:
            return found
        count += 1


def first_ids(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of a first schema with their ids: the columns' from 1, then fields'."""
    listed = [*columns]
    following = iter(range(len(listed) + 1, LAST + 1))
    return tuple(
        msgspec.structs.replace(column, id=number, type=_numbered(column.type, following))
        for number, column in enumerate(listed, 1)
    )


def with_added_ids(columns: Iterable[Column], taken: Iterable[int]) -> tuple[Column, ...]:
    """Return columns in which those with id 0, and the fields with id 0, have the ids they get.

    Ids are given in the order of the columns, to a column or field before those inside of it.

    Args:
        columns: the columns of a schema.
        taken: the ids of the schema before it, and those that are retired.
    """
    used = {*taken}

    def give(parent: int, name: str) -> int:
        used.add(given := added_id(parent, name, used))
        return given

    return tuple(
        msgspec.structs.replace(column, id=own, type=_with_ids(column.type, own, give))
        for column in columns
        for own in [column.id or give(TOP, column.name)]
    )


def all_ids(schema: Schema) -> list[int]:
    """Return the ids of a schema's columns and of the fields inside of their types, in order."""
    return [number for column in schema.columns for number in ids_in(column)]


def ids_in(column: Column) -> list[int]:
    """Return the ids of a column and of the fields inside of its type, if the type is valid."""
    if type_problem(column.type):  # only a first schema can have one, and nobody reads its rows
        return [column.id]
    return [column.id, *(field.id for field in all_fields(column.type))]


def _numbered(stored: ColumnType, following: Iterator[int]) -> ColumnType:
    return _with_ids(stored, TOP, lambda _parent, _name: next(following))


def _with_ids(stored: ColumnType, parent: int, give: Callable[[int, str], int]) -> ColumnType:
    fields = []
    for field in inner_fields(stored):
        own = field.id or give(parent, field.name)
        fields.append(InnerField(own, field.name, _with_ids(field.type, own, give)))
    return with_fields(stored, fields) if fields else stored
