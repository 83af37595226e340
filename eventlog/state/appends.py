"""The rows that one commit appended: what a stream of a table reads. No I/O.

A commit may carry transactions of several writers, so each is looked at by itself. A compaction
rewrites rows that are in the table already: neither its adds nor its drops are seen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import UnsetType

from eventlog.keyed.placement import set_back
from eventlog.model.actions import (
    Add,
    DeleteRows,
    Drop,
    Horizon,
    Merge,
    Replace,
    Restore,
    SetSchema,
    Update,
)
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Transaction
from eventlog.state.fold import segment_of


@dataclass(frozen=True, slots=True)
class PairedUpdate:
    """An update whose new rows stand in the order of the old ones (FORMAT.md R20.5).

    Attributes:
        touched: ids of the segments that have the old rows.
        segments: those of the new rows, in the order of the commit.
    """

    touched: frozenset[str]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Appends:
    """The appends of one version.

    Attributes:
        version: the version.
        segments: the segments whose rows are new, in the order of the commit.
        change: the operation of the first transaction that removed rows, or brought back rows that
            had been removed; None if there is none. Its own segments are not in `segments`.
        schema: the schema that the version set; None if it set none.
        horizon: the horizon that the version set; 0 if it set none.
        rebased: the bases that merges of slices made: these may have forgotten tombstones.
        time: the time of the commit in ms UTC, before corrections of the clock.
        updates: the updates in it whose old and new rows are pairs.
    """

    version: int
    segments: tuple[Segment, ...] = ()
    change: str | None = None
    schema: Schema | None = None
    horizon: int = 0
    rebased: tuple[Segment, ...] = ()
    time: int = 0
    updates: tuple[PairedUpdate, ...] = ()


def appends(version: int, taken: Sequence[Transaction], time: int = 0) -> Appends:
    """Return what a commit appended.

    Args:
        version: the version of the commit.
        taken: the transactions that took effect in it, in order, none spilled.
        time: the time in its header.
    """
    new: list[Segment] = []
    change: str | None = None
    schema: Schema | None = None
    horizon = partition = 0
    rebased: list[Segment] = []
    updates: list[PairedUpdate] = []
    for transaction in taken:
        added = [action for action in transaction.actions if isinstance(action, Add)]
        entries = [segment_of(add, version, partition + k) for k, add in enumerate(added)]
        if _changes_rows(transaction):
            change = change or transaction.operation
            updates += _paired(transaction, entries)
        elif not _rewrites(transaction):
            new += entries
        rebased += (entry for entry in entries if _is_base(entry))
        partition += len(added)
        for action in transaction.actions:
            if isinstance(action, SetSchema):
                schema = action.schema
            elif isinstance(action, Horizon):
                horizon = action.version
    return Appends(
        version,
        tuple(new),
        change,
        schema,
        horizon,
        rebased=tuple(rebased),
        time=time,
        updates=tuple(updates),
    )


def keeps_rows(transaction: Transaction) -> bool:
    """Return whether a transaction leaves the rows of the table as they are, such as a compaction.

    Its actions decide, and not the name of its operation, which any writer may choose.
    """
    return _rewrites(transaction) and not _changes_rows(transaction)


def _paired(transaction: Transaction, added: Sequence[Segment]) -> Iterator[PairedUpdate]:
    """Yield the paired update of a transaction, if it is one."""
    if any(isinstance(action, Update) and action.paired for action in transaction.actions):
        touched = {a.id for a in transaction.actions if isinstance(a, Drop | DeleteRows)}
        yield PairedUpdate(frozenset(touched), tuple(added))


def _is_base(entry: Segment) -> bool:
    return not isinstance(entry.slice, UnsetType) and entry.slice.kind == "base"


def _rewrites(transaction: Transaction) -> bool:
    """Return whether the adds of a transaction have rows that its drops had."""
    return any(isinstance(action, Replace | Merge) for action in transaction.actions)


def _changes_rows(transaction: Transaction) -> bool:
    """Return whether a transaction does something else to rows than to append or rewrite them.

    A restore does even where it drops nothing: a reader of the log has met its rows before.
    """
    for action in transaction.actions:
        if isinstance(action, Restore) or (isinstance(action, Replace) and action.deletes):
            return True
    if _rewrites(transaction):
        return False
    # An overwrite that drops nothing may put rows below others.
    # against overwrite-taken-for-an-append
    below = bool(set_back(transaction))
    return below or any(isinstance(a, Drop | DeleteRows) for a in transaction.actions)
