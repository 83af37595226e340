"""Decides which columns the target of a merge gets, and what a choice leaves out. No I/O.

A choice can tell which name, default or order counts. It cannot bring back a column that one log
has dropped, since its id is retired (FORMAT.md R7.2), nor make values of one type those of another
one: there the changes of columns are named that make the merge possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from eventlog.merging.planning.carried import Choice, ColumnChange, MergeConflict
from eventlog.merging.planning.schemas.schema_base import ColumnConflict, SchemaBase
from eventlog.merging.planning.schemas.schema_history import SchemaHistory
from eventlog.merging.planning.schemas.schema_parts import LeftPart, drop_path, path_of
from eventlog.model.columns.column_types import (
    InnerField,
    all_fields,
    ascii_lower,
    inner_fields,
)
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.columns.uniting import united_columns
from eventlog.model.columns.words import schema_changes
from eventlog.model.entries import Column, ColumnType, Schema

_SIDES: tuple[Choice, Choice] = ("source", "target")
_EMPTY: ColumnType = {"struct": []}


def merge_columns(
    source: SchemaHistory, target: SchemaHistory, take: Choice | None
) -> tuple[tuple[Column, ...], tuple[LeftPart, ...]]:
    """Return the columns that both logs lead to, and what a choice leaves out.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
        take: whose form of a column counts where both logs changed it in different ways; None: a
            conflict.

    Raises:
        MergeConflict: there is one, and the choice does not resolve it.
    """
    parts = SchemaBase(source, target, take)
    base = msgspec.structs.replace(target.end, columns=tuple(parts.columns()))
    dropped = [one for one in parts.conflicts if one.dropped_by is not None]
    apart = [one for one in parts.conflicts if one.kind == "types"]
    choices = [side for side in _SIDES if all(one.dropped_by == side for one in dropped)]
    # against column-dropped-that-was-chosen
    if apart or (not choices if take is None else take not in choices):
        rest = [*apart, *(one for one in dropped if one.dropped_by != take)]
        drops = _drops(source, target, [one.number for one in rest])
        raise _conflict(source, target, (), drops)
    if parts.conflicts and take is None:
        drops = _drops(source, target, [one.number for one in dropped])
        raise _conflict(source, target, choices, drops)
    found = united_columns(base, source.end, target.end)
    assert found is not None  # noqa: S101 - the base has one log's form of each part
    # against struct-without-fields
    if emptied := [one.id for column in found for one in _nested(column) if one.type == _EMPTY]:
        raise _conflict(source, target, (), _drops(source, target, emptied))
    # against one-name-of-two-columns
    if renamed := _renamed_apart(source.end, target.end, found):
        raise _conflict(source, target, (), (renamed,))
    return tuple(found), tuple(_left_out(parts.conflicts, take))


def _nested(column: Column) -> Iterable[Column | InnerField]:
    return column, *all_fields(column.type)


def _left_out(conflicts: Iterable[ColumnConflict], take: Choice | None) -> list[LeftPart]:
    """Return what a choice leaves out of the columns."""
    loser: Choice = "source" if take == "target" else "target"
    return [LeftPart(loser, one.what[loser], one.versions[loser]) for one in conflicts]


def _conflict(
    source: SchemaHistory,
    target: SchemaHistory,
    choices: Sequence[Choice] = (),
    changes: Sequence[ColumnChange] = (),
) -> MergeConflict:
    """Return the conflict of two logs whose columns differ.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
        choices: the logs that can be chosen.
        changes: the changes of columns that resolve it together.
    """
    mine, other = (
        "; ".join(schema_changes(log.own[0].old, log.end)) if log.own else ""
        for log in (source, target)
    )
    reason = f"the columns differ: {mine or 'nothing changes'}; but meanwhile "
    return MergeConflict(
        f"{reason}{other or 'nothing changes'}",
        source.steps[-1].version,
        target.own[-1].version if target.own else None,
        choices=choices,
        changes=changes,
    )


def _drops(
    source: SchemaHistory, target: SchemaHistory, numbers: Sequence[int]
) -> list[ColumnChange]:
    """Return the drops of the columns and fields in question, each after those of its checks."""
    ends: dict[Choice, Schema] = {"source": source.end, "target": target.end}
    changes: list[ColumnChange] = []
    for number in numbers:
        for side, schema in ends.items():
            path = drop_path(schema, number, numbers)
            gone = {column.id for column in schema.columns if [column.name] == path}
            readers = [c for c in checks_of(schema) if any(r.id in gone for r in c.columns)]
            changes += [(side, ("uncheck", check.name)) for check in readers]
            changes += [(side, ("drop", _word(path)))] if path else []
    return [*dict.fromkeys(changes)]


def _renamed_apart(theirs: Schema, ours: Schema, columns: Sequence[Column]) -> ColumnChange | None:
    """Return the rename of one of two columns or fields of one name; None if there are none."""
    twins, beside = _twins(columns)
    ends: dict[Choice, Schema] = {"source": theirs, "target": ours}
    names = {*beside, *(ascii_lower(c.name) for schema in ends.values() for c in schema.columns)}
    for side, schema in ends.items():
        for number in twins:
            path = path_of(schema, number)
            if path and ascii_lower(path[-1]) == beside[0]:
                count = 2
                while ascii_lower(f"{path[-1]}_{count}") in names:
                    count += 1
                return side, ("rename", _word(path), f"{path[-1]}_{count}")
    return None


def _twins(parts: Sequence[Column | InnerField]) -> tuple[list[int], list[str]]:
    """Return the ids of columns or fields of one name, and the names beside them, theirs first.

    Both are empty if there are none.
    """
    names = [ascii_lower(part.name) for part in parts]
    for part, name in zip(parts, names, strict=True):
        if names.count(name) > 1:
            return [one.id for one in parts if ascii_lower(one.name) == name], [name, *names]
        twins, beside = _twins(inner_fields(part.type))
        if twins:
            return twins, beside
    return [], []


def _word(path: Sequence[str]) -> str:
    """Return a column or field as `eventlog columns` reads it."""
    is_name = len(path) == 1 and not path[0].lstrip().startswith("[")
    return path[0] if is_name else json.dumps(path, ensure_ascii=False)
