"""The table, and the version of it, that a reader was asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from eventlog import Snapshot, Table
from eventlog.arguments import opened
from eventlog.errors import InvalidInput
from eventlog.query.moments import Moment
from eventlog.session.tags import VersionOrName
from eventlog.state.small.holds import check_kept
from eventlog.store.location import open_store


def table_at(
    t: Table | str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Table:
    """Return the table, or a handle to the one at a root that has read nothing yet.

    Raises:
        InvalidInput: it is neither, or storage options were given for a table.
    """
    if isinstance(t, str | os.PathLike):
        return Table(open_store(t, storage_options))
    opened(t)
    if storage_options is not None:
        raise InvalidInput("storage_options are for a URI: an open table keeps its own")
    return t


def kept_snapshot(
    t: Table, version: VersionOrName | None = None, timestamp: Moment | None = None
) -> Snapshot:
    """Return `Table.snapshot` of a version whose rows can still be read.

    A handle that has read nothing yet reads only that version. If it was vacuumed, the first
    segment that is missing shows it.

    Raises:
        VersionNotFound: there is no such version.
        VersionVacuumed: it is below the newest horizon that this handle has read.
    """
    snapshot = t.snapshot(version, timestamp)
    newest = max((t.session.known or snapshot, snapshot), key=lambda known: known.version)
    check_kept(newest.meta, newest.version, snapshot.version, t.uri)
    return snapshot
