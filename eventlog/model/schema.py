"""Table schemas: columns with stable ids, to and from Arrow.

The format has the types that Parquet, Spark, DuckDB and Polars share. Arrow's other forms of them
are normalised; any other type is refused, with advice what to cast it to (FORMAT.md R7.1).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eventlog import arguments, limits
from eventlog.arguments import shown
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.entries import Column, ColumnType, Schema

_PRIMITIVES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _PRIMITIVES.items()}
_NORMALISED: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(0|[1-9]\d?)\)", re.ASCII)
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_MAX_DEPTH = limits.TYPE_DEPTH
_MAX_NAME = limits.NAME_CHARACTERS
_TOO_DEEP = f"it is nested too deeply: at most {_MAX_DEPTH} levels of lists, maps and structs"
# Names that readers give to columns beside the table's: a table that has one cannot be read so.
RESERVED = frozenset({"_change", "_version", "_time"})
TIME_TYPES = ("timestamp", "timestamp_ntz", "date")


def from_arrow(schema: pa.Schema) -> Schema:
    """Return the first schema of a table with these Arrow fields; ids run from 1.

    Raises:
        InvalidInput: there are no columns, a name is not a valid column name or is reserved, or the
            format does not have a type.
    """
    return _build(1, [(None, field) for field in schema], last_column_id=0)


def extend(schema: Schema, wanted: pa.Schema) -> Schema:
    """Return the successor of `schema` that also has the new columns of `wanted`.

    Columns keep their order and ids. New columns must be nullable, and come last. A required column
    may become nullable.

    Raises:
        Corrupt: two columns of `schema` have one name or one id.
        InvalidInput: a column is missing from `wanted`, has another type, or is new and not
            nullable, or has a reserved name.
    """
    to_arrow(schema)
    wanted = arguments.schema(wanted)
    old = {column.name: column for column in schema.columns}
    missing = [name for name in old if name not in wanted.names]
    if missing:
        raise InvalidInput(f"columns cannot be removed from a table: {', '.join(missing)}")
    fields = sorted(wanted, key=lambda f: old[f.name].id if f.name in old else 2**62)
    successor = _build(schema.id + 1, [(old.get(f.name), f) for f in fields], schema.last_column_id)
    reason = check_successor(schema, successor)
    if reason:
        raise InvalidInput(reason)
    return successor


def check_successor(old: Schema, new: Schema) -> str | None:
    """Return why `new` cannot follow `old`, or None: every segment of `old` must stay readable."""
    if new.id != old.id + 1:
        return f"schema {new.id} does not follow schema {old.id}"
    after = {column.id: column for column in new.columns}
    for column in old.columns:
        kept = after.pop(column.id, None)
        if kept is None or kept.name != column.name:
            return f"column {column.name!r} is missing from the new schema"
        if kept.type != column.type:
            return f"column {column.name!r} cannot change type from {column.type} to {kept.type}"
        if column.nullable and not kept.nullable:
            return f"column {column.name!r} cannot become required: older segments may hold nulls"
    for column in after.values():
        if column.id <= old.last_column_id or column.id > new.last_column_id:
            return f"column id {column.id} of {column.name!r} is not new"
        if not column.nullable:
            return f"new column {column.name!r} must be nullable: older segments do not have it"
    if new.last_column_id < old.last_column_id:
        return "column ids would be reused"
    return _form_problem(new)


def first_problems(schema: Schema) -> list[str]:
    """Return the breaches of FORMAT.md R7.2 in the first schema of a log: no fold judges it."""
    problems = [] if schema.id == 1 else [f"the first schema has id {schema.id}, not 1"]
    if shared := _shared(schema):
        problems.append(f"the first schema has two columns of one {shared}")
    if outside := _outside(schema):
        problems.append(f"the first schema has {outside}")
    problems += [
        f"the first schema has a column {shown(column.name)}: {problem}"
        for column in schema.columns
        if (problem := type_problem(column.type))
    ]
    return problems


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that readers of the table get.

    Raises:
        Corrupt: a type that the format does not have, two columns of one name or one id, or an id
            that no column can have: the first schema of a log is what its writer made it (FORMAT.md
            R7.2).
    """
    shared = _shared(schema)
    if shared:
        raise Corrupt(f"the table's schema has two columns of one {shared}")
    if outside := _outside(schema):  # against ids-that-a-new-column-gets
        raise Corrupt(f"the table's schema has {outside}")
    return pa.schema([pa.field(c.name, arrow_type(c.type), c.nullable) for c in schema.columns])


