"""Which versions of a history are asked for: by operation, writer, app, time chunk and time.

A header has the operation and the writer of one transaction. Commits are read where that is not
enough: for an app or a chunk, and where several writers were combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eventlog.log import spills
from eventlog.log.history import HistoryEntry
from eventlog.log.log import Log
from eventlog.model.actions import Add, Advance, DeleteRows, Drop
from eventlog.model.chunks import TimeChunk, parse_chunk, utc
from eventlog.model.records import Commit, Transaction


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a version must have, to be listed; None: anything.

    Attributes:
        operation: the name of an operation.
        writer: a part of the name of a writer.
        app: the id of an app.
        chunk: a time chunk; rows of it, or of a chunk that overlaps it, were added or dropped.
        since_ms: the earliest time of a commit.
    """

    operation: str | None = None
    writer: str | None = None
    app: str | None = None
    chunk: TimeChunk | None = None
    since_ms: int | None = None


def chosen(log: Log, entries: Iterable[HistoryEntry], wanted: Wanted) -> Iterator[HistoryEntry]:
    """Yield the versions that one transaction makes wanted, which took effect in them.

    Args:
        log: the log.
        entries: versions, newest first.
        wanted: what they must have.

    Raises:
        Corrupt: the log does not add up.
        VersionNotReplicated: this replica lacks one of the versions.
    """
    since = None if wanted.since_ms is None else utc(wanted.since_ms)
    for entry in entries:
        if since is not None and entry.time < since:
            return
        if _is_wanted(log, entry, wanted):
            yield entry


def taken_transactions(log: Log, commit: Commit) -> list[tuple[Transaction, str | None]]:
    """Return the transactions of a commit, each with why it took no effect, or None if it did."""
    listed = spills.unpack(commit, log.spill).transactions
    # Only a commit with a void transaction is folded, for which the version before it is read.
    some_void = commit.header.changes.transactions < len(listed)
    void = dict(log.effect(commit).void) if some_void else {}
    return [(transaction, void.get(transaction.id)) for transaction in listed]


def _is_wanted(log: Log, entry: HistoryEntry, wanted: Wanted) -> bool:
    if entry.transactions == 1 and not _is_named(entry.operation, entry.writer, wanted):
        return False
    if wanted.app is None and wanted.chunk is None and entry.transactions == 1:
        return True
    if wanted == Wanted(since_ms=wanted.since_ms):
        return True
    commit, _ = log.read_below(entry.version)
    return any(
        why is None
        and _is_named(transaction.operation, transaction.writer, wanted)
        and (wanted.app is None or wanted.app in _apps_of(transaction))
        and (wanted.chunk is None or _touches(transaction, wanted.chunk))
        for transaction, why in taken_transactions(log, commit)
    )


def _is_named(operation: str, writer: str, wanted: Wanted) -> bool:
    return wanted.operation in {None, operation} and (wanted.writer or "") in writer


def _apps_of(transaction: Transaction) -> set[str]:
    """Return the ids of the apps whose units of work a transaction does."""
    own = set() if transaction.app is None else {transaction.app.id}
    return own | {action.app for action in transaction.actions if isinstance(action, Advance)}


def _touches(transaction: Transaction, chunk: TimeChunk) -> bool:
    touched = {a.chunk for a in transaction.actions if isinstance(a, Add | Drop | DeleteRows)}
    return any(parse_chunk(name).overlaps(chunk.start, chunk.end) for name in touched)
