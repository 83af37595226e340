"""The schema of a table as Iceberg's: names, types, field ids, defaults, and partition specs.

Columns and the fields inside of them keep their ids, which segments have too (FORMAT.md R7.2,
R7.10): so no name mapping is needed, and a renamed column is another name beside its id. No I/O.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog.model.chunks import DAY_MS, HOUR_MS, TimeChunk, utc
from eventlog.model.columns.column_types import inner_fields
from eventlog.model.columns.defaults import decode_default
from eventlog.model.columns.ids import all_ids
from eventlog.model.entries import Column, ColumnType, Default, Granularity, Schema

PRIMITIVES = {
    "bool": "boolean",
    "int8": "int",  # Iceberg has no shorter one
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
# Names that engines give to columns of their own (Iceberg's reserved field ids).
RESERVED = {
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
}
# Granularity -> id of its partition spec, and of the one field of that spec.
SPECS: dict[Granularity, tuple[int, int]] = {
    "hour": (1, 1000),
    "day": (2, 1001),
    "month": (3, 1002),
    "year": (4, 1003),
}
UNPARTITIONED = 0
LAST_PARTITION_FIELD = 1003
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a time without a zone


def to_iceberg(schema: Schema, format_version: int) -> dict[str, Any]:
    """Return a schema as Iceberg's metadata has it.

    Args:
        schema: one that `schema_problem` has nothing against.
        format_version: of Iceberg: 3 has the defaults of columns.
    """
    fields = []
    for column in schema.columns:
        field: dict[str, Any] = {
            "id": column.id,
            "name": column.name,
            "required": not column.nullable,
            "type": _type(column.type),
        }
        if format_version > 2:
            for name, given in (("initial", column.initial), ("write", column.write)):
                if not isinstance(given, UnsetType):
                    field[f"{name}-default"] = _default(column, given)
        fields.append(field)
    return {"type": "struct", "schema-id": schema.id, "fields": fields}


def schema_problem(schema: Schema, format_version: int) -> str | None:
    """Return why Iceberg cannot say a schema so that every reader agrees, or None.

    Args:
        schema: the schema.
        format_version: of Iceberg, 2 or 3.
    """
    names = Counter(name for c in schema.columns for name in _full_names(c.name, c.type))
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        return (
            f"{twice[0]!r} is the full name of two columns or fields, which Iceberg does not "
            "allow: rename one of them"
        )
    for column in schema.columns:
        if column.name.lower() in RESERVED:
            return f"Iceberg reserves the name {column.name!r}: rename the column"
        if _has_nested_key(column.type):
            return (
                f"column {column.name!r} has a map whose keys are lists, maps or structs, which "
                "few engines read from Iceberg: drop the column, or write its keys as text"
            )
        # against defaults-read-as-nulls
        if column.initial is not UNSET and format_version < 3:
            return (
                f"column {column.name!r} has a default for rows that were written before it, "
                "which Iceberg has from format version 3 on: publish with format version 3"
            )
        if not all(_can_be_said(column, d) for d in (column.initial, column.write)):
            return f"Iceberg has no form for a default of column {column.name!r}: drop the column"
    return None


def widened_times(before: Schema, after: Schema) -> str | None:
    """Return the name of a column, or of a field's column, that was a date and is a timestamp.

    Iceberg has no such promotion in format version 2.

    Args:
        before: a schema that live segments may have been written with.
        after: the schema at the version that is published.
    """
    old = {number: kind for c in before.columns for number, kind in _types(c.id, c.type)}
    for column in after.columns:
        for number, kind in _types(column.id, column.type):
            if kind == "timestamp_ntz" and old.get(number) == "date":
                return column.name
    return None


def has_wall_times(schema: Schema) -> bool:
    """Return whether a column or a field may have been widened from a date."""
    return schema.by_id is True and any(
        kind == "timestamp_ntz" for c in schema.columns for _, kind in _types(c.id, c.type)
    )


def last_column_id(schema: Schema) -> int:
    """Return the greatest id that the schema or one before it gave to a column or field."""
    retired = () if schema.retired is UNSET else schema.retired
    return max((*all_ids(schema), *retired), default=0)


def partition_specs(schema: Schema, time_column: int | None) -> list[dict[str, Any]]:
    """Return the partition specs of a table: one for each size that its time chunks may have.

    A segment lies in one time chunk, so the transform of its time column is one value (FORMAT.md
    section 1.4). The spec without fields is that of the chunk `all`.

    Args:
        schema: the table's.
        time_column: id of its time column; None: it has none, and the chunk `all` only.
    """
    taken = {c.name.lower() for c in schema.columns}
    specs: list[dict[str, Any]] = [{"spec-id": UNPARTITIONED, "fields": []}]
    if time_column is None:
        return specs
    column = next(c for c in schema.columns if c.id == time_column)
    for granularity, (spec_id, field_id) in SPECS.items():
        if granularity == "hour" and column.type == "date":
            continue  # Iceberg has no such transform: `spec_of` gives none either
        name = f"{column.name}_{granularity}"
        while name.lower() in taken:  # Iceberg: no name of a column
            name += "_"
        field = {
            "source-id": time_column,
            "field-id": field_id,
            "name": name,
            "transform": granularity,
        }
        specs.append({"spec-id": spec_id, "fields": [field]})
    return specs


def spec_of(granularity: Granularity, time_type: ColumnType | None) -> int:
    """Return the id of the partition spec of segments whose time chunks have this granularity.

    Args:
        granularity: of the chunks.
        time_type: the type of the time column; None: the table has none.
    """
    if granularity == "all" or (granularity == "hour" and time_type == "date"):
        return UNPARTITIONED
    return SPECS[granularity][0]


def partition_value(chunk: TimeChunk, spec: int) -> int | None:
    """Return the value of a spec's field for the rows of a chunk: units since 1970."""
    if spec == UNPARTITIONED:
        return None
    if spec == SPECS["hour"][0]:
        return chunk.start // HOUR_MS
    if spec == SPECS["day"][0]:
        return chunk.start // DAY_MS
    start = utc(chunk.start)
    if spec == SPECS["month"][0]:
        return (start.year - 1970) * 12 + start.month - 1
    return start.year - 1970


