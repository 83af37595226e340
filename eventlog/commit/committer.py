"""The commit protocol: one transaction takes effect in one version, exactly once.

Shell layer: list → decide (pure) → put (FORMAT.md "Algorithms"). The fate of a slot is settled
before another is tried. Nothing is ever deleted here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.clock import Clock
from eventlog.commit import framing
from eventlog.commit.identity import Identity
from eventlog.commit.proposal import Proposal, check_writable, propose
from eventlog.commit.publish import Intents, Lookout, patience, publication
from eventlog.commit.rebase import Conflict, Done, Ready, rebase, refusal
from eventlog.commit.slot import Turns, passed, settle, still_open, taken_in
from eventlog.errors import (
    AlreadyExists,
    ClaimLost,
    CommitConflict,
    CommitUnknown,
    EventLogError,
    InvalidInput,
    Unavailable,
    VersionNotFound,
)
from eventlog.log.log import Log
from eventlog.model.properties import setting
from eventlog.model.records import Add, Transaction
from eventlog.state.fold import NoState
from eventlog.state.snapshot import Snapshot
from eventlog.state.timing import commit_time

logger = logging.getLogger(__name__)

MAX_LOST_RACES = 200
CROWD = 8  # after a lost race a writer expects contention for so many commits
MAX_DEFERRALS = 8  # how often a writer gives way to the one before it
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0
_SHORTEST_PACE_S = 0.005


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: its version, and the newest snapshot known.

    `version` is the version that holds it; for an (app id, sequence) that is in the state already,
    a version at which it is included.
    """

    version: int
    head: Snapshot


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """A transaction that may stand in one of `versions`, in the form in which it was sent."""

    form: Transaction
    versions: range


