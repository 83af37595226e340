"""Looks at what other writers have committed, and for a published transaction in it."""

from __future__ import annotations

from eventlog.commit.protocol.commands import (
    Holds,
    Met,
    Newest,
    ReadSlot,
    Resolve,
    Steps,
    Stored,
)
from eventlog.commit.protocol.memory import Outcome
from eventlog.errors import (
    VersionNotFound,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction


def look_next(published: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
    """Look at the version after `head`, if it is there, for the published transaction."""
    stored: Stored | None = yield ReadSlot(head.version + 1)
    return head if stored is None else (yield from go_on(published, head, stored))


def go_on(published: Transaction, head: Snapshot, stored: Stored) -> Steps[Outcome | Snapshot]:
    """Go on to the commit after `head`: the outcome if it holds the transaction."""
    snapshot: Snapshot = yield Resolve(stored, head)
    yield Met()
    if (yield Holds(stored, snapshot, published.id)):
        return Outcome(snapshot.version, snapshot)
    return snapshot


def newest(transaction: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
    """Go to the newest version; a published transaction is looked for on the way there."""
    newest: Snapshot = yield Newest(head)
    version = yield from taken_between(transaction, head, newest)
    return newest if version is None else Outcome(version, newest)


def taken_between(transaction: Transaction, known: Snapshot, newest: Snapshot) -> Steps[int | None]:
    """Return the version after `known` in which a published transaction took effect, if any."""
    mark = newest.meta.published.get(transaction.id)
    if mark is not None:
        return mark.version
    if transaction.until is None or newest.version <= transaction.until:
        return None
    # The marks of its window are forgotten: only the commits tell.
    for version in range(known.version + 1, transaction.until + 1):
        if (yield from taken_in(version, transaction.id)) is not None:
            return version
    return None


def taken_in(version: int, transaction_id: str) -> Steps[Snapshot | None]:
    """Return the snapshot of a version if the transaction took effect in it.

    Raises:
        VersionNotFound: there is no such version yet.
    """
    stored: Stored | None = yield ReadSlot(version)
    if stored is None:
        raise VersionNotFound(f"version {version} is not there yet", version=version)
    if not any(t.id == transaction_id for t in stored.commit.transactions):
        return None
    snapshot: Snapshot = yield Resolve(stored)
    holds: bool = yield Holds(stored, snapshot, transaction_id)
    return snapshot if holds else None
