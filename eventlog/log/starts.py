"""The starts of a copy: which versions a replica has, and which it lacks (FORMAT.md R17.4).

A copy may begin at a key frame, and be filled with the older versions later. Each version whose
predecessor the copy lacks has an object under `_starts/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eventlog.display import command
from eventlog.errors import Corrupt, KeyNotFound, UnsupportedFormat, VersionNotReplicated
from eventlog.format import codec, keys
from eventlog.model.records import Start
from eventlog.store.port import ObjectStore


class Starts:
    """The starts of one table.

    Args:
        store: the store of the table.
        table: returns the id of the table. It is called only if there is a start.
    """

    def __init__(self, store: ObjectStore, table: Callable[[], str]) -> None:
        self._store, self._table = store, table

    def all(self) -> list[Start]:
        """Return the starts of this replica, the newest first; none if it has all versions.

        One LIST, and two GETs for each start (FORMAT.md R17.4). A start whose version is not in
        the log is left out: it explains nothing.

        Raises:
            Corrupt: a start breaks the format.
            UnsupportedFormat: a newer reader is needed.
        """
        starts: list[Start] = []
        table: str | None = None
        for version in self.versions():
            # Before it is read: it may be damaged, or of a table that was here.
            if has_commit(self._store, version):  # against start-without-its-version
                table = table or self._table()
                starts.append(self.at(version, table))
        return starts

    def versions(self) -> Iterator[int]:
        """Yield the versions of the objects under `_starts/`, the newest first."""
        for row in self._store.list(keys.STARTS_PREFIX):
            version = keys.parse_start_key(row.key)
            if version is not None:
                yield version

    def at(self, version: int, table: str) -> Start:
        """Return the start of a version. One GET.

        Args:
            version: the version.
            table: the id of the table.

        Raises:
            Corrupt: it breaks the format.
            KeyNotFound: there is none.
            UnsupportedFormat: a newer reader is needed.
        """
        key = keys.start_key(version)
        try:
            body = self._store.get(key, length=codec.MAX_START_BYTES + 1)
            return codec.decode_start(body, version, table)
        except (Corrupt, UnsupportedFormat) as error:
            error.table, error.key, error.version = self._store.uri, key, version
            raise

    def above(self, version: int) -> Start | None:
        """Return the start that explains why this replica lacks a version; None if there is none.

        Args:
            version: a version whose commit is missing.
        """
        return next((s for s in self.all() if s.after < version < s.version), None)

    def absent_below(self, horizon: int) -> int:
        """Return a version below which this copy lacks versions that its horizon keeps.

        0 if it lacks none. One LIST; and for each start two GETs, and one LIST for each 1,000
        objects from the horizon up to the start.

        Args:
            horizon: of the newest version.

        Raises:
            Corrupt: a start breaks the format.
            UnsupportedFormat: a newer reader is needed.
        """
        bound = 0
        for start in () if self._store.forks else self.all():
            # Each version is looked for: one may be lost among those that a backfill copied.
            if self.absent(start, horizon):  # against lost-among-what-a-backfill-brought
                bound = max(bound, start.version)
        return bound

    def absent(self, start: Start, oldest: int = 0) -> range:
        """Return the versions that a copy lacks below one of its starts, ascending (R17.4).

        Those between the first and the last one that it lacks are among them.

        Args:
            start: the start.
            oldest: the first version that is asked for.
        """
        first, last = max(start.after + 1, oldest), start.version - 1
        present = set[int]()
        after = keys.commit_key(start.version)
        for row in self._store.list(keys.LOG_PREFIX, after=after) if first <= last else ():
            version, framed = keys.parse_log_key(row.key) or (start.version, True)
            if version < first:
                break
            if not framed:
                present.add(version)
        while first <= last and first in present:
            first += 1
        while first <= last and last in present:
            last -= 1
        return range(first, last + 1)

    def not_replicated(self, version: int) -> VersionNotReplicated | None:
        """Return the error for a version that this replica does not have; None for other reasons.

        Args:
            version: a version whose commit is missing.
        """
        start = self.above(version)
        if start is None:
            return None
        return VersionNotReplicated(
            f"version {version} is not in this replica, which has the versions from "
            f"{start.version} on: read the table that it follows, or copy the older ones: "
            f"{command('replicate', 'SOURCE', self._store.uri, '--backfill')}",
            table=self._store.uri,
            version=version,
        )


def has_commit(store: ObjectStore, version: int) -> bool:
    """Return whether there is an object under the key of a commit. One GET."""
    try:
        store.get(keys.commit_key(version), length=1)
    except KeyNotFound:
        return False
    return True
