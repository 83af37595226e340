"""Rebase: carry a transaction to the head, or say why it cannot be.

Pure layer. It asks the fold itself (`fold.judge`), so that a writer acknowledges exactly what every
reader will accept (FORMAT.md "Committing"). A lost race is a value here, never an exception.
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
    """The transactions take effect as the commit after the head, the writer's own one first."""

    transactions: tuple[Transaction, ...]
    effect: fold.Effect


@dataclass(frozen=True, slots=True)
class Done:
    """The unit of work is in the state already, by `version` at the latest."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction can never take effect on top of this head."""

    reason: str


def rebase(
    transaction: Transaction,
    head: fold.View,
    time_ms: int,
    others: Sequence[Transaction] = (),
) -> Ready | Done | Conflict:
    """Return what becomes of the transaction on top of `head`.

    Args:
        transaction: as its writer formed it, with no spill.
        head: the newest state known.
        time_ms: the time that the commit would carry.
        others: published transactions to include; those that would be void are left out.
    """
    if transaction.id in head.meta.published:
        return Done(head.meta.published[transaction.id].version)
    mark = rules.done(head.meta, transaction.app)
    if mark is not None:  # against done-work-not-found
        return Done(mark.version)
    candidates = {t.id: t for t in (*others, transaction)}  # one of each id, the own one kept
    del candidates[transaction.id]
    effect = fold.judge([transaction, *candidates.values()], head, time_ms)
    if transaction.id in effect.void:
        return Conflict(effect.void[transaction.id])
    # against void-ones-taken-along
    accepted = (t for t in (transaction, *candidates.values()) if t.id in effect.accepted)
    return Ready(tuple(accepted), effect)


def refusal(
    transaction: Transaction, head: Header, meta: Meta, verdict: Conflict, table: str
) -> CommitConflict | ClaimLost:
    """Return the error that says why the transaction cannot be carried to the head."""
    lost = transaction.claim is not None and isinstance(claims.held(meta, transaction.claim), str)
    advice = "stop: somebody else has it" if lost else "read again and decide again"
    kind = ClaimLost if lost else CommitConflict  # against lost-claim-taken-for-a-conflict
    return kind(
        f"{transaction.operation} cannot be carried from version {transaction.read_version} to "
        f"{head.version}: {verdict.reason}. The newest commit is {head.changes.operation} by "
        f"{head.changes.writer}. Nothing was committed: {advice}",
        table=table,
        version=head.version,
        transaction=transaction.id,
    )
