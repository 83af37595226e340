"""Delta's schema, protocol and metadata of a version. No I/O.

Sources: Delta's PROTOCOL.md, "Schema Serialization Format", "Table Features".
Every published version has a writer feature that no program knows, so that all writers refuse the
table and readers do not mind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from eventlog.errors import InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.model.columns.column_types import all_fields, inner_fields
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.records import VECTORS_FEATURE
from eventlog.publishing.delta.translation.statistics import statistics_settings
from eventlog.publishing.positions import published_schema

GUARD = "eventlog.readOnly"
_READER_FEATURES = ("deletionVectors", "timestampNtz")
# Other programs must neither make checkpoints nor delete what they call old.
_SETTINGS = {
    "delta.checkpointInterval": "1000000000",
    "delta.enableExpiredLogCleanup": "false",
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": "interval 1000000 days",
}
_TYPES = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}


def check_types(schema: Schema) -> None:
    """Refuse by name the types that a Delta log cannot say, or that no engine was seen to read.

    Raises:
        InvalidInput: there is one.
    """
    for column in schema.columns:
        for stored in _types_in(column):
            if isinstance(stored, dict) and "map" in stored:
                key = inner_fields(stored)[0].type
                if not isinstance(key, str):  # against map-of-untried-keys
                    raise InvalidInput(
                        f"column {column.name!r} has a map whose keys are lists, maps or structs, "
                        "which is not published as Delta: no engine was seen to read it"
                    )


def protocol(snapshot: Snapshot) -> dict[str, Any]:
    """Return the action `protocol` of a version: what its readers must know, and the guard."""
    schema = published_schema(snapshot)
    needs = {
        "deletionVectors": _has_vectors(snapshot),
        "timestampNtz": any("timestamp_ntz" in _types_in(c) for c in schema.columns),
    }
    readers = [feature for feature in _READER_FEATURES if needs[feature]]
    # A required column without the feature `invariants` is refused even by readers of Spark.
    required = ["invariants"] if any(not c.nullable for c in schema.columns) else []
    writers = [*readers, *required, "inCommitTimestamp", GUARD]  # against unguarded-publication
    if not readers:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": writers,
    }


def _has_vectors(snapshot: Snapshot) -> bool:
    return snapshot.merge_rule is not None or VECTORS_FEATURE in snapshot.header.features


def metadata(snapshot: Snapshot) -> dict[str, Any]:
    """Return the action `metaData` of a version; the table's id is its id."""
    table = snapshot.header.table
    settings = statistics_settings(snapshot) | _SETTINGS
    # Daft passes over the protocol, and returns deleted rows unless the settings say it, too.
    if _has_vectors(snapshot):  # against vectors-unsaid-in-settings
        settings["delta.enableDeletionVectors"] = "true"
    return {
        "id": "-".join((table[:8], table[8:12], table[12:16], table[16:20], table[20:])),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(published_schema(snapshot)),
        "partitionColumns": [],
        "configuration": settings,
    }


def schema_string(schema: Schema) -> str:
    """Return a schema in Delta's JSON."""
    fields = [_field(c.name, c.type, nullable=c.nullable) for c in schema.columns]
    return one_line({"type": "struct", "fields": fields})


def one_line(value: Any) -> str:
    """Return JSON on one line, without spaces, with the keys in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _field(name: str, stored: ColumnType, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": _type(stored), "nullable": nullable, "metadata": {}}


def _type(stored: ColumnType) -> Any:
    if isinstance(stored, str):
        return _TYPES.get(stored, stored)  # decimals are written alike
    inner = inner_fields(stored)
    if "struct" in stored:
        fields = [_field(field.name, field.type, nullable=True) for field in inner]
        return {"type": "struct", "fields": fields}
    types = [_type(field.type) for field in inner]
    if "list" in stored:
        return {"type": "array", "elementType": types[0], "containsNull": True}
    return {
        "type": "map",
        "keyType": types[0],
        "valueType": types[1],
        "valueContainsNull": True,
    }


def _types_in(column: Column) -> Iterator[ColumnType]:
    """Yield the type of a column, and those inside of it."""
    yield column.type
    yield from (field.type for field in all_fields(column.type))
