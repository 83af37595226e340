"""What of a publication in Iceberg's form can go: all of it, or what old versions needed.

Only deletes of eventlog's own programs remove objects under `metadata/`: `unpublish`, and vacuum
below the horizon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.manifest_publisher import (
    HINT,
    PREFIX,
    is_published_key,
    parse_metadata_key,
)
from eventlog.publishing.iceberg.translation.avro_files import DELETES, avro_records
from eventlog.publishing.iceberg.translation.table_metadata import VERSION_PROPERTY
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore


def unpublished_keys(store: ObjectStore) -> list[str]:
    """Return the keys of a publication in the order in which they are to be deleted.

    With a publication everything under `metadata/` goes, also what other programs wrote there. Its
    metadata files go last, so that a publication of which only a part is left can be told from an
    Iceberg table of somebody else.

    Raises:
        InvalidInput: what lies there is an Iceberg table that no publisher of eventlog made.
        Unavailable: the store does not answer.
    """
    found = [row.key for row in store.list(PREFIX)]
    files = [key for key in found if parse_metadata_key(key) is not None]
    if not any(_is_ours(store, key) for key in files):
        if files:  # against table-of-somebody-else-unpublished
            raise InvalidInput(
                "the Iceberg table under `metadata/` was not published by eventlog: nothing is "
                "deleted",
                table=store.uri,
            )
        return [key for key in found if is_published_key(key)]
    order = {HINT: 0, **dict.fromkeys(files, 2)}
    return sorted(found, key=lambda key: order.get(key, 1))


def outdated_keys(store: ObjectStore, oldest: int) -> list[str]:
    """Return the keys of the objects that only versions below one need, in the order to delete in.

    These are the metadata files of those versions, and what they name and no later one does: an
    object that a publisher put just now is in none of them. One LIST where nothing was published;
    else one GET for each version, and one for each manifest of deletes.

    Args:
        store: of the table.
        oldest: the horizon.

    Raises:
        Corrupt: an object does not decode.
        Unavailable: the store does not answer.
    """
    files = {
        version: row.key
        for row in store.list(f"{PREFIX}v")
        if (version := parse_metadata_key(row.key)) is not None
    }
    old = [files[version] for version in sorted(files) if version < oldest]
    if not old:
        return []
    documents = {key: _document(store, key) for key in files.values()}
    if not all(VERSION_PROPERTY in d.get("properties", {}) for d in documents.values()):
        return []  # somebody else's
    location = str(documents[old[0]]["location"])
    kept = {
        s["manifest-list"]
        for version, key in files.items()
        for s in documents[key]["snapshots"]
        if version >= oldest and s["sequence-number"] >= oldest
    }
    lists = {s["manifest-list"] for key in old for s in documents[key]["snapshots"]} - kept
    needed = _named(store, kept, location)
    below = _named(store, lists, location)
    gone = (uri for uri in (*sorted(lists), *sorted(below - needed)))
    return [*old, *(uri.removeprefix(f"{location}/") for uri in gone)]


def _named(store: ObjectStore, lists: Iterable[str], location: str) -> set[str]:
    """Return the URIs of the manifests of manifest lists, and of the files of their deletes."""

    def records(uri: str) -> list[dict[str, Any]]:
        return avro_records(store.get(uri.removeprefix(f"{location}/")))

    manifests = {
        record["manifest_path"]: record["content"]
        for found in each(records, sorted(lists))
        for record in found
    }
    deletes = sorted(uri for uri, content in manifests.items() if content == DELETES)
    files = {entry["data_file"]["file_path"] for found in each(records, deletes) for entry in found}
    return {*manifests, *files}


def _is_ours(store: ObjectStore, key: str) -> bool:
    try:
        return VERSION_PROPERTY in _document(store, key)["properties"]
    except (KeyError, TypeError, KeyNotFound):
        return False


def _document(store: ObjectStore, key: str) -> Mapping[str, Any]:
    try:
        found = json.loads(store.get(key))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
