"""The shell of the commit protocol: executes its commands on a log and a clock.

All decisions are in `protocol`, which does no I/O. This module has one loop, one method per kind of
request, and the locks for handles that several threads use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition
from typing import Any

from eventlog.clock import Clock
from eventlog.commit import keyframe_writing
from eventlog.commit.identity import Identity
from eventlog.commit.intents import (
    MAX_LISTED,
    Intent,
    first_intent_key,
    most_listed,
    open_intents,
    parse_intent,
)
from eventlog.commit.protocol import commands as c
from eventlog.commit.protocol import commit as committing
from eventlog.commit.protocol.writer import CommitOutcome, Writer
from eventlog.errors import (
    Corrupt,
    EventLogError,
    InvalidInput,
    KeyNotFound,
    OutcomeUnknown,
    Unavailable,
    VersionNotFound,
)
from eventlog.format import codec, keys
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add
from eventlog.model.records import Transaction
from eventlog.store.parallel import INTENT_THREADS, each, start
from eventlog.store.port import store_time_ms
from eventlog.store.retry import put_once, retrying
from eventlog.telemetry.signals import add_to

logger = logging.getLogger(__name__)


class NamedLocks:
    """Locks by name: only one thread at a time holds the lock of a name."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken: set[str] = set()

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold the lock of `name`, after waiting until no other thread holds it."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._taken)
            self._taken.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._taken.discard(name)
                self._changed.notify_all()


