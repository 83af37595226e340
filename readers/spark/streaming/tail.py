"""Reads the versions of a table one after another, as a stream asks for them.

Imports eventlog only, not pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from eventlog import Snapshot, Table
from eventlog.errors import VersionNotFound
from eventlog.format.codec import sha256
from eventlog.log import chain
from eventlog.model.records import Commit
from eventlog.state.appends import Appends
from eventlog.store.parallel import WINDOW, each

VERIFIED_S = 60.0  # how often an idle stream looks whether it is still the same table


class StreamTail:
    """The appends of the versions of one table, each read once while it is needed.

    Attributes:
        start: the head when this was made.
        newest: the newest version that is known to exist.
        horizon: the newest horizon that is known.
    """

    def __init__(self, table: Table) -> None:
        self.start: Snapshot = table.refresh()
        self.newest = self.start.version
        self.horizon = self.start.meta.horizon
        self._table = table
        self._log = table.session.log
        self._appends: dict[int, Appends] = {}
        self._hashes = {self.newest: self.start.commit_hash}
        self._last: tuple[Commit, bytes] | None = None

    def after(self, version: int, until: int | None = None) -> Iterator[Appends]:
        """Yield the appends of the versions after one, in order, up to the newest.

        Costs one GET for each version that was not read yet, and one for the version that does not
        exist yet, or one LIST if two or more have been added since the last look. A stream that is
        idle looks once a minute, with another GET, whether it is still the same table.

        Args:
            version: the version before the first; -1: from the first one on.
            until: the last version wanted; None: all that exist.

        Raises:
            Corrupt: a commit breaks the format, or does not follow the one before it.
            TableNotFound: the table was replaced by another one.
            Unavailable: the store does not answer.
        """
        count, listed = 0, False
        while until is None or version < until:
            if version + 1 not in self._appends:
                if version >= self.newest:
                    if listed or not self._find(version + 1):
                        return
                    count += 1
                    if count == 2:  # there may be many more: learn how many, and read them at once
                        self.newest, listed = max(self.newest, self._log.head_version()), True
                else:
                    last = min(version + WINDOW, self.newest, until or self.newest)
                    for read in each(self._log.read, range(version + 1, last + 1)):
                        self._keep(*read)
            version += 1
            yield self._appends[version]

    def known_hash(self, version: int) -> str | None:
        """Return the hash of the commit of a version, if it was read already. No request."""
        return self._hashes.get(version)

    def hash_of(self, version: int) -> str | None:
        """Return the hash of the commit of a version that exists; None if nothing records it.

        At most one GET: the version after it, which names it, is the next one to be read.

        Raises: the errors of `after`, except where a version is missing.
        """
        if version not in self._hashes:
            with suppress(VersionNotFound):  # a copy may have nothing there
                self._keep(*self._log.read(version + 1))
        return self._hashes.get(version)

    def forget(self, version: int) -> None:
        """Forget the versions up to this one: they will not be asked for again."""
        for number in [number for number in self._appends if number <= version]:
            del self._appends[number]
        for number in [number for number in self._hashes if number < version]:
            del self._hashes[number]

    def _find(self, version: int) -> bool:
        """Read the version after the newest known one, and return whether it exists."""
        try:
            self._keep(*self._log.read(version))
        except VersionNotFound:
            # Nothing follows the last version of a table that was replaced, either.
            self._table.verify(0 if self._table.store.near else VERIFIED_S)
            return False
        self.newest = version
        return True

    def _keep(self, commit: Commit, body: bytes) -> None:
        header = commit.header
        if header.version == self.start.version + 1:
            chain.check_follows(self.start, commit, self._table.uri)
        if self._last is not None and self._last[0].header.version < header.version:
            chain.check_later(*self._last, commit, self._table.uri)
        self._last = commit, body
        self._hashes[header.version] = sha256(body)
        if header.prev is not None:
            self._hashes.setdefault(header.version - 1, header.prev)
        appended = self._log.appends(commit)
        self._appends[header.version] = appended
        self.horizon = max(self.horizon, appended.horizon)
