"""Changes of a schema in words, for people: `column 'a' is renamed to 'b'`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType

from eventlog.model.columns.column_types import inner_fields, type_problem
from eventlog.model.columns.defaults import decode_default
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.entries import Check, Column, ColumnType, Schema
from eventlog.model.schema_text import type_text


def schema_changes(old: Schema, new: Schema) -> list[str]:
    """Return what changes from one schema to another one of the same table, one text a change."""
    before = {column.id: column for column in old.columns}
    after = {column.id: column for column in new.columns}
    texts = [f"column {c.name!r} is dropped" for c in old.columns if c.id not in after]
    for column in new.columns:
        known = before.get(column.id)
        if known is None:
            texts.append(f"column {column.name!r} of type {_shown(column)} is added")
        else:
            texts += _column_changes(known, column)
    common = [number for number in before if number in after]
    if common != [number for number in after if number in before]:
        texts.append("columns are reordered")
    return texts + _check_changes(checks_of(old), checks_of(new))


def _check_changes(old: Sequence[Check], new: Sequence[Check]) -> list[str]:
    before, after = ({check.name: check for check in checks} for checks in (old, new))
    texts = [f"check {name!r} is dropped" for name in before if name not in after]
    for name, check in after.items():
        if name not in before:
            texts.append(f"check {name!r} is added: {check.expression}")
        elif before[name] != check:
            texts.append(f"check {name!r} is replaced: {check.expression}")
    return texts


def _shown(column: Column) -> str:
    text = type_text(column.type)
    if isinstance(column.initial, UnsetType):
        return text
    return f"{text} with {decode_default(column, column.initial).as_py()!r} in rows that exist"


def _column_changes(old: Column, new: Column) -> list[str]:
    texts = []
    if old.name != new.name:
        texts.append(f"column {old.name!r} is renamed to {new.name!r}")
    if new.nullable and not old.nullable:
        texts.append(f"column {new.name!r} becomes nullable")
    if old.write != new.write:
        texts.append(f"column {new.name!r} gets another default for rows to come")
    if old.type != new.type and not type_problem(old.type) and not type_problem(new.type):
        texts += _type_changes(old.type, new.type, f"column {new.name!r}", [])
    return texts


def _type_changes(old: ColumnType, new: ColumnType, whole: str, path: list[str]) -> list[str]:
    place = f"field {'.'.join(path)!r} of {whole}" if path else whole
    if isinstance(old, str) or isinstance(new, str) or [*old] != [*new]:
        if old == new:
            return []
        return [f"{place} changes type from {type_text(old)} to {type_text(new)}"]
    before = {field.id: field for field in inner_fields(old)}
    after = {field.id: field for field in inner_fields(new)}
    texts = [
        f"{_inside(path, f.name, whole)} is dropped" for f in before.values() if f.id not in after
    ]
    for field in after.values():
        known = before.get(field.id)
        if known is None:
            texts.append(
                f"{_inside(path, field.name, whole)} of type {type_text(field.type)} is added"
            )
            continue
        if known.name != field.name:
            texts.append(f"{_inside(path, known.name, whole)} is renamed to {field.name!r}")
        texts += _type_changes(known.type, field.type, whole, [*path, field.name])
    common = [number for number in before if number in after]
    if common != [number for number in after if number in before]:
        texts.append(f"the fields of {place} are reordered")
    return texts


def _inside(path: list[str], name: str, whole: str) -> str:
    return f"field {'.'.join([*path, name])!r} of {whole}"
