"""What of a publication in Iceberg's form can go: all of it, or what old versions needed.

Only deletes of eventlog's own programs remove objects under `metadata/`: `unpublish`, and vacuum
below the horizon.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from eventlog.display import command
from eventlog.errors import Corrupt, EventLogError, InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    HINT,
    PREFIX,
    is_published_key,
    mend_hint,
    parse_metadata_key,
)
from eventlog.publishing.iceberg.translation.avro_files import DELETES, avro_records
from eventlog.publishing.iceberg.translation.table_metadata import (
    VERSION_PROPERTY,
    published_snapshots,
)
from eventlog.publishing.publication import another_table
from eventlog.session.session import Session
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

_FILE = re.compile(r".*\.metadata\.json.*")

logger = logging.getLogger(__name__)


def unpublish_iceberg(session: Session, *, run: bool) -> tuple[str, ...]:
    """Delete the publication of a table, or only return what would be deleted.

    With a publication everything under `metadata/` goes, also what other programs wrote there. Its
    metadata files go last, so that a publication of which only a part is left can be told from an
    Iceberg table of somebody else.

    Returns:
        The keys, in the order of their deletion.

    Raises:
        InvalidInput: what lies there is an Iceberg table that no publisher of eventlog made.
        Unavailable: the store does not answer.
    """
    store = session.store
    found = [row.key for row in store.list(PREFIX)]
    check_owner(session, found, InvalidInput)  # against table-of-somebody-else-unpublished
    files = [key for key in found if parse_metadata_key(key) is not None]
    if not files:
        found = [key for key in found if is_published_key(key)]
    order = {HINT: 0, **dict.fromkeys(files, 2), BARRIER: 3}
    doomed = tuple(sorted(found, key=lambda key: order.get(key, 1)))
    if run and doomed:
        store.delete(doomed)
    return doomed


def cut_iceberg(session: Session, horizon: int, *, run: bool) -> tuple[tuple[str, int], ...]:
    """Delete what is published of the versions below a horizon, or only return it.

    These are the metadata files of those versions, and what they name and no later one does: an
    object that a publisher put just now is in none of them. One LIST where none is published; else
    one GET for each published version, and one for each manifest of deletes.

    Args:
        session: of the table.
        horizon: a version that is kept.
        run: whether anything is deleted.

    Returns:
        The keys and sizes of the objects, in the order of their deletion.

    Raises:
        Corrupt: an object does not decode.
        Unavailable: the store does not answer.
    """
    store = session.store
    sizes = {row.key: row.size for row in store.list(PREFIX)}
    files = {v: key for key in sizes if (v := parse_metadata_key(key)) is not None}
    old = [files[version] for version in sorted(files) if version < horizon]
    if not old or not is_ours(store, old[0]):
        return ()
    if max(files) < horizon:
        logger.warning(
            "versions above %d are not published as Iceberg: its readers miss files that were "
            "deleted; %s publishes them",
            max(files),
            command("publish", "iceberg", session.uri),
        )
        return ()
    try:
        below = _only_below(store, files, horizon, sizes)
    except (InvalidInput, KeyNotFound) as error:  # an extra is not installed, or an object is lost
        logger.warning("what is published of vacuumed versions stays: %s", error)
        return ()
    # What names others goes after them, so that the next vacuum continues an interrupted one.
    # against cut-that-leaves-garbage
    doomed = [*sorted(below, key=_depth), *old]
    if run:
        store.delete(doomed)
        # A publisher that the vacuum overtook may have named one that is deleted now.
        mend_hint(store)  # against cut-leaves-a-lost-iceberg-hint
    return tuple((key, sizes[key]) for key in doomed if key in sizes)


def _only_below(
    store: ObjectStore, files: Mapping[int, str], horizon: int, there: Collection[str]
) -> set[str]:
    """Return the keys of what metadata files below a horizon name, and no later one does.

    Args:
        store: of the table.
        files: the keys of the metadata files, by version.
        horizon: a version that is kept.
        there: the keys of the objects that are there; others are left out.

    Raises:
        KeyNotFound: an object that a kept version names is missing.
    """
    versions = sorted(files)
    documents = dict(
        zip(versions, each(lambda v: _document(store, files[v]), versions), strict=True)
    )
    location = str(documents[versions[0]]["location"])
    kept = {
        snapshot["manifest-list"]
        for version in versions
        for snapshot in published_snapshots(documents[version])
        if version >= horizon and snapshot["sequence-number"] >= horizon
    }
    lists = {
        snapshot["manifest-list"]
        for version in versions
        for snapshot in published_snapshots(documents[version])
        if version < horizon
    } - kept
    # Those of an interrupted vacuum are gone, or of a publisher that it overtook.
    lists = {uri for uri in lists if uri.removeprefix(f"{location}/") in there}
    below = lists | _named(store, lists, location, there)
    gone = below - _named(store, kept, location) if below else set()
    return {key for uri in gone if (key := uri.removeprefix(f"{location}/")) in there}


def _depth(key: str) -> tuple[int, str]:
    """Return where a key comes in the order of deletes: files, then manifests, then lists."""
    kinds = (f"{PREFIX}deletes-", f"{PREFIX}manifest-", f"{PREFIX}snap-")
    return next((n for n, kind in enumerate(kinds) if key.startswith(kind)), 0), key


def _named(
    store: ObjectStore,
    lists: Iterable[str],
    location: str,
    there: Collection[str] | None = None,
) -> set[str]:
    """Return the URIs of the manifests of manifest lists, and of the files of their deletes.

    Args:
        store: of the table.
        lists: their URIs.
        location: the root URI.
        there: the keys of manifests that are read; None: all.

    Raises:
        KeyNotFound: one of the others is missing.
    """

    def records(uri: str) -> list[dict[str, Any]]:
        return avro_records(store.get(uri.removeprefix(f"{location}/")))

    manifests = {
        record["manifest_path"]: record["content"]
        for found in each(records, sorted(lists))
        for record in found
    }
    deletes = sorted(
        uri
        for uri, content in manifests.items()
        if content == DELETES and (there is None or uri.removeprefix(f"{location}/") in there)
    )
    files = {entry["data_file"]["file_path"] for found in each(records, deletes) for entry in found}
    return {*manifests, *files}


def check_owner(
    session: Session, found: Iterable[str], kind: type[EventLogError] = Corrupt
) -> None:
    """Refuse an Iceberg table that eventlog did not publish. One GET if it did.

    Args:
        session: of the table.
        found: the keys under `metadata/`.
        kind: of the error.

    Raises:
        EventLogError: there is one, and no publication.
    """
    files = [key for key in found if _FILE.fullmatch(key) and key != BARRIER]
    named = (key for key in files if parse_metadata_key(key) is not None)
    # against strangers-iceberg-taken-for-a-publication
    if files and not any(is_ours(session.store, key) for key in named):
        raise another_table("Iceberg", session.uri, files[0], kind)


def is_ours(store: ObjectStore, key: str) -> bool:
    """Return whether a metadata file is one that a publisher of eventlog wrote."""
    try:
        return VERSION_PROPERTY in _document(store, key)["properties"]
    except (KeyError, TypeError, KeyNotFound):
        return False


def _document(store: ObjectStore, key: str) -> Mapping[str, Any]:
    try:
        found = json.loads(store.get(key))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
