"""What vacuum takes of a publication in Iceberg's form: what versions below the horizon needed.

A publisher may name, meanwhile, what is deleted: an object that it found listed, and that no kept
version named. Each looks after its own writes for what the other one did, so that one of the two
puts it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.iceberg_listing import IcebergListing, list_iceberg
from eventlog.publishing.iceberg.iceberg_plan import FORMATS
from eventlog.publishing.iceberg.iceberg_removal import is_ours
from eventlog.publishing.iceberg.iceberg_versions import IcebergVersions
from eventlog.publishing.iceberg.manifest_publisher import (
    PREFIX,
    PublishedObjects,
    mend_hint,
    metadata_key,
    parse_metadata_key,
    read_avro,
    read_metadata,
)
from eventlog.publishing.iceberg.translation.avro_files import (
    DELETES,
    EntryRecord,
    ManifestRecord,
    Record,
)
from eventlog.publishing.iceberg.translation.table_metadata import MetadataFile
from eventlog.publishing.publication import made_again, overtaken
from eventlog.session.session import Session
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

_FORMAT = "iceberg"

logger = logging.getLogger(__name__)


def cut_iceberg(session: Session, horizon: int, *, run: bool) -> tuple[tuple[str, int], ...]:
    """Delete what is published of the versions below a horizon, or only return it.

    These are the metadata files of those versions, and what they name and no later one does: an
    object that a publisher put just now is in none of them. One LIST where none is published; else
    one GET for each published version, and one for each manifest of deletes; and another LIST if
    anything is deleted.

    Args:
        session: of the table.
        horizon: a version that is kept.
        run: whether anything is deleted.

    Returns:
        The keys and sizes of the objects, in the order of their deletion.

    Raises:
        Corrupt: what a publisher put meanwhile is damaged, or another program's.
        Unavailable: the store does not answer.
    """
    store = session.store
    sizes = {row.key: row.size for row in store.list(PREFIX)}
    files = {v: key for key in sizes if (v := parse_metadata_key(key)) is not None}
    old = [files[version] for version in sorted(files) if version < horizon]
    if not any(is_ours(store, key) for key in old):
        return ()
    if max(files) < horizon:
        logger.warning("%s", behind_the_horizon(session, max(files), horizon))
        return ()
    try:
        below = _only_below(store, files, horizon, sizes)
    # against vacuum-ended-by-a-damaged-publication
    except (Corrupt, InvalidInput, KeyNotFound) as error:
        # An object of a version that is kept is lost or damaged, or an extra is not installed.
        logger.warning("what is published of vacuumed versions stays: %s", error)
        return ()
    # What names others goes after them, so that the next vacuum continues an interrupted one.
    # against cut-that-leaves-garbage
    doomed = [*sorted(below, key=_depth), *old]
    if run:
        store.delete(doomed)
        # Publishers that the vacuum overtook may have named what is deleted now.
        mend_hint(store)  # against cut-leaves-a-lost-iceberg-hint
        listed = (parse_metadata_key(row.key) for row in store.list(PREFIX))
        later = [v for v in listed if v is not None and v not in files]
        if later:  # against cut-takes-what-is-published-meanwhile
            put_lost_objects(session, later)
    return tuple((key, sizes[key]) for key in doomed if key in sizes)


def behind_the_horizon(session: Session, newest: int, horizon: int) -> str:
    """Return the warning of a publication that ends below the horizon, with what mends it.

    Args:
        session: of the table.
        newest: the newest published version.
        horizon: the oldest version that vacuum keeps.
    """
    try:
        advice = _way_on(session, list_iceberg(session), horizon)
    except (Corrupt, InvalidInput) as error:
        advice = error.message
    return overtaken(newest, "Iceberg", advice)


def _way_on(session: Session, listing: IcebergListing, horizon: int) -> str:
    """Return the commands by which a publication goes on above a horizon, or ends."""
    uri, head = session.uri, listing.head
    objects = PublishedObjects(session, listing.sizes)

    def problem(version: int, format_version: int) -> str | None:
        form = replace(listing.form, format_version=format_version)
        described = IcebergVersions(session, replace(listing, form=form), objects)
        return described.problem(session.snapshot(version))

    own = listing.form.format_version
    if problem(horizon, own) is None:
        return f"{command('publish', _FORMAT, uri)} goes on at version {horizon}"
    why = problem(head.version, own)
    newest = ("--from", str(head.version))
    if why is None:  # against advice-that-is-refused
        return f"{command('publish', _FORMAT, uri, *newest)} publishes the newest"
    reason = f"since version {head.version} cannot be published to Iceberg: {why}"
    if problem(head.version, FORMATS[-1]) is None:
        form = replace(listing.form, format_version=FORMATS[-1])
        span = (head.version, head.version)
        again = made_again(_FORMAT, uri, [span], *form.options(uri))
        return f"{again} publishes the newest in another format, {reason}"
    return f"{command('unpublish', _FORMAT, uri, '--run')} takes these back, {reason}"


def put_lost_objects(session: Session, versions: Collection[int]) -> None:
    """Put again what published versions name and a vacuum deleted meanwhile.

    One LIST, one GET for each version and its manifest list, and one for each manifest of deletes.
    If an object is lost, all that these versions name is put, or compared.

    Args:
        session: of the table.
        versions: the versions. Those that are gone are left out.

    Raises:
        Corrupt: an object of another program is in the way, or the log is damaged.
        DataLoss: a segment of a keyed table is missing or damaged.
        Unavailable: the store does not answer.
    """
    there = {row.key for row in session.store.list(PREFIX)}
    lost = [v for v in versions if metadata_key(v) in there and _lacks(session.store, v, there)]
    if lost:
        objects = PublishedObjects(session, {})  # nothing counts as there because it was listed
        described = IcebergVersions(session, list_iceberg(session), objects)
        for version in lost:
            if version >= described.oldest:
                described.expected(version)


def _lacks(store: ObjectStore, version: int, there: Collection[str]) -> bool:
    """Return whether an object that the snapshot of a version names is not there."""
    file = read_metadata(store, metadata_key(version))
    location = file.location
    own = {s.manifest_list for s in file.versions if s.snapshot_id == file.current_snapshot_id}
    present = {uri for uri in own if uri.removeprefix(f"{location}/") in there}
    named = own | _named(store, present, location, there)
    return any(uri.removeprefix(f"{location}/") not in there for uri in named)


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
        Corrupt: an object that a kept version names is damaged.
        KeyNotFound: one is missing.
    """

    def read(version: int) -> MetadataFile | None:
        try:
            return read_metadata(store, files[version])
        except Corrupt:
            if version >= horizon:
                raise
        return None  # what only it names stays; `unpublish` takes it

    versions = sorted(files)
    found = list(zip(versions, each(read, versions), strict=True))
    location = next(file.location for _, file in reversed(found) if file is not None)
    kept = {
        snapshot.manifest_list
        for version, file in found
        if file is not None and version >= horizon
        for snapshot in file.versions
        if snapshot.sequence_number >= horizon
    }
    lists = {
        snapshot.manifest_list
        for version, file in found
        if file is not None and version < horizon
        for snapshot in file.versions
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
        there: the keys of manifests that are read, and those that are damaged are passed over;
            None: all are read.

    Raises:
        Corrupt: one of all is damaged.
        KeyNotFound: one of the others is missing.
    """

    def records(uri: str, kind: type[Record]) -> list[Record]:
        try:
            return read_avro(store, uri.removeprefix(f"{location}/"), kind)
        except Corrupt:
            if there is None:  # against vacuum-stopped-by-what-it-takes
                raise
        return []

    manifests = {
        record.manifest_path: record.content
        for found in each(lambda uri: records(uri, ManifestRecord), sorted(lists))
        for record in found
    }
    deletes = sorted(
        uri
        for uri, content in manifests.items()
        if content == DELETES and (there is None or uri.removeprefix(f"{location}/") in there)
    )
    entries = each(lambda uri: records(uri, EntryRecord), deletes)
    return {*manifests, *(entry.data_file.file_path for found in entries for entry in found)}
