"""Two changes of one schema as one: both, where they commute.

No I/O. Used where two writers changed a table at once, and where two logs of a table are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType

from eventlog.model.columns.column_types import InnerField, inner_fields, with_fields
from eventlog.model.columns.evolution import check_successor, is_widening, successor
from eventlog.model.columns.ids import all_ids, ids_in
from eventlog.model.columns.named_checks import checks_of, united_checks, with_checks
from eventlog.model.columns.words import schema_changes
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import retired_ids

_Part = TypeVar("_Part", Column, InnerField)


class _Apart(Exception):
    """Two changes exclude each other."""


def united_schema(base: Schema, ours: Schema, theirs: Schema) -> Schema | str:
    """Return the schema after `theirs` that also has what `ours` changed since `base`.

    Args:
        base: the schema that both started from.
        ours: after one change of it.
        theirs: after other changes of it.

    Returns:
        `theirs` itself if it has all of that, or a sentence that names both changes.
    """
    columns = united_columns(base, ours, theirs)
    checks = united_checks(base, ours, theirs)
    if columns is None or isinstance(checks, str):
        return _apart(base, ours, theirs)
    known = {*all_ids(theirs), *retired_ids(theirs)}
    renumbered = [_renumbered(column, {*all_ids(base)}, known) for column in columns]
    gone = {*all_ids(base)} - {*all_ids(ours)}
    if (tuple(columns), tuple(checks)) == (theirs.columns, checks_of(theirs)):
        return theirs
    new = successor(theirs, renumbered, sorted({*retired_ids(ours), *gone} - _live(renumbered)))
    new = with_checks(new, checks)
    if not isinstance(ours.by_id, UnsetType):
        new = msgspec.structs.replace(new, by_id=True)
    problem = check_successor(theirs, new)
    return _apart(base, ours, theirs) if problem else new


def united_columns(base: Schema, ours: Schema, theirs: Schema) -> list[Column] | None:
    """Return the columns after two changes of a schema, with their ids; None if they conflict.

    Args:
        base: the schema that both started from.
        ours: after one change of it.
        theirs: after other changes of it.
    """
    try:
        return _parts(base.columns, ours.columns, theirs.columns, _column)
    except _Apart:
        return None


def _live(columns: Sequence[Column]) -> set[int]:
    return {number for column in columns for number in ids_in(column)}


def _apart(base: Schema, ours: Schema, theirs: Schema) -> str:
    mine, other = ("; ".join(schema_changes(base, one)) for one in (ours, theirs))
    return f"{mine}; but meanwhile {other}"


def _renumbered(column: Column, base: set[int], known: set[int]) -> Column:
    """Return a column without the ids that `ours` gave and `theirs` does not have."""

    def of(number: int) -> int:
        return number if number in base or number in known else 0

    def inner(stored: ColumnType) -> ColumnType:
        fields = [InnerField(of(f.id), f.name, inner(f.type)) for f in inner_fields(stored)]
        return with_fields(stored, fields) if fields else stored

    return msgspec.structs.replace(column, id=of(column.id), type=inner(column.type))


def _parts(
    base: Sequence[_Part],
    ours: Sequence[_Part],
    theirs: Sequence[_Part],
    join: Callable[[_Part | None, _Part, _Part], _Part],
) -> list[_Part]:
    """Return the columns, or the fields of a type, that both changes lead to."""
    of_base: dict[int, _Part] = {part.id: part for part in base}
    of_ours: dict[int, _Part] = {part.id: part for part in ours}
    of_theirs: dict[int, _Part] = {part.id: part for part in theirs}
    found: dict[int, _Part] = {}
    for number, part in of_theirs.items():
        if number in of_ours:
            found[number] = join(of_base.get(number), of_ours[number], part)
        elif number not in of_base:
            found[number] = part
        elif part != of_base[number]:
            raise _Apart  # we drop it, and they change it
    for number, part in of_ours.items():
        if number in of_theirs:
            continue
        if number not in of_base:
            found[number] = part
        elif part != of_base[number]:
            raise _Apart  # they drop it, and we change it
    order = _order([*of_base], [*of_ours], [*of_theirs])
    return [found[number] for number in order if number in found]


def _order(base: list[int], ours: list[int], theirs: list[int]) -> list[int]:
    """Return the order of one side, if the other one kept that of before; new ones come last."""
    common = {*base} & {*ours} & {*theirs}
    kept = [[n for n in side if n in common] for side in (base, ours, theirs)]
    if kept[1] == kept[0] or kept[1] == kept[2]:
        first, second = theirs, ours
    elif kept[2] == kept[0]:
        first, second = ours, theirs
    else:
        raise _Apart
    return [*first, *(n for n in second if n not in first)]


def _column(base: Column | None, ours: Column, theirs: Column) -> Column:
    if base is None:  # both added it
        same = (ours.name, ours.type, ours.initial) == (theirs.name, theirs.type, theirs.initial)
        if not same:  # against one-id-of-two-types
            raise _Apart
        base = ours
    return Column(
        theirs.id,
        _either(base.name, ours.name, theirs.name),
        _type(base.type, ours.type, theirs.type),
        ours.nullable or theirs.nullable,
        theirs.initial,
        _either(base.write, ours.write, theirs.write),
    )


def _field(base: InnerField | None, ours: InnerField, theirs: InnerField) -> InnerField:
    known = ours if base is None else base
    if base is None and ours.type != theirs.type:
        raise _Apart
    name = _either(known.name, ours.name, theirs.name)
    return InnerField(theirs.id, name, _type(known.type, ours.type, theirs.type))


def _type(base: ColumnType, ours: ColumnType, theirs: ColumnType) -> ColumnType:
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    if is_widening(ours, theirs):
        return theirs
    if is_widening(theirs, ours):
        return ours
    if any(isinstance(one, str) for one in (base, ours, theirs)):
        raise _Apart
    fields = _parts(inner_fields(base), inner_fields(ours), inner_fields(theirs), _field)
    return with_fields(theirs, fields)


def _either(base: Any, ours: Any, theirs: Any) -> Any:
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    raise _Apart
