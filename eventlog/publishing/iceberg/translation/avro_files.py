"""The Avro files of Iceberg: manifests and manifest lists, in bytes that depend on nothing else.

`fastavro` writes one block with a fixed sync marker. Its compression is that of zlib, whose bytes
may differ between builds: two files are one if they decode to the same (`same_avro`).
Source: Iceberg's spec, sections "Manifests" and "Manifest Lists", and appendix A.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from eventlog.errors import Corrupt, InvalidInput

DATA, DELETES = 0, 1  # the contents of a manifest
_SYNC = b"eventlog-iceberg"  # 16 bytes
_ONE_BLOCK = 2**40
Record = TypeVar("Record")
_POSITIONS = 1  # the content of a data file: position deletes


def manifest_bytes(
    entries: Sequence[Mapping[str, Any]],
    *,
    content: int,
    format_version: int,
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> bytes:
    """Return the bytes of a manifest.

    Args:
        entries: its entries, by `manifest_entry`.
        content: `DATA` or `DELETES`.
        format_version: of Iceberg.
        schema: of the table, as in its metadata.
        spec: the partition spec, likewise.
    """
    facts = {
        "schema": compact_json(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": compact_json(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(format_version),
        "content": "deletes" if content == DELETES else "data",
    }
    return _written(_entry_schema(format_version, spec["fields"]), entries, facts)


def manifest_list_bytes(records: Sequence[Mapping[str, Any]], format_version: int) -> bytes:
    """Return the bytes of a manifest list.

    Args:
        records: one for each manifest, with the fields of Iceberg's `manifest_file`.
        format_version: of Iceberg.
    """
    return _written(_list_schema(format_version), records, {"format-version": str(format_version)})


def manifest_entry(
    data_file: Mapping[str, Any], version: int, *, added: bool, snapshot: int
) -> dict[str, Any]:
    """Return the entry of a manifest for a file that a version added.

    Args:
        data_file: with the fields of Iceberg's `data_file`.
        version: the version that added it: the sequence number of data and file.
        added: whether the manifest is one of that version; else the file counts as existing.
        snapshot: the id of the snapshot of that version.
    """
    return {
        "status": 1 if added else 0,
        "snapshot_id": snapshot,
        "sequence_number": version,
        "file_sequence_number": version,
        "data_file": data_file,
    }


def same_avro(one: bytes, other: bytes) -> bool:
    """Return whether two Avro files have the same records and the same facts in their headers."""
    try:
        return one == other or _decoded(one) == _decoded(other)
    except Corrupt:
        return False


class ManifestRecord(Struct, frozen=True):
    """What is read of a record of a manifest list."""

    manifest_path: str
    content: int


class FileRecord(Struct, frozen=True):
    """What is read of a data file, or file of deletes, of a manifest."""

    file_path: str
    record_count: int


class EntryRecord(Struct, frozen=True):
    """What is read of an entry of a manifest."""

    data_file: FileRecord


def avro_records(body: bytes, kind: type[Record]) -> list[Record]:
    """Return the records of an Avro file.

    Args:
        body: the file.
        kind: what is read of each.

    Raises:
        Corrupt: it does not decode to such records.
    """
    try:
        return convert(_decoded(body)[1], list[kind])  # type: ignore[valid-type]
    except ValidationError as error:
        raise Corrupt(f"a file of Avro has other records: {error}") from None


def _decoded(body: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    fastavro = _fastavro()
    try:
        reader = fastavro.reader(BytesIO(body))
        return dict(reader.metadata), list(reader)
    # against errors-of-fastavro
    except Exception as error:  # noqa: BLE001 - of damaged bytes it raises what it runs into
        raise Corrupt(f"a file of Avro does not decode: {error}") from None


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidInput(
            "publishing to Iceberg needs fastavro: pip install 'eventlog-tables[publish]'"
        ) from None
    return fastavro


def compact_json(value: Any) -> str:
    """Return the JSON of a value without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _written(
    schema: Mapping[str, Any], records: Sequence[Mapping[str, Any]], facts: dict[str, str]
) -> bytes:
    fastavro = _fastavro()
    body = BytesIO()
    fastavro.writer(
        body,
        fastavro.parse_schema(dict(schema)),
        records,
        codec="deflate",
        sync_interval=_ONE_BLOCK,
        metadata=facts,
        sync_marker=_SYNC,
    )
    return body.getvalue()


def _field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _maybe(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _pairs(key: int, value: int, kind: str) -> dict[str, Any]:
    """Return the type of a map with integers as keys: Avro's own maps have texts."""
    fields = [_field(key, "key", "int"), _field(value, "value", kind)]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "items": items, "logicalType": "map"}


def _entry_schema(format_version: int, partition: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    days: Any = {"type": "int", "logicalType": "date"}
    values = [
        _maybe(f["field-id"], avro_name(f["name"]), days if f["transform"] == "day" else "int")
        for f in partition
    ]
    file = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": values}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _maybe(109, "value_counts", _pairs(119, 120, "long")),
        _maybe(110, "null_value_counts", _pairs(121, 122, "long")),
        _maybe(137, "nan_value_counts", _pairs(138, 139, "long")),
        _maybe(125, "lower_bounds", _pairs(126, 127, "bytes")),
        _maybe(128, "upper_bounds", _pairs(129, 130, "bytes")),
        _maybe(143, "referenced_data_file", "string"),
    ]
    if format_version > 2:
        file += [
            _maybe(144, "content_offset", "long"),
            _maybe(145, "content_size_in_bytes", "long"),
        ]
    entry = [
        _field(0, "status", "int"),
        _maybe(1, "snapshot_id", "long"),
        _maybe(3, "sequence_number", "long"),
        _maybe(4, "file_sequence_number", "long"),
        _field(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": entry}


def avro_name(name: str) -> str:
    """Return the name of a partition field as Avro has it (Iceberg's Java: `AvroSchemaUtil`)."""
    first = name[0] if name[0] == "_" or _is_letter(name[0]) else _escaped(name[0])
    return first + "".join(
        c if c == "_" or _is_letter(c) or c in "0123456789" else _escaped(c) for c in name[1:]
    )


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _escaped(character: str) -> str:
    if character in "0123456789":
        return f"_{character}"
    return f"_x{ord(character):X}"


def _list_schema(format_version: int) -> dict[str, Any]:
    summary = [
        _field(509, "contains_null", "boolean"),
        _maybe(518, "contains_nan", "boolean"),
        _maybe(510, "lower_bound", "bytes"),
        _maybe(511, "upper_bound", "bytes"),
    ]
    item = {"type": "record", "name": "r508", "fields": summary}
    summaries = {"type": "array", "items": item, "element-id": 508}
    fields = [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _maybe(507, "partitions", summaries),
    ]
    if format_version > 2:
        fields.append(_maybe(520, "first_row_id", "long"))
    return {"type": "record", "name": "manifest_file", "fields": fields}
