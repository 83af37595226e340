"""Rebase: carry a transaction to the head, or return why that is impossible.

No I/O. Rebase calls the fold itself (`fold.judge`), so a writer acknowledges exactly what every
reader will accept (FORMAT.md "Committing"). A conflict is a value here, not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.errors import ClaimLost, CommitConflict
from eventlog.model.records import Header, Meta, Transaction
from eventlog.state import fold
from eventlog.state.small import claims, rules


@dataclass(frozen=True, slots=True)
class Ready:
    """The transactions take effect as the commit after the head; the writer's own is first."""

    transactions: tuple[Transaction, ...]
    effect: fold.Effect


@dataclass(frozen=True, slots=True)
class Done:
    """The unit of work is already committed, in `version` or before."""

    version: int


@dataclass(frozen=True, slots=True)
class RebaseConflict:
    """The transaction can never take effect on top of this head."""

    reason: str


def rebase(
    transaction: Transaction,
    head: fold.FoldView,
    time_ms: int,
    others: Sequence[Transaction] = (),
) -> Ready | Done | RebaseConflict:
    """Return the outcome of committing the transaction on top of `head`.

    Args:
        transaction: the transaction, not spilled.
        head: the newest known state.
        time_ms: the time of the commit, in ms UTC.
        others: published transactions to include; those that would be void are left out.
    """
    if transaction.id in head.meta.published:
        return Done(head.meta.published[transaction.id].version)
    mark = rules.done(head.meta, transaction.app)
    if mark is not None:  # against done-work-not-found
        return Done(mark.version)
    candidates = {t.id: t for t in (*others, transaction)}  # one per id; this writer's own wins
    del candidates[transaction.id]
    effect = fold.judge([transaction, *candidates.values()], head, time_ms)
    if transaction.id in effect.void:
        return RebaseConflict(effect.void[transaction.id])
    # against void-ones-taken-along
    accepted = (t for t in (transaction, *candidates.values()) if t.id in effect.accepted)
    return Ready(tuple(accepted), effect)


def conflict_error(
    transaction: Transaction, head: Header, meta: Meta, verdict: RebaseConflict, table: str
) -> CommitConflict | ClaimLost:
    """Return the error for a transaction that cannot be carried to the head.

    Args:
        transaction: the transaction.
        head: the header of the newest version.
        meta: the small state at that version.
        verdict: why it cannot be carried.
        table: the root URI, for the error.
    """
    lost = transaction.claim is not None and isinstance(claims.held(meta, transaction.claim), str)
    advice = (
        "stop the work, another process may have claimed it"
        if lost
        else "read the table again and decide again"
    )
    kind = ClaimLost if lost else CommitConflict  # against lost-claim-taken-for-a-conflict
    return kind(
        f"{transaction.operation} cannot be carried from version {transaction.read_version} to "
        f"{head.version}: {verdict.reason}. The newest commit is {head.changes.operation} by "
        f"{head.changes.writer}. Nothing was committed: {advice}",
        table=table,
        version=head.version,
        transaction=transaction.id,
    )
