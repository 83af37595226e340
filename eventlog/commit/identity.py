"""Whether the log under a root is still the one that a handle knows.

Shell layer. The chain of hashes protects readers; a writer's next commit would still fit behind
another table of as many versions, and a vacuum would delete that table's segments. So a handle
looks at the newest commit that it knows before it commits or deletes (FORMAT.md R10.1).
"""

from __future__ import annotations

from eventlog.clock import Clock
from eventlog.errors import Corrupt, TableNotFound, VersionNotFound
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Header
from eventlog.store.location import check_promise
from eventlog.store.retry import retrying

WINDOW_S = 1.0  # after this long without a sign of the log, a writer looks before it commits


class Identity:
    """Looks whether a log is the one that is known, unless that was seen a moment ago.

    Args:
        log: the log.
        clock: says how long ago the log was seen. Where its two times disagree, as after a pause of
            the whole machine, the longer one counts.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._seen: tuple[float, int] | None = None

    def seen(self) -> None:
        """Note that the known log was met just now: its head was read, or a commit landed."""
        self._seen = (self._clock.elapsed_s(), self._clock.now_ms())

    def is_due(self, window_s: float = WINDOW_S) -> bool:
        """Say whether `check` would look; a store that is near is always asked."""
        return self._log.store.near or self._age_s() >= window_s

    def check(self, known: Snapshot, window_s: float = WINDOW_S) -> None:
        """Make sure that the log still holds the commit of `known`: at most one ranged GET.

        Args:
            known: the newest snapshot that the caller builds on.
            window_s: not looked for where the log was seen so short a time ago; a store that is
                near is always asked.

        Raises:
            Corrupt: it is the same table, and the commit is gone or another.
            TableNotFound: the table was removed, and maybe another one created in its place.
            Unavailable: the store does not answer.
        """
        if not self.is_due(window_s):
            return
        header = known.header
        try:
            found = self._log.header(header.version)
        except VersionNotFound:
            raise self._missing(header) from None
        if found != header:
            raise Corrupt(
                f"version {header.version} is not the one that was read before: the log was forked "
                "or changed; run `eventlog fsck`, and open the table again",
                table=self._log.store.uri,
                version=header.version,
            )
        self.seen()

    def check_before_write(self, known: Snapshot) -> None:
        """Do as `check` does, and make sure once that the store refuses to create a key twice.

        Raises:
            InvalidInput: it overwrites objects: the next commit could replace another writer's.
        """
        self.check(known)
        store = self._log.store
        if store.unproven is not None:
            retrying(self._clock)(check_promise, store, known.header.table, self._clock.token)

    def _age_s(self) -> float:
        if self._seen is None:
            return float("inf")
        elapsed_s, now_ms = self._seen
        by_wall_s = abs(self._clock.now_ms() - now_ms) / 1000
        return max(self._clock.elapsed_s() - elapsed_s, by_wall_s)

    def _missing(self, known: Header) -> TableNotFound | Corrupt:
        """Return the error of a log that does not hold the known commit any more."""
        uri = self._log.store.uri
        try:
            self._log.header(0)
        except VersionNotFound:
            return TableNotFound(
                f"the table that this handle was opened on (id {known.table}) is gone: open or "
                "create it again",
                table=uri,
            )
        except TableNotFound as another:
            return another
        return Corrupt(
            f"version {known.version} was read before and is missing: commits were removed; run "
            "`eventlog fsck`, and open the table again",
            table=uri,
            version=known.version,
        )