class Committer:
    """Commits transactions to one log.

    Args:
        log: the log.
        clock: waits, jitter and, where the store tells no time, the commit time.

    Attributes:
        identity: makes sure that the log is the one that is known.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self.identity = Identity(log, clock)
        self._log = log
        self._store = log.store
        self._clock = clock
        self._intents = Intents(log.store, clock)
        self._crowd = 0  # commits for which others are still expected: publish at once
        self._lookout = Lookout()
        self._unsettled: dict[str, _Unsettled] = {}
        self._turns = Turns()
        self._publishes = True  # until the store refuses what is published, for good

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
            None,
            verdict.transactions,
            verdict.effect,
            table_id=table_id,
            time_ms=now_ms,
            frames=self._log,
        )
        stored = settle(self._log, self._clock, proposal, transaction.id)
        if stored is not None:
            raise AlreadyExists(
                "a table lies here already: open it, or choose another path", table=self._store.uri
            )
        return Outcome(0, proposal.snapshot)

    def commit(self, transaction: Transaction, head: Snapshot) -> Outcome:
        """Carry the transaction to the head of the log.

        Raises:
            ClaimLost: the claim that it runs under is gone; nothing was committed.
            CommitConflict: it cannot be carried; nothing was committed.
            CommitUnknown: nobody could say whether it landed; the version is in the error.
            TableNotFound: the log is not the one of `head` any more; nothing was committed.
            Unavailable: the store does not answer, or every race was lost; nothing was committed.
        """
        check_writable(head.header)
        with self._turns.turn(transaction.id):  # one handle may have it from two threads
            try:
                return self._carry(transaction, head)
            except (CommitUnknown, Unavailable, InvalidInput) as error:
                if transaction.id not in self._unsettled:  # against sent-and-forgotten
                    raise
                # What was sent may still arrive, also where it was a read that failed just now.
                raise self._open(transaction.id, error) from error

    def _carry(self, transaction: Transaction, head: Snapshot) -> Outcome:
        """Do as `commit` does; Unavailable says nothing of what `_unsettled` holds."""
        if transaction.read_version > head.version:
            head = self._log.newer(head)
        losses = patience(transaction, setting(head.properties, "combine_after"))
        for lost in range(MAX_LOST_RACES):
            if transaction.id in self._unsettled:  # against another-slot-while-unclear
                found = self._settle_earlier(transaction.id)
                if found is not None:
                    return found
            settled = transaction.id not in self._unsettled
            if losses and settled and self._crowd > 0 and self._publishes:
                step = self._combine(transaction, head)
                if isinstance(step, Outcome):
                    return step
                head = step
            others = self._waiting(transaction, head) if losses else None
            step = self._attempt(transaction, head, others)  # against new-id-on-retry
            if isinstance(step, Outcome):
                return step
            self._lookout.lost()
            if losses and lost + 1 >= losses:
                self._crowd = CROWD
            self._pause(lost)
            head = self._log.newer(step)
        raise self._beaten(transaction)

    def _attempt(
        self, transaction: Transaction, head: Snapshot, others: list[Transaction] | None = None
    ) -> Outcome | Snapshot:
        """Try the slot after `head` once; return the outcome, or the newer head that was met.

        Raises:
            CommitConflict: the transaction cannot be carried to the newest version.
        """
        head = framing.on_own_keyframe(self._log, head.settled())
        time_ms = commit_time(head.header, self._now_ms(), transaction)
        verdict = rebase(transaction, head, time_ms, others or ())
        if isinstance(verdict, Done):
            self.identity.check(head)
            return Outcome(verdict.version, head)
        if isinstance(verdict, Conflict):
            newest = self._newest(transaction, head)
            if isinstance(newest, Snapshot) and newest.version == head.version:
                self.identity.check(head)
                raise refusal(transaction, head.header, head.meta, verdict, self._store.uri)
            return newest
        try:
            proposal = propose(
                head,
                verdict.transactions,
                verdict.effect,
                table_id=head.header.table,
                time_ms=time_ms,
                frames=self._log,
            )
        except (InvalidInput, OverflowError):
            if not others:
                raise
            # What others published must not stop this one: alone it may fit.
            return self._attempt(transaction, head)
        return self._try_slot(transaction, head, proposal)

    def _try_slot(
        self, transaction: Transaction, head: Snapshot, proposal: Proposal
    ) -> Outcome | Snapshot:
        """Store the proposal in its slot; return the outcome, or the snapshot of what is there."""
        self.identity.check_before_write(head)
        version = proposal.snapshot.version
        earlier = self._unsettled.get(transaction.id)
        if earlier is None:
            self._unsettled[transaction.id] = _Unsettled(transaction, range(version, version + 1))
        try:
            stored = settle(self._log, self._clock, proposal, transaction.id)
        except (Unavailable, InvalidInput):
            if earlier is None:  # else what was sent before may still arrive
                del self._unsettled[transaction.id]
            raise
        self.identity.seen()
        if stored is None:
            del self._unsettled[transaction.id]
            return Outcome(version, framing.after(self._log, self._clock, proposal.snapshot))
        # against own-id-not-looked-for
        listed = any(t.id == transaction.id for t in stored.commit.transactions)
        # A handle that is behind loses slots below the one that is open: that one stays open.
        still_open = earlier is not None and version not in earlier.versions
        if not listed and transaction.until is None and not still_open:
            del self._unsettled[transaction.id]
        snapshot = self._log.following(head, stored.commit, stored.body)
        if listed and self._log.holds(stored.commit, snapshot, transaction.id):
            del self._unsettled[transaction.id]
            return Outcome(version, snapshot)
        return snapshot

    def _combine(self, transaction: Transaction, head: Snapshot) -> Outcome | Snapshot:
        """Publish the transaction; then either find it in another's commit, or lead and take along.

        A newer head where the store refuses what is published: it has to race then.

        Raises:
            CommitConflict: it can never take effect.
            Unavailable: the store stopped answering, or no window brought it in.
        """
        for _ in range(MAX_LOST_RACES):
            published = publication(transaction, head)
            if isinstance(rebase(published, head, head.header.time + 1), Ready):
                self.identity.check_before_write(head)
                # From here on others may commit it, whatever happens to us.
                window = range(head.version + 1, (published.until or 0) + 1)
                self._unsettled[transaction.id] = _Unsettled(published, window)
                step = self._work_on(published, head, new=True)
            else:
                # It is in already, or void here: published, it could land after it was refused.
                step = self._attempt(transaction, head)
            if isinstance(step, Outcome) or not self._publishes:
                return step
            head = step
        raise self._beaten(transaction)

    def _work_on(self, published: Transaction, head: Snapshot, *, new: bool) -> Outcome | Snapshot:
        """See a published transaction through its window; return its outcome or the window's end.

        Raises:
            CommitConflict: it can never take effect.
            Unavailable: the store stopped answering while the window is open.
        """
        try:
            started_ms = self._clock.now_ms()
            if new and not self._publish(published, head.header.table):
                return head
            # Of any value, also negative: a clock may be set in between.
            elapsed_s = (self._clock.now_ms() - started_ms) / 1000
            pace_s = min(max(_SHORTEST_PACE_S, elapsed_s), _LONGEST_WAIT_S)
            step = self._lead_or_follow(published, head, pace_s)
        except (ClaimLost, CommitConflict):
            self._unsettled.pop(published.id, None)
            raise
        self._unsettled.pop(published.id, None)  # found, or dead with its window
        return step

    def _publish(self, published: Transaction, table: str) -> bool:
        """Publish; False: the store refuses that for good, and nobody else can commit it."""
        try:
            self._intents.publish(published, table)
        except InvalidInput as refused:
            logger.warning("from now on this handle publishes nothing: %s", refused)
            self._publishes = False
            del self._unsettled[published.id]
            return False
        return True

    def _lead_or_follow(
        self, published: Transaction, head: Snapshot, pace_s: float
    ) -> Outcome | Snapshot:
        """Work on one published window; return the outcome, or the snapshot at its end."""
        last, deferrals, missed = published.until or 0, 0, 0
        self._clock.sleep(pace_s * (0.5 + self._clock.uniform()))  # let others publish too
        others = self._intents.pending(published, head)
        while head.version < last:
            if others and min(others) < published.id and deferrals < MAX_DEFERRALS:
                # All see the same list, so that one leads; who defers looks for its commit.
                deferrals += 1
                pause = 1.0 if deferrals == 1 else 0.5
                self._clock.sleep(pace_s * (pause + self._clock.uniform() / 2))
                step = self._next(published, head)
            else:
                step = self._attempt(published, head, self._taken(others, head))
            alone = isinstance(step, Outcome) and not others
            self._crowd = max(0, self._crowd - 1) if alone else CROWD
            if isinstance(step, Outcome):
                return step
            if step.version > head.version:
                deferrals, missed = 0, missed + 1
                if missed == 1:
                    others = self._intents.pending(published, step)
                elif missed % 3 == 0:  # versions come faster than one can look at each
                    step = self._newest(published, step)
                    if isinstance(step, Outcome):
                        return step
                if missed > 1:
                    deferrals = MAX_DEFERRALS  # who wins does not look at what is published
            head = step
        return head

    def _waiting(self, transaction: Transaction, head: Snapshot) -> list[Transaction]:
        """Look now and then, though nobody was met, for those whom this writer keeps out."""
        if not self._lookout.due():
            return []
        try:
            found = self._taken(self._intents.pending(transaction, head), head)
        except Unavailable:
            return []  # it is for the others: this one can do without
        if found:
            self._crowd = CROWD
        return found

    def _taken(self, others: Mapping[str, str], head: Snapshot) -> list[Transaction]:
        """Return others' published transactions, whose ids their publishers have looked at."""
        found = self._intents.read(others, head.header.table)
        self._log.vouch(a.id for t in found for a in t.actions if isinstance(a, Add))
        return found

    def _newest(self, transaction: Transaction, head: Snapshot) -> Outcome | Snapshot:
        """Go to the newest version; a published transaction is looked for on the way there."""
        newest = self._log.newer(head)
        version = passed(self._log, transaction, head, newest)
        return newest if version is None else Outcome(version, newest)

    def _next(self, published: Transaction, head: Snapshot) -> Outcome | Snapshot:
        """Look at the version after `head`, if it is there, for the published transaction."""
        try:
            commit, body = self._log.read(head.version + 1)
        except VersionNotFound:
            return head
        snapshot = self._log.following(head, commit, body)
        if self._log.holds(commit, snapshot, published.id):
            return Outcome(snapshot.version, snapshot)
        return snapshot

    def _settle_earlier(self, transaction_id: str) -> Outcome | None:
        """Settle a transaction that an earlier call left open: it may stand in the log already.

        Returns None where it does not and cannot any more, or where its slot is still empty: then
        that slot is the next one tried, under the same transaction id.
        """
        known = self._unsettled[transaction_id]
        for version in known.versions:
            try:
                snapshot = taken_in(self._log, version, transaction_id)
            except VersionNotFound:
                if known.form.until is None:
                    return None
                step = self._work_on(known.form, self._log.snapshot(version - 1), new=False)
                return step if isinstance(step, Outcome) else None
            if snapshot is not None:
                del self._unsettled[transaction_id]
                return Outcome(version, snapshot)
        del self._unsettled[transaction_id]
        return None

    def _open(self, transaction_id: str, error: EventLogError) -> CommitUnknown:
        versions = self._unsettled[transaction_id].versions
        return still_open(self._store.uri, transaction_id, versions, error)

    def _beaten(self, transaction: Transaction) -> Unavailable:
        return Unavailable(
            f"lost {MAX_LOST_RACES} commit races in a row: the table is under heavy contention; "
            "nothing was committed, try again later",
            table=self._store.uri,
            transaction=transaction.id,
        )

    def _now_ms(self) -> int:
        told = self._store.now_ms()
        return self._clock.now_ms() if told is None else told

    def _pause(self, lost: int) -> None:
        """Wait a random time that grows with the races lost, so that writers spread out."""
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(lost, 10))
        self._clock.sleep(self._clock.uniform() * longest)
