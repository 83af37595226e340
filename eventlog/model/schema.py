"""Table schemas: columns with stable ids, to and from Arrow (FORMAT.md R7.1, R7.2)."""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable

import msgspec
import pyarrow as pa
from msgspec import UnsetType

from eventlog import arguments, limits
from eventlog.arguments import shown
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.columns.column_types import (
    FIELD_ID,
    TIME_TYPES,
    InnerField,
    all_fields,
    arrow_type,
    inner_fields,
    stored_type,
    type_problem,
    with_fields,
)
from eventlog.model.columns.ids import LAST, all_ids, first_ids, ids_in, with_added_ids
from eventlog.model.entries import Column, ColumnType, Schema

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_MAX_NAME = limits.NAME_CHARACTERS
# Names that readers give to columns beside the table's: a table that has one cannot be read so.
RESERVED = frozenset({"_change", "_version", "_time"})


def from_arrow(schema: pa.Schema) -> Schema:
    """Return the first schema of a table with these Arrow fields.

    The ids of the columns run from 1, and then those of the fields inside of their types.

    Raises:
        InvalidInput: there are no columns, a name is not a valid column name or is reserved, or the
            format does not have a type.
    """
    return Schema(1, first_ids(_columns([(None, field) for field in schema])))


def retired_ids(schema: Schema) -> tuple[int, ...]:
    """Return the ids of columns and fields that were dropped, ascending."""
    return () if isinstance(schema.retired, UnsetType) else schema.retired


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
    order = [*old]
    fields = sorted(wanted, key=lambda f: order.index(f.name) if f.name in old else len(order))
    taken = {*all_ids(schema), *retired_ids(schema)}
    columns = with_added_ids(_columns([(old.get(f.name), f) for f in fields]), taken)
    successor = Schema(schema.id + 1, columns, schema.retired)
    reason = check_successor(schema, successor)
    if reason:
        raise InvalidInput(reason)
    return successor


def check_successor(old: Schema, new: Schema) -> str | None:
    """Return why `new` cannot follow `old`, or None: every segment of `old` must stay readable."""
    if new.id != old.id + 1:
        return f"schema {new.id} does not follow schema {old.id}"
    if new.retired != old.retired:  # against dropped-id-forgotten
        return "its retired ids are not those of dropped columns"
    after = {column.id: column for column in new.columns}
    for column in old.columns:
        kept = after.pop(column.id, None)
        if kept is None or kept.name != column.name:
            return f"column {column.name!r} is missing from the new schema"
        if kept.type != column.type:
            return f"column {column.name!r} cannot change its type"
        if column.nullable and not kept.nullable:
            return f"column {column.name!r} cannot become required: older segments may hold nulls"
    for column in after.values():
        if not column.nullable:
            return f"new column {column.name!r} must be nullable: older segments do not have it"
    return _form_problem(new) or _id_problem(old, new)


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


def first_problems(schema: Schema) -> list[str]:
    """Return the breaches of FORMAT.md R7.2 in the first schema of a log: no fold judges it."""
    problems = [] if schema.id == 1 else [f"the first schema has id {schema.id}, not 1"]
    types = [
        f"the first schema has a column {shown(column.name)}: {problem}"
        for column in schema.columns
        if (problem := type_problem(column.type))
    ]
    if types:  # there are no ids to look at inside of such a type
        return [*problems, *types]
    if shared := _shared(schema):
        problems.append(f"the first schema has {shared}")
    if outside := _outside(schema):
        problems.append(f"the first schema has {outside}")
    return problems


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that readers of the table get.

    Raises:
        Corrupt: a type that the format does not have, two columns of one name or one id, or an id
            that no column can have: the first schema of a log is what its writer made it (FORMAT.md
            R7.2).
    """
    fields = [pa.field(c.name, arrow_type(c.type), c.nullable) for c in schema.columns]
    if shared := _shared(schema):
        raise Corrupt(f"the table's schema has {shared}")
    if outside := _outside(schema):  # against ids-that-a-new-column-gets
        raise Corrupt(f"the table's schema has {outside}")
    return pa.schema(fields)


def with_field_ids(rows: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the schema of rows with the ids of columns and fields in its metadata (`FIELD_ID`).

    Parquet's writer stores them. Columns that the table does not have, such as `_op`, get none.

    Args:
        rows: the schema of the rows.
        schema: the table's.
    """
    columns = {column.name: column for column in schema.columns}
    fields = []
    for field in rows:
        if column := columns.get(field.name):
            kind, metadata = arrow_type(column.type, ids=True), {FIELD_ID: str(column.id)}
            field = pa.field(field.name, kind, field.nullable, metadata)  # noqa: PLW2901
        fields.append(field)
    return pa.schema(fields)


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


