"""Casts incoming rows to the table's schema, or refuses them with a reason.

Values that fit without loss are cast (widening, other forms of the same type, event times as text;
fields that structs lack are null).
Anything else is an `InvalidInput` that names the column, the number of rows and one example, and
nothing is committed. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.chunks import DAY_MS, MAX_MS, MIN_MS
from eventlog.model.columns.edits import path_text
from eventlog.staging.compact_arrays import check_decimals, to_plain_array
from eventlog.staging.incoming.problems import Problem, example_of, first_line, halved
from eventlog.staging.incoming.times import parse_times

_INTEGER_WIDTH = {
    "int8": 8,
    "uint8": 9,
    "int16": 16,
    "uint16": 17,
    "int32": 32,
    "uint32": 33,
    "int64": 64,
}
_SQL_NAMES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "STRING",
    "binary": "BINARY",
    "date32[day]": "DATE",
}
FieldPath = tuple[str, ...]  # the names that lead to a column, or to a field in it
PANDAS = b"pandas"  # the key of pandas's own metadata in a schema


def check_columns(incoming: pa.Schema, wanted: pa.Schema, time_column: str | None) -> None:
    """Check names and types before the first row is read.

    Raises:
        InvalidInput: a column is unknown, missing, or of a type that does not fit.
    """
    if incoming.names == wanted.names and incoming.types == wanted.types and not incoming.metadata:
        return
    given = {field.name: field.type for field in incoming}
    for name in _range_names(incoming):
        if name not in given:
            raise InvalidInput(
                f"{name!r} is the index of a pandas frame and a range, which pandas passes as "
                "metadata only: make it a column with frame.reset_index(), or drop it with "
                "frame.reset_index(drop=True)"
            )
    unknown = list(given.keys() - set(wanted.names))
    if unknown:
        unknown.sort(key=list(given).index)
        raise InvalidInput(
            f"unknown columns: {', '.join(map(repr, unknown))}; the table has "
            f"{', '.join(wanted.names)}. {_advice(unknown, wanted)}"
        )
    if len(given) != len(incoming):
        twice = sorted({name for name in incoming.names if incoming.names.count(name) > 1})
        raise InvalidInput(f"the rows have two columns {', '.join(map(repr, twice))}: rename one")
    for field in wanted:
        kind = given.get(field.name)
        if kind is None:
            if not field.nullable or field.name == time_column:
                raise InvalidInput(f"column {field.name!r} is missing and cannot be null")
            continue
        text_time = field.name == time_column and _is_text(kind)
        problem = None if text_time else misfit(kind, field.type, [field.name])
        if problem is not None:
            raise InvalidInput(problem)


def misfit(kind: pa.DataType, wanted: pa.DataType, path: Sequence[str]) -> str | None:
    """Return why values of a type cannot be cast to the table's type; None if they can.

    Structs may lack fields, which can be null at any depth, and have them in any order.

    Args:
        kind: the type of the values.
        wanted: the table's type.
        path: the names that lead to the values, for the message.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind == wanted or pa.types.is_null(kind):
        return None
    if pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        return _struct_misfit(kind, wanted, path)
    if pa.types.is_list(wanted) and _is_list(kind):
        return misfit(kind.value_type, wanted.value_type, [*path, "element"])
    if pa.types.is_map(wanted) and pa.types.is_map(kind):
        keys = misfit(kind.key_type, wanted.key_type, [*path, "key"])
        return keys or misfit(kind.item_type, wanted.item_type, [*path, "value"])
    if _fits(kind, wanted):
        return None
    how = ""
    if len(path) == 1 and (name := _sql_name(wanted)) is not None:
        quoted = path[0].replace('"', '""')
        how = f', in SQL by CAST("{quoted}" AS {name}), in pyarrow by rows.cast(…)'
    return f"{path_text(path)} has type {kind}, and {wanted} in the table: cast it first{how}"


def _sql_name(kind: pa.DataType) -> str | None:
    """Return the name of a type in the SQL of DuckDB; None for nested ones."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    return _SQL_NAMES.get(str(kind))


def _struct_misfit(kind: pa.DataType, wanted: pa.DataType, path: Sequence[str]) -> str | None:
    """Return why a struct cannot be cast to the table's; None if it can."""
    given, known = {f.name: f.type for f in kind}, {f.name for f in wanted}
    if len(given) < kind.num_fields:
        return f"{path_text(path)} has two fields of one name: rename one"
    unknown = [name for name in given if name not in known]
    if unknown:  # against surplus-field-dropped
        return (
            f"{path_text([*path, unknown[0]])} is unknown; the table has there "
            f"{', '.join(f.name for f in wanted)}. Drop it; or add it to the table first, by "
            "Table.add_columns(…, within=…) or by evolve=True (Spark: option mergeSchema, shell: "
            "--evolve)"
        )
    for field in wanted:
        inner = [*path, field.name]
        if field.name in given and (problem := misfit(given[field.name], field.type, inner)):
            return problem
    return None


