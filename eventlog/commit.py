"""The commit protocol: one transaction becomes the next version, exactly once.

Shell layer: list → decide (pure) → put (FORMAT.md "Committing"). The fate of a slot is settled
before another is tried: an unclear answer is followed by reading the slot back, and by the same
bytes to the same key until that is clear. Nothing is ever deleted here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from eventlog import codec, keyframe, keys
from eventlog.clock import Clock
from eventlog.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    Corrupt,
    EventLogError,
    KeyNotFound,
    OutcomeUnknown,
    Unavailable,
    VersionNotFound,
)
from eventlog.fold import NoState
from eventlog.log import Log
from eventlog.model import Commit, Transaction
from eventlog.proposal import Proposal, commit_time, keyframe_due, propose
from eventlog.rebase import Conflict, Done, Ready, rebase
from eventlog.snapshot import Snapshot
from eventlog.store import Body, ObjectStore

MAX_LOST_RACES = 200
MAX_TRIES = 8  # of one request whose answer was unclear
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: its version, and the newest snapshot known.

    `version` is the version that holds it; for an (app id, sequence) that is in the state already,
    a version at which it is included.
    """

    version: int
    head: Snapshot


@dataclass(frozen=True, slots=True)
class _Taken:
    """Another writer's commit stands in the slot."""

    commit: Commit
    body: bytes


def put_once(store: ObjectStore, clock: Clock, key: str, body: Body) -> None:
    """Create an object whose key no other writer would use for other bytes.

    Raises:
        Unavailable: the store does not answer; the object may or may not be there, and nothing
            refers to it.
    """
    # False means that an earlier try of these very bytes had landed.
    retrying(clock)(store.put_if_absent, key, body)


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


