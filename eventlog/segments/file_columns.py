"""The columns of a segment's file as those of the table: found by id, in the table's types.

Names, order and nesting are those of the version that is read. A column that the file lacks has its
initial default (FORMAT.md R7.10).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from msgspec import UnsetType

from eventlog.errors import DataLoss
from eventlog.format.conversion import field_id, file_fields, leaf_count, match_columns
from eventlog.keyed.rule import OP, VERSION
from eventlog.model.columns.column_types import InnerField, arrow_type, inner_fields
from eventlog.model.columns.defaults import decode_default
from eventlog.model.columns.ids import OF_LOGS
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.segments.batches import has_text, without_columns

_OF_LOGS = (Column(OF_LOGS[OP], OP, "string"), Column(OF_LOGS[VERSION], VERSION, "int64"))


class FileColumns:
    """The columns of one file.

    Args:
        parquet: the Parquet schema in the footer.
        schema: the table's columns at the version that is read.
        keyed: whether the file is one of a keyed table, and may have columns of logs.

    Attributes:
        stored: the schema of the file in Arrow.
        places: by the name of a column, its place in the file.

    Raises:
        DataLoss: a column is there twice, lacks a field id, or has a type that is not permitted.
        pa.ArrowException: Arrow does not read the schema of the file.
    """

    def __init__(self, parquet: Any, schema: Schema, *, keyed: bool) -> None:
        self.stored = parquet.to_arrow_schema()
        more = _OF_LOGS if keyed else ()
        self.places = match_columns(parquet, self.stored, (*schema.columns, *more))
        self._columns = {column.name: column for column in schema.columns}

    def check_present(self, needed: Iterable[str]) -> None:
        """Check that the file has these columns.

        Raises:
            DataLoss: it lacks one.
        """
        lacking = sorted({*needed} - self.places.keys())
        if lacking:
            raise DataLoss(f"the object lacks column {lacking[0]!r}")

    def places_of(self, names: Iterable[str]) -> list[int]:
        """Return the places of the columns of these names that the file has, ascending."""
        return sorted(self.places[name] for name in {*names} & self.places.keys())

    def leaves(self, names: Iterable[str]) -> list[int]:
        """Return the indexes of the Parquet columns of these columns, ascending."""
        wanted = {*self.places_of(names)}
        indexes: list[int] = []
        at = 0
        for place, field in enumerate(self.stored):
            count = leaf_count(field.type)
            if place in wanted:
                indexes.extend(range(at, at + count))
            at += count
        return indexes

    def same_columns(self, names: Iterable[str]) -> bool:
        """Return whether columns have these names, and their types, in the file, too.

        A column that the file lacks is the same if it is null in all rows, and the file has no
        other column of its name.
        """
        return all(map(self._is_same, names))

    def _is_same(self, name: str) -> bool:
        place, column = self.places.get(name), self._columns.get(name)
        if place is None:
            has_nulls = column is None or isinstance(column.initial, UnsetType)
            return has_nulls and name not in self.stored.names
        field = self.stored.field(place)
        return column is None or (field.name == name and field.type == arrow_type(column.type))

    def conformed(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return rows with exactly this schema.

        Args:
            rows: the columns of the file that `leaves` returned for all names in `schema`.
            schema: names and types of the table's columns, or of some of them.

        Raises:
            ValueError: a column that is not nullable is missing.
            pa.ArrowException: a value does not become one of its column's type, or has text that is
                no UTF-8.
        """
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if has_text(field.type):
                column.validate(full=True)
        places = self.places_of(schema.names)
        columns = []
        for field in schema:
            place = self.places.get(field.name)
            if place is not None:
                stored = self.stored.field(place).type
                column = rows.column(places.index(place))
                known = self._columns.get(field.name)
                wanted = "" if known is None else known.type
                columns.append(_converted(column, stored, wanted, field.type))
            elif field.nullable:
                columns.append(self._absent(field, rows.num_rows))
            else:
                raise ValueError(f"column {field.name!r} is missing")
        if not columns:
            return pa.Table.from_batches([without_columns(rows.num_rows)])
        return pa.Table.from_arrays(columns, schema=schema)

    def _absent(self, field: pa.Field, rows: int) -> pa.Array:
        """Return the values of a column that the file lacks."""
        column = self._columns.get(field.name)
        if column is None or isinstance(column.initial, UnsetType):
            return pa.nulls(rows, field.type)
        return pa.repeat(decode_default(column, column.initial), rows)


def _converted(
    values: pa.ChunkedArray, stored: pa.DataType, wanted: ColumnType, kind: pa.DataType
) -> pa.ChunkedArray:
    """Return a column in a type of the table.

    Args:
        values: the column.
        stored: its type in the file, with field ids.
        wanted: its type in the table.
        kind: the same as an Arrow type.
    """
    if not _same_fields(stored, wanted):
        return pa.chunked_array([_rebuilt(chunk, stored, wanted) for chunk in values.chunks], kind)
    return values if values.type == kind else values.cast(kind)


def _same_fields(stored: pa.DataType, wanted: ColumnType) -> bool:
    """Return whether structs inside of a type have the same fields, of the same names in order."""
    fields, parts = inner_fields(wanted), file_fields(stored)
    if pa.types.is_struct(stored):
        there = [(field_id(part), part.name) for part in parts]
        if there != [(field.id, field.name) for field in fields]:
            return False
    return all(
        _same_fields(part.type, field.type) for part, field in zip(parts, fields, strict=True)
    )


def _rebuilt(values: pa.Array, stored: pa.DataType, wanted: ColumnType) -> pa.Array:
    """Return values with the fields of the table's type; those that the file lacks are null."""
    kind = arrow_type(wanted)
    fields, parts = inner_fields(wanted), file_fields(stored)
    if not fields:
        return values if values.type == kind else values.cast(kind)
    if pa.types.is_struct(stored):
        places = {field_id(part): place for place, part in enumerate(parts)}
        children = [_field_of(values, places.get(field.id), parts, field) for field in fields]
        return pa.StructArray.from_arrays(
            children, fields=[*kind], mask=values.is_null() if values.null_count else None
        )
    if pa.types.is_map(stored):
        return _rebuilt_map(values, parts, fields, kind)
    (field,), (part,) = fields, parts
    if not pa.types.is_list(stored):
        values = values.cast(pa.list_(values.type.value_field))
    inner = _rebuilt(values.values, part.type, field.type)
    return _nest(values, inner, kind)


def _field_of(
    values: pa.StructArray, place: int | None, parts: list[pa.Field], field: InnerField
) -> pa.Array:
    if place is None:
        return pa.nulls(len(values), arrow_type(field.type))
    return _rebuilt(values.field(place), parts[place].type, field.type)


def _rebuilt_map(
    values: pa.MapArray, parts: list[pa.Field], fields: tuple[InnerField, ...], kind: pa.DataType
) -> pa.Array:
    ends = zip((values.keys, values.items), parts, fields, strict=True)
    pair = [_rebuilt(inner, part.type, field.type) for inner, part, field in ends]
    return _nest(
        values, pa.StructArray.from_arrays(pair, fields=[kind.key_field, kind.item_field]), kind
    )


def _nest(values: pa.Array, inner: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a list or map array with the same places, and other elements."""
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), [validity, offsets], values.null_count, values.offset, [inner]
    )