def absent_fields(given: pa.Schema, table: pa.Schema) -> list[FieldPath]:
    """Return the fields that structs of rows lack, at any depth, in the order of the table.

    Args:
        given: the columns of the rows.
        table: the table's schema.
    """
    return [
        path
        for field in table
        if field.name in given.names
        for path in _absent(given.field(field.name).type, field.type, (field.name,))
    ]


def left_out(given: pa.Schema, table: pa.Schema) -> list[FieldPath]:
    """Return the columns that rows lack, and the fields that their structs lack.

    Args:
        given: the columns of the rows.
        table: the table's schema.
    """
    columns = [(name,) for name in table.names if name not in given.names]
    return [*columns, *absent_fields(given, table)]  # against replaced-fields-lost


def _absent(kind: pa.DataType, wanted: pa.DataType, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the fields that values of a type lack, as paths that begin with the given one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        given = {field.name: field.type for field in kind}
        for field in wanted:
            inner = (*path, field.name)
            if field.name in given:
                yield from _absent(given[field.name], field.type, inner)
            else:
                yield inner
    elif pa.types.is_list(wanted) and _is_list(kind):
        yield from _absent(kind.value_type, wanted.value_type, (*path, "element"))
    elif pa.types.is_map(wanted) and pa.types.is_map(kind):
        yield from _absent(kind.key_type, wanted.key_type, (*path, "key"))
        yield from _absent(kind.item_type, wanted.item_type, (*path, "value"))


def absent_in(value: Any, kind: pa.DataType, path: FieldPath) -> FieldPath | None:
    """Return the first field that a dict for a struct lacks, at any depth; None if none does.

    Args:
        value: a value of Python. One that does not fit the type lacks nothing.
        kind: the type.
        path: the names that lead to the value.
    """
    inner: Iterable[tuple[Any, pa.DataType, str]] = ()
    if pa.types.is_struct(kind) and isinstance(value, dict):
        lacking = next((field.name for field in kind if field.name not in value), None)
        if lacking is not None:
            return (*path, lacking)
        inner = ((value[field.name], field.type, field.name) for field in kind)
    elif pa.types.is_list(kind) and isinstance(value, list):
        inner = ((item, kind.value_type, "element") for item in value)
    elif pa.types.is_map(kind) and isinstance(value, dict):
        inner = ((item, kind.item_type, "value") for item in value.values())
    found = (absent_in(item, type_, (*path, name)) for item, type_, name in inner)
    return next((each for each in found if each is not None), None)


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of a type can be cast to another one of the table without ambiguity."""
    if _is_text(kind) and pa.types.is_string(wanted):
        return True
    if pa.types.is_timestamp(wanted):
        # Naive times count as UTC; in the other direction an instant would lose its zone.
        return pa.types.is_date(kind) or (
            pa.types.is_timestamp(kind) and (wanted.tz is not None or kind.tz is None)
        )
    if str(wanted) in _INTEGER_WIDTH:
        return _INTEGER_WIDTH.get(str(kind), 99) <= _INTEGER_WIDTH[str(wanted)]
    if pa.types.is_floating(wanted):
        narrower: bool = pa.types.is_floating(kind) and kind.bit_width <= wanted.bit_width
        return narrower or bool(pa.types.is_integer(kind) and kind.bit_width < wanted.bit_width)
    if pa.types.is_decimal(wanted):
        return bool(
            pa.types.is_decimal(kind)
            and kind.scale <= wanted.scale
            and kind.precision - kind.scale <= wanted.precision - wanted.scale
        )
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_large_binary(kind) or kind == pa.binary_view())
    return bool(pa.types.is_date32(wanted) and pa.types.is_date64(kind))


def conform(
    batch: pa.RecordBatch, wanted: pa.Schema, time_column: str | None, *, time_required: bool = True
) -> pa.Table | Problem:
    """Return the batch as a table of exactly the wanted schema, or the first problem in it.

    Args:
        batch: the rows.
        wanted: the schema.
        time_column: name of the event-time column, which the schema need not have; None: the table
            has none.
        time_required: whether each row must have an event time, even if the schema allows null.
    """
    columns = []
    for field in wanted:
        at = batch.schema.get_field_index(field.name)
        values = batch.column(at) if at >= 0 else pa.nulls(batch.num_rows, field.type)
        cast = _cast(values, field, text_time=field.name == time_column and _is_text(values.type))
        if isinstance(cast, Problem):
            return cast
        is_time = time_required and field.name == time_column
        if cast.null_count and (not field.nullable or is_time):
            why = "event times are null" if field.name == time_column else "values are null"
            return Problem(field.name, why, cast.null_count, _example_row(batch, cast))
        columns.append(cast)
    table = pa.Table.from_arrays(columns, schema=wanted)
    if time_column is None or time_column not in wanted.names:
        return table
    return _outside_years(table, time_column) or table


def _cast(values: pa.Array, field: pa.Field, *, text_time: bool) -> pa.Array | Problem:
    try:
        values.validate(
            full=True
        )  # refuses invalid UTF-8, for example, which readers cannot decode
        given = to_plain_array(values)
        check_decimals(given)
    except pa.ArrowException as error:
        return Problem(field.name, "values are damaged", len(values), first_line(error))
    if text_time:
        return parse_times(given, field)
    if given.type == field.type:
        return given
    try:
        return given.cast(field.type)
    except pa.ArrowInvalid as error:
        count, example = 0, first_line(error)
        for part, fits_whole in halved(given, lambda part: _castable(part, field.type) or None):
            if fits_whole is None:
                example = example_of(part) if not count else example
                count += 1
        return Problem(field.name, f"values do not fit {field.type}", count or 1, example)
    except pa.ArrowException as error:
        why = f"values of type {values.type} cannot be cast to {field.type}"
        return Problem(field.name, why, len(values), first_line(error))


def _castable(value: pa.Array, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _outside_years(table: pa.Table, time_column: str) -> Problem | None:
    times = table.column(time_column)
    unit_ms = DAY_MS if pa.types.is_date(times.type) else None
    low, high = (bound // DAY_MS if unit_ms else bound * 1000 for bound in (MIN_MS, MAX_MS))
    ends = pc.min_max(times)
    first, last = ends["min"].value, ends["max"].value  # of Arrow, which knows any year
    if first is None or (low <= first and last < high):
        return None
    units = times.cast(pa.int32()).cast(pa.int64()) if unit_ms else times.cast(pa.int64())
    outside = pc.or_(pc.less(units, low), pc.greater_equal(units, high))
    count = pc.sum(outside).as_py()
    example = f"{units.filter(outside)[0].as_py()} {'days' if unit_ms else 'µs'} since 1970"
    return Problem(time_column, "event times are outside the years 0001 to 9999", count, example)


def _example_row(batch: pa.RecordBatch, values: pa.Array) -> str:
    """Return the first row with a null, as text for a message."""
    row = pc.index(pc.is_null(values), True).as_py()
    columns = enumerate(batch.schema.names[:8])
    examples = {name: example_of(batch.column(at).slice(row, 1))[:40] for at, name in columns}
    return "row " + ", ".join(f"{name}={example}" for name, example in examples.items())


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(kind) for is_list in lists)


def _range_names(incoming: pa.Schema) -> list[str]:
    """Return the names of indexes that pandas stored as metadata instead of columns."""
    try:
        stored = json.loads((incoming.metadata or {}).get(PANDAS, b"{}"))
        indexes = [index for index in stored["index_columns"] if isinstance(index, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [str(index["name"]) for index in indexes if index.get("name") is not None]


def _advice(unknown: list[str], wanted: pa.Schema) -> str:
    """Return what to do about columns that the table lacks."""
    if any(name.startswith("__index_level_") for name in unknown):
        return (
            "That is the index of a pandas frame: drop it with frame.reset_index(drop=True), or "
            "write the file without it, as frame.to_parquet(path, index=False) does"
        )
    if "" in unknown:  # as pandas writes an index to CSV
        return (
            "A column without a name is often the index of a pandas frame: write the file without "
            "it, as frame.to_csv(path, index=False) does"
        )
    spelled = [name for name in wanted.names if name.lower() in map(str.lower, unknown)]
    if spelled:
        return f"In text files capitals count: the table spells it {', '.join(map(repr, spelled))}"
    return (
        "Drop them; or add them to the table first, by Table.add_columns or by evolve=True (Spark: "
        "option mergeSchema, shell: --evolve)"
    )
