"""The metadata file of a version: what an Iceberg catalog, or a path, opens. No I/O.

Version N is snapshot N, with sequence number N. The file lists the snapshots before it too, those
that pins hold as tags, so that readers of the newest one find them by number or by name.
Source: Iceberg's spec, section "Table Metadata".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import DecodeError, Struct, UnsetType, json

from eventlog.errors import Corrupt
from eventlog.format.keys import MAX_VERSION
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.entries import Schema
from eventlog.model.records import CommitChanges, Meta, Totals, Transaction
from eventlog.publishing.iceberg.translation.avro_files import compact_json
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    LAST_PARTITION_FIELD,
    last_column_id,
)
from eventlog.state.appends import keeps_rows

KEPT = 50  # the newest snapshots that a metadata file lists
# A format that no program knows: writers refuse the table, readers do not look at it. And no
# program may delete files that it takes for garbage: they are those of other versions.
NO_FORMAT = "eventlog-read-only"
GUARD = {
    "gc.enabled": "false",
    "write.format.default": NO_FORMAT,
    "write.delete.format.default": NO_FORMAT,
    # DuckDB does not look at these formats: it refuses to delete rows where others write files
    # again, and to insert into a table with a sort order.
    **{f"write.{change}.mode": "copy-on-write" for change in ("delete", "update", "merge")},
    # Bounds enclose values and need not be values: no answer to min() and max().
    "write.metadata.metrics.default": "counts",
}
# A snapshot of no version, whose manifest list is no object. Programs that purge a table read all
# manifest lists before they delete anything, and not all of them look at `gc.enabled`.
GUARD_SNAPSHOT = MAX_VERSION + 2
_LAST_MS = 253_402_300_799_999  # of the year 9999
VERSION_PROPERTY = "eventlog.version"
MAIN = "main"  # Iceberg's name for the newest snapshot
_BRANCH_PINS = "branch:"


class PublishedSnapshot(NamedTuple):
    """One version as a snapshot.

    Attributes:
        version: the version.
        time: when it was committed, ms UTC, as its header has it.
        manifest_list: the URI of its manifest list.
        schema: its schema.
        facts: the operation, and numbers for people.
    """

    version: int
    time: int
    manifest_list: str
    schema: Schema
    facts: Mapping[str, str]


def snapshot_id(version: int) -> int:
    """Return the id of a version's snapshot: its number.

    Version 0 has one above all versions: pyiceberg and Polars take snapshot 0 for the newest one.
    """
    return version or MAX_VERSION + 1  # against snapshot-zero-is-the-newest


def tags_of(meta: Meta) -> dict[str, int]:
    """Return the pins that become tags, with their versions; not those that hold branches."""
    return {
        name: pin.version for name, pin in meta.pins.items() if not name.startswith(_BRANCH_PINS)
    }


def listed_versions(meta: Meta, version: int, held: int = 0) -> list[int]:
    """Return the versions that the metadata of a version lists, ascending.

    Args:
        meta: the small state at the version.
        version: the version.
        held: in a branch the oldest version that its parent keeps for it.
    """
    oldest = max(meta.horizon, held)
    newest = range(max(oldest, version - KEPT + 1), version + 1)
    return sorted({*newest, *(v for v in tags_of(meta).values() if v >= oldest)})


def operation_of(changes: CommitChanges, taken: Iterable[Transaction]) -> str:
    """Return Iceberg's word for what a commit did.

    `replace` is said only of commits that leave the rows as they are: readers of changes skip them.

    Args:
        changes: of the commit's header.
        taken: the transactions that took effect; looked at only if segments were dropped.
    """
    vectors = changes.vectors or 0
    if not changes.drops and not vectors:
        return "append"
    if not changes.adds:
        return "delete"
    same_rows = all(keeps_rows(t) for t in taken if _touches_rows(t))
    return "replace" if same_rows else "overwrite"  # against update-called-a-replacement


def summary_of(
    version: int,
    changes: CommitChanges,
    totals: Totals,
    taken: Iterable[Transaction],
    *,
    deletes: int | None,
) -> Mapping[str, str]:
    """Return the summary of a snapshot; without totals if the deletes are not known.

    Args:
        version: the version.
        changes: of the commit's header.
        totals: of the version.
        taken: the transactions that took effect; looked at only if segments were dropped.
        deletes: the number of the delete files; None: it is not known.
    """
    deleted = 0 if isinstance(totals.deleted, UnsetType) else totals.deleted
    numbers = {
        "added-data-files": changes.adds,
        "deleted-data-files": changes.drops,
    }
    counts = {
        "total-data-files": totals.segments,
        "total-records": totals.rows + deleted,
        "total-files-size": totals.bytes,
        "total-delete-files": deletes or 0,
        "total-position-deletes": deleted,
        "total-equality-deletes": 0,
    }
    if deletes is not None:
        numbers |= counts
    operation = operation_of(changes, taken)
    if deletes is None and operation == "append" and changes.adds:
        operation = "overwrite"  # the rows may have the keys of others
    return {
        "operation": operation,
        **{name: str(number) for name, number in numbers.items()},
        VERSION_PROPERTY: str(version),
        "eventlog.operation": changes.operation,
    }


def metadata_bytes(  # noqa: PLR0913 - the fields of the file
    snapshots: Sequence[PublishedSnapshot],
    *,
    location: str,
    table_uuid: str,
    format_version: int,
    schemas: Sequence[Mapping[str, Any]],
    specs: Sequence[Mapping[str, Any]],
    default_spec: int,
    times: Mapping[int, int],
    tags: Mapping[str, int],
    sorted_by: int | None,
) -> bytes:
    """Return the bytes of the metadata file of the last one of some versions.

    Args:
        snapshots: the versions that it lists, ascending.
        location: the root URI of the table.
        table_uuid: of the table, or of the branch.
        format_version: of Iceberg.
        schemas: those of the snapshots, by `to_iceberg`, by id.
        specs: the partition specs.
        default_spec: the id of the one that new segments have.
        times: when each of the versions was committed, ms UTC, clock corrections applied.
        tags: versions by the names of their tags; those that are not listed are left out.
        sorted_by: the id of the column that new files would be sorted by; None: no column has an
            order, and programs that look at the sort order alone are not refused.
    """
    last = snapshots[-1]
    listed = [_snapshot(s, times[s.version], format_version) for s in snapshots]
    listed.append(_guard_snapshot(location, last.schema.id, format_version))  # against purges
    order = _sort_order(sorted_by)
    document = {
        "format-version": format_version,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": last.version,
        "last-updated-ms": times[last.version],
        "last-column-id": last_column_id(last.schema),
        "current-schema-id": last.schema.id,
        "schemas": [*schemas],
        "default-spec-id": default_spec,
        "partition-specs": [*specs],
        "last-partition-id": LAST_PARTITION_FIELD,
        "default-sort-order-id": order["order-id"],
        "sort-orders": [order],  # of new files: those that are there name none
        "properties": {**GUARD, VERSION_PROPERTY: str(last.version)},
        "current-snapshot-id": snapshot_id(last.version),
        "refs": _refs(snapshots, tags),
        "snapshots": listed,
        "snapshot-log": [
            {"snapshot-id": snapshot_id(s.version), "timestamp-ms": times[s.version]}
            for s in snapshots
        ],
        "metadata-log": [],
    }
    if format_version > 2:
        document["next-row-id"] = 0  # rows have no ids: as in a table that was format 2 before
    return compact_json(document).encode()


def without_versions(body: bytes, versions: Collection[int]) -> bytes:
    """Return a metadata file as if it did not list some older versions.

    Args:
        body: the file, which `MetadataFile` has decoded.
        versions: not the newest.

    Raises:
        Corrupt: it lacks a field that publications have.
    """
    if not versions:
        return body
    try:
        return compact_json(_without(json.decode(body), set(map(snapshot_id, versions)))).encode()
    except (KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"a metadata file has other fields: {error!r}") from None


def _without(document: dict[str, Any], gone: Collection[int]) -> dict[str, Any]:
    left = [one for one in document["snapshots"] if one["snapshot-id"] not in gone]
    schemas = {one["schema-id"] for one in left}
    document["snapshots"] = left
    document["schemas"] = [one for one in document["schemas"] if one["schema-id"] in schemas]
    document["refs"] = {
        name: ref for name, ref in document["refs"].items() if ref["snapshot-id"] not in gone
    }
    document["snapshot-log"] = [
        one for one in document["snapshot-log"] if one["snapshot-id"] not in gone
    ]
    return document


def _sort_order(column: int | None) -> dict[str, Any]:
    if column is None:
        return {"order-id": 0, "fields": []}
    order = {"direction": "asc", "null-order": "nulls-first"}
    return {"order-id": 1, "fields": [{"transform": "identity", "source-id": column, **order}]}


class ListedSnapshot(Struct, frozen=True, rename="kebab"):
    """What is read of a snapshot of a metadata file."""

    snapshot_id: int
    sequence_number: int
    manifest_list: str


class MetadataFile(Struct, frozen=True, rename="kebab"):
    """What is read of a metadata file."""

    location: str
    current_snapshot_id: int
    snapshots: tuple[ListedSnapshot, ...]

    @classmethod
    def of(cls, body: bytes) -> MetadataFile:
        """Return what a metadata file has.

        Raises:
            Corrupt: it is none of a publication.
        """
        try:
            return json.decode(body, type=cls)
        except (DecodeError, RecursionError) as error:
            raise Corrupt(f"a metadata file does not decode: {error}") from None

    @property
    def versions(self) -> list[ListedSnapshot]:
        """The snapshots that are versions."""
        return [one for one in self.snapshots if one.snapshot_id != GUARD_SNAPSHOT]


def _guard_snapshot(location: str, schema_id: int, format_version: int) -> dict[str, Any]:
    return {
        "snapshot-id": GUARD_SNAPSHOT,
        "sequence-number": 0,
        # After all versions: DuckDB looks for the version of a time in this list.
        "timestamp-ms": _LAST_MS,
        "manifest-list": f"{location}/metadata/{NO_FORMAT}",
        "summary": {"operation": "append"},
        "schema-id": schema_id,
        **_row_ids(format_version),
    }


def _row_ids(format_version: int) -> dict[str, int]:
    return {"first-row-id": 0, "added-rows": 0} if format_version > 2 else {}


def _refs(snapshots: Sequence[PublishedSnapshot], tags: Mapping[str, int]) -> dict[str, Any]:
    listed = {s.version for s in snapshots}
    newest = {"snapshot-id": snapshot_id(snapshots[-1].version), "type": "branch"}
    tagged = {
        name: {"snapshot-id": snapshot_id(version), "type": "tag"}
        for name, version in tags.items()
        if version in listed
    }
    return {MAIN: newest, **tagged}


def _snapshot(one: PublishedSnapshot, time_ms: int, format_version: int) -> dict[str, Any]:
    parent = {"parent-snapshot-id": snapshot_id(one.version - 1)} if one.version else {}
    return {
        "snapshot-id": snapshot_id(one.version),
        **parent,
        "sequence-number": one.version,
        "timestamp-ms": time_ms,
        "manifest-list": one.manifest_list,
        "summary": dict(one.facts),
        "schema-id": one.schema.id,
        **_row_ids(format_version),
    }


def _touches_rows(transaction: Transaction) -> bool:
    return any(isinstance(a, Add | Drop | DeleteRows) for a in transaction.actions)
