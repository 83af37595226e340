"""Looking at other writers' commits, and for a published transaction in them."""

from __future__ import annotations

from eventlog.commit.protocol.commands import (
    Newest,
    NoteLogSeen,
    ReadSlot,
    Resolve,
    Steps,
    Stored,
    TookEffect,
)
from eventlog.commit.protocol.writer import CommitOutcome
from eventlog.errors import (
    VersionNotFound,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction


def look_next(published: Transaction, head: Snapshot) -> Steps[CommitOutcome | Snapshot]:
    """Look for the published transaction in the version after `head`.

    Returns the outcome if it took effect there, else the newer snapshot, or `head` if there is no
    newer version.
    """
    stored: Stored | None = yield ReadSlot(head.version + 1)
    return head if stored is None else (yield from step_to(published, head, stored))


def look_at(
    published: Transaction, head: Snapshot, version: int
) -> Steps[CommitOutcome | Snapshot]:
    """Look for the published transaction in a version after `head`, and in those between.

    One request, since every commit has the marks of those that took effect before. Returns the
    outcome, else the newer snapshot, or `head` if there is no such version.
    """
    stored: Stored | None = yield ReadSlot(version)
    if stored is None:
        return head
    if version == head.version + 1:
        return (yield from step_to(published, head, stored))
    snapshot: Snapshot = yield Resolve(stored)
    mark = snapshot.meta.published.get(published.id)
    return snapshot if mark is None else CommitOutcome(mark.version, snapshot)


def step_to(
    published: Transaction, head: Snapshot, stored: Stored
) -> Steps[CommitOutcome | Snapshot]:
    """Resolve the commit after `head`; return the outcome if the transaction took effect in it."""
    snapshot: Snapshot = yield Resolve(stored, head)
    yield NoteLogSeen()
    if (yield TookEffect(stored, snapshot, published.id)):
        return CommitOutcome(snapshot.version, snapshot)
    return snapshot


def newest(transaction: Transaction, head: Snapshot) -> Steps[CommitOutcome | Snapshot]:
    """Get the newest snapshot, or the outcome if a published transaction took effect by then."""
    newest: Snapshot = yield Newest(head)
    version = yield from version_between(transaction, head, newest)
    return newest if version is None else CommitOutcome(version, newest)


def version_between(
    transaction: Transaction, known: Snapshot, newest: Snapshot
) -> Steps[int | None]:
    """Return the version after `known` in which a published transaction took effect, if any."""
    mark = newest.meta.published.get(transaction.id)
    if mark is not None:
        return mark.version
    if transaction.until is None or newest.version <= transaction.until:
        return None
    # Its window has ended and its mark is gone from the state, so the commits must be read.
    for version in range(known.version + 1, transaction.until + 1):
        if (yield from snapshot_if_in(version, transaction.id)) is not None:
            return version
    return None


def snapshot_if_in(version: int, transaction_id: str) -> Steps[Snapshot | None]:
    """Return the snapshot of a version if the transaction took effect in it, else None.

    Raises:
        VersionNotFound: the version does not exist yet.
    """
    stored: Stored | None = yield ReadSlot(version)
    if stored is None:
        raise VersionNotFound(f"version {version} does not exist yet", version=version)
    if not any(t.id == transaction_id for t in stored.commit.transactions):
        return None
    snapshot: Snapshot = yield Resolve(stored)
    took_effect: bool = yield TookEffect(stored, snapshot, transaction_id)
    return snapshot if took_effect else None
