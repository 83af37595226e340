"""Commits a transaction: it takes effect in one version, exactly once."""

from __future__ import annotations

from eventlog.commit.intents import patience, that_fit, void_if_it_waited, waiting
from eventlog.commit.proposal import check_writable, propose
from eventlog.commit.protocol.attempt import attempt, attempts_of, every_attempt_lost
from eventlog.commit.protocol.checks import snapshot_if_in
from eventlog.commit.protocol.combining import combine, follow_window, still_waiting
from eventlog.commit.protocol.commands import (
    At,
    Confirm,
    Draw,
    Elapsed,
    Newest,
    NoteLogSeen,
    Now,
    ReadIntents,
    Sleep,
    Steps,
)
from eventlog.commit.protocol.contention import LED, LED_OF, RECENT, Role
from eventlog.commit.protocol.put import put_commit
from eventlog.commit.protocol.writer import CommitOutcome, Unresolved, Writer
from eventlog.commit.rebase import Ready, rebase
from eventlog.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    EventLogError,
    InvalidInput,
    TableNotFound,
    Unavailable,
    VersionCut,
    VersionNotFound,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.properties import setting
from eventlog.model.records import Transaction
from eventlog.state.fold import EmptyState
from eventlog.state.small.rules import is_append

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def create_log(writer: Writer, transaction: Transaction, table_id: str) -> Steps[CommitOutcome]:
    """Commit version 0.

    Args:
        writer: what this writer remembers.
        transaction: the transaction that creates the table.
        table_id: the id of the new table.

    Raises:
        AlreadyExists: there is already a table under this root.
        CommitConflict: the transaction is void.
        CommitUnknown: the store gave no clear answer.
    """
    now_ms: int = yield Now()
    verdict = rebase(transaction, EmptyState(), now_ms)
    if not isinstance(verdict, Ready):
        raise CommitConflict(f"the table cannot be created: {verdict}", table=writer.table)
    proposal = propose(
        None,
        verdict.transactions,
        verdict.effect,
        table_id=table_id,
        time_ms=now_ms,
        log=writer.log,
    )
    stored = yield from put_commit(writer, proposal, transaction.id)
    if stored is not None:
        raise AlreadyExists(
            "there is already a table here: open it, or choose another path", table=writer.table
        )
    return CommitOutcome(0, proposal.snapshot)


def commit(writer: Writer, transaction: Transaction, head: Snapshot) -> Steps[CommitOutcome]:
    """Carry the transaction to the head of the log.

    Args:
        writer: what this writer remembers.
        transaction: the transaction.
        head: the newest known snapshot.

    Raises:
        ClaimLost: the claim that it runs under is gone; nothing was committed.
        CommitConflict: it cannot be carried; nothing was committed.
        CommitUnknown: it is unknown whether it was committed; the error names the version.
        TableNotFound: the log is no longer that of `head`; nothing was committed. Or the branch was
            deleted, and the commit with it.
        Unavailable: the store does not answer, or other commits came first at every attempt;
            nothing was committed.
    """
    check_writable(head.state.header)
    writer.contention.resume((yield Elapsed()))
    try:
        outcome = yield from _commit(writer, transaction, head)
        yield from _confirm(writer, transaction, outcome.version)
    except (CommitUnknown, Unavailable, InvalidInput, VersionCut) as error:
        if transaction.id not in writer.unresolved:  # against sent-and-forgotten
            raise
        # The transaction was sent and may still take effect, even if it was a read that failed.
        raise _unresolved_error(writer, transaction.id, error) from error
    writer.contention.ended_s = yield Elapsed()
    return outcome


def _confirm(writer: Writer, transaction: Transaction, version: int) -> Steps[None]:
    """Check that a branch was not deleted before its commit, which nobody could read.

    Until that is known, the transaction counts as one whose outcome is unknown.
    """
    unresolved = Unresolved(transaction, range(version, version + 1))
    writer.unresolved[transaction.id] = unresolved  # against unconfirmed-and-forgotten
    try:
        yield Confirm()  # against commit-to-a-deleted-branch
    except TableNotFound:
        writer.unresolved.pop(transaction.id, None)
        raise
    writer.unresolved.pop(transaction.id, None)


def read_published(writer: Writer, head: Snapshot) -> Steps[None]:
    """Read other writers' transactions that were published at the last commit.

    The caller does this during the upload of its next rows. The shell caches what it reads, so the
    next commit need not wait for it.

    Args:
        writer: what this writer remembers.
        head: the newest known snapshot.

    Raises:
        Unavailable: the store does not answer.
    """
    if writer.contention.leads and writer.listed:
        chosen = that_fit(waiting(writer.listed, head))
        writer.listed = []
        taken = yield ReadIntents([intent.key for intent in chosen], head.header.table)
        writer.taken = [*writer.taken, *taken]