class Committer:
    """Commits transactions to one log.

    Args:
        log: the log.
        clock: for waits, jitter and, if the store has no clock, the commit time.

    Attributes:
        identity: checks that the log is still the one that was opened.
        writer: what the handle remembers about its commits and other writers.
        key_frames: writes key frames while the handle goes on to commit.
        newest: the answer when a commit last asked for the newest version; None: none has yet.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self.identity = Identity(log, clock)
        self.writer = Writer(log.store.uri, log)
        self.newest: Snapshot | None = None
        self.key_frames = keyframe_writing.KeyFramesBeside(log, clock)
        self._log = log
        self._clock = clock
        self._locks = NamedLocks()
        self._intents: dict[str, Transaction | None] = {}  # by key; None: invalid

    def create(self, transaction: Transaction, table_id: str) -> CommitOutcome:
        """Commit version 0.

        Args:
            transaction: the transaction that creates the table.
            table_id: the id of the new table.

        Raises:
            AlreadyExists: there is already a table under this root.
            CommitUnknown: the store gave no clear answer.
        """
        return self._drive(committing.create_log(self.writer, transaction, table_id))

    def commit(self, transaction: Transaction, head: Snapshot) -> CommitOutcome:
        """Carry the transaction to the head of the log.

        Args:
            transaction: the transaction.
            head: the newest known snapshot.

        Raises:
            EventLogError: see `protocol.commit.commit`.
        """
        with self._locks.hold(transaction.id):  # two threads may commit it through one handle
            return self._drive(committing.commit(self.writer, transaction, head))

    def read_ahead(self, head: Snapshot) -> None:
        """Read the published transactions that the next commit will include, if any.

        Raises:
            Unavailable: the store does not answer.
        """
        self._drive(committing.read_published(self.writer, head))

    @property
    def reads_ahead(self) -> bool:
        """Whether `read_ahead` would send requests."""
        return self.writer.contention.leads and bool(self.writer.listed)

    def _drive(self, steps: c.Steps[c.T]) -> c.T:
        """Execute the commands of one part of the protocol, and return its result."""
        try:
            command = next(steps)
            while True:
                try:
                    answer = self.perform(command)
                except EventLogError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(answer)
        except StopIteration as end:
            result: c.T = end.value
            return result

    def perform(self, command: c.Command) -> Any:  # noqa: C901, PLR0912 - a table
        """Execute one command, and return the answer that its docstring states."""
        match command:
            case c.Now():
                return store_time_ms(self._log.store, self._clock)
            case c.Elapsed():
                return self._clock.elapsed_s()
            case c.Draw():
                return self._clock.random_fraction()
            case c.Sleep(seconds):
                add_to("waited", seconds)
                return self._clock.sleep(seconds)
            case c.CheckIdentity(head, writes):
                check = self.identity.check_before_write if writes else self.identity.check
                return check(head)
            case c.Confirm():
                return self.identity.confirm()
            case c.NoteLogSeen():
                return self.identity.seen()
            case c.LoadView(head, transactions, proposes):
                if proposes:
                    head = self._on_newest_keyframe(head)
                return c.Viewed(*self._log.load_view(head, transactions))
            case c.PutObjects(objects):
                for key, body in objects.items():
                    put_once(self._log.store, self._clock, key, body)
                return None
            case c.PutSlot(version, body):
                return self._put_slot(version, body)
            case c.ReadSlot(version):
                return self._read_slot(version)
            case c.SlotHash(version):
                return self._log.commit_hash(version)
            case c.Resolve(stored, known):
                if known is None:
                    return self._log.resolve(stored.commit, stored.body)
                return self._log.following(known, stored.commit, stored.body)
            case c.Newest(known, far):
                self.newest = self._log.latest(known) if far else self._log.newer(known)
                return self.newest
            case c.At(version):
                return self._log.snapshot(version)
            case c.TookEffect(stored, after, transaction_id):
                return self._log.took_effect(stored.commit, after, transaction_id)
            case c.WriteKeyFrame(head, beside):
                return self._write_keyframe(head, beside=beside)
            case c.Publish(transaction, table_id):
                return self._publish(transaction, table_id)
            case c.ListIntents(head):
                return self._list(head)
            case c.ReadIntents(wanted, table_id):
                return self._read(wanted, table_id)
            case c.Both(first, second):
                return self._both(first, second)

    def _on_newest_keyframe(self, head: Snapshot) -> Snapshot:
        over = self.key_frames.over(head)
        return over if over is not head else keyframe_writing.on_own_keyframe(self._log, head)

    def _write_keyframe(self, head: Snapshot, *, beside: bool) -> Snapshot:
        store = self._log.store
        # Nothing is stored in a branch after the look that it was not deleted.
        if not beside or store.near or store.forks:
            return keyframe_writing.write_if_due(self._log, self._clock, head)
        return self.key_frames.start(head)

    def _put_slot(self, version: int, body: bytes) -> c.Created | c.Exists | c.Unclear | c.Refused:
        try:
            created = self._log.store.put_if_absent(keys.commit_key(version), body)
        except OutcomeUnknown as error:
            return c.Unclear(error.message)
        except (Unavailable, InvalidInput) as error:
            return c.Refused(error)
        if not created:
            add_to("attempts_lost")
        return c.Created() if created else c.Exists()

    def _read_slot(self, version: int) -> c.Stored | None:
        try:
            return c.Stored(*self._log.read(version))
        except VersionNotFound:
            return None

    def _publish(self, published: Transaction, table_id: str) -> c.IntentStored | c.Refused:
        key = keys.intent_key(published.until or 0, published.id)
        body = codec.encode_transaction(published, table_id)
        unclear: list[OutcomeUnknown] = []

        def send() -> None:
            try:
                self._log.store.put_if_absent(key, body)
            except OutcomeUnknown as error:
                unclear.append(error)
                raise

        started_s = self._clock.elapsed_s()
        try:
            retrying(self._clock)(send)
        except InvalidInput as error:
            # against refused-publication-taken-for-sent
            if unclear:  # an earlier try may have stored it
                raise unclear[-1] from None
            logger.warning("this handle will not publish any more transactions: %s", error)
            return c.Refused(error)
        return c.IntentStored(self._clock.elapsed_s() - started_s)

    def _list(self, head: Snapshot) -> list[Intent]:
        after, limit = first_intent_key(head), most_listed(head)
        listed = self._log.store.list(keys.INTENTS_PREFIX, after=after, limit=limit)
        try:
            return open_intents(((row.key, row.size) for row in listed), head)
        # The prefix contains a symbolic link, for example. Nobody has to combine.
        except InvalidInput as error:  # against stray-link-stops-writers
            logger.warning("no published transactions are combined: %s", error)
            return []

    def _read(self, wanted: Sequence[str], table_id: str) -> list[Transaction]:
        cached = self._intents  # never changed in place: several threads may use a handle
        intents = {key: cached[key] for key in wanted if key in cached}
        missing = [key for key in wanted if key not in intents]
        fetched = each(
            lambda key: self._get(key, table_id),
            missing,
            count=INTENT_THREADS,
            window=MAX_LISTED,
        )
        intents.update(self._with_objects(dict(zip(missing, fetched, strict=True))))
        self._intents = intents
        return [transaction for key in wanted if (transaction := intents[key]) is not None]

    def _with_objects(
        self, intents: dict[str, Transaction | None]
    ) -> dict[str, Transaction | None]:
        """Return published transactions by key, with None for each whose segments are missing.

        Such a transaction was published for another root of the table, a copy or a branch: here it
        would commit segments that do not exist.
        """
        adds = {
            key: [a for a in transaction.actions if isinstance(a, Add)]
            for key, transaction in intents.items()
            if transaction is not None
        }
        lost = self._log.staged.lost(a for own in adds.values() for a in own)
        for key, own in adds.items():
            # against intent-of-another-root-taken
            if not lost.isdisjoint(a.id for a in own):
                logger.warning(
                    "ignoring the published transaction %s: segments that it adds are not here", key
                )
                intents[key] = None
        return intents

    def _get(self, key: str, table_id: str) -> Transaction | None:
        """Return a published transaction, or None if the object is not a valid one."""
        try:
            body = self._log.store.get(key, length=codec.MAX_INTENT_BYTES + 1)
            return parse_intent(body, key, table_id)
        except (Corrupt, InvalidInput, KeyNotFound) as error:
            logger.warning("ignoring the published transaction %s: %s", key, error)
            return None

    def _both(self, first: c.Command, second: c.Command) -> tuple[Any, Any]:
        if self._log.store.near:  # a thread takes longer than such a request
            return self.perform(first), _unless_failed(second, lambda: self.perform(second))
        with ThreadPoolExecutor(1, thread_name_prefix="eventlog-beside") as pool:
            other = start(pool, self.perform, second)
            return self.perform(first), _unless_failed(second, other.result)


def _unless_failed(command: c.Command, answer: Callable[[], Any]) -> Any:
    """Return the answer to a command; None if it failed: the one beside may have committed."""
    try:
        return answer()
    except Exception as error:  # noqa: BLE001 - whatever it is, the commit stands
        logger.info("continuing without the answer to %s: %s", command, error)
        return None