def arrow_type(stored: ColumnType, depth: int = 0) -> pa.DataType:
    """Return the Arrow type of a stored column type.

    Raises:
        Corrupt: it is not one of FORMAT.md R7.1.
    """
    if isinstance(stored, str):
        if stored in _PRIMITIVES:
            return _PRIMITIVES[stored]
        match = _DECIMAL.fullmatch(stored)
        if match and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
            return pa.decimal128(int(match[1]), int(match[2]))
    elif isinstance(stored, dict) and len(stored) == 1:
        if depth == _MAX_DEPTH:
            raise Corrupt(_TOO_DEEP)
        (kind, inner), *_ = stored.items()
        if kind == "list" and isinstance(inner, str | dict):
            return pa.list_(arrow_type(inner, depth + 1))
        if kind == "map" and isinstance(inner, list) and len(inner) == 2:
            return pa.map_(arrow_type(inner[0], depth + 1), arrow_type(inner[1], depth + 1))
        if kind == "struct" and isinstance(inner, list) and inner:
            return pa.struct([_struct_field(part, depth + 1) for part in inner])
    raise Corrupt(f"{str(stored)[:80]!r} is not a column type of the format")


def stored_type(arrow: pa.DataType, name: str, depth: int = 0) -> ColumnType:
    """Return the stored form of an Arrow type, normalised.

    Raises:
        InvalidInput: the format has no such type; the message names column `name` and a type to
            cast it to.
    """
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"column {name!r}: {_TOO_DEEP}")
    arrow = _NORMALISED.get(arrow, arrow)
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_dictionary(arrow):
        return stored_type(arrow.value_type, name, depth)
    deeper = depth + 1
    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    ):
        return {"list": stored_type(arrow.value_type, name, deeper)}
    if pa.types.is_map(arrow):
        pair = (arrow.key_type, arrow.item_type)
        return {"map": [stored_type(part, name, deeper) for part in pair]}
    if pa.types.is_struct(arrow) and arrow.num_fields:
        fields = ({"name": f.name, "type": stored_type(f.type, name, deeper)} for f in arrow)
        return {"struct": [*fields]}
    raise InvalidInput(
        f"column {name!r} has type {arrow}, which tables do not support: {_advice(arrow)}"
    )


def type_problem(stored: ColumnType) -> str | None:
    """Return why a stored type cannot be in a table, or None."""
    try:
        arrow_type(stored)
    except Corrupt as error:
        return error.message
    return None


def check_time_column(schema: Schema, time_column: str) -> Column:
    """Return the event-time column.

    Raises:
        InvalidInput: there is no such column, or it is neither a timestamp nor a date.
    """
    for column in schema.columns:
        if isinstance(time_column, str) and column.name == time_column:
            if column.type not in TIME_TYPES:
                raise InvalidInput(
                    f"time column {time_column!r} has type {column.type}: "
                    "cast it to a timestamp or a date"
                )
            return column
    raise InvalidInput(
        f"no column {shown(time_column)} for the event time; columns: {list_names(schema)}"
    )


def stored_time_column(schema: Schema, time_column: str) -> Column:
    """Return the event-time column of a table that is in the log.

    Raises:
        Corrupt: there is no such column, or it is no time.
    """
    try:
        return check_time_column(schema, time_column)
    except InvalidInput as error:
        raise Corrupt(f"the table's layout and schema do not fit together: {error}") from None


def check_order(schema: Schema, by: Iterable[str], what: str) -> None:
    """Check the columns that rows are to be sorted by.

    Args:
        schema: of the table.
        by: names of columns.
        what: the name of the argument, for messages.

    Raises:
        InvalidInput: a column does not exist, is named twice, or is a list, map or struct, which
            have no order.
    """
    kinds = {column.name: column.type for column in schema.columns}
    seen: set[str] = set()
    for name in by:
        if name not in kinds:
            raise InvalidInput(
                f"{what} names unknown columns: {shown(name)}; columns: {list_names(schema)}"
            )
        if not isinstance(kinds[name], str):
            raise InvalidInput(f"{what} names column {name!r}: nested values have no order")
        if name in seen:
            raise InvalidInput(f"{what} names column {name!r} twice")
        seen.add(name)


def list_names(schema: Schema) -> str:
    """Return the column names for a message."""
    return ", ".join(column.name for column in schema.columns)


