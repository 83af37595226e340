"""The files of a manifest, and what a manifest list records of it. No I/O.

Sequence numbers are versions: that of a data file is the one that added its segment, and its
deletes have the same, since Iceberg applies deletes to files of their own sequence number, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.model.chunks import TimeChunk, parse_chunk
from eventlog.model.entries import ColumnType, Schema, Segment, deleted_rows
from eventlog.publishing.iceberg.translation.avro_files import (
    DATA,
    DELETES,
    avro_name,
    compact_json,
    manifest_bytes,
    manifest_entry,
)
from eventlog.publishing.iceberg.translation.file_bounds import file_metrics
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    partition_specs,
    partition_value,
    spec_of,
)
from eventlog.publishing.iceberg.translation.manifest_groups import Group
from eventlog.publishing.iceberg.translation.position_deletes import PATH_ID
from eventlog.publishing.iceberg.translation.table_metadata import snapshot_id

# Part of every name that stands for what an object has: another translation has other names.
TRANSLATION = "1"
_DIGITS = 32  # of a sha256 in a name


@dataclass(frozen=True, slots=True)
class Translation:
    """What the manifests of a version depend on besides its segments.

    Attributes:
        format_version: of Iceberg, 2 or 3.
        schema: of the version, in Iceberg's form.
        types: the types of its columns, by id.
        specs: the partition specs, by id.
        time_type: the type of the time column; None: the table has none.
        place: returns the URI of an object, by its key.
        seed: a text that differs between translations.
    """

    format_version: int
    schema: Mapping[str, Any]
    types: Mapping[int, ColumnType]
    specs: Mapping[int, Mapping[str, Any]]
    time_type: ColumnType | None
    place: Callable[[str], str]
    seed: str

    @classmethod
    def of(
        cls,
        stored: Schema,
        time_column: int | None,
        shown: Mapping[str, Any],
        place: Callable[[str], str],
        format_version: int,
    ) -> Translation:
        """Return the translation of a version.

        Args:
            stored: its schema.
            time_column: the id of its time column; None: it has none.
            shown: its schema in Iceberg's form.
            place: returns the URI of an object, by its key.
            format_version: of Iceberg.
        """
        specs = partition_specs(stored, time_column)
        types = {column.id: column.type for column in stored.columns}
        seed = compact_json([TRANSLATION, format_version, place("metadata"), shown, specs])
        by_id = {spec["spec-id"]: spec for spec in specs}
        time_type = None if time_column is None else types[time_column]
        return cls(format_version, shown, types, by_id, time_type, place, seed)

    def name(self, key: str) -> str:
        """Return the part of an object's name that stands for what it has."""
        return sha256(f"{self.seed}\n{key}".encode())[:_DIGITS]

    def name_of_deletes(self, path: str, vector: str) -> str:
        """Return the part of a name that stands for the deletes of a segment.

        Args:
            path: the URI of the segment.
            vector: the sha256 of its bitmap.
        """
        facts = compact_json([TRANSLATION, self.format_version, path, vector])
        return sha256(facts.encode())[:_DIGITS]

    def spec(self, segment: Segment) -> int:
        """Return the id of the partition spec of a segment."""
        return spec_of(parse_chunk(segment.chunk).granularity, self.time_type)


class ManifestFacts(NamedTuple):
    """What a manifest list records of a manifest.

    Attributes:
        spec: id of its partition spec.
        content: `DATA` or `DELETES`.
        files: number of its files.
        rows: number of their rows.
        least: the least version of its files.
        greatest: the greatest one.
        added: whether its files are those that one version added.
        values: the least and the greatest value of the partition field; None without one.
    """

    spec: int
    content: int
    files: int
    rows: int
    least: int
    greatest: int
    added: bool
    values: tuple[int, int] | None


class DeleteFile(NamedTuple):
    """The object that has the deletes of one segment.

    Attributes:
        uri: of the object.
        bytes: its size.
        offset: where the vector begins, in a Puffin file; None in a file of positions.
        length: the size of the vector there.
    """

    uri: str
    bytes: int
    offset: int | None = None
    length: int | None = None


def manifest_key(name: str, facts: ManifestFacts) -> str:
    """Return the key of a manifest; it shows what cannot be told from the key frame alone."""
    return f"metadata/manifest-{name}-{facts.spec}-{facts.least}-{facts.greatest}.avro"


def facts_of(group: Group, spec: int, content: int) -> ManifestFacts:
    """Return the facts of a manifest of the segments of a group."""
    segments = group.segments or ()
    versions = [s.version for s in segments]
    rows = sum(s.rows if content == DATA else deleted_rows(s.vector) for s in segments)
    values = [partition_value(parse_chunk(s.chunk), spec) for s in segments]
    known = [value for value in values if value is not None]
    return ManifestFacts(
        spec=spec,
        content=content,
        files=len(segments),
        rows=rows,
        least=min(versions),
        greatest=max(versions),
        added=group.added,
        values=(min(known), max(known)) if known else None,
    )


