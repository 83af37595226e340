"""Conversion between Spark's types and the table's.

Imports eventlog and pyspark (extra `spark`).
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
)

from eventlog.errors import InvalidInput

# PySpark 4.2 takes the zone; earlier ones always use UTC.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a DataFrame's schema in Arrow, with times in UTC and every column nullable.

    Raises:
        InvalidInput: a column's type has no Arrow equivalent; the message names the column.
    """
    return pa.schema([pa.field(field.name, _arrow(field)) for field in schema.fields])


def to_spark(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a table's columns, all of them nullable."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return from_arrow_schema(nullable, prefer_timestamp_ntz=True)


def declared(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of every batch for a declared schema."""
    return pa.schema(
        [pa.field(f.name, to_arrow_type(f.dataType, **_IN_UTC), f.nullable) for f in schema.fields]
    )


def _arrow(field: StructField) -> pa.DataType:
    try:
        supported = _supported(field.dataType)
        arrow = to_arrow_type(field.dataType, **_IN_UTC) if supported else pa.null()
    except (PySparkException, TypeError, ValueError, AssertionError) as error:
        raise InvalidInput(
            f"column {field.name!r} has type {field.dataType.simpleString()}, which has no Arrow "
            f"equivalent ({error}): cast it to a type that tables support"
        ) from None
    if not supported:
        raise InvalidInput(
            f"column {field.name!r} has type {field.dataType.simpleString()}, which tables do not "
            "support: cast it to a string, or to a number with the unit in its name"
        )
    return arrow


def _supported(kind: DataType) -> bool:
    """Return whether tables support a type.

    Variants and geometries are refused: as Arrow structs they would lose their type.
    """
    if isinstance(kind, ArrayType):
        return _supported(kind.elementType)
    if isinstance(kind, MapType):
        return _supported(kind.keyType) and _supported(kind.valueType)
    if isinstance(kind, StructType):
        return all(_supported(f.dataType) for f in kind.fields)
    if not isinstance(kind, AtomicType | NullType):
        return False
    return not pa.types.is_nested(to_arrow_type(kind, **_IN_UTC))
