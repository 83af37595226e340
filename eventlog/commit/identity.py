"""Whether the log under a root is still the one that a handle was opened on.

The chain of hashes protects readers. It does not stop a writer from committing to another table
with as many versions that has replaced the first, or a vacuum from deleting that table's segments.
So a handle checks the newest commit that it has seen before it commits or deletes (FORMAT.md
R10.1).
"""

from __future__ import annotations

from eventlog.clock import Clock
from eventlog.display import command
from eventlog.errors import Corrupt, TableNotFound, VersionNotFound
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Header
from eventlog.store.branching.roots import check_there, unless_deleted
from eventlog.store.location import check_promise
from eventlog.store.retry import retrying

WINDOW_S = 1.0  # a writer that has not seen the log for this long checks it before a commit


class Identity:
    """Checks whether a log is still the known one, unless it was seen a moment ago.

    Args:
        log: the log.
        clock: measures how long ago the log was seen. If its two times disagree, as after a pause
            of the whole machine, the longer one counts.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._seen: tuple[float, int] | None = None

    def seen(self) -> None:
        """Note that the known log was just seen: its head was read, or a commit succeeded."""
        self._seen = (self._clock.elapsed_s(), self._clock.now_ms())

    def is_due(self, window_s: float = WINDOW_S) -> bool:
        """Return whether `check` would send a request. On a store that is near it always does.

        Args:
            window_s: how long a sighting of the log counts, in seconds.
        """
        return self._log.store.near or self._age_s() >= window_s

    def check(self, known: Snapshot, window_s: float = WINDOW_S) -> None:
        """Check that the log still contains the commit of `known`: at most one ranged GET.

        Args:
            known: the newest snapshot that the caller builds on.
            window_s: no request is sent if the log was seen within this many seconds, unless the
                store is near.

        Raises:
            Corrupt: it is the same table, but the commit is missing or differs.
            TableNotFound: the table was removed, and perhaps replaced by another one.
            Unavailable: the store does not answer.
        """
        if not self.is_due(window_s):
            return
        header = known.state.header
        forks = self._log.store.forks
        if forks and header.version <= forks[0].version:  # the parent has it, whatever became
            check_there(self._log.store)
        try:
            stored = self._log.header(header.version, header)
        except VersionNotFound:
            check_there(self._log.store)
            raise self._missing(header) from None
        if stored != header:
            with unless_deleted(self._log.store):
                raise Corrupt(
                    f"version {header.version} differs from the one read before: the log was "
                    f"forked or changed; run {command('fsck', self._log.store.uri)}, and open the "
                    "table again",
                    table=self._log.store.uri,
                    version=header.version,
                )
        self.seen()

    def confirm(self) -> None:
        """Check that a branch was not deleted: one small GET. Sends nothing for other tables.

        A deletion removes `_fork.json` first (FORMAT.md R16.7), so everything that was stored
        before this call was stored in a branch that still existed.

        Raises:
            TableNotFound: the branch was deleted, and perhaps made again.
            Unavailable: the store does not answer.
        """
        if self._log.store.forks:
            retrying(self._clock)(check_there, self._log.store)

    def check_before_write(self, known: Snapshot) -> None:
        """Do what `check` does, and check once that the store refuses to create a key twice.

        Args:
            known: the newest snapshot that the caller builds on.

        Raises:
            InvalidInput: the store overwrites objects, so a commit could replace another writer's.
            EventLogError: see `check`.
        """
        self.check(known)
        store = self._log.store
        if store.unproven is not None:
            retrying(self._clock)(
                check_promise, store, known.state.header.table, self._clock.random_id
            )

    def _age_s(self) -> float:
        if self._seen is None:
            return float("inf")
        elapsed_s, now_ms = self._seen
        by_wall_s = abs(self._clock.now_ms() - now_ms) / 1000
        return max(self._clock.elapsed_s() - elapsed_s, by_wall_s)

    def _missing(self, known: Header) -> TableNotFound | Corrupt:
        """Return the error for a log that no longer contains the known commit."""
        uri = self._log.store.uri
        try:
            self._log.header(0)
        except VersionNotFound:
            return TableNotFound(
                f"the table that was opened (id {known.table}) is gone: open or create it again",
                table=uri,
            )
        except TableNotFound as another:
            return another
        return Corrupt(
            f"version {known.version} was read before and is missing now: commits were removed; "
            f"run {command('fsck', uri)}, and open the table again",
            table=uri,
            version=known.version,
        )