def _build(
    schema_id: int, fields: list[tuple[Column | None, pa.Field]], last_column_id: int
) -> Schema:
    seen: set[str] = set()
    columns = []
    for old, field in fields:
        _check_name(field.name, "a column")
        if field.name.lower() in seen:
            raise InvalidInput(
                f"column {field.name!r} occurs twice, perhaps in other capitals: capitals alone do "
                "not tell columns apart. Rename one"
            )
        seen.add(field.name.lower())
        if old is None:
            if field.name.lower() in RESERVED:
                raise InvalidInput(
                    f"{field.name!r} cannot be the name of a column: the changes of a table have a "
                    f"column {field.name.lower()!r} of their own. Rename it"
                )
            last_column_id += 1
        kind = stored_type(field.type, field.name)  # bounds the depth of the next check
        _check_fields(field.type, field.name)
        if problem := type_problem(kind):
            raise InvalidInput(f"column {field.name!r} has type {field.type}: {problem}")
        columns.append(
            Column(
                id=last_column_id if old is None else old.id,
                name=field.name,
                type=kind,
                nullable=field.nullable,
            )
        )
    if not columns:
        raise InvalidInput("a table needs at least one column, its event time")
    return Schema(id=schema_id, last_column_id=last_column_id, columns=tuple(columns))


def _check_name(name: str, what: str) -> None:
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise InvalidInput(
            f"{name[:80]!r} is not a valid name for {what}: names have 1 to {_MAX_NAME} printable "
            "characters"
        )


def _check_fields(kind: pa.DataType, column: str) -> None:
    """Check the field names of structs, at any depth.

    Raises:
        InvalidInput: a name is not valid, or occurs twice, so that one of the fields would be lost.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for index in range(kind.num_fields):
        _check_fields(kind.field(index).type, column)
    if not pa.types.is_struct(kind):
        return
    field_names = [field.name for field in kind]
    for name in field_names:
        _check_name(name, f"a field of column {column!r}")
    lower = [name.lower() for name in field_names]
    twice = [name for name in field_names if lower.count(name.lower()) > 1]
    if twice:
        raise InvalidInput(
            f"column {column!r}: field {twice[0]!r} of its struct occurs twice, perhaps in other "
            "capitals: capitals alone do not tell fields apart. Rename one"
        )


def _form_problem(schema: Schema) -> str | None:
    """Return why a schema is invalid, whatever schema came before it, or None."""
    if _shared(schema):
        return "a column id or a column name occurs twice"
    for column in schema.columns:
        if problem := type_problem(column.type):
            return f"column {column.name!r}: {problem}"
    return None


def _shared(schema: Schema) -> str | None:
    """Return which of `id` and `name` two columns have in common; None: all columns differ."""
    columns = schema.columns
    if len({column.id for column in columns}) < len(columns):
        return "id"
    if len({_ascii_lower(column.name) for column in columns}) < len(columns):
        return "name"
    return None


def _outside(schema: Schema) -> str | None:
    """Return which column has an id that is not one of those given so far; None: no column."""
    for column in schema.columns:
        if not 1 <= column.id <= schema.last_column_id:
            return (
                f"a column with id {column.id}, which is not 1 to {schema.last_column_id}, the "
                "last column id"
            )
    return None


def _ascii_lower(name: str) -> str:
    """Return a name with `a` to `z` for `A` to `Z`: the same in every language and release (R7.2).

    Writers refuse more: names that are equal in the lower case of their release of Unicode.
    """
    return name.translate(_ASCII_LOWER)


def _struct_field(part: Any, depth: int) -> pa.Field:
    if (
        not isinstance(part, dict)
        or list(part) != ["name", "type"]
        or not isinstance(part["name"], str)
    ):
        raise Corrupt("a struct's field needs exactly a name and a type")
    return pa.field(part["name"], arrow_type(part["type"], depth))


def _advice(arrow: pa.DataType) -> str:
    if pa.types.is_uint64(arrow):
        return "cast it to int64 or decimal(20,0)"
    if pa.types.is_time(arrow) or pa.types.is_duration(arrow) or pa.types.is_interval(arrow):
        return "cast it to int64 (with the unit in its name) or to a timestamp"
    if pa.types.is_fixed_size_binary(arrow):
        return "cast it to binary"
    if pa.types.is_null(arrow):
        return "give it a type, such as string"
    return "cast it to a type that Parquet and Spark share"
