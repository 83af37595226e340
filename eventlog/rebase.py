"""Rebase: carry a transaction to the head, or say why it cannot be.

Pure layer. It asks the fold itself (`fold.judge`), so that a writer acknowledges exactly what every
reader will accept (FORMAT.md "Committing"). A lost race is a value here, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass

from eventlog import fold
from eventlog.model import Transaction


@dataclass(frozen=True, slots=True)
class Ready:
    """The transaction takes effect as the commit after the head."""

    effect: fold.Effect


@dataclass(frozen=True, slots=True)
class Done:
    """The app's unit of work is in the state already, by `version` at the latest."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction can never take effect on top of this head."""

    reason: str


def rebase(transaction: Transaction, head: fold.View, time_ms: int) -> Ready | Done | Conflict:
    """Return what becomes of the transaction on top of `head`.

    Args:
        transaction: as its writer formed it, with no spill.
        head: the newest state known.
        time_ms: the time that the commit would carry.
    """
    app = transaction.app
    if app is not None:
        mark = head.meta.apps.get(app.id)
        if mark is not None and mark.seq >= app.seq:
            return Done(mark.version)
    effect = fold.judge([transaction], head, time_ms)
    if transaction.id in effect.void:
        return Conflict(effect.void[transaction.id])
    return Ready(effect)
