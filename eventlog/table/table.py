"""`Table`: the public face of a log.

Shell layer. The methods carry the contract; pins, claims, settings and restore are functions in the
modules beside. A handle remembers the newest snapshot that it saw, so that a warm append needs no
read at all. Handles are cheap, may be used from several threads, and can be pickled to other
processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import pyarrow as pa

from eventlog.arguments import text, whole
from eventlog.clock import Clock, SystemClock
from eventlog.commit.committer import Committer
from eventlog.commit.framing import write_keyframe
from eventlog.commit.proposal import check_transaction
from eventlog.errors import (
    ClaimLost,
    CommitConflict,
    InvalidInput,
    Unavailable,
    UnsupportedFormat,
    VersionNotFound,
)
from eventlog.log import diff, history
from eventlog.log.history import HistoryEntry
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import (
    Action,
    App,
    Claim,
    ClaimKind,
    Segment,
    Token,
    Transaction,
)
from eventlog.query.moments import Moment, to_ms
from eventlog.store.location import check_absent, open_store, probe
from eventlog.store.port import ObjectStore
from eventlog.table import holding, restoration, settings
from eventlog.table.creation import creation
from eventlog.table.leases import Lease
from eventlog.table.ports import Watch
from eventlog.table.writer import writer_name


class Table:
    """A table: a root URI and everything under it. Get one with `Table.create` or `Table.open`."""

    def __init__(self, store: ObjectStore, clock: Clock | None = None) -> None:
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.watch = Watch()
        self._log = Log(store)
        self._committer = Committer(self._log, self.clock)
        self._head: Snapshot | None = None
        self._lock = Lock()

    @classmethod
    def create(  # noqa: PLR0913 - the public API
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        time_column: str,
        granularity: str = "day",
        key: Iterable[str] = (),
        buckets: int | None = None,
        order_by: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
    ) -> Table:
        """Create a table and return a handle to it.

        The store is probed first: one that ignores preconditions would lose commits.

        Args:
            uri: `s3://bucket/prefix`, a local directory, or `memory://name`.
            schema: the Arrow schema of the rows.
            time_column: the event-time column, a timestamp or a date.
            granularity: of the time chunks: hour, day, month, year or all.
            key: for keyed tables, which this release does not have.
            buckets: likewise.
            order_by: columns by which rows are sorted inside a segment.
            properties: table properties (FORMAT.md R7.5).
            storage_options: override the AWS environment; see `eventlog.store.options`.
            store: use this store instead of opening `uri`.
            clock: use this clock instead of the machine's.

        Raises:
            AlreadyExists: a table lies there.
            InvalidInput: an argument is wrong, or the store ignores preconditions.
            UnsupportedFormat: a keyed table was asked for.
        """
        if not isinstance(key, tuple | list) or key or buckets is not None:
            raise UnsupportedFormat(
                "keyed tables (key=, buckets=) need a later release of eventlog"
            )
        actions = creation(schema, time_column, granularity, order_by, properties)
        table = cls(store or open_store(uri, storage_options, clock), clock)
        check_absent(table.store)
        table_id = table.clock.token()
        probe(table.store, table_id)
        transaction = table.transaction("create", actions, read_version=-1)
        table._advance(table._committer.create(transaction, table_id).head)
        return table

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
    ) -> Table:
        """Return a handle to the table at `uri`: at most three requests, at any length of history.

        Raises:
            TableNotFound: no table lies there.
            Corrupt: its newest commit breaks the format.
            UnsupportedFormat: it needs a newer release.
        """
        table = cls(store or open_store(uri, storage_options, clock), clock)
        table.head()
        return table

    @property
    def uri(self) -> str:
        """The root URI."""
        return self.store.uri

    @property
    def id(self) -> str:
        """The table's id, the same wherever it is copied: 32 hexadecimal digits."""
        return self.head().header.table

    @property
    def log(self) -> Log:
        """The log, for tools that walk it."""
        return self._log

    def head(self) -> Snapshot:
        """Return the newest snapshot that this handle knows; no request once it knows one.

        Raises:
            TableNotFound: no table lies there.
        """
        known = self._head
        if known is None:
            known = self._log.head()
            self._advance(known)
        return known

    def snapshot(self, version: int | None = None, timestamp: Moment | None = None) -> Snapshot:
        """Return the table at its newest version, at `version`, or as it was at `timestamp`.

        Args:
            version: 0 or more.
            timestamp: the newest version at or before it; see `eventlog.query.moments.to_ms`.

        Raises:
            InvalidInput: both were given.
            VersionNotFound: there is no such version, or the table is younger.
        """
        if version is not None and timestamp is not None:
            raise InvalidInput("give a version or a timestamp, not both")
        if timestamp is not None:
            time_ms = to_ms(timestamp)
            version = history.version_at(self._log, self.refresh(), time_ms)
        if version is None:
            return self.refresh()
        version = whole(version, "version")
        if self._head is not None and version == self._head.version:
            return self._head
        try:
            return self._log.snapshot(version)
        except VersionNotFound:
            self.verify()
            raise

    def refresh(self) -> Snapshot:
        """Look for news and return the head: one GET where there is none. Never goes backwards.

        Raises:
            TableNotFound: another table lies here by now, as far as the answer tells.
        """
        known = self._head
        if known is None:
            return self.head()
        newest = self._log.newer(known)
        if newest is known and self.store.near:
            self.verify()
        self._advance(newest)
        return newest

    def history(self, start: int | None = None, limit: int | None = None) -> Iterator[HistoryEntry]:
        """Yield the versions, newest first.

        Args:
            start: the version to start at; the head if None.
            limit: at most so many; all if None. Headers are read page by page as consumed.

        Raises:
            VersionNotFound: there is no version `start`.
        """
        most = None if limit is None else whole(limit, "limit")
        top = self.refresh().version if start is None else whole(start, "start")
        return history.history(self._log, top, most, self.head().meta.clock)

    def diff(self, a: int, b: int) -> diff.Diff:
        """Return the segments added and dropped on the way from version `a` to version `b`.

        Raises:
            VersionNotFound: there is no such version.
        """
        return diff.diff(self.snapshot(a), self.snapshot(b))

    def commit(self, transaction: Transaction) -> int:
        """Commit a transaction and return the version that holds it.

        This handle takes the same transaction again after `CommitUnknown`; it has one effect. Any
        other handle must ask `find_transaction` first, unless the transaction has an (app id,
        sequence): that has one effect from wherever it comes.

        Raises:
            ClaimLost: the claim that it runs under is gone; nothing was committed.
            CommitConflict: it cannot be carried to the head; nothing was committed.
            CommitUnknown: nobody could say whether it landed.
            InvalidInput: the transaction passes the bounds of the format.
            Unavailable: the store does not answer; nothing was committed.
        """
        check_transaction(transaction)
        try:
            outcome = self._committer.commit(transaction, self.head())
        except (ClaimLost, CommitConflict):
            # against failing-writer-deletes
            self.refresh()  # so that the next attempt starts from what was met
            raise
        self._advance(outcome.head)
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
        """Return a new transaction with a fresh id, formed on the newest version known.

        Args:
            operation: what it is, for people.
            actions: what it does, in order.
            read_version: the version that it was formed on, if another.
            app: of a unit of work that must not take effect twice.
            claim: of a lease: without it the transaction is void.
            info: free text for people.
        """
        return Transaction(
            id=self.clock.token(),
            operation=operation,
            writer=writer_name(),
            read_version=self.head().version if read_version is None else read_version,
            app=app,
            claim=claim,  # against work-without-its-token
            actions=tuple(actions),
            info=dict(sorted((info or {}).items(), key=lambda item: item[0].encode())),
        )

    def find_transaction(
        self, transaction_id: str, start: int = 0, until: int | None = None
    ) -> int | None:
        """Return the version, from `start` on, in which the transaction took effect, or None.

        What to ask after `CommitUnknown`, with its `version` and `until`: one GET a version.

        Raises:
            CommitUnknown: the table has not come to `until` (or `start`): it may still arrive.
        """
        first = whole(start, "start")
        last = first if until is None else whole(until, "until")
        wanted = text(transaction_id, "a transaction's id")
        return history.find_transaction(self._log, wanted, first, self.refresh().version, last)

    def restore(self, version: int) -> int:
        """Make the live segments those of `version` again, and return the committed version.

        Nothing is copied. Schema and properties stay as they are.

        Raises:
            CommitConflict: somebody committed rows meanwhile; nothing was changed.
            DataLoss: a segment to bring back is missing; nothing was changed.
            VersionNotFound: there is no such version.
            VersionVacuumed: it lies below the horizon.
        """
        head = self.refresh()
        actions = restoration.restoration(head, self.snapshot(version), self.uri)
        return restoration.commit_restoration(self, actions, head, version)

    def pin(self, name: str, version: int | None = None, *, owner: str | None = None) -> int:
        """Hold a version against vacuum, and return it; the newest if None.

        Idempotent: the same pin again changes nothing. It holds until `unpin` or `break_pin`.

        Args:
            name: unique in the table, 1 to 255 characters.
            version: at or above the horizon.
            owner: who may unpin it; this user on this host if None.

        Raises:
            CommitConflict: the name is taken.
            VersionNotFound: there is no such version.
            VersionVacuumed: it lies below the horizon.
        """
        return holding.pin(self, name, version, owner=owner)

    def unpin(self, name: str, *, owner: str | None = None) -> None:
        """Give up one's own pin.

        Raises:
            CommitConflict: it belongs to somebody else (see `break_pin`), or went meanwhile.
            InvalidInput: there is no such pin.
        """
        holding.unpin(self, name, owner=owner)

    def break_pin(self, name: str) -> None:
        """Remove a pin whoever's it is; the history shows who did.

        Raises:
            CommitConflict: it went meanwhile, or another took its name.
            InvalidInput: there is no such pin.
        """
        holding.break_pin(self, name)

    def claims(self) -> Mapping[str, Claim]:
        """Return the claims that stand, by id."""
        return self.refresh().meta.claims

    def claim(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        segments: Iterable[Segment] = (),
        kind: ClaimKind = "exclusive",
        priority: int = 0,
        group: str | None = None,
        owner: str | None = None,
        take_over: bool = False,
    ) -> Lease:
        """Take a lease on the time range [start, end), or on segments.

        Appends need no claim and heed none. A commit that carries the lease's token
        (`transaction(…, claim=lease.token)`) is void once the lease is gone, whatever any clock
        says. Use the lease as a context manager, or release it; and renew it at least every
        `leases.RENEW_S` seconds, or others may break it as stale.

        Args:
            start: begin of the range, see `eventlog.query.moments.to_ms`; the range of
                `segments`, or all time, if None.
            end: its end (exclusive).
            segments: claim only these live segments; none claims the whole range.
            kind: exclusive stands with no other claim on the same range or segment; shared ones
                stand together.
            priority: a claim of lower priority that stands in the way is revoked.
            group: the work it is for: a second request of the same group for the same range keeps
                the claim that the group has. A fresh one if None.
            owner: who, for people; this user on this host if None.
            take_over: break a claim in the way that is stale
                (`leases.is_silent`). What this handle waited between calls counts.

        Raises:
            ClaimLost: it was granted, and revoked again at once.
            CommitConflict: a claim of the same or a higher priority stands in the way; the message
                names it and its owner.
            InvalidInput: an argument is wrong.
        """
        wanted = holding.claim_action(
            self.clock.token(),
            start,
            end,
            segments,
            kind=kind,
            priority=priority,
            group=group,
            owner=owner,
        )
        return holding.grant(self, wanted, take_over=take_over)

    def break_claim(self, claim_id: str, *, silent_s: float = 0) -> None:
        """Remove somebody else's claim; the history shows who did. Its holder's commits are void.

        Args:
            claim_id: see `claims`.
            silent_s: watch for so many seconds first; a claim that its holder renews is not broken.
                Measured by this program's own waiting, never by comparing clocks (hazard K3).

        Raises:
            CommitConflict: its holder is alive, or it went meanwhile.
            InvalidInput: there is no such claim.
        """
        holding.break_claim(self, claim_id, silent_s=silent_s)

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set properties (None removes one) and return the committed version.

        Raises:
            CommitConflict: somebody changed one of them meanwhile.
            InvalidInput: a name or a value is wrong.
        """
        return settings.set_properties(self, properties)

    def add_columns(self, schema: pa.Schema) -> int:
        """Extend the table's columns to those of `schema` and return the committed version.

        Raises:
            CommitConflict: somebody changed the schema meanwhile.
            InvalidInput: a column would vanish, change its type, or be new but not nullable.
        """
        return settings.add_columns(self, schema)

    def set_granularity(self, granularity: str) -> int:
        """Cut new rows into time chunks of another size, and return the committed version.

        Segments stay as they are until compaction rewrites them; writers that learn of it later
        write at the old granularity, and their rows count all the same.

        Raises:
            CommitConflict: somebody changed it meanwhile.
            InvalidInput: there is no such granularity.
        """
        return settings.set_granularity(self, granularity)

    def set_clock(self, moment: Moment | None = None) -> int:
        """Correct the table's time, which a wrong clock drove off; return the committed version.

        For a person who has looked (`eventlog clock`). The commit is stamped with the true time,
        and later ones go on from there. Versions before it that were stamped later are taken for
        ones of that time; where the clock goes ahead (by more than ten years, which nothing else
        may), all of them are: nobody knows better, and none is given up too early. Nothing else
        changes, whatever the time is set to.

        Args:
            moment: the true time; that of the store, else of this machine, if None.

        Raises:
            CommitConflict: others committed meanwhile; or the table's time needs no correction.
        """
        return settings.set_clock(self, moment)

    def verify(self, within_s: float = 0.0) -> None:
        """Make sure that the log here is still the one that this handle knows: one small GET.

        Commits and vacuums do so by themselves (FORMAT.md R10.1).

        Args:
            within_s: no request where this handle met the log so short a time ago.

        Raises:
            Corrupt: commits that it knows were removed or changed.
            TableNotFound: the table was removed, and maybe another one created in its place.
        """
        self._committer.identity.check(self.head(), within_s)

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """Do beside a block of work what the next commit would wait for, if there is anything.

        That is `verify`, and reading what other writers have published for this one to commit.

        Raises: as `verify`, when the block has ended without an error.
        """
        committer = self._committer
        verifies = not self.store.near and committer.identity.is_due()
        if not verifies and not committer.reads_ahead:
            yield
            return

        def look() -> None:
            if verifies:
                self.verify()
            with suppress(Unavailable):  # it is for the others
                committer.read_ahead(self.head())

        with ThreadPoolExecutor(1, thread_name_prefix="eventlog-beside") as beside:
            looking = beside.submit(look)
            yield
            looking.result()

    def write_keyframe(self) -> int:
        """Write the key frame of the head now, whether due or not; return its version."""
        head = self.refresh()
        self.verify()
        if head.base is None or head.base.version != head.version:
            self._advance(write_keyframe(self._log, self.clock, head))
        return head.version

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"

    def __getstate__(self) -> dict[str, Any]:
        # The id: opened in another process it is the same table, or an error.
        return {"store": self.store, "clock": self.clock, "table": self._log.table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["store"], state["clock"])  # type: ignore[misc]
        self._log.table = state["table"]

    def _advance(self, newest: Snapshot) -> None:
        with self._lock:  # of two threads, the one that saw less must not have the last word
            if self._head is None or newest.version > self._head.version:
                self._committer.identity.seen()
                self._log.table = newest.header.table
            # against overtaken-refresh-wins
            if self._head is None or newest.version >= self._head.version:
                self._head = newest
