"""`Table`: a table as a user meets it, over a `Session`.

The contract is in the docstrings of the methods. The session reads and commits; pins, claims,
settings and restore are in the other modules of this package. A handle keeps the newest snapshot it
has read, so an append with a warm handle needs no read at all. Handles are cheap, thread-safe, and
can be pickled and sent to other processes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from eventlog.arguments import opened, text, whole
from eventlog.clock import Clock
from eventlog.commit.proposal import check_writable
from eventlog.display import Described, Description
from eventlog.errors import AlreadyExists, InvalidInput, VersionNotFound
from eventlog.format import keys
from eventlog.log import chain, diff, history
from eventlog.log.history import HistoryEntry
from eventlog.log.snapshot import Snapshot, version_description
from eventlog.model.actions import Action
from eventlog.model.chunks import parse_chunk
from eventlog.model.columns.words import schema_changes
from eventlog.model.entries import ClaimKind, Segment
from eventlog.model.records import App, Claim, Token, Transaction
from eventlog.query.moments import Moment, to_last_ms, to_ms
from eventlog.query.predicate import Where
from eventlog.segments.fragments import DEFAULT_BATCH_ROWS
from eventlog.session.session import Session
from eventlog.session.tags import VersionOrName, tag_versions, version_number
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.state.delta import drop_of
from eventlog.store.branching.branch import BranchStore
from eventlog.store.location import check_absent, open_store, probe
from eventlog.store.port import ObjectStore
from eventlog.table import checking, evolving, pins_and_claims, restoration, settings
from eventlog.table.branching import deleting, making, names
from eventlog.table.branching.names import Branch
from eventlog.table.creation import check_fits, creation, several_rows_of_a_key
from eventlog.table.inspection.choosing import Wanted, chosen
from eventlog.table.inspection.inspector import Inspector
from eventlog.table.leases import Lease
from eventlog.table.restoration import RestorePlan, UndoneUnits

if TYPE_CHECKING:
    from eventlog.compaction import Policy
    from eventlog.merging.merger import Merged
    from eventlog.merging.planning.by_state.sides import Take
    from eventlog.monitoring import TableStats
    from eventlog.readers import Changes, FirstRows, Scan
    from eventlog.writers import Appender, Isolation, Matched, RowChange

# What the library itself calls, or a program that makes transactions of its own.
_MACHINERY = frozenset(
    ("clock", "commit", "session", "store", "transaction", "verify", "write_keyframe")
)


class Table(Described):
    """A table: a root URI and everything under it. Get one with `Table.create` or `Table.open`.

    Attributes:
        session: with which the library itself reads and commits; no part of the public API.
    """

    def __init__(self, store: ObjectStore, clock: Clock | None = None) -> None:
        self.session = Session(store, clock)

    @classmethod
    def create(  # noqa: PLR0913 - the public API
        cls,
        uri: str | os.PathLike[str],
        schema: Any,
        *,
        time_column: str | None = None,
        granularity: str | None = None,
        key: str | Iterable[str] = (),
        buckets: int | None = None,
        order_by: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        checks: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        storage_options: Mapping[str, str] | None = None,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
    ) -> Table:
        """Create a table and return a handle to it (docs/guides/choosing.md).

        Args:
            uri: `s3://bucket/prefix`, a local directory, or `memory://name`.
            schema: the columns: a pyarrow schema, text such as `at timestamp, id bigint not null`,
                a dict of types by name, or something with such columns, as a frame.
            time_column: the event-time column, a timestamp or a date; None: the table has none.
            granularity: of the time chunks: hour, day, month, year, all, or auto: it follows the
                data (docs/concepts/time-chunks.md); auto if None, with a key or without times all.
            key: the columns that identify a row; they make the table a keyed one, which merges rows
                of one key (docs/guides/keyed.md). They cannot be null.
            buckets: of a keyed table: into how many parts keys are divided; 16 if None.
            order_by: columns by which rows are sorted inside a segment. In a keyed table one
                column, whose values decide which row of a key is the later one.
            properties: table properties (FORMAT.md R7.5), and of a keyed table its merge rule.
            checks: by name, the expressions of its checks; see `add_check`.
            exist_ok: open the table if it exists, and rows of this schema can be added to it; its
                properties and further checks may differ. Two that create it at once both get it.
            storage_options: override the AWS environment; see `eventlog.store.options`.
            store: use this store instead of opening `uri`.
            clock: use this clock instead of the machine's.

        Raises:
            AlreadyExists: there is already a table at `uri`; with `exist_ok`, another one.
            InvalidInput: an argument is wrong, the store ignores preconditions, or there is a table
                of Delta or Iceberg at `uri`.
        """
        cut = time_column, granularity, order_by
        actions = creation(schema, *cut, properties, key=key, buckets=buckets, checks=checks)
        table = cls(store or open_store(uri, storage_options, clock), clock)
        try:
            _begin(table, actions)
        except AlreadyExists:
            if not exist_ok:
                raise
            table = cls(table.store, clock)
            check_fits(table.session.head(), actions, granularity, buckets, table.uri)
        return table

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        branch: str | None = None,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
    ) -> Table:
        """Return a handle to the table at `uri`, or to one of its branches. Sends no request.

        The first call on the handle reads the version that it needs: the newest in at most three
        requests, any other in two, however long the history is. A branch takes two more: where it
        forks, and a LIST of its parent's log as long as its own is short. Call `refresh` to find
        out at once whether there is a table.

        Args:
            uri: as for `create`. That of a branch is its parent's with `/_branches/<name>`.
            storage_options: override the AWS environment; see `eventlog.store.options`.
            branch: the name of a branch of that table.
            store: use this store instead of opening `uri`.
            clock: use this clock instead of the machine's.

        Raises:
            InvalidInput: no branch may have this name, or `uri` has no form of a location.
            TableNotFound: there is no table at `uri`, or no such branch. As the next two, it is
                raised by the first call on the handle.
            Corrupt: its newest commit violates the format.
            UnsupportedFormat: the table needs a newer release.
        """
        root_store = store or open_store(uri, storage_options, clock)
        return cls(root_store if branch is None else BranchStore(root_store, branch), clock)

    @property
    def uri(self) -> str:
        """The root URI."""
        return self.session.uri

    @property
    def id(self) -> str:
        """The table's id, 32 hexadecimal digits. A copy of the table has the same id."""
        return self.session.head().header.table

    @property
    def store(self) -> ObjectStore:
        """The store of the table."""
        return self.session.store

    @property
    def clock(self) -> Clock:
        """The clock of this handle."""
        return self.session.clock

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows, at the newest version that this handle has read."""
        return self.session.head().schema

    def append(
        self,
        data: Any,
        *,
        app_id: str | None = None,
        app_seq: int | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        missing: Missing | None = None,
        evolve: bool = False,
    ) -> int:
        """Append rows, and return the committed version; see `eventlog.writers.append`."""
        from eventlog.writers import append  # noqa: PLC0415 - writers stand above the table

        return append(
            self,
            data,
            app_id=app_id,
            app_seq=app_seq,
            memory_bytes=memory_bytes,
            missing=missing,
            evolve=evolve,
        )

    def appender(
        self,
        *,
        app_id: str | None = None,
        max_rows: int = 100_000,
        max_bytes: int = 16 * 2**20,
        max_delay_s: float = 1.0,
        buffer_bytes: int = 64 * 2**20,
        retry_s: float = 120.0,
        missing: Missing | None = None,
    ) -> Appender:
        """Return what commits appends of a running process in groups; see `Appender`."""
        from eventlog.writers import Appender  # noqa: PLC0415 - see append

        return Appender(
            self,
            app_id=app_id,
            max_rows=max_rows,
            max_bytes=max_bytes,
            max_delay_s=max_delay_s,
            buffer_bytes=buffer_bytes,
            retry_s=retry_s,
            missing=missing,
        )

    def upsert(
        self,
        data: Any,
        *,
        app_id: str | None = None,
        app_seq: int | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        missing: Missing | None = None,
        evolve: bool = False,
    ) -> int:
        """Insert rows of a keyed table or merge them by key; see `eventlog.writers.upsert`."""
        from eventlog.writers import upsert  # noqa: PLC0415 - see append

        return upsert(
            self,
            data,
            app_id=app_id,
            app_seq=app_seq,
            memory_bytes=memory_bytes,
            missing=missing,
            evolve=evolve,
        )

    def overwrite(  # noqa: PLR0913 - the public API
        self,
        data: Any,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        where: Where | None = None,
        isolation: Isolation = "snapshot",
        read_version: VersionOrName | None = None,
        app_id: str | None = None,
        app_seq: int | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        missing: Missing | None = None,
        evolve: bool = False,
        dry_run: bool = False,
    ) -> RowChange:
        """Replace the rows of a range or of a predicate; see `eventlog.writers.overwrite`."""
        from eventlog.writers import overwrite  # noqa: PLC0415 - see append

        return overwrite(
            self,
            data,
            start=start,
            end=end,
            where=where,
            isolation=isolation,
            read_version=read_version,
            app_id=app_id,
            app_seq=app_seq,
            memory_bytes=memory_bytes,
            missing=missing,
            evolve=evolve,
            dry_run=dry_run,
        )

    def delete(
        self,
        where: Where | None = None,
        *,
        keys: Any = None,
        app_id: str | None = None,
        app_seq: int | None = None,
        isolation: Isolation = "snapshot",
        dry_run: bool = False,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> RowChange:
        """Delete the rows that a predicate selects, or of keys; see `eventlog.writers.delete`."""
        from eventlog.writers import delete  # noqa: PLC0415 - see append

        return delete(
            self,
            keys=keys,
            where=where,
            app_id=app_id,
            app_seq=app_seq,
            isolation=isolation,
            dry_run=dry_run,
            memory_bytes=memory_bytes,
        )

    def update(
        self,
        set: Mapping[str, Any],  # noqa: A002 - the word of SQL
        where: Where | None = None,
        *,
        app_id: str | None = None,
        app_seq: int | None = None,
        isolation: Isolation = "snapshot",
        dry_run: bool = False,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> RowChange:
        """Give columns of selected rows new values; see `eventlog.writers.update`."""
        from eventlog.writers import update  # noqa: PLC0415 - see append

        return update(
            self,
            set,
            where,
            app_id=app_id,
            app_seq=app_seq,
            isolation=isolation,
            dry_run=dry_run,
            memory_bytes=memory_bytes,
        )

    def merge_rows(  # noqa: PLR0913 - the public API
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        when_matched: Matched = "update",
        when_not_matched: Literal["insert", "ignore"] = "insert",
        when_not_matched_by_source: Literal["ignore", "delete"] = "ignore",
        app_id: str | None = None,
        app_seq: int | None = None,
        evolve: bool = False,
        dry_run: bool = False,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> RowChange:
        """Merge the rows of a source by columns; see `eventlog.writers.merge`.

        `merge` merges a branch.
        """
        from eventlog.writers import merge  # noqa: PLC0415 - see append

        return merge(
            self,
            source,
            on,
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            when_not_matched_by_source=when_not_matched_by_source,
            app_id=app_id,
            app_seq=app_seq,
            evolve=evolve,
            dry_run=dry_run,
            memory_bytes=memory_bytes,
        )

    def scan(  # noqa: PLR0913 - the parts of one query
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: VersionOrName | None = None,
        timestamp: Moment | None = None,
        *,
        limit: int | None = None,
        overflow: str = "error",
        batch_rows: int = DEFAULT_BATCH_ROWS,
        fallback: bool = False,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> Scan:
        """Return a scan of one version; see `eventlog.readers.scan`."""
        from eventlog.readers import scan  # noqa: PLC0415 - readers stand above the table

        return scan(
            self,
            columns,
            where,
            version,
            timestamp,
            limit=limit,
            overflow=overflow,
            batch_rows=batch_rows,
            fallback=fallback,
            memory_bytes=memory_bytes,
        )

    def head(self, n: int = 5) -> FirstRows:
        """Return the first rows of the newest version, which a prompt shows as a table.

        Args:
            n: how many. No more segments are read than they need.

        Raises: as `eventlog.readers.Scan.to_batches`.
        """
        return self.scan().head(n)

    def count(
        self,
        where: Where | None = None,
        version: VersionOrName | None = None,
        timestamp: Moment | None = None,
        *,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> int:
        """Return the number of rows of one version; see `eventlog.readers.count`."""
        from eventlog.readers import count  # noqa: PLC0415 - see scan

        return count(self, where, version, timestamp, memory_bytes=memory_bytes)

    def changes(
        self,
        start: VersionOrName,
        end: VersionOrName | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        overflow: str = "error",
        batch_rows: int = DEFAULT_BATCH_ROWS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> Changes:
        """Return the changes of rows between two versions; see `eventlog.readers.changes`."""
        from eventlog.readers import changes  # noqa: PLC0415 - see scan

        return changes(
            self,
            start,
            end,
            columns,
            where,
            overflow=overflow,
            batch_rows=batch_rows,
            memory_bytes=memory_bytes,
        )

    def snapshot(
        self, version: VersionOrName | None = None, timestamp: Moment | None = None
    ) -> Snapshot:
        """Return the table at its newest version, at `version`, or as it was at `timestamp`.

        Args:
            version: 0 or more, or the name of a tag or pin, which is looked up in the newest
                version. So is every version that a method takes.
            timestamp: selects the newest version committed at or before it; for the accepted forms
                see `eventlog.query.moments.to_ms`.

        Raises:
            Corrupt: the commits do not add up; or that of `timestamp`, or the one above it, is not
                the one that the next version follows, so that its time proves nothing.
            InvalidInput: both `version` and `timestamp` were given.
            VersionNotFound: there is no such version, or the table did not exist at `timestamp`.
        """
        if version is not None and timestamp is not None:
            raise InvalidInput("give a version or a timestamp, not both")
        try:
            if version is not None:
                return self.session.snapshot(version_number(self.session, version))
            if timestamp is not None:
                time_ms = to_ms(timestamp)
                return history.snapshot_at(self.session.log, self.refresh(), time_ms)
            return self.refresh()
        except VersionNotFound:
            self.verify()
            raise

    def refresh(self) -> Snapshot:
        """Read the newest version and return it; the version never decreases.

        Costs one GET if there is no newer version.

        Raises:
            TableNotFound: the answer shows that another table is stored under this root now.
        """
        return self.session.refresh()

    @property
    def inspect(self) -> Inspector:
        """What the log records, as Arrow tables: `t.inspect.history()`, `.segments()`, ….

        These are `history`, `transactions`, `segments`, `chunks`, `claims`, `pins`, `tags`,
        `replicas` and `branches`.
        """
        return Inspector(self.session, self.snapshot)

    def history(  # noqa: PLR0913 - the public API
        self,
        start: VersionOrName | None = None,
        limit: int | None = None,
        *,
        after: VersionOrName | None = None,
        operation: str | None = None,
        writer: str | None = None,
        app: str | None = None,
        chunk: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Iterator[HistoryEntry]:
        """Yield the versions, newest first: all, or those that one of their transactions chooses.

        Args:
            start: the version to start at; the head if None.
            limit: the maximum number of versions; all if None. Headers are read in pages, as the
                iterator is consumed. For `app` and `chunk`, and where writers were combined, also
                commits.
            after: only versions above this one.
            operation: only versions with this operation, such as `append`.
            writer: only those with a writer whose name contains this text.
            app: only those with a unit of work of this app.
            chunk: only those that added, dropped or deleted rows of this time chunk, or of one that
                overlaps it.
            since: only those committed at this time or later.
            until: only those committed at this time or before; of a date, until its end (UTC).

        Raises:
            InvalidInput: an argument is wrong.
            VersionNotFound: there is no version `start`.
        """
        most = None if limit is None else whole(limit, "limit")
        first = None if start is None else version_number(self.session, start, "start")
        if first is not None:
            first = whole(first, "start", high=keys.MAX_VERSION)
        wanted = Wanted(
            operation,
            writer,
            app,
            None if chunk is None else parse_chunk(text(chunk, "chunk")),
            None if since is None else to_ms(since),
        )
        until_ms = None if until is None else to_last_ms(until)
        top = self.refresh().version if first is None else first
        head = self.session.head()
        if until_ms is not None:
            top = min(top, history.newest_before(self.session.log, head, until_ms))
        above = None
        if after is not None:
            above = max(0, top - version_number(self.session, after, "after"))
        log, clock = self.session.log, head.meta.clock
        if wanted == Wanted():
            counts = [count for count in (most, above) if count is not None]
            return history.history(log, top, min(counts, default=None), clock)
        entries = history.history(log, top, above, clock)
        return islice(chosen(log, entries, wanted), most)

    def blame(
        self,
        segment: Segment | str | None = None,
        *,
        chunk: str | None = None,
        key: Any = None,
        where: Where | None = None,
        version: VersionOrName | None = None,
        timestamp: Moment | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return which commits wrote a segment, a chunk, a key or rows; see `readers.blame`."""
        from eventlog.readers import blame  # noqa: PLC0415 - see scan

        return blame(
            self,
            segment,
            chunk=chunk,
            key=key,
            where=where,
            version=version,
            timestamp=timestamp,
            limit=limit,
        )

    def stats(
        self,
        policy: Policy | None = None,
        *,
        days: float = 7.0,
        versions: int = 256,
        vacuum: bool = False,
    ) -> TableStats:
        """Return the figures of the table for its operator; see `eventlog.monitoring.stats`."""
        from eventlog.monitoring import stats  # noqa: PLC0415 - monitoring stands above the table

        return stats(self, policy, days=days, versions=versions, vacuum=vacuum)

    def diff(self, a: VersionOrName, b: VersionOrName) -> diff.Diff:
        """Return the segments added and dropped between version `a` and version `b`.

        Also what changed of the columns, in words.

        Raises:
            Corrupt: they are neighbours, and one of them is of another log.
            VersionNotFound: there is no such version.
        """
        one, other = self.snapshot(a), self.snapshot(b)
        low, high = sorted((one, other), key=lambda snapshot: snapshot.version)
        if high.version == low.version + 1:  # against difference-to-another-log
            chain.check_named(low.header, low.commit_hash, high.header, self.uri)
        columns = schema_changes(one.stored_schema, other.stored_schema)
        return replace(diff.diff(one, other), columns=tuple(columns))

    def commit(self, transaction: Transaction) -> int:
        """Commit a transaction and return the version that contains it.

        After `CommitUnknown` the same transaction can be passed to this handle again: it takes
        effect once. With any other handle call `find_transaction` first, unless the transaction has
        an app id and sequence, which make it idempotent everywhere.

        Raises:
            ClaimLost: the transaction's claim is gone; nothing was committed.
            CommitConflict: it cannot be rebased onto the head, or it would be the first one of a
                branch that its parent does not hold; nothing was committed.
            CommitUnknown: the outcome could not be determined.
            InvalidInput: the transaction exceeds a limit of the format.
            TableNotFound: the table was replaced, or the branch deleted; nothing was committed.
            Unavailable: the store does not answer; nothing was committed.
        """
        return self.session.commit(transaction)

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
        """Return a new transaction with a fresh id, based on `head`.

        Args:
            operation: the name of the operation, shown in histories.
            actions: the actions, in order.
            read_version: the version that the transaction is based on; that of `head` if None.
            app: app id and sequence of a unit of work that must not take effect twice.
            claim: the token of a lease; the transaction is void once the lease is gone.
            info: free text, shown in histories.
        """
        return self.session.transaction(
            operation, actions, read_version=read_version, app=app, claim=claim, info=info
        )

    def find_transaction(
        self, transaction_id: str, start: int = 0, until: int | None = None
    ) -> int | None:
        """Return the version, `start` or later, in which a transaction took effect, or None.

        Call it after `CommitUnknown`. Costs one GET per version.

        Args:
            transaction_id: the error's `transaction`.
            start: the first version to look at: the error's `version`.
            until: the last version in which it can take effect: the error's `until`.

        Raises:
            CommitUnknown: the table has not reached `until` (or `start`) yet, so the transaction
                may still arrive.
        """
        first = whole(start, "start")
        last = first if until is None else whole(until, "until")
        wanted = text(transaction_id, "a transaction's id")
        return history.find_transaction(
            self.session.log, wanted, first, self.refresh().version, last
        )

    @overload
    def restore(
        self, version: VersionOrName, *, forget_units: bool = False, dry_run: Literal[False] = False
    ) -> int: ...

    @overload
    def restore(
        self, version: VersionOrName, *, forget_units: bool = False, dry_run: Literal[True]
    ) -> RestorePlan: ...

    def restore(
        self, version: VersionOrName, *, forget_units: bool = False, dry_run: bool = False
    ) -> int | RestorePlan:
        """Make the segments of `version` live again, and return the committed version.

        Nothing is copied. Schema and properties stay as they are. Only the segments that are
        brought back are looked for, and not those that are live already.
        `eventlog fsck URI --version N` shows whether all segments of a version are stored.

        Units of work (`app_id`, `app_seq`) that were done since are undone with their rows, and
        still count as done: `undone_units` lists them, and a warning names them.

        Args:
            version: the version to bring back.
            forget_units: let the units of work that are undone be loaded again, under the same app
                ids and sequences. Also where an earlier restore has brought the version back.
            dry_run: commit nothing; return what the restore would do, with a method `commit`.

        Raises:
            CommitConflict: another writer committed rows in the meantime; nothing was changed.
            Corrupt: the version is not the one that the next version follows; nothing was changed.
            DataLoss: a segment to bring back is missing; nothing was changed.
            VersionNotFound: there is no such version.
            VersionVacuumed: the version is below the horizon.
        """
        head, target = self.refresh(), self.snapshot(version)
        plan = restoration.planned(self.session, head, target, forget_units=forget_units)
        if dry_run:
            return plan
        committed = plan.commit()
        if plan.actions and not forget_units:
            restoration.warn_undone(plan.undone, target.version)
        return committed

    def undone_units(self, version: VersionOrName) -> tuple[UndoneUnits, ...]:
        """Return the units of work that restoring a version undoes, or has undone.

        Those that were done since, and do not count in the restored version.

        Raises:
            VersionNotFound: there is no such version.
            VersionVacuumed: the version is below the horizon.
        """
        return restoration.undone(self.refresh(), self.snapshot(version))

    def added_by(self, version: VersionOrName) -> list[Segment]:
        """Return the live segments that a version added: what `drop_segments` takes to undo a load.

        `t.drop_segments(t.added_by(7), reason="the wrong file")` undoes the append of version 7,
        and leaves all other versions' rows. Rows that were deleted since are not live. New forms of
        rows that were updated since lie in segments of the versions that updated them.

        Args:
            version: the version, or the name of one.

        Raises:
            InvalidInput: it added no segment, or also took rows away; several writers shared its
                commit, in which case the message has the ids of each one's segments; some of its
                segments are not live any more, as after a compaction; or the table is keyed.
            VersionNotFound: there is no such version.
        """
        head = self.refresh()
        wanted = whole(version_number(self.session, version), "version", high=keys.MAX_VERSION)
        return restoration.added_by(self.session, head, wanted)

    def drop_segments(self, segments: Iterable[Segment], *, reason: str) -> int:
        """Drop segments whose rows are lost, or wrong, and return the committed version.

        Their rows disappear from this version on, whatever else is committed in the meantime, so
        that the table reads again. Nothing is deleted, and nothing is looked for: a segment that is
        still stored is dropped as well. Older versions that show a segment still need it, and
        raise `DataLoss` if it is missing. In a keyed table all segments of a chunk are dropped, or
        none: they are merged with each other.

        Args:
            segments: live segments, of `Snapshot.segments`; at least one.
            reason: why, shown in histories.

        Raises:
            CommitConflict: one of them is not live any more; nothing was changed.
            InvalidInput: there is none among `segments`, or something else than a segment; or a
                part of a chunk of a keyed table.
        """
        lost = list(segments) if isinstance(segments, Iterable) else []
        if not lost or not all(isinstance(segment, Segment) for segment in lost):
            raise InvalidInput("give at least one segment to drop, from Snapshot.segments()")
        drops = {segment.id: drop_of(segment) for segment in lost}
        return restoration.commit_drops(self.session, [*drops.values()], text(reason, "a reason"))

    def pin(
        self, name: str, version: VersionOrName | None = None, *, owner: str | None = None
    ) -> int:
        """Protect a version from vacuum until `unpin` or `break_pin`, and return the version.

        Idempotent: setting the same pin again changes nothing.

        Args:
            name: unique in the table, 1 to 255 characters.
            version: at or above the horizon; the newest if None.
            owner: the owner, who may unpin it; this user on this host if None.

        Raises:
            CommitConflict: the name is taken.
            InvalidInput: the owner is that of tags (see `tag`).
            VersionNotFound: there is no such version.
            VersionVacuumed: the version is below the horizon.
        """
        wanted = None if version is None else version_number(self.session, version)
        return pins_and_claims.pin(self.session, name, wanted, owner=owner)

    def unpin(self, name: str, *, owner: str | None = None) -> None:
        """Remove a pin that `owner` set.

        Args:
            name: the name of the pin.
            owner: the owner of the pin; this user on this host if None.

        Raises:
            CommitConflict: the pin has another owner (see `break_pin`), or was removed in the
                meantime.
            InvalidInput: there is no such pin.
        """
        pins_and_claims.unpin(self.session, name, owner=owner)

    def break_pin(self, name: str) -> None:
        """Remove a pin regardless of its owner. The history records the writer that removed it.

        Raises:
            CommitConflict: the pin was removed in the meantime, or replaced by another of its name.
            InvalidInput: there is no such pin.
        """
        pins_and_claims.break_pin(self.session, name)

    def tag(self, name: str, version: VersionOrName | None = None) -> int:
        """Name a version, and return the version.

        The name is accepted wherever a version is, and protects it from vacuum, as a pin does,
        until `untag`. It has no owner. Idempotent: setting the same tag again changes nothing.

        Args:
            name: 1 to 255 characters in the form NFC of Unicode, without spaces, `@` and `/`; no
                number and no time, and not beginning with `-` or `branch:`.
            version: at or above the horizon; the newest if None.

        Raises:
            CommitConflict: the name is taken.
            InvalidInput: no tag may have this name.
            VersionNotFound: there is no such version.
            VersionVacuumed: the version is below the horizon.
        """
        wanted = None if version is None else version_number(self.session, version)
        return pins_and_claims.set_tag(self.session, name, wanted)

    def untag(self, name: str) -> None:
        """Remove a tag, whoever set it.

        Raises:
            CommitConflict: it was removed in the meantime, or replaced by another of its name.
            InvalidInput: there is no such tag.
        """
        pins_and_claims.remove_tag(self.session, name)

    def tags(self) -> Mapping[str, int]:
        """Return the versions of the tags, by name."""
        return tag_versions(self.refresh().meta)

    def branch(self, name: str, at: VersionOrName | None = None) -> Table:
        """Make a branch, and return a handle to it. Nothing is copied.

        A branch is a table that begins as this one at a version, and goes on with commits of its
        own. It is opened with `open(…, branch=name)`, or with its own URI
        (docs/guides/branches.md). Until it is deleted, a pin keeps the segments that it reads from
        vacuum. Continues a making that was interrupted. Costs a commit and five small requests.

        Args:
            name: 1 to 100 letters, digits, `-`, `_` and `.`, without `.` at its start.
            at: the version to fork at; if None, that of the commit that sets the pin.

        Raises:
            AlreadyExists: there is a branch of this name, or an interrupted deletion has left a
                part of one.
            CommitConflict: another program deleted or made it at the same moment.
            Corrupt: version `at` is not the one that the next version follows; nothing was changed.
            InvalidInput: no branch may have this name.
            VersionNotFound: there is no such version.
            VersionVacuumed: the version is below the horizon, or below those that this branch
                holds.
        """
        start = None if at is None else version_number(self.session, at, "at")
        return Table(making.make(self.session, name, start), self.clock)

    def branches(self) -> list[Branch]:
        """Return the branches, by name, and the remains that interrupted programs left of others.

        Costs three or four requests for each. One that is damaged is listed with what is wrong
        (`Branch.damage`); `fsck` finds more.
        """
        return names.branches(self.session)

    def merge(
        self, branch: Table | str, *, take: Take | None = None, dry_run: bool = False
    ) -> Merged:
        """Publish a branch: commit its changes since the fork here, in one version.

        So no reader ever sees a part of it. Its segments are copied as they are. Changes that were
        committed here meanwhile stay. Idempotent: again, and after the branch went on, only what is
        new is committed. The branch stays as it is.

        Args:
            branch: a handle to a branch of this table, or its name.
            take: whose state counts where both changed the same in ways that exclude each other:
                that of the branch ("source") or of this table ("target"); see
                `eventlog.replication.merge`. None: that is a conflict.
            dry_run: commit nothing; return what would be merged, and left out.

        Raises:
            CommitConflict: both changed the same in different ways: a column, a property, rows that
                the branch drops and that were rewritten here. Nothing was committed.
            Corrupt: this table lacks the version from which the branch forked.
            DataLoss: a segment of the branch is missing or damaged; nothing was committed.
            InvalidInput: it is no branch of this table.
            TableNotFound: there is no such branch.
        """
        from eventlog.merging.merger import publish  # noqa: PLC0415 - 43 modules, for a merge alone

        if isinstance(branch, str):
            branch = Table.open("", store=BranchStore(self.store, branch), clock=self.clock)
        opened(branch)
        check_writable(self.refresh().header)  # before segments are copied
        return publish(branch.session, self.session, take=take, dry_run=dry_run)

    def delete_branch(self, name: str) -> None:
        """Delete a branch with all its rows, and the pin that keeps its parent's from vacuum.

        Repeat it if it is interrupted; it also removes the remains of an interrupted `branch`.
        Needs the permission to delete.

        Raises:
            InvalidInput: the branch has branches of its own; nothing was deleted.
            TableNotFound: there is no such branch.
        """
        deleting.delete_branch(self.session, name)

    def claims(self) -> Mapping[str, Claim]:
        """Return the current claims, by id."""
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

        Appends need no claim and ignore claims. A commit that carries the lease's token
        (`transaction(…, claim=lease.token)`) is void once the lease is gone; no clock is involved.
        Use the lease as a context manager, or release it. Renew it at least every
        `leases.RENEW_S` seconds, or other writers may break it as stale.

        Args:
            start: start of the range, see `eventlog.query.moments.to_ms`; if None, the start of the
                range of `segments`, or of all time.
            end: end of the range (exclusive), with the same default.
            segments: claim only these live segments; if empty, the whole range.
            kind: an exclusive claim conflicts with every other claim on the same range or segment;
                shared claims do not conflict with each other.
            priority: conflicting claims of lower priority are revoked.
            group: the unit of work that the claim is for. If the group already has a claim on the
                same range, that claim is returned. A fresh group if None.
            owner: the owner, for display; this user on this host if None.
            take_over: break conflicting claims that are stale (`leases.is_silent`). The time
                between earlier calls on this handle counts as waiting.

        Raises:
            ClaimLost: the claim was granted and revoked again immediately.
            CommitConflict: a claim of the same or a higher priority conflicts; the message
                names it and its owner.
            InvalidInput: an argument is wrong.
        """
        wanted = pins_and_claims.claim_action(
            self.clock.random_id(),
            start,
            end,
            segments,
            kind=kind,
            priority=priority,
            group=group,
            owner=owner,
        )
        return pins_and_claims.grant(self.session, wanted, take_over=take_over)

    def break_claim(self, claim_id: str, *, silent_s: float = 0) -> None:
        """Remove the claim of another writer. Later commits under that claim are void.

        The history records the writer that broke it.

        Args:
            claim_id: see `claims`.
            silent_s: watch the claim for this many seconds first, and do not break it if its holder
                renews it. The time is measured in this process, without comparing clocks
                (hazard K3).

        Raises:
            CommitConflict: the holder renewed the claim, or the claim was removed in the meantime.
            InvalidInput: there is no such claim.
        """
        pins_and_claims.break_claim(self.session, claim_id, silent_s=silent_s)

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set properties (None removes one) and return the committed version.

        Raises:
            CommitConflict: another writer changed one of them in the meantime.
            InvalidInput: a name or a value is wrong.
        """
        return settings.set_properties(self.session, properties)

    def add_columns(
        self,
        fields: pa.Schema | str | Mapping[str, str | pa.DataType] | Iterable[pa.Field],
        defaults: Mapping[str, Any] | None = None,
        *,
        within: str | Sequence[str] = (),
    ) -> int:
        """Add columns to the table, and return the committed version.

        Args:
            fields: the new columns: a pyarrow schema, text such as `wind smallint, gust double`, a
                dict of types by name, or a list of fields. They must be nullable, and come after
                the others. A column that the table has already, of the same type and default, is
                left as it is.
            defaults: by name of a new column, the value of rows that exist and of rows to come that
                lack the column; or a mapping with `initial` for the former and `write` for the
                latter. Null without.
            within: a struct that gets the fields: the name of a column, or a list of names that
                leads to a field (`element`, `key` and `value` inside of lists and maps).

        Raises:
            CommitConflict: another writer changed the same columns in the meantime.
            InvalidInput: a column exists with another type or default, is not nullable, or has a
                name, type or default that is not possible.
        """
        return evolving.add_columns(self.session, fields, defaults, within)

    def drop_columns(self, names: Iterable[str | Sequence[str]]) -> int:
        """Drop columns, and return the committed version.

        Older versions keep them. A column that is added later under the name of one that was
        dropped is another column, without its values.

        Args:
            names: of columns; a field inside of a column is a list of names.

        Raises:
            CommitConflict: another writer changed the same columns in the meantime.
            InvalidInput: there is no such column, or the table cannot be without it: the time
                column, and those of the key, the order or the merge rule.
        """
        return evolving.drop_columns(self.session, names)

    def rename_column(self, old: str | Sequence[str], new: str) -> int:
        """Rename a column, and return the committed version; no segment is written again.

        Args:
            old: its name; a field inside of a column is a list of names.
            new: its new name.

        Raises:
            CommitConflict: another writer changed the same columns in the meantime.
            InvalidInput: there is no such column, or the name is taken, reserved or not valid.
        """
        return evolving.rename_column(self.session, old, new)

    def widen_column(self, name: str | Sequence[str], to: pa.DataType) -> int:
        """Give a column a wider type, and return the committed version.

        int8, int16, int32 and int64 become a longer one of them, float32 becomes float64, a decimal
        one of more digits and the same scale, and a date, unless it is in the key of a keyed table,
        a timestamp without a zone, at midnight. No segment is written again.

        Args:
            name: its name; a field inside of a column is a list of names.
            to: the wider type.

        Raises:
            CommitConflict: another writer changed the same columns in the meantime.
            InvalidInput: there is no such column, or the type is not wider.
        """
        return evolving.widen_column(self.session, name, to)

    def reorder_columns(self, names: Iterable[str], *, within: str | Sequence[str] = ()) -> int:
        """Put columns first, in this order, and return the committed version.

        Args:
            names: of columns. The others follow in the order that they have.
            within: a struct whose fields are reordered; see `add_columns`.

        Raises:
            CommitConflict: another writer reordered them in the meantime.
            InvalidInput: there is no such column, or one is named twice.
        """
        return evolving.reorder_columns(self.session, names, within)

    def relax_columns(self, names: Iterable[str]) -> int:
        """Let columns be null that could not, and return the committed version.

        Raises:
            CommitConflict: another writer changed the same columns in the meantime.
            InvalidInput: there is no such column, it is the time column, or rows are merged by it.
        """
        return evolving.relax_columns(self.session, names)

    def add_check(self, name: str, expression: str) -> int:
        """Add a check, which every row meets from then on, and return the committed version.

        The rows of the table are tested first, and those that others write meanwhile; writers that
        do not know of the check yet test their rows again. A row meets a check that is true or null
        for it, as in SQL. The check follows its columns when they are renamed. If the table has it
        already, nothing is committed.

        Args:
            name: its name.
            expression: a condition in the language of docs/expressions.md. In a keyed table of the
                merge rule `partial` or `aggregate` it reads one column beside the key, and no sums
                or counts.

        Raises:
            CommitConflict: others wrote to the table at each try, or changed a column of the check.
            InvalidInput: the expression is not possible, there is another check of this name, or
                rows break it: the message has their number and three examples. Nothing was
                committed.
            DataLoss: a segment is missing or damaged.
        """

        def rows_of(
            columns: Sequence[str], where: str | None, version: int
        ) -> Iterator[pa.RecordBatch]:
            return self.scan(columns, where, version).to_batches()

        return checking.add_check(self.session, name, expression, rows_of)

    def drop_check(self, name: str) -> int:
        """Drop a check, and return the committed version.

        Raises:
            CommitConflict: another writer changed the same check in the meantime.
            InvalidInput: there is no such check.
        """
        return evolving.drop_check(self.session, name)

    def set_granularity(self, granularity: str) -> int:
        """Set the size of time chunks for new rows, and return the committed version.

        Existing segments keep their chunks until compaction rewrites them. Appends staged at the
        old granularity are still accepted.

        Args:
            granularity: hour, day, month, year or all, which stays then; or auto: it stays for
                now, and compaction changes it when another one fits the data better.

        Raises:
            CommitConflict: another writer, or compaction, changed it in the meantime.
            InvalidInput: there is no such granularity; or the table has a key, whose granularity is
                fixed at creation, or no time column.
        """
        return settings.set_granularity(self.session, granularity)

    def set_buckets(self, buckets: int) -> int:
        """Split the buckets of a keyed table, and return the committed version.

        Rewrites nothing: existing segments are read as they are, and compaction divides them when
        it merges them. Upserts and merges staged with the old number are still accepted.

        Args:
            buckets: the new number: that of now, doubled once or several times; up to 4,096.

        Raises:
            CommitConflict: another writer changed it in the meantime.
            InvalidInput: the table has no key, or the number is not reached by doubling.
        """
        return settings.set_buckets(self.session, buckets)

    def set_clock(self, moment: Moment | None = None) -> int:
        """Correct the table's time after a wrong clock moved it, and return the committed version.

        For an operator who has checked with `eventlog clock`. The commit is stamped with the true
        time, and later commits continue from there. If the time moves back, earlier versions with a
        later time count as committed at the true time. If it moves ahead (by more than ten years,
        which only this method allows), all earlier versions do, so that retention expires none of
        them too early. Nothing else changes.

        Args:
            moment: the true time; if None, that of the store, or of this machine if the store
                reports none.

        Raises:
            CommitConflict: another writer committed in the meantime, or the table's time needs no
                correction.
        """
        return settings.set_clock(self.session, moment)

    def verify(self, within_s: float = 0.0) -> None:
        """Check that the log is still the one that this handle has read: one small GET.

        Commits and vacuums do this themselves (FORMAT.md R10.1).

        Args:
            within_s: send no request if this handle verified the log within the last `within_s`
                seconds.

        Raises:
            Corrupt: commits that this handle has read were removed or changed.
            TableNotFound: the table was removed, and possibly replaced by another.
        """
        self.session.verify(within_s)

    def write_keyframe(self) -> int:
        """Write the key frame of the head now, even if it is not due, and return its version."""
        return self.session.write_keyframe()

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__()} - _MACHINERY)

    def _described(self) -> Description:
        known, title = self.session.known, f"Table {self.uri}"
        if known is None:
            return Description(title, [("version", "not read yet: .refresh() reads the newest")])
        return version_description(known, title)


def _begin(table: Table, actions: Sequence[Action]) -> None:
    """Commit version 0, if the store keeps what it promises.

    A store that ignores preconditions would lose commits.

    Raises:
        AlreadyExists, InvalidInput: see `Table.create`.
    """
    check_absent(table.store)
    table_id = table.clock.random_id()
    probe(table.store, table_id)
    session = table.session
    session.create(session.transaction("create", actions, read_version=-1), table_id)
    if advice := several_rows_of_a_key(actions):
        warnings.warn(advice, stacklevel=3)