def _commit(writer: Writer, transaction: Transaction, head: Snapshot) -> Steps[CommitOutcome]:
    """Do what `commit` does, but Unavailable does not mean that nothing was committed.

    A transaction in `writer.unresolved` may still take effect.
    """
    head = yield from _first_head(writer, transaction, head)
    patient = patience(transaction, setting(head.state.meta.properties, "combine_after"))
    first, lost = True, 0
    for _ in range(attempts_of(transaction)):
        losses = 0 if void_if_it_waited(transaction, head) else patient
        if transaction.id in writer.unresolved:  # against another-slot-while-unclear
            outcome = yield from _resolve_earlier(writer, transaction.id)
            if outcome is not None:
                return outcome
        resolved = transaction.id not in writer.unresolved
        if losses:
            yield from _note_leader(writer, head)
        if losses and resolved and writer.contention.publishes and writer.may_publish:
            step = yield from combine(writer, transaction, head)
            if isinstance(step, CommitOutcome):
                return step
            head = step
        writer.contention.combines = bool(losses)
        others = still_waiting(writer, transaction, head) if losses else []
        step = yield from attempt(writer, transaction, head, others)  # against new-id-on-retry
        if isinstance(step, CommitOutcome):
            return step
        # A rewrite looks at the head before it commits: what it loses to has come since.
        may_be_old = first and not (losses and not is_append(transaction))
        if may_be_old and (writer.contention.rested or not (yield from _is_recent(writer, step))):
            # An attempt on an old head is lost to commits of long ago, which are no contest.
            writer.contention.looks_first = True
            head = yield Newest(step)
        else:
            head = yield from _after_loss(writer, step, lost, losses)
            lost += 1
        first = False
    raise every_attempt_lost(writer, transaction)


def _first_head(writer: Writer, transaction: Transaction, head: Snapshot) -> Steps[Snapshot]:
    """Return the head for the first attempt: the newest one, if the known one is probably old."""
    contention, known = writer.contention, head.state.header.version
    old = contention.rested and contention.looks_first
    if not old and transaction.read_version <= known:
        return head
    newest: Snapshot = yield Newest(head)
    contention.looks_first = newest.state.header.version > known
    contention.rested = False
    if contention.looks_first:
        yield NoteLogSeen()  # it follows the head that was known
    return newest


def _note_leader(writer: Writer, head: Snapshot) -> Steps[None]:
    """Expect a leader if the last few commits included published transactions, a moment ago."""
    contention = writer.contention
    if contention.expected or contention.role is not Role.UNKNOWN:
        return
    combined = {mark.version for mark in head.meta.published.values()}
    lately = [version for version in combined if version > head.version - LED_OF]
    if len(lately) >= LED and (yield from _is_recent(writer, head)):
        contention.met()


def _is_recent(writer: Writer, head: Snapshot) -> Steps[bool]:
    """Return whether a commit is so young that its writer probably goes on to commit."""
    now_ms: int = yield Now()
    return now_ms - head.header.time < 1000 * RECENT * writer.contention.request_s


def _after_loss(writer: Writer, head: Snapshot, lost: int, losses: int) -> Steps[Snapshot]:
    """Note a lost attempt; return the head to go on with.

    Args:
        writer: what this writer remembers.
        head: the snapshot of the commit that came first.
        lost: number of attempts that were lost before.
        losses: number of lost attempts after which the transaction is published; 0: never.
    """
    contention = writer.contention
    publish = lost + 1 >= losses or bool(head.meta.published)
    contention.lost(publish=bool(losses) and publish)
    if losses and contention.publishes and writer.may_publish:
        return head
    return (yield from _newest_later(writer, head, lost, combines=bool(losses)))


def _resolve_earlier(writer: Writer, transaction_id: str) -> Steps[CommitOutcome | None]:
    """Resolve a transaction whose outcome an earlier call left unknown; return the outcome.

    Returns None if it can no longer take effect, or if its slot is still empty: in that case the
    same slot is tried next, with the same transaction id.
    """
    known = writer.unresolved[transaction_id]
    for version in known.versions:
        try:
            snapshot = yield from snapshot_if_in(version, transaction_id)
        except VersionNotFound:
            if known.form.until is None:
                return None
            before: Snapshot = yield At(version - 1)
            step = yield from follow_window(writer, known.form, before, new=False)
            return step if isinstance(step, CommitOutcome) else None
        if snapshot is not None:
            del writer.unresolved[transaction_id]
            return CommitOutcome(version, snapshot)
    del writer.unresolved[transaction_id]
    return None


def _unresolved_error(writer: Writer, transaction_id: str, error: EventLogError) -> CommitUnknown:
    """Return the error for a transaction that was sent and may take effect or have done so."""
    versions = writer.unresolved[transaction_id].versions
    if isinstance(error, VersionCut):
        return CommitUnknown(
            f"the transaction was sent for versions up to {versions[-1]}, and whether it took "
            "effect cannot be known any more: the log is cut above them. Look for its rows in the "
            "table before you write them once more",
            table=writer.table,
            version=versions[0],
            until=versions[-1],
            transaction=transaction_id,
        )
    return CommitUnknown(
        f"the transaction was sent and may take effect until version {versions[-1]}, but the "
        f"store stopped answering: {error.message}. Commit the same transaction again, or call "
        "Table.find_transaction once the table has that version",
        table=writer.table,
        version=versions[0],
        until=versions[-1],
        transaction=transaction_id,
    )


def _newest_later(writer: Writer, head: Snapshot, lost: int, *, combines: bool) -> Steps[Snapshot]:
    """Wait after a lost attempt; return the newest snapshot, and note whether to publish now."""
    yield from _pause(lost)
    newest: Snapshot = yield Newest(head)
    # Others combine, or have made two commits while this writer tried one.
    if combines and (newest.meta.published or newest.version > head.version):
        writer.contention.lost(publish=True)
    return newest


def _pause(lost: int) -> Steps[None]:
    """Wait a random time that grows with the number of lost attempts, to spread the writers."""
    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(lost, 10))
    if lost:
        yield Sleep((yield Draw()) * longest)