def facts_of_leaf(group: Group, spec: int, least: int, greatest: int) -> ManifestFacts:
    """Return the facts of the manifest of a whole leaf, whose entries need not be read.

    Args:
        group: with the leaf.
        spec: as the manifest's key shows it, and the versions.
        least: the least version of its segments.
        greatest: the greatest one.
    """
    leaf = group.leaf
    assert leaf is not None  # noqa: S101
    first = parse_chunk(leaf.first.partition("/")[0])
    low = partition_value(first, spec)
    high = partition_value(TimeChunk(leaf.end - 1, leaf.end), spec)
    values = None if low is None or high is None else (low, high)
    return ManifestFacts(spec, DATA, leaf.segments, leaf.rows, least, greatest, False, values)


def list_record(uri: str, size: int, facts: ManifestFacts) -> dict[str, Any]:
    """Return what a manifest list records of a manifest.

    Args:
        uri: of the manifest.
        size: its bytes.
        facts: of it.
    """
    added, existing = (facts.files, 0) if facts.added else (0, facts.files)
    added_rows, rows = (facts.rows, 0) if facts.added else (0, facts.rows)
    bounds = [None, None] if facts.values is None else [*map(_int, facts.values)]
    summary = {"contains_null": False, "lower_bound": bounds[0], "upper_bound": bounds[1]}
    return {
        "manifest_path": uri,
        "manifest_length": size,
        "partition_spec_id": facts.spec,
        "content": facts.content,
        "sequence_number": facts.greatest,
        "min_sequence_number": facts.least,
        "added_snapshot_id": snapshot_id(facts.greatest),
        "added_files_count": added,
        "existing_files_count": existing,
        "deleted_files_count": 0,
        "added_rows_count": added_rows,
        "existing_rows_count": rows,
        "deleted_rows_count": 0,
        "partitions": [] if facts.values is None else [summary],
    }


def data_manifest(group: Group, spec: int, form: Translation) -> bytes:
    """Return the bytes of the manifest of the segments of a group."""
    return _manifest(group, spec, form, DATA, [_data_file(s, spec, form) for s in _of(group)])


def delete_manifest(
    group: Group, spec: int, form: Translation, files: Mapping[str, DeleteFile]
) -> bytes:
    """Return the bytes of the manifest of the deletes of segments.

    Args:
        group: with segments that have vectors.
        spec: id of their partition spec.
        form: of the version.
        files: the objects that have the deletes, by the segment's id.
    """
    rows = [_delete_file(s, spec, form, files[s.id]) for s in _of(group)]
    return _manifest(group, spec, form, DELETES, rows)


def _of(group: Group) -> Sequence[Segment]:
    assert group.segments is not None  # noqa: S101
    return group.segments


def _manifest(
    group: Group, spec: int, form: Translation, content: int, files: list[dict[str, Any]]
) -> bytes:
    entries = [
        manifest_entry(file, s.version, added=group.added, snapshot=snapshot_id(s.version))
        for s, file in zip(_of(group), files, strict=True)
    ]
    return manifest_bytes(
        entries,
        content=content,
        format_version=form.format_version,
        schema=form.schema,
        spec=form.specs[spec],
    )


def _partition(segment: Segment, spec: int, form: Translation) -> dict[str, Any]:
    value = partition_value(parse_chunk(segment.chunk), spec)
    return {avro_name(f["name"]): value for f in form.specs[spec]["fields"]}


def _data_file(segment: Segment, spec: int, form: Translation) -> dict[str, Any]:
    metrics = file_metrics(segment.stats, segment.rows, form.types)
    return {
        "content": 0,
        "file_path": form.place(keys.key_of(segment)),
        "file_format": "PARQUET",
        "partition": _partition(segment, spec, form),
        "record_count": segment.rows,
        "file_size_in_bytes": segment.bytes,
        "value_counts": metrics.values,
        "null_value_counts": metrics.nulls,
        "nan_value_counts": metrics.nans,
        "lower_bounds": metrics.lower,
        "upper_bounds": metrics.upper,
    }


def _delete_file(
    segment: Segment, spec: int, form: Translation, file: DeleteFile
) -> dict[str, Any]:
    """Return the file of deletes of one segment; bounds of the path show that it is of one."""
    path = form.place(keys.key_of(segment))
    bound = [{"key": PATH_ID, "value": path.encode()}]
    positions = file.offset is None
    return {
        "content": 1,
        "file_path": file.uri,
        "file_format": "PARQUET" if positions else "PUFFIN",
        "partition": _partition(segment, spec, form),
        "record_count": deleted_rows(segment.vector),
        "file_size_in_bytes": file.bytes,
        "lower_bounds": bound if positions else None,
        "upper_bounds": bound if positions else None,
        "referenced_data_file": path,
        "content_offset": file.offset,
        "content_size_in_bytes": file.length,
    }


def _int(value: int) -> bytes:
    return struct.pack("<i", value)
