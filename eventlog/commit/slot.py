"""One slot of the log: who has it is found out here, and never left open.

Shell layer. An unclear answer is followed by reading the slot back, and by the same bytes to the
same key until it is clear (FORMAT.md "Algorithms"). Nothing is ever deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from eventlog.clock import Clock
from eventlog.commit.proposal import Proposal
from eventlog.errors import (
    CommitUnknown,
    EventLogError,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    VersionNotFound,
)
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.model.records import Commit, Transaction
from eventlog.state.snapshot import Snapshot
from eventlog.store.port import Body, ObjectStore

MAX_TRIES = 8  # of one request whose answer was unclear
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Stored:
    """What stands in a slot: not the bytes that were sent, whoever's they are."""

    commit: Commit
    body: bytes


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


def put_once(store: ObjectStore, clock: Clock, key: str, body: Body) -> None:
    """Create an object whose key no other writer would use for other bytes.

    Raises:
        Unavailable: the store does not answer; the object may or may not be there, and nothing
            refers to it.
    """
    # False means that an earlier try of these very bytes had landed.
    retrying(clock)(store.put_if_absent, key, body)


def settle(log: Log, clock: Clock, proposal: Proposal, transaction_id: str) -> Stored | None:
    """Store a proposal and find out what its slot holds: None is the proposal itself.

    Raises:
        CommitUnknown: still unclear when the bound is spent.
        Unavailable: the store took nothing for sure.
    """
    for key, body in proposal.frames.items():
        put_once(log.store, clock, key, body)
    unclear: list[OutcomeUnknown] = []
    try:
        return retrying(clock)(_try_slot, log, proposal, unclear)
    except (Unavailable, InvalidInput) as error:
        if not unclear:  # every try was refused for sure
            raise
        # Also where the store denies us by now: what was sent before may be there.
        version = proposal.snapshot.version
        raise CommitUnknown(
            f"no clear answer whether version {version} was committed: {error.message}. Commit the "
            "same transaction again, or ask Table.find_transaction once the table has that version",
            table=log.store.uri,
            version=version,
            until=version,
            transaction=transaction_id,
        ) from error


def still_open(
    table: str, transaction_id: str, versions: range, error: EventLogError
) -> CommitUnknown:
    """Return the error of a transaction that was sent, and may stand in one of `versions`."""
    return CommitUnknown(
        f"the transaction was sent and can take effect until version {versions[-1]}, but the "
        f"store stopped answering: {error.message}. Commit the same transaction again, or ask "
        "Table.find_transaction once the table is past that version",
        table=table,
        version=versions[0],
        until=versions[-1],
        transaction=transaction_id,
    )


def taken_in(log: Log, version: int, transaction_id: str) -> Snapshot | None:
    """Return the snapshot of a version if the transaction took effect in it.

    Raises:
        Unavailable: the store does not answer.
        VersionNotFound: there is no such version yet.
    """
    commit, body = log.read(version)
    if not any(t.id == transaction_id for t in commit.transactions):
        return None
    snapshot = log.resolve(commit, body)
    return snapshot if log.holds(commit, snapshot, transaction_id) else None


def passed(log: Log, transaction: Transaction, known: Snapshot, newest: Snapshot) -> int | None:
    """Return the version after `known` in which a published transaction took effect, if any.

    Raises:
        Unavailable: the store does not answer.
    """
    mark = newest.meta.published.get(transaction.id)
    if mark is not None:
        return mark.version
    if transaction.until is None or newest.version <= transaction.until:
        return None
    # The marks of its window are forgotten: only the commits tell.
    window = range(known.version + 1, transaction.until + 1)
    return next((v for v in window if taken_in(log, v, transaction.id)), None)


def retrying(clock: Clock) -> Retrying:
    """Return the policy for one request whose answer was unclear: the same again, a few times."""

    def wait(state: RetryCallState) -> float:
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**state.attempt_number)
        return float(longest * (0.5 + clock.uniform() / 2))

    return Retrying(
        retry=retry_if_exception_type(Unavailable),
        stop=stop_after_attempt(MAX_TRIES),
        wait=wait,
        sleep=clock.sleep,
        reraise=True,
    )


def _try_slot(log: Log, proposal: Proposal, unclear: list[OutcomeUnknown]) -> Stored | None:
    """Send the commit once; read the slot back unless the answer was plain success.

    Raises:
        OutcomeUnknown: the slot's fate is still open; it is appended to `unclear` too.
        Unavailable: the store took nothing.
    """
    version = proposal.snapshot.version
    try:
        if log.store.put_if_absent(keys.commit_key(version), proposal.body):
            return None
        why = "the store refused the commit, but shows nothing there"
    except OutcomeUnknown as error:
        why = error.message  # against unknown-taken-for-failure, unknown-taken-for-success
    # A refusal too is looked into: what refused may be our own request, delivered twice.
    try:
        commit, body = log.read(version)
    except (VersionNotFound, Unavailable, InvalidInput) as error:
        unclear.append(OutcomeUnknown(f"{why}; {error.message}", version=version))
        raise unclear[-1] from None
    # against own-commit-taken-for-anothers
    return None if body == proposal.body else Stored(commit, body)
