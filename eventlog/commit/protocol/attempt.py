"""One attempt to put the next commit: the own transaction, and other writers' published ones."""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.commit.intents import is_note
from eventlog.commit.proposal import Proposal, propose
from eventlog.commit.protocol.checks import newest
from eventlog.commit.protocol.commands import (
    CheckIdentity,
    LoadView,
    Newest,
    NoteLogSeen,
    Now,
    Resolve,
    Steps,
    Stored,
    TookEffect,
    Viewed,
    WriteKeyFrame,
)
from eventlog.commit.protocol.put import put_commit
from eventlog.commit.protocol.writer import CommitOutcome, Unresolved, Writer
from eventlog.commit.rebase import Done, RebaseConflict, conflict_error, rebase
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    InvalidInput,
    KeyNotFound,
    Unavailable,
    VersionCut,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction
from eventlog.state.small.timing import commit_time

MAX_ATTEMPTS = 200
_NOTE_ATTEMPTS = 8  # of what nobody depends on: a compaction waits for it


def attempt(
    writer: Writer, transaction: Transaction, head: Snapshot, others: Sequence[Transaction]
) -> Steps[CommitOutcome | Snapshot]:
    """Try once to put the commit after `head`; return the outcome, or the head that came first.

    Args:
        writer: what this writer remembers.
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
            raise conflict_error(transaction, header, head.state.meta, verdict, writer.table)
        return newer
    try:
        proposal = propose(
            head,
            verdict.transactions,
            verdict.effect,
            table_id=header.table,
            time_ms=time_ms,
            log=writer.log,
        )
    except (InvalidInput, OverflowError):
        if not others:
            raise
        # Other writers' transactions must not stop this one, which may fit without them.
        return (yield from attempt(writer, transaction, head, ()))
    combined = len(verdict.transactions) - 1
    return (yield from _try_slot(writer, transaction, head, proposal, combined))


def _try_slot(
    writer: Writer, transaction: Transaction, head: Snapshot, proposal: Proposal, combined: int
) -> Steps[CommitOutcome | Snapshot]:
    """Store the proposal in its slot; return the outcome, or the snapshot of the commit there."""
    yield CheckIdentity(head, writes=True)
    version = proposal.snapshot.state.header.version
    earlier = writer.unresolved.get(transaction.id)
    if earlier is None:
        writer.unresolved[transaction.id] = Unresolved(transaction, range(version, version + 1))
    try:
        stored = yield from put_commit(writer, proposal, transaction.id)
    except VersionCut:
        # A stub does not show whether it had the transaction: somebody else may have committed it.
        # against stub-taken-for-a-lost-race
        if earlier is not None or transaction.until is not None:
            raise
        del writer.unresolved[transaction.id]
        newer: Snapshot = yield Newest(head)
        return newer
    except (Unavailable, InvalidInput):
        if earlier is None:  # otherwise an earlier request may still take effect
            del writer.unresolved[transaction.id]
        raise
    yield NoteLogSeen()
    if stored is None:
        # against interrupted-and-forgotten
        writer.contention.led(combined)
        beside = writer.contention.in_a_run
        after: Snapshot = yield WriteKeyFrame(proposal.snapshot, beside)
        # Until here, after an interrupt, the same transaction finds itself in the log.
        writer.unresolved.pop(transaction.id, None)
        return CommitOutcome(version, after)
    # against own-id-not-looked-for
    listed = any(t.id == transaction.id for t in stored.commit.transactions)
    # A stale handle loses older slots than the unresolved one, which therefore stays unresolved.
    still_open = earlier is not None and version not in earlier.versions
    if not listed and transaction.until is None and not still_open:
        del writer.unresolved[transaction.id]
    if not listed:
        return (yield from _after(transaction, stored, head))
    snapshot: Snapshot = yield Resolve(stored, head)
    if (yield TookEffect(stored, snapshot, transaction.id)):
        del writer.unresolved[transaction.id]
        writer.contention.followed()
        return CommitOutcome(version, snapshot)
    return snapshot


def _after(
    transaction: Transaction, stored: Stored, head: Snapshot
) -> Steps[CommitOutcome | Snapshot]:
    """Return the snapshot of a commit without the transaction, or a newer one, or its outcome."""
    try:
        snapshot: Snapshot = yield Resolve(stored, head)
    except (Corrupt, KeyNotFound):
        # A vacuum may have cut the log there since the commit was read.
        newer = yield from newest(transaction, head)
        read = stored.commit.header.version
        # against slot-cut-off-while-it-was-read
        if isinstance(newer, Snapshot) and newer.version <= read:
            raise
        return newer
    return snapshot


def attempts_of(transaction: Transaction) -> int:
    """Return how many commits a transaction may lose to before it is given up."""
    # against note-that-stops-a-compaction
    return _NOTE_ATTEMPTS if is_note(transaction) else MAX_ATTEMPTS


def every_attempt_lost(writer: Writer, transaction: Transaction) -> CommitConflict | Unavailable:
    """Return the error for a transaction that other commits overtook at every attempt."""
    lost = f"lost {attempts_of(transaction)} commit races in a row"
    if is_note(transaction) and transaction.id not in writer.unresolved:
        return CommitConflict(lost, table=writer.table, transaction=transaction.id)
    return Unavailable(
        f"{lost}: the table is under heavy contention; nothing was committed, try again later",
        table=writer.table,
        transaction=transaction.id,
    )
