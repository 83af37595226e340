"""Changes of a schema as a user asks for them, by names. Each returns the schema that follows.

No I/O. A column is a name; a field inside of a column is a list of names, from the column to the
field, with `element`, `key` and `value` for those of lists and maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET

from eventlog import arguments
from eventlog.arguments import shown
from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import (
    InnerField,
    all_fields,
    arrow_type,
    inner_fields,
    stored_type,
    with_fields,
)
from eventlog.model.columns.defaults import encode_default
from eventlog.model.columns.evolution import check_successor, is_widening, successor
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import arrow_columns, check_field_name, list_names
from eventlog.model.schema_text import type_text

Path = str | Sequence[str]
_DEFAULTS = ("initial", "write")


def add_fields(
    schema: Schema,
    fields: Iterable[pa.Field],
    defaults: Mapping[str, Any] | None = None,
    within: Path = (),
) -> Schema:
    """Return the schema with new columns after the others, or new fields of a struct.

    It is the same schema if it has all of them already, of the same types: a call can be repeated.

    Args:
        schema: the table's.
        fields: the new columns; they must be nullable.
        defaults: by name, the value of rows that exist and of rows to come that lack the column; or
            a mapping with `initial` for the former and `write` for the latter.
        within: the struct that gets the fields; empty: they are columns.

    Raises:
        InvalidInput: a field exists, is not nullable, or has a type or default that is not
            possible.
    """
    given, where = dict(arguments.mapping(defaults, "defaults")), path_names(within)
    wanted = [*fields]
    if not wanted:
        raise InvalidInput("name the columns to add")
    listed = _new_fields(schema, wanted, where)
    if not where:
        _check_defaults(schema, wanted, given)
    if not listed:
        return schema
    added = arrow_columns(listed)
    for column in added:
        if not column.nullable:
            raise InvalidInput(
                f"new column {column.name!r} must be nullable: older segments do not have it"
            )
    if unknown := given.keys() - {field.name for field in wanted}:
        raise InvalidInput(
            f"defaults name columns that are not added: {', '.join(sorted(unknown))}"
        )
    if where:
        if given:
            raise InvalidInput("fields of a struct have no default but null")
        new = [InnerField(0, column.name, column.type) for column in added]
        return _with_struct(schema, where, lambda old: [*old, *new])
    with_defaults = (_with_default(column, given.get(column.name)) for column in added)
    return _checked(schema, [*schema.columns, *with_defaults])


def drop_fields(schema: Schema, names: Iterable[Path]) -> Schema:
    """Return the schema without some columns or fields.

    Raises:
        InvalidInput: one does not exist, is the last of its struct, or an element, key or value.
    """
    wanted = [_named(one) for one in names]
    if not wanted:
        raise InvalidInput("there are no columns to drop")
    columns = schema.columns
    for path in wanted:
        if len(path) == 1:
            number = column_of(schema, path[0]).id
            columns = tuple(column for column in columns if column.id != number)
        else:
            rest = msgspec.structs.replace(schema, columns=columns)
            columns = _struct_columns(rest, path[:-1], lambda old, p=path: _without(old, p))  # type: ignore[misc]
    if not columns:
        raise InvalidInput("a table needs at least one column, its event time")
    return _checked(schema, columns)


def rename_field(schema: Schema, old: Path, new: str) -> Schema:
    """Return the schema with another name of a column or field.

    Raises:
        InvalidInput: it does not exist, or there is another one of that name.
    """
    path = _named(old)
    arrow_columns([pa.field(new, pa.int8())])  # checks the name
    check_field_name(new, "a column")
    if len(path) > 1:

        def renamed(fields: Sequence[InnerField]) -> list[InnerField]:
            _one_of(fields, path)
            return [f._replace(name=new) if f.name == path[-1] else f for f in fields]

        return _with_struct(schema, path[:-1], renamed)
    number = column_of(schema, path[0]).id
    changed = [
        msgspec.structs.replace(column, name=new) if column.id == number else column
        for column in schema.columns
    ]
    return _checked(schema, changed)


def widen_field(schema: Schema, name: Path, wanted: pa.DataType) -> Schema:
    """Return the schema with a wider type of a column or field; the same if it has the type.

    Raises:
        InvalidInput: it does not exist, or a value of its type may be none of the other one.
    """
    path = _named(name)
    column = column_of(schema, path[0])
    kind = stored_type(wanted, path[-1])

    def widened(stored: ColumnType, rest: Sequence[str]) -> ColumnType:
        if rest:
            fields = inner_fields(stored)
            _one_of(fields, path, rest[0])
            return with_fields(
                stored,
                [
                    f._replace(type=widened(f.type, rest[1:])) if f.name == rest[0] else f
                    for f in fields
                ],
            )
        if stored == kind:  # as after a call that is repeated
            return kind
        if not is_widening(stored, kind):
            raise InvalidInput(
                f"{path_text(path)} cannot change type from {type_text(stored)} to "
                f"{type_text(kind)}: a type can become a wider one (int8 to int16, int32 and "
                "int64; float32 to float64; a decimal of more digits and the same scale; date to a "
                "timestamp without a zone)"
            )
        return kind

    changed = msgspec.structs.replace(column, type=widened(column.type, path[1:]))
    return _checked(schema, [changed if c.id == column.id else c for c in schema.columns])


def reorder_fields(schema: Schema, names: Iterable[str], within: Path = ()) -> Schema:
    """Return the schema with some columns, or fields of a struct, first and in this order.

    Raises:
        InvalidInput: one does not exist, or is named twice.
    """
    order, where = [*names], path_names(within)
    if len({*order}) < len(order):
        raise InvalidInput("the order names a column twice")
    if where:

        def reordered(fields: Sequence[InnerField]) -> list[InnerField]:
            for name in order:
                _one_of(fields, [*where, name])
            first = [next(f for f in fields if f.name == name) for name in order]
            return [*first, *(f for f in fields if f.name not in order)]

        return _with_struct(schema, where, reordered)
    leading = [column_of(schema, name) for name in order]
    return _checked(schema, [*leading, *(c for c in schema.columns if c not in leading)])


def relax_fields(schema: Schema, names: Iterable[str]) -> Schema:
    """Return the schema in which some columns may be null.

    Raises:
        InvalidInput: one does not exist.
    """
    numbers = {column_of(schema, name).id for name in names}
    changed = [
        msgspec.structs.replace(column, nullable=True) if column.id in numbers else column
        for column in schema.columns
    ]
    return _checked(schema, changed)


def evolved_for(schema: Schema, incoming: Iterable[pa.Schema]) -> Schema:
    """Return the schema that has the columns and fields of rows, in types that hold their values.

    Columns that it lacks are added, as nullable, and types are widened. It is returned as it is if
    it has all of them. Types that are not wider stay, and are refused where the rows are checked.

    Args:
        schema: the table's.
        incoming: the columns of rows, one schema for each part of them.

    Raises:
        InvalidInput: a name or a type is not possible.
    """
    columns = schema.columns
    for rows in incoming:
        columns = _with_those_of(columns, rows)
    return _checked(schema, columns)


def path_names(path: Path) -> list[str]:
    """Return a path as a list of names.

    Raises:
        InvalidInput: it is not a name, or a list of names.
    """
    if isinstance(path, str):
        return [path]
    if not isinstance(path, list | tuple) or not all(isinstance(name, str) for name in path):
        raise InvalidInput(f"a column is a name, and a field a list of names, not {shown(path)}")
    return [*path]


def _named(path: Path) -> list[str]:
    """Return a path that names something as a list of names."""
    if not (names := path_names(path)):
        raise InvalidInput("a column is a name, and a field a list of names: this list is empty")
    return names


def path_text(path: Sequence[str]) -> str:
    """Return what a path names, for a message."""
    if len(path) == 1:
        return f"column {path[0]!r}"
    return f"field {'.'.join(path[1:])!r} of column {path[0]!r}"


def column_of(schema: Schema, name: str) -> Column:
    """Return a column by its name, whose capitals do not matter.

    Raises:
        InvalidInput: there is none.
    """
    for column in schema.columns:
        if column.name.lower() == name.lower():
            return column
    raise InvalidInput(f"no column {shown(name)}; columns: {list_names(schema)}")


def _new_fields(schema: Schema, fields: list[pa.Field], where: list[str]) -> list[pa.Field]:
    """Return the fields that a table does not have; others must have the type that they have."""
    known = _known_types(schema, where)
    for field in fields:
        kind = known.get(field.name)
        if kind is not None and arrow_type(kind) != arrow_type(stored_type(field.type, field.name)):
            raise InvalidInput(
                f"{path_text([*where, field.name])} exists, with type {type_text(kind)}: it cannot "
                "be added with another one"
            )
    return [field for field in fields if field.name not in known]


def _known_types(schema: Schema, where: list[str]) -> dict[str, ColumnType]:
    """Return the types of the columns, or of the fields of the struct at a path, by name."""
    if not where:
        return {column.name: column.type for column in schema.columns}
    stored = column_of(schema, where[0]).type
    for name in where[1:]:
        fields = inner_fields(stored)
        _one_of(fields, where, name)
        stored = next(field.type for field in fields if field.name == name)
    is_struct = isinstance(stored, dict) and "struct" in stored
    return {field.name: field.type for field in inner_fields(stored)} if is_struct else {}


def _check_defaults(schema: Schema, fields: list[pa.Field], given: Mapping[str, Any]) -> None:
    """Check that fields which are columns already are given no other default than they have."""
    names = {field.name for field in fields} & given.keys()
    for column in schema.columns:
        if column.name not in names or given[column.name] is None:
            continue
        plain = msgspec.structs.replace(column, initial=UNSET, write=UNSET)
        if _with_default(plain, given[column.name]) != column:
            raise InvalidInput(
                f"column {column.name!r} exists, and the default of a column does not change: "
                "leave it out of the defaults"
            )


def _with_default(column: Column, given: Any) -> Column:
    if given is None:
        return column
    both = given if isinstance(given, Mapping) else dict.fromkeys(_DEFAULTS, given)
    if unknown := both.keys() - {*_DEFAULTS}:
        raise InvalidInput(f"a default has `initial` and `write`, not {', '.join(sorted(unknown))}")
    encoded = {n: encode_default(column, value) for n, value in both.items() if value is not None}
    return msgspec.structs.replace(column, **encoded)


def _with_those_of(columns: Sequence[Column], incoming: pa.Schema) -> tuple[Column, ...]:
    """Return columns in types that hold the values of rows, and then the others of these."""
    known = {column.name.lower() for column in columns}
    wanted = {field.name.lower(): field for field in incoming}
    united = []
    for column in columns:
        field = wanted.get(column.name.lower())
        kind = column.type if field is None else _united(column.type, field.type, column.name)
        united.append(msgspec.structs.replace(column, type=kind))
    new = [f.with_nullable(True) for f in incoming if f.name.lower() not in known]
    return (*united, *(arrow_columns(new) if new else ()))


def _checked(schema: Schema, columns: Sequence[Column]) -> Schema:
    if tuple(columns) == schema.columns:
        return schema
    _check_unlike([column.name for column in columns], "column")
    for column in columns:
        for kind in (column.type, *(field.type for field in all_fields(column.type))):
            names = [field.name for field in inner_fields(kind)]
            _check_unlike(names, f"in column {column.name!r} a field")
    new = successor(schema, columns)
    if problem := check_successor(schema, new):
        raise InvalidInput(problem)
    return new


def _check_unlike(names: list[str], what: str) -> None:
    """Check that names differ by more than capitals, as Unicode of this release has them."""
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise InvalidInput(
            f"{what} {twice[-1]!r} occurs twice, perhaps in other capitals: capitals alone do not "
            "tell columns apart. Rename one"
        )


def _with_struct(
    schema: Schema,
    path: Sequence[str],
    change: Callable[[Sequence[InnerField]], Sequence[InnerField]],
) -> Schema:
    return _checked(schema, _struct_columns(schema, path, change))


def _struct_columns(
    schema: Schema,
    path: Sequence[str],
    change: Callable[[Sequence[InnerField]], Sequence[InnerField]],
) -> tuple[Column, ...]:
    """Return the columns with other fields of the struct at a path."""
    column = column_of(schema, path[0])

    def changed(stored: ColumnType, rest: Sequence[str]) -> ColumnType:
        fields = inner_fields(stored)
        if rest:
            _one_of(fields, path, rest[0])
            inner = [
                f._replace(type=changed(f.type, rest[1:])) if f.name == rest[0] else f
                for f in fields
            ]
        elif isinstance(stored, dict) and "struct" in stored:
            inner = [*change(fields)]
        else:
            raise InvalidInput(f"{path_text(path)} is a {type_text(stored)}, and no struct")
        return with_fields(stored, inner)

    new = msgspec.structs.replace(column, type=changed(column.type, path[1:]))
    return tuple(new if c.id == column.id else c for c in schema.columns)


def _without(fields: Sequence[InnerField], path: Sequence[str]) -> list[InnerField]:
    _one_of(fields, path)
    left = [field for field in fields if field.name != path[-1]]
    if not left:
        raise InvalidInput(
            f"{path_text(path)} is the last one of its struct: drop {path_text(path[:-1])}"
        )
    return left


def _one_of(fields: Sequence[InnerField], path: Sequence[str], name: str | None = None) -> None:
    wanted = path[-1] if name is None else name
    if wanted not in [field.name for field in fields]:
        names = ", ".join(field.name for field in fields) or "no fields"
        raise InvalidInput(f"there is no {path_text(path)}: it has {names}")


def _united(stored: ColumnType, arrow: pa.DataType, name: str) -> ColumnType:
    """Return a type that also holds values of an Arrow type; the type itself if none does."""
    kind = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    if pa.types.is_null(kind):
        return stored
    other = stored_type(kind, name)
    if isinstance(stored, str) or isinstance(other, str):
        return other if is_widening(stored, other) else stored
    if [*stored] != [*other]:
        return stored
    if "map" in stored:
        key, value = inner_fields(stored)
        joined = _united(value.type, kind.item_type, name)
        return with_fields(stored, [key, value._replace(type=joined)])
    if "list" in stored:
        (element,) = inner_fields(stored)
        joined = _united(element.type, kind.value_type, name)
        return with_fields(stored, [element._replace(type=joined)])
    known, given = inner_fields(stored), {field.name: field.type for field in kind}
    joined_fields = [
        f._replace(type=_united(f.type, given[f.name], name)) if f.name in given else f
        for f in known
    ]
    names = {field.name for field in known}
    new = [InnerField(0, f.name, f.type) for f in inner_fields(other) if f.name not in names]
    return with_fields(stored, [*joined_fields, *new])
