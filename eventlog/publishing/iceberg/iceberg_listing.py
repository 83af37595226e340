"""Lists what is published of a table under `metadata/`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from eventlog.log.snapshot import Snapshot
from eventlog.publishing.iceberg.iceberg_plan import FORMATS, IcebergForm, check_form, iceberg_form
from eventlog.publishing.iceberg.iceberg_removal import check_owner
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    PREFIX,
    metadata_key,
    parse_metadata_key,
    stranger_error,
)
from eventlog.publishing.iceberg.translation.table_metadata import VERSION_PROPERTY, snapshot_id
from eventlog.publishing.publication import engine_root
from eventlog.session.session import Session


@dataclass(frozen=True, slots=True)
class IcebergListing:
    """What is published of a table.

    Attributes:
        head: the newest version of the table.
        sizes: the sizes of the objects, by key.
        published: the versions.
        form: theirs, or that of the first one that is published.
        newest: the metadata file of the newest one; empty if none is published.
    """

    head: Snapshot
    sizes: Mapping[str, int]
    published: frozenset[int]
    form: IcebergForm
    newest: bytes


def list_iceberg(
    session: Session, *, scheme: str | None = None, format_version: int | None = None
) -> IcebergListing:
    """Return what is published of a table. One LIST for each 1,000 objects, and at most two GETs.

    Args:
        session: of the table.
        scheme: of the URIs, for a table in S3; None: as it was published before, else that of the
            table's own URI.
        format_version: of Iceberg; None: as it was published before, else 2.

    Raises:
        Corrupt: another program wrote under `metadata/`.
        InvalidInput: an argument is wrong, or differs from that of the publication that is there;
            or that is of another table.
    """
    check_form(scheme, format_version)
    # Before the newest version is read: others publish what is committed meanwhile.
    sizes = {row.key: row.size for row in session.store.list(PREFIX)}
    head, forks = session.refresh(), session.store.forks
    for key, size in sizes.items():
        # Writes that were refused leave other objects, and empty metadata: no reader sees them.
        # against metadata-of-a-stranger-not-noticed
        other = key.endswith(".metadata.json") and parse_metadata_key(key) is None
        if other and size and key != BARRIER:
            check_owner(session, sizes)
            raise stranger_error(session.uri, key)
    published = frozenset(v for key in sizes if (v := parse_metadata_key(key)) is not None)
    if published and max(published) > head.version:
        check_owner(session, sizes)
        raise stranger_error(session.uri, metadata_key(max(published)))
    before, newest = _newest_metadata(session, published)
    form = iceberg_form(
        forks[0].id if forks else head.header.table,
        engine_root(session.store, PREFIX),
        before,
        uri=session.uri,
        scheme=scheme,
        format_version=format_version,
    )
    form.check_same(before, session.uri)
    return IcebergListing(head, sizes, published, form, newest)


def _newest_metadata(session: Session, published: Collection[int]) -> tuple[dict[str, Any], bytes]:
    if not published:
        return {}, b""
    version = max(published)
    key = metadata_key(version)
    body = session.store.get(key)
    try:
        found = json.loads(body)
        ours = (
            found["properties"][VERSION_PROPERTY] == str(version)
            and found["current-snapshot-id"] == snapshot_id(version)
            and found["format-version"] in FORMATS
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        ours = False
    if not ours:  # against metadata-of-a-stranger-taken-for-ours
        check_owner(session, map(metadata_key, published))
        raise stranger_error(session.uri, key)
    return dict(found), body
