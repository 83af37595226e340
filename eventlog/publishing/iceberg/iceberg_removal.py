"""Takes a publication in Iceberg's form back, and tells it from a table of somebody else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from eventlog.errors import Corrupt, EventLogError, InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    HINT,
    PREFIX,
    is_published_key,
    parse_metadata_key,
)
from eventlog.publishing.iceberg.translation.table_metadata import VERSION_PROPERTY
from eventlog.publishing.publication import another_table
from eventlog.session.session import Session
from eventlog.store.port import ObjectStore

_FILE = re.compile(r".*\.metadata\.json.*")


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
        return VERSION_PROPERTY in json.loads(store.get(key))["properties"]
    except (ValueError, KeyError, TypeError, RecursionError, KeyNotFound):
        return False