def _type(stored: ColumnType) -> str | dict[str, Any]:
    if isinstance(stored, str):
        found = _DECIMAL.fullmatch(stored)
        return f"decimal({found[1]}, {found[2]})" if found else PRIMITIVES[stored]
    (kind, _), *_ = stored.items()
    fields = inner_fields(stored)
    if kind == "list":
        return {
            "type": "list",
            "element-id": fields[0].id,
            "element": _type(fields[0].type),
            "element-required": False,
        }
    if kind == "map":
        return {
            "type": "map",
            "key-id": fields[0].id,
            "key": _type(fields[0].type),
            "value-id": fields[1].id,
            "value": _type(fields[1].type),
            "value-required": False,
        }
    inner = [{"id": f.id, "name": f.name, "required": False, "type": _type(f.type)} for f in fields]
    return {"type": "struct", "fields": inner}


def _default(column: Column, encoded: Any) -> Any:
    """Return a default in Iceberg's JSON of single values (its spec, appendix D)."""
    scalar, kind = decode_default(column, encoded), str(column.type)
    if kind in {"timestamp", "timestamp_ntz"}:
        text = (_EPOCH + timedelta(microseconds=scalar.value)).isoformat(timespec="microseconds")
        return text + ("+00:00" if kind == "timestamp" else "")
    value = scalar.as_py()
    if kind == "binary":
        return value.hex()
    if kind == "date":
        return value.isoformat()
    return format(value, "f") if pa.types.is_decimal(scalar.type) else value


def _can_be_said(column: Column, encoded: Default | UnsetType) -> bool:
    """Return whether Iceberg's JSON has a form for a default: not infinity, nor the year 10000."""
    if isinstance(encoded, UnsetType):
        return True
    try:
        value = _default(column, encoded)
    except (OverflowError, ValueError):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _full_names(name: str, stored: ColumnType) -> Iterator[str]:
    yield name
    for field in inner_fields(stored):
        for inner in _full_names(field.name, field.type):
            yield f"{name}.{inner}"


def _types(number: int, stored: ColumnType) -> Iterator[tuple[int, ColumnType]]:
    yield number, stored
    for field in inner_fields(stored):
        yield from _types(field.id, field.type)


def _has_nested_key(stored: ColumnType) -> bool:
    fields = inner_fields(stored)
    is_map = isinstance(stored, dict) and "map" in stored
    if is_map and not isinstance(fields[0].type, str):
        return True
    return any(_has_nested_key(field.type) for field in fields)