def _columns(fields: list[tuple[Column | None, pa.Field]]) -> tuple[Column, ...]:
    """Return the columns of a schema; the ids of new ones, and of their fields, are 0.

    Args:
        fields: the Arrow field of each column, and the column as it is now; None: it is new.
    """
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
        if old is None and field.name.lower() in RESERVED:
            raise InvalidInput(
                f"{field.name!r} cannot be the name of a column: the changes of a table have a "
                f"column {field.name.lower()!r} of their own. Rename it"
            )
        kind = stored_type(field.type, field.name)  # bounds the depth of the next check
        _check_fields(field.type, field.name)
        if problem := type_problem(kind):
            raise InvalidInput(f"column {field.name!r} has type {field.type}: {problem}")
        if old is not None and arrow_type(old.type) == arrow_type(kind):
            kind = old.type
        columns.append(Column(0 if old is None else old.id, field.name, kind, field.nullable))
    if not columns:
        raise InvalidInput("a table needs at least one column, its event time")
    return tuple(columns)


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
    for column in schema.columns:
        if problem := type_problem(column.type):
            return f"column {column.name!r}: {problem}"
    return _shared(schema) or _outside(schema)


def _shared(schema: Schema) -> str | None:
    """Return what two columns or fields have in common that none may; None: all differ.

    No id is there twice or retired, and no name is there twice among columns or in a struct.
    """
    numbers, retired = all_ids(schema), retired_ids(schema)
    if len({*numbers}) < len(numbers):
        return "two columns of one id"
    if not {*retired}.isdisjoint(numbers):
        return "a column with an id that is retired"
    if _name_twice([column.name for column in schema.columns]):
        return "two columns of one name"
    for column in schema.columns:
        for kind in (column.type, *(field.type for field in all_fields(column.type))):
            if _name_twice([field.name for field in inner_fields(kind)]):
                return f"two fields of one name in column {column.name!r}"
    return None


def _name_twice(names: list[str]) -> bool:
    return len({_ascii_lower(name) for name in names}) < len(names)


def _without_new_ids(column: Column, known: Collection[int]) -> Column:
    """Return a column with 0 for its id, and those of its fields, unless they are known."""

    def of(number: int) -> int:
        return number if number in known else 0

    def stripped(stored: ColumnType) -> ColumnType:
        fields = [InnerField(of(f.id), f.name, stripped(f.type)) for f in inner_fields(stored)]
        return with_fields(stored, fields) if fields else stored

    return msgspec.structs.replace(column, id=of(column.id), type=stripped(column.type))


def _outside(schema: Schema) -> str | None:
    """Return which column or field has an id that none can have; None: no one."""
    for number in all_ids(schema):
        if not 1 <= number <= LAST:
            return f"a column or field with id {number}, which is not 1 to {LAST}"
    return None


def _ascii_lower(name: str) -> str:
    """Return a name with `a` to `z` for `A` to `Z`: the same in every language and release (R7.2).

    Writers refuse more: names that are equal in the lower case of their release of Unicode.
    """
    return name.translate(_ASCII_LOWER)