class Committer:
    """Commits transactions to one log.

    Args:
        log: the log.
        clock: waits, jitter and, where the store tells no time, the commit time.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._store = log.store
        self._clock = clock
        # Slots of transactions whose fate stayed unknown: they are settled before anything else.
        self._unsettled: dict[str, int] = {}

    def create(self, transaction: Transaction, table_id: str) -> Outcome:
        """Commit version 0.

        Raises:
            AlreadyExists: a table lies under this root.
            CommitUnknown: the store gave no clear answer.
        """
        now_ms = self._now_ms()
        verdict = rebase(transaction, NoState(), now_ms)
        if not isinstance(verdict, Ready):
            raise CommitConflict(f"the table cannot be created: {verdict}", table=self._store.uri)
        proposal = propose(
            None, transaction, verdict.effect, table_id=table_id, time_ms=now_ms, frames=self._log
        )
        taken = self._settle(proposal, transaction)
        if taken is not None:
            raise AlreadyExists(
                "a table lies here already: open it, or choose another path", table=self._store.uri
            )
        return Outcome(0, proposal.snapshot)

    def commit(self, transaction: Transaction, head: Snapshot) -> Outcome:
        """Carry the transaction to the head of the log.

        Raises:
            CommitConflict: it cannot be carried; nothing was committed.
            CommitUnknown: nobody could say whether it landed; the slot is in the error.
            Unavailable: the store does not answer, or every race was lost; nothing was committed.
        """
        found = self._settled_before(transaction)
        if found is not None:
            return found
        codec.check_writable(head.header)
        if transaction.read_version > head.version:
            head = self._log.newer(head)
        for lost in range(MAX_LOST_RACES):
            if self._unsettled.get(transaction.id, head.version + 1) <= head.version:
                found = self._settled_before(transaction)  # it landed late, below the head
                if found is not None:
                    return found
            head = self._usable_keyframe(head.settled())
            time_ms = commit_time(head, self._now_ms())
            verdict = rebase(transaction, head, time_ms)
            if isinstance(verdict, Done):
                return Outcome(verdict.version, head)
            if isinstance(verdict, Conflict):
                newest = self._log.newer(head)
                if newest.version == head.version:
                    raise self._conflict(transaction, head, verdict)
                head = newest
                continue
            proposal = propose(
                head,
                transaction,
                verdict.effect,
                table_id=head.header.table,
                time_ms=time_ms,
                frames=self._log,
            )
            taken = self._settle(proposal, transaction)
            if taken is None:
                return Outcome(proposal.snapshot.version, self._after(proposal.snapshot))
            self._pause(lost)
            head = self._log.at_least(head, taken.commit, taken.body)
        raise Unavailable(
            f"lost {MAX_LOST_RACES} commit races in a row: the table is under heavy contention; "
            "nothing was committed, try again later",
            table=self._store.uri,
            transaction=transaction.id,
        )

    def write_keyframe(self, head: Snapshot) -> Snapshot:
        """Write the key frame of the snapshot's version; return the snapshot based on it.

        Two writers of one version write the same objects, so losing a race is fine.

        Raises:
            Corrupt: the state does not add up.
            Unavailable: the store does not answer.
        """
        try:
            leaves = {
                leaf.sha256: self._log.leaf(leaf)
                for leaf in keyframe.touched(head.base, head.delta)
            }
        except (Corrupt, KeyNotFound):
            head.entries()  # moves the snapshot over to an older key frame
            head = head.settled()
            leaves = {
                leaf.sha256: self._log.leaf(leaf)
                for leaf in keyframe.touched(head.base, head.delta)
            }
        frame = keyframe.build(
            head.base,
            head.delta,
            leaves,
            header=head.header,
            commit_hash=head.commit_hash,
            meta=head.meta,
        )
        for key, body in frame.objects.items():
            put_once(self._store, self._clock, key, body)
        root_key = keys.keyframe_key(head.version)
        put_once(self._store, self._clock, root_key, codec.encode_keyframe(frame.root))
        self._log.remember_root(frame.root)
        return head.on_keyframe(frame.root)

    def _settle(self, proposal: Proposal, transaction: Transaction) -> _Taken | None:
        """Put the commit and find out who has the slot: None is us.

        Raises:
            CommitUnknown: still unclear when the bound is spent.
            Unavailable: the store took nothing for sure; nothing was committed.
        """
        for key, body in proposal.frames.items():
            put_once(self._store, self._clock, key, body)
        version = proposal.snapshot.version
        self._unsettled[transaction.id] = version
        unclear: list[OutcomeUnknown] = []
        try:
            taken = retrying(self._clock)(self._try_slot, proposal, transaction, unclear)
        except Unavailable as error:
            if not unclear:  # every try was refused for sure
                del self._unsettled[transaction.id]
                raise
            raise CommitUnknown(
                f"no clear answer whether version {version} was committed: {error.message}. Ask "
                "Table.find_transaction before trying again, or commit the same transaction again",
                table=self._store.uri,
                version=version,
                transaction=transaction.id,
            ) from error
        del self._unsettled[transaction.id]
        return taken

    def _try_slot(
        self, proposal: Proposal, transaction: Transaction, unclear: list[OutcomeUnknown]
    ) -> _Taken | None:
        """Send the commit once; read the slot back unless the answer was plain success.

        Raises:
            OutcomeUnknown: the slot's fate is still open; it is appended to `unclear` too.
            Unavailable: the store took nothing.
        """
        version = proposal.snapshot.version
        try:
            if self._store.put_if_absent(keys.commit_key(version), proposal.body):
                return None
            why = "the store refused the commit, but shows nothing there"
        except OutcomeUnknown as error:
            why = error.message
        # A refusal too is looked into: what refused may be our own request, delivered twice.
        try:
            commit, body = self._log.read(version)
        except (VersionNotFound, Unavailable) as error:
            unclear.append(OutcomeUnknown(f"{why}; {error.message}", version=version))
            raise unclear[-1] from None
        if any(t.id == transaction.id for t in commit.transactions):
            return None
        return _Taken(commit, body)

    def _settled_before(self, transaction: Transaction) -> Outcome | None:
        """Look into the slot that an earlier call left unknown: our transaction may be there."""
        version = self._unsettled.get(transaction.id)
        if version is None:
            return None
        try:
            commit, body = self._log.read(version)
        except VersionNotFound:
            return None  # the same slot is the next one tried, so at most one of both lands
        del self._unsettled[transaction.id]
        if any(t.id == transaction.id for t in commit.transactions):
            return Outcome(version, self._log.resolve(commit, body))
        return None

    def _usable_keyframe(self, head: Snapshot) -> Snapshot:
        """Move the head onto its own key frame where that is due and another writer wrote it."""
        if not keyframe_due(head):
            return head
        try:
            return head.on_keyframe(self._log.keyframe(head.version))
        except EventLogError:
            return head  # not there yet, or unusable: the road over the older one stands

    def _after(self, head: Snapshot) -> Snapshot:
        """Write the key frame if it is due. The commit stands whatever happens here."""
        if not keyframe_due(head):
            return head
        try:
            return self.write_keyframe(head)
        except Exception as error:  # noqa: BLE001 - the commit is accepted; never report it as failed
            logger.warning("key frame %d could not be written: %s", head.version, error)
            return head.settled()

    def _conflict(
        self, transaction: Transaction, head: Snapshot, verdict: Conflict
    ) -> CommitConflict:
        changed = head.header.changes
        return CommitConflict(
            f"{transaction.operation} cannot be carried from version {transaction.read_version} to "
            f"{head.version}: {verdict.reason}. The newest commit is {changed.operation} by "
            f"{changed.writer}. Nothing was committed: read again and decide again",
            table=self._store.uri,
            version=head.version,
            transaction=transaction.id,
        )

    def _now_ms(self) -> int:
        told = self._store.now_ms()
        return self._clock.now_ms() if told is None else told

    def _pause(self, lost: int) -> None:
        """Wait a random time that grows with the races lost, so that writers spread out."""
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(lost, 10))
        self._clock.sleep(self._clock.uniform() * longest)
