"""Rows with field ids, as other programs may write them."""

import pyarrow as pa

from eventlog.format.conversion import file_fields
from eventlog.model.columns.column_types import FIELD_ID, inner_fields


def with_ids(rows, schema):
    """The rows with the ids of a table's columns, found by name, whatever their types are.

    Args:
        rows: a table.
        schema: the schema of a table in the log.
    """
    columns = {column.name: column for column in schema.columns}
    fields = [_with_id(field, columns.get(field.name)) for field in rows.schema]
    typed = [c.cast(f.type) for c, f in zip(rows.columns, fields, strict=True)]
    return pa.Table.from_arrays(typed, schema=pa.schema(fields))


def _with_id(field, known):
    if known is None:
        return field
    kind = _numbered(field.type, known.type)
    return pa.field(field.name, kind, field.nullable, {FIELD_ID: str(known.id)})


def _numbered(arrow, stored):
    known = inner_fields(stored)
    if not known or not arrow.num_fields:
        return arrow
    if pa.types.is_struct(arrow):
        by_name = {field.name: field for field in known}
        return pa.struct([_with_id(field, by_name.get(field.name)) for field in arrow])
    parts = [_with_id(*pair) for pair in zip(file_fields(arrow), known, strict=False)]
    if pa.types.is_map(arrow):
        return pa.map_(*parts) if len(parts) > 1 else arrow
    return pa.large_list(parts[0]) if pa.types.is_large_list(arrow) else pa.list_(parts[0])
