"""The shell of the commit protocol: performs what the protocol asks for, on a log and a clock.

All decisions are in `protocol`, which does no I/O. Here are one loop, one method for each kind of
request, and the locks of a handle that several threads use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition
from typing import Any

from eventlog.clock import Clock
from eventlog.commit import framing, publication
from eventlog.commit.identity import Identity
from eventlog.commit.protocol import carry
from eventlog.commit.protocol import commands as c
from eventlog.commit.protocol.memory import Memory, Outcome
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
from eventlog.model.records import Add, Transaction
from eventlog.store.parallel import INTENT_THREADS, each
from eventlog.store.port import store_time_ms
from eventlog.store.retry import put_once, retrying

logger = logging.getLogger(__name__)


class Turns:
    """Locks by name: of the threads that use one name, one at a time."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken: set[str] = set()

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Hold the lock of `name`; wait for it as long as another thread has it."""
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
        clock: waits, jitter and, where the store tells no time, the commit time.

    Attributes:
        identity: makes sure that the log is the one that is known.
        memory: what the handle remembers of its commits and of other writers.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self.identity = Identity(log, clock)
        self.memory = Memory(log.store.uri, log)
        self._log = log
        self._clock = clock
        self._turns = Turns()
        self._intents: dict[str, Transaction | None] = {}  # by key; None: not usable

    def create(self, transaction: Transaction, table_id: str) -> Outcome:
        """Commit version 0. Raises: see `carry.create`."""
        return self._drive(carry.create(self.memory, transaction, table_id))

    def commit(self, transaction: Transaction, head: Snapshot) -> Outcome:
        """Carry the transaction to the head of the log. Raises: see `carry.commit`."""
        with self._turns.turn(transaction.id):  # one handle may have it from two threads
            return self._drive(carry.commit(self.memory, transaction, head))

    def read_ahead(self, head: Snapshot) -> None:
        """Read what the next commit takes along, if anything. Raises: `carry.read_ahead`."""
        self._drive(carry.read_ahead(self.memory, head))

    @property
    def reads_ahead(self) -> bool:
        """Whether `read_ahead` would send requests."""
        return self.memory.contention.leads and bool(self.memory.listed)

    def _drive(self, steps: c.Steps[c.T]) -> c.T:
        """Perform the commands of a part of the protocol; return what it returns."""
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
        """Perform one command; return the answer that its docstring names."""
        match command:
            case c.Now():
                return store_time_ms(self._log.store, self._clock)
            case c.Elapsed():
                return self._clock.elapsed_s()
            case c.Draw():
                return self._clock.uniform()
            case c.Sleep(seconds):
                return self._clock.sleep(seconds)
            case c.CheckIdentity(head, writes):
                check = self.identity.check_before_write if writes else self.identity.check
                return check(head)
            case c.Met():
                return self.identity.seen()
            case c.View(head, transactions):
                head = framing.on_own_keyframe(self._log, head)
                return c.Viewed(*self._log.judged_on(head, transactions))
            case c.PutObjects(objects):
                for key, body in objects.items():
                    put_once(self._log.store, self._clock, key, body)
                return None
            case c.PutSlot(version, body):
                return self._put_slot(version, body)
            case c.ReadSlot(version):
                return self._read_slot(version)
            case c.Resolve(stored, known):
                if known is None:
                    return self._log.resolve(stored.commit, stored.body)
                return self._log.following(known, stored.commit, stored.body)
            case c.Newest(known):
                return self._log.newer(known)
            case c.At(version):
                return self._log.snapshot(version)
            case c.Holds(stored, after, transaction_id):
                return self._log.took_effect(stored.commit, after, transaction_id)
            case c.Frame(head):
                return framing.after(self._log, self._clock, head)
            case c.Publish(transaction, table_id):
                return self._publish(transaction, table_id)
            case c.ListIntents(head):
                return self._list(head)
            case c.ReadIntents(wanted, table_id):
                return self._read(wanted, table_id)
            case c.Beside(first, second):
                return self._beside(first, second)

    def _put_slot(self, version: int, body: bytes) -> c.Created | c.Exists | c.Unclear | c.Refused:
        try:
            created = self._log.store.put_if_absent(keys.commit_key(version), body)
        except OutcomeUnknown as error:
            return c.Unclear(error.message)
        except (Unavailable, InvalidInput) as error:
            return c.Refused(error)
        return c.Created() if created else c.Exists()

    def _read_slot(self, version: int) -> c.Stored | None:
        try:
            return c.Stored(*self._log.read(version))
        except VersionNotFound:
            return None

    def _publish(self, published: Transaction, table_id: str) -> c.Published | c.Refused:
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
            if unclear:  # what was sent before it was refused may be there
                raise unclear[-1] from None
            logger.warning("from now on this handle publishes nothing: %s", error)
            return c.Refused(error)
        return c.Published(self._clock.elapsed_s() - started_s)

    def _list(self, head: Snapshot) -> list[publication.Intent]:
        after, limit = publication.start_key(head), publication.MAX_LISTED
        listed = self._log.store.list(keys.INTENTS_PREFIX, after=after, limit=limit)
        return publication.open_intents(((row.key, row.size) for row in listed), head)

    def _read(self, wanted: Sequence[str], table_id: str) -> list[Transaction]:
        known = self._intents  # replaced as a whole: a handle may be used from several threads
        read = {key: known[key] for key in wanted if key in known}
        missing = [key for key in wanted if key not in read]
        got = each(
            lambda key: self._get(key, table_id),
            missing,
            count=INTENT_THREADS,
            window=publication.MAX_LISTED,
        )
        read.update(zip(missing, got, strict=True))
        self._intents = read
        usable = [transaction for key in wanted if (transaction := read[key]) is not None]
        # Their publishers have made sure that the ids are fresh.
        self._log.vouch(a for t in usable for a in t.actions if isinstance(a, Add))
        return usable

    def _get(self, key: str, table_id: str) -> Transaction | None:
        """Return a published transaction, or None for what does not belong there."""
        try:
            body = self._log.store.get(key, length=codec.MAX_INTENT_BYTES + 1)
            return publication.parse(body, key, table_id)
        except (Corrupt, InvalidInput, KeyNotFound) as error:
            logger.warning("ignoring published transaction %s: %s", key, error)
            return None

    def _beside(self, first: c.Command, second: c.Command) -> tuple[Any, Any]:
        with ThreadPoolExecutor(1, thread_name_prefix="eventlog-beside") as pool:
            beside = pool.submit(self.perform, second)
            answer = self.perform(first)
            try:
                return answer, beside.result()
            except EventLogError as error:
                logger.info("went on without %s: %s", second, error)
                return answer, None
