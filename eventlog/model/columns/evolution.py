"""Which schema may follow another one: every segment must stay readable, by field ids.

No I/O. Columns, and the fields inside of lists, maps and structs, may be added, dropped, renamed,
reordered, made nullable and widened (FORMAT.md R7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec import UnsetType

from eventlog.model.columns.column_types import InnerField, inner_fields, type_problem, with_fields
from eventlog.model.columns.defaults import default_problem
from eventlog.model.columns.ids import all_ids, ids_in, with_added_ids
from eventlog.model.columns.named_checks import successor_check_problem
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import form_problem, retired_ids
from eventlog.model.schema_text import type_text

_INTEGERS = ("int8", "int16", "int32", "int64")
_FLOATS = ("float32", "float64")
_DAYS = ("date", "timestamp_ntz")


def check_successor(old: Schema, new: Schema) -> str | None:
    """Return why `new` cannot follow `old`, or None: every segment of `old` must stay readable."""
    if new.id != old.id + 1:
        return f"schema {new.id} does not follow schema {old.id}"
    if problem := form_problem(new):
        return problem
    before, after = {*all_ids(old)}, {*all_ids(new)}
    known = {column.id: column for column in old.columns}
    for column in new.columns:
        problem = _column_problem(known.get(column.id), column, before)
        if problem:
            return f"column {column.name!r} {problem}"
    retired, gone = [*retired_ids(new)], before - after
    if any(a >= b for a, b in pairwise(retired)) or not {*retired} >= {*retired_ids(old), *gone}:
        return "its retired ids lack one of a dropped column"  # against dropped-id-forgotten
    if not isinstance(new.retired, UnsetType) and not retired:
        return "its retired ids are an empty list"
    if isinstance(new.by_id, UnsetType) and needs_ids(old, new):  # against names-still-trusted
        return "older segments have other names, types or defaults, and it has no `by_id`"
    return _id_problem(old, new) or successor_check_problem(old, new)


def needs_ids(old: Schema, new: Schema) -> bool:
    """Return whether only field ids show what segments of `old` have of the columns of `new`.

    Not where columns are added without a default, made nullable, or reordered.
    """
    if not isinstance(old.by_id, UnsetType):
        return True
    after = {column.id: column for column in new.columns}
    kept = all(
        column.id in after
        and (after[column.id].name, after[column.id].type) == (column.name, column.type)
        for column in old.columns
    )
    initial = any(not isinstance(column.initial, UnsetType) for column in new.columns)
    return not kept or initial


def is_widening(old: ColumnType, new: ColumnType) -> bool:
    """Return whether each value of a type that is not nested is one of a wider type, unchanged."""
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return False
    for widths in (_INTEGERS, _FLOATS, _DAYS):
        if old in widths and new in widths:
            return widths.index(old) < widths.index(new)
    if old.startswith("decimal") and new.startswith("decimal"):
        (p, s), (q, t) = _digits(old), _digits(new)
        return p < q and s == t
    return False


def _digits(stored: str) -> tuple[int, int]:
    precision, scale = stored.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _column_problem(old: Column | None, new: Column, before: set[int]) -> str | None:
    """Return why a column cannot follow; None: it can.

    Args:
        old: the column of the same id; None: it is new.
        new: the column.
        before: all ids of the schema before.
    """
    for encoded in (new.initial, new.write):
        if not isinstance(encoded, UnsetType) and (problem := default_problem(new.type, encoded)):
            return f"has a default that {problem}"  # against default-of-another-type
    if old is None:
        if not new.nullable:
            return "is new and must be nullable: older segments do not have it"
        if not before.isdisjoint(ids_in(new)):  # against field-moved-elsewhere
            return "has the id of another column or field"
        return None
    if old.nullable and not new.nullable:
        return "cannot become required: older segments may hold nulls"
    if new.initial != old.initial:  # against rows-that-exist-changed
        return "cannot get another value for rows that exist"
    if type_problem(old.type):
        return None if new.type == old.type else "has a type that cannot change"
    return type_change_problem(old.type, new.type, before)


def type_change_problem(old: ColumnType, new: ColumnType, before: set[int]) -> str | None:
    """Return why a type cannot become another one, or None.

    Args:
        old: the type.
        new: the other one, valid.
        before: all ids of the schema before.
    """
    if old == new or is_widening(old, new):
        return None
    refused = f"cannot change type from {type_text(old)} to {type_text(new)}"
    if isinstance(old, str) or isinstance(new, str) or [*old] != [*new]:
        return refused  # against any-type-becomes-any
    (kind,) = old
    known, fields = {field.id: field for field in inner_fields(old)}, inner_fields(new)
    if kind != "struct" and [*known] != [field.id for field in fields]:
        return refused
    if kind == "map" and inner_fields(old)[0].type != fields[0].type:
        return f"{refused}: the keys of a map stay"  # against keys-of-a-map-change
    for field in fields:
        if field.id in known:
            problem = type_change_problem(known[field.id].type, field.type, before)
        else:
            own = {field.id, *(inner.id for inner in _inside(field.type))}
            problem = None if before.isdisjoint(own) else "has a field with the id of another one"
        if problem:
            return problem
    return None


def _inside(stored: ColumnType) -> list[InnerField]:
    fields = inner_fields(stored)
    return [*fields, *(inner for field in fields for inner in _inside(field.type))]


def _id_problem(old: Schema, new: Schema) -> str | None:
    """Return which added column or field has not the id that it gets; None: there is none."""
    before = {*all_ids(old)}
    taken = {*before, *retired_ids(new)}
    unnumbered = tuple(_without_new_ids(column, before) for column in new.columns)
    for column, expected in zip(new.columns, with_added_ids(unnumbered, taken), strict=True):
        if column != expected:  # against added-column-with-any-id
            wrong, right = next(
                pair
                for pair in zip(ids_in(column), ids_in(expected), strict=True)
                if len({*pair}) > 1
            )
            return f"column {column.name!r} brings id {wrong}, where {right} is the next one"
    return None


def _without_new_ids(column: Column, known: set[int]) -> Column:
    """Return a column with 0 for its id, and those of its fields, unless they are known."""

    def of(number: int) -> int:
        return number if number in known else 0

    def stripped(stored: ColumnType) -> ColumnType:
        fields = [InnerField(of(f.id), f.name, stripped(f.type)) for f in inner_fields(stored)]
        return with_fields(stored, fields) if fields else stored

    return msgspec.structs.replace(column, id=of(column.id), type=stripped(column.type))


def successor(old: Schema, columns: Sequence[Column], more: Sequence[int] = ()) -> Schema:
    """Return the schema after another one that has these columns; id 0 stands for a new one's.

    Args:
        old: the schema before.
        columns: the columns.
        more: ids that are retired besides those of columns and fields that are gone.
    """
    before = {*all_ids(old)}
    kept = {number for column in columns for number in ids_in(column)}
    retired = tuple(sorted({*retired_ids(old), *more, *(before - kept)}))
    numbered = with_added_ids(columns, {*before, *retired})
    new = Schema(old.id + 1, numbered, retired or msgspec.UNSET, old.by_id, old.checks)
    return msgspec.structs.replace(new, by_id=True) if needs_ids(old, new) else new
