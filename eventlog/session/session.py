"""`Session`: one table as one program has it open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from eventlog.clock import Clock, SystemClock
from eventlog.commit.committer import Committer
from eventlog.commit.keyframe_writing import write_keyframe
from eventlog.commit.proposal import check_proposed
from eventlog.commit.protocol.writer import CommitOutcome
from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.log.log import Log, cut_off
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action
from eventlog.model.records import App, Token, Transaction, cut_of
from eventlog.session.branch_pins import check_branch_pinned
from eventlog.session.sightings import ClaimSightings
from eventlog.session.writer_name import writer_name
from eventlog.state.version import VersionState
from eventlog.store.parallel import start
from eventlog.store.port import ObjectStore
from eventlog.telemetry.signals import Attributes, add_to, in_span


class Session:
    """One table as one program has it open; remembers its newest snapshot between commits.

    So a commit with a warm session needs no read at all. Sessions are cheap and thread-safe. They
    can be pickled and sent to other processes: the state that they remember stays behind, except
    the id of the table.

    Args:
        store: the store of the table.
        clock: the machine's if None.

    Attributes:
        store: the store of the table.
        clock: for waits, ids and, if the store has no clock, times.
        log: the log of the table.
        committer: commits to the log.
        sightings: how long each claim has been seen unchanged.
        attempted: the transaction whose commit this session began last.
        uploads: whether the last append stored objects before its commit.
        warned_of_chunks: whether it was logged that the granularity does not fit.
    """

    def __init__(self, store: ObjectStore, clock: Clock | None = None) -> None:
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.log = Log(store)
        self.committer = Committer(self.log, self.clock)
        self.sightings = ClaimSightings()
        self.attempted: Transaction | None = None
        self.uploads = True
        self.warned_of_chunks = False
        self._head: Snapshot | None = None
        self._lock = Lock()

    @property
    def uri(self) -> str:
        """The root URI."""
        return self.store.uri

    @property
    def known(self) -> Snapshot | None:
        """The newest snapshot that this session has read, or None if it has read none yet."""
        return self._head

    def head(self) -> Snapshot:
        """Return the newest snapshot that this session has read; requests only the first time.

        Raises:
            TableNotFound: there is no table at this root.
        """
        known = self._head
        if known is None:
            known = self.log.head()
            self.advance(known)
        return known

    def refresh(self) -> Snapshot:
        """Read the newest version and return it; the version never decreases.

        Costs one GET if there is no newer version.

        Raises:
            TableNotFound: the answer shows that another table is stored under this root now.
        """
        known = self._head
        if known is None:
            return self.head()
        newest = self.log.newer(known)
        if newest is known and self.store.near:
            self.verify()
        self.advance(newest)
        return newest

    def snapshot(self, version: int) -> Snapshot:
        """Return the snapshot of a version; no request if it is that of `head`.

        Raises:
            VersionCut: the log is cut above it.
            VersionNotFound: there is no such version.
        """
        known = self._head
        if known is not None and version == known.state.header.version:
            return known
        if known is not None and version < cut_of(known.meta):
            raise cut_off(version, self.uri)
        found = self.log.snapshot(version)
        if self.log.table is None:  # against unread-handle-follows-another-table
            self.log.table = found.state.header.table
        return found

    def create(self, transaction: Transaction, table_id: str) -> None:
        """Commit version 0 of a new table.

        Args:
            transaction: the transaction that creates the table.
            table_id: the id of the new table.

        Raises:
            AlreadyExists: there is already a table under this root.
            CommitUnknown: the store gave no clear answer.
        """
        self.advance(self.committer.create(transaction, table_id).head)

    def commit(self, transaction: Transaction) -> int:
        """Commit a transaction and return the version that contains it; see `Table.commit`."""
        check_proposed(transaction)
        check_branch_pinned(self.store, self.head().state.header.version)
        self.attempted = transaction
        with in_span("eventlog.commit", table=self.uri, operation=transaction.operation) as note:
            try:
                outcome = self.committer.commit(transaction, self.head())
            except (ClaimLost, CommitConflict) as error:
                add_to("conflicts", error=type(error).__name__)
                # The commit has just read the newest version, where the next attempt is to start.
                self.advance(self.committer.newest or self.head())  # against failing-writer-deletes
                raise
            facts = _facts(outcome)
            if facts.get("transactions", 1) != 1:
                add_to("combined")
            note(facts)
        self.advance(outcome.head)
        return outcome.version

    def transaction(
        self,
        operation: str,
        actions: Iterable[Action],
        *,
        read_version: int | None = None,
        app: App | None = None,
        claim: Token | None = None,
        info: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Return a new transaction with a fresh id, based on `head`; see `Table.transaction`."""
        return Transaction(
            id=self.clock.random_id(),
            operation=operation,
            writer=writer_name(),
            read_version=self.head().state.header.version if read_version is None else read_version,
            app=app,
            claim=claim,  # against work-without-its-token
            actions=tuple(actions),
            info=dict(sorted((info or {}).items(), key=lambda item: item[0].encode())),
        )

    def verify(self, within_s: float = 0.0) -> None:
        """Check that the log is still the one that this session has read: one small GET.

        Args:
            within_s: send no request if this session verified the log within the last `within_s`
                seconds.

        Raises:
            Corrupt: commits that this session has read were removed or changed.
            TableNotFound: the table was removed, and possibly replaced by another.
        """
        self.committer.identity.check(self.head(), within_s)

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """Run the preparations for the next commit in a thread, while a block of work runs.

        These are `verify`, if it is due, and reading the transactions that other writers have
        published for a leader to commit. Where nothing is uploaded, no commit waits for these: they
        are read during the next one.

        Raises:
            Corrupt: as `verify`, after the block has ended without an error.
            TableNotFound: likewise.
        """
        committer = self.committer
        verifies = not self.store.near and committer.identity.is_due()
        reads = self.uploads and committer.reads_ahead
        if not verifies and not reads:
            yield
            return

        def prepare(committer: Committer) -> None:
            if verifies:
                self.verify()
            if reads:
                with suppress(EventLogError):  # best effort: it only helps other writers
                    committer.read_ahead(self.head())

        with ThreadPoolExecutor(1, thread_name_prefix="eventlog-beside") as pool:
            preparations = start(pool, prepare, committer)
            yield
            preparations.result()

    def write_keyframe(self) -> int:
        """Write the key frame of the newest version, even if it is not due; return the version."""
        head = self.refresh()
        self.verify()
        if head.base is None or head.base.version != head.version:
            self.advance(write_keyframe(self.log, self.clock, head))
        return head.version

    def adopt(self, state: VersionState) -> None:
        """Use a state that another session has read, if this one has read none yet: no request.

        The first commit still checks that the log has the commit of that version.

        Args:
            state: `Snapshot.state` of the other session, perhaps of another process.
        """
        with self._lock:
            if self._head is None:
                self.log.table = state.header.table
                self._head = Snapshot(state, self.log)

    def advance(self, newest: Snapshot) -> None:
        """Remember a snapshot of this log that was just read, unless a newer one is known."""
        version = newest.state.header.version
        with self._lock:  # a thread with an older snapshot must not overwrite a newer one
            known = -1 if self._head is None else self._head.state.header.version
            if version > known:
                self.committer.identity.seen()
                self.log.table = newest.state.header.table
            if version >= known:  # against overtaken-refresh-wins
                self._head = newest

    def __getstate__(self) -> dict[str, Any]:
        # The id is included: the other process must open the same table, or fail.
        return {"store": self.store, "clock": self.clock, "table": self.log.table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["store"], state["clock"])  # type: ignore[misc]
        self.log.table = state["table"]


def _facts(outcome: CommitOutcome) -> Attributes:
    """Return the attributes of a commit's span, those of a combined one for all of it."""
    header = outcome.head.state.header
    if header.version != outcome.version:  # another writer's commit took it along, perhaps
        return {"version": outcome.version}
    changes = header.changes
    names = ("transactions", "adds", "drops", "rows", "bytes")
    return {"version": outcome.version, **{name: getattr(changes, name) for name in names}}
