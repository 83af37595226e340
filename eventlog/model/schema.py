"""Table schemas: columns with stable ids, to and from Arrow (FORMAT.md R7.1, R7.2)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from msgspec import UnsetType

from eventlog import limits
from eventlog.arguments import shown
from eventlog.cache import Cache
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.columns.column_types import (
    FIELD_ID,
    TIME_TYPES,
    all_fields,
    arrow_type,
    ascii_lower,
    inner_fields,
    stored_type,
    type_problem,
)
from eventlog.model.columns.ids import LAST, OF_LOGS, all_ids, first_ids
from eventlog.model.columns.named_checks import checks_problem
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Column, Granularity, Schema

_MAX_NAME = limits.NAME_CHARACTERS
# Names that readers give to columns beside the table's: a table that has one cannot be read so.
RESERVED = frozenset({"_change", "_version", "_time"})
# Schemas and what `to_arrow` made of them, by the identity of the value, which the entry keeps.
_converted: Cache[int, tuple[Schema, pa.Schema]] = Cache(64)
_with_ids: Cache[int, tuple[Schema, pa.Schema, pa.Schema]] = Cache(64)


def from_arrow(schema: pa.Schema) -> Schema:
    """Return the first schema of a table with these Arrow fields.

    The ids of the columns run from 1, and then those of the fields inside of their types.

    Raises:
        InvalidInput: there are no columns, a name is not a valid column name or is reserved, or the
            format does not have a type.
    """
    return Schema(1, first_ids(arrow_columns(schema)))


def retired_ids(schema: Schema) -> tuple[int, ...]:
    """Return the ids of columns and fields that were dropped, ascending."""
    return () if isinstance(schema.retired, UnsetType) else schema.retired


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
    if wrong := checks_problem(schema):
        problems.append(f"the first schema has {wrong}")
    return problems


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that readers of the table get.

    Raises:
        Corrupt: a type that the format does not have, two columns of one name or one id, or an id
            that no column can have: the first schema of a log is what its writer made it (FORMAT.md
            R7.2).
    """
    # Found by identity: the versions of a log share the value until the schema changes.
    known = _converted.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    made = _to_arrow(schema)
    _converted.put(id(schema), (schema, made))
    return made


def _to_arrow(schema: Schema) -> pa.Schema:
    fields = [pa.field(c.name, arrow_type(c.type), c.nullable) for c in schema.columns]
    if shared := _shared(schema):
        raise Corrupt(f"the table's schema has {shared}")
    if outside := _outside(schema):  # against ids-that-a-new-column-gets
        raise Corrupt(f"the table's schema has {outside}")
    return pa.schema(fields)


def with_field_ids(rows: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the schema of rows with the ids of columns and fields in its metadata (`FIELD_ID`).

    Parquet's writer stores them.

    Args:
        rows: the schema of the rows, with columns of the table, and those of logs (`OF_LOGS`).
        schema: the table's.
    """
    # Appends of one table have the same two schemas again and again.
    known = _with_ids.get(id(schema))
    if known is not None and known[0] is schema and known[1].equals(rows, check_metadata=True):
        return known[2]
    made = _made_with_ids(rows, schema)
    _with_ids.put(id(schema), (schema, rows, made))
    return made


def _made_with_ids(rows: pa.Schema, schema: Schema) -> pa.Schema:
    columns = {column.name: column for column in schema.columns}
    fields = []
    for field in rows:
        if column := columns.get(field.name):
            kind, metadata = arrow_type(column.type, ids=True), {FIELD_ID: str(column.id)}
            field = pa.field(field.name, kind, field.nullable, metadata)  # noqa: PLW2901
        elif number := OF_LOGS.get(field.name):
            field = field.with_metadata({FIELD_ID: str(number)})  # noqa: PLW2901
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


def check_timeless(granularity: Granularity) -> None:
    """Check the granularity of a table without a time column (FORMAT.md R7.14).

    Raises:
        InvalidInput: it is not `all`: nothing would say which chunk a row belongs to.
    """
    if granularity != "all":  # against chunks-without-times
        raise InvalidInput(
            f"a table without a time column has one chunk, of granularity all, and cannot have "
            f"chunks by {granularity}: only a table that is created with a time column can"
        )


def stored_time_column(schema: Schema, layout: NamedLayout) -> Column | None:
    """Return the event-time column of a table that is in the log; None if it has none.

    Raises:
        Corrupt: there is no such column, or it is no time; or the table has none, and chunks that
            are smaller than `all`.
    """
    try:
        if layout.time_column is None:
            check_timeless(layout.granularity)
            return None
        return check_time_column(schema, layout.time_column)
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


def arrow_columns(fields: Iterable[pa.Field]) -> tuple[Column, ...]:
    """Return new columns with these Arrow fields; their ids, and those of their fields, are 0.

    Raises:
        InvalidInput: see `from_arrow`.
    """
    seen: set[str] = set()
    columns = []
    for field in fields:
        check_field_name(field.name, "a column")
        if field.name.lower() in seen:
            raise InvalidInput(
                f"column {field.name!r} occurs twice, perhaps in other capitals: capitals alone do "
                "not tell columns apart. Rename one"
            )
        seen.add(field.name.lower())
        if field.name.lower() in RESERVED:
            raise InvalidInput(
                f"{field.name!r} cannot be the name of a column: the changes of a table have a "
                f"column {field.name.lower()!r} of their own. Rename it"
            )
        kind = stored_type(field.type, field.name)  # bounds the depth of the next check
        _check_fields(field.type, field.name)
        if problem := type_problem(kind):
            raise InvalidInput(f"column {field.name!r} has type {field.type}: {problem}")
        columns.append(Column(0, field.name, kind, field.nullable))
    if not columns:
        raise InvalidInput("a table needs at least one column")
    return tuple(columns)


def check_field_name(name: str, what: str) -> None:
    """Check the name of a column, or of a field of a struct.

    Raises:
        InvalidInput: it is not valid; the message says what it is of.
    """
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
        check_field_name(name, f"a field of column {column!r}")
    lower = [name.lower() for name in field_names]
    twice = [name for name in field_names if lower.count(name.lower()) > 1]
    if twice:
        raise InvalidInput(
            f"column {column!r}: field {twice[0]!r} of its struct occurs twice, perhaps in other "
            "capitals: capitals alone do not tell fields apart. Rename one"
        )


def form_problem(schema: Schema) -> str | None:
    """Return why a schema is invalid, whatever schema came before it, or None."""
    for column in schema.columns:
        if problem := type_problem(column.type):
            return f"column {column.name!r}: {problem}"
    return _shared(schema) or _outside(schema) or checks_problem(schema)


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
    return len({ascii_lower(name) for name in names}) < len(names)


def _outside(schema: Schema) -> str | None:
    """Return which column or field has an id that none can have; None: no one."""
    for number in all_ids(schema):
        if not 1 <= number <= LAST:
            return f"a column or field with id {number}, which is not 1 to {LAST}"
    return None
