"""Race for the next slot: one try, with the own transaction and other writers' published ones."""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.commit.proposal import Proposal, propose
from eventlog.commit.protocol.commands import (
    CheckIdentity,
    Elapsed,
    LoadView,
    NoteLogSeen,
    Now,
    Resolve,
    Steps,
    TookEffect,
    Viewed,
    WriteKeyFrame,
)
from eventlog.commit.protocol.looks import newest
from eventlog.commit.protocol.memory import CommitOutcome, Memory, Unsettled
from eventlog.commit.protocol.slot import settle
from eventlog.commit.rebase import Done, RebaseConflict, rebase, refusal
from eventlog.errors import (
    InvalidInput,
    Unavailable,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction
from eventlog.state.small.timing import commit_time

MAX_LOST_RACES = 200


def race(
    memory: Memory, transaction: Transaction, head: Snapshot, others: Sequence[Transaction]
) -> Steps[CommitOutcome | Snapshot]:
    """Try the slot after `head` once; return the outcome, or a newer head if the race was lost.

    Args:
        memory: the memory of the handle.
        transaction: the own transaction.
        head: the newest known snapshot.
        others: other writers' published transactions, to include if possible.

    Raises:
        ClaimLost: the claim that the transaction runs under is gone.
        CommitConflict: the transaction cannot be carried to the newest version.
        CommitUnknown: the slot's content is unknown.
        Unavailable: the store does not answer; nothing was stored in the slot.
    """
    viewed: Viewed = yield LoadView(head, (transaction, *others))
    head, view = viewed.head, viewed.view
    header = head.state.header
    now_ms: int = yield Now()
    time_ms = commit_time(header, now_ms, transaction)
    verdict = rebase(transaction, view, time_ms, others)
    if isinstance(verdict, Done):
        yield CheckIdentity(head)
        return CommitOutcome(verdict.version, head)
    if isinstance(verdict, RebaseConflict):
        newer = yield from newest(transaction, head)
        if isinstance(newer, Snapshot) and newer.state.header.version == header.version:
            yield CheckIdentity(head)
            raise refusal(transaction, header, head.state.meta, verdict, memory.table)
        return newer
    try:
        proposal = propose(
            head,
            verdict.transactions,
            verdict.effect,
            table_id=header.table,
            time_ms=time_ms,
            log=memory.log,
        )
    except (InvalidInput, OverflowError):
        if not others:
            raise
        # Other writers' transactions must not stop this one, which may fit without them.
        return (yield from race(memory, transaction, head, ()))
    riders = len(verdict.transactions) - 1
    return (yield from _try_slot(memory, transaction, head, proposal, riders))


def _try_slot(
    memory: Memory, transaction: Transaction, head: Snapshot, proposal: Proposal, riders: int
) -> Steps[CommitOutcome | Snapshot]:
    """Store the proposal in its slot; return the outcome, or the snapshot of the commit there."""
    yield CheckIdentity(head, writes=True)
    version = proposal.snapshot.state.header.version
    earlier = memory.unsettled.get(transaction.id)
    if earlier is None:
        memory.unsettled[transaction.id] = Unsettled(transaction, range(version, version + 1))
    try:
        stored = yield from settle(memory, proposal, transaction.id)
    except (Unavailable, InvalidInput):
        if earlier is None:  # otherwise an earlier request may still take effect
            del memory.unsettled[transaction.id]
        raise
    yield NoteLogSeen()
    if stored is None:
        # against interrupted-and-forgotten
        memory.contention.led(riders, (yield Elapsed()))
        after: Snapshot = yield WriteKeyFrame(proposal.snapshot)
        # Until here, after an interrupt, the same transaction finds itself in the log.
        memory.unsettled.pop(transaction.id, None)
        return CommitOutcome(version, after)
    # against own-id-not-looked-for
    listed = any(t.id == transaction.id for t in stored.commit.transactions)
    # A stale handle loses older slots than the unsettled one, which therefore stays unsettled.
    still_open = earlier is not None and version not in earlier.versions
    if not listed and transaction.until is None and not still_open:
        del memory.unsettled[transaction.id]
    snapshot: Snapshot = yield Resolve(stored, head)
    if listed and (yield TookEffect(stored, snapshot, transaction.id)):
        del memory.unsettled[transaction.id]
        memory.contention.rode(snapshot.header.changes.transactions)
        return CommitOutcome(version, snapshot)
    return snapshot


def every_race_lost(memory: Memory, transaction: Transaction) -> Unavailable:
    """Return the error for a transaction that lost every race."""
    return Unavailable(
        f"lost {MAX_LOST_RACES} commit races in a row: the table is under heavy contention; "
        "nothing was committed, try again later",
        table=memory.table,
        transaction=transaction.id,
    )
