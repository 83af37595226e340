"""Commits deletes of found rows; where other commits have moved the rows, finds them again.

Deletes of other rows of the same segments are united with this one. What a compaction or an update
has written since is searched again, and nothing else: rows that others append meanwhile are no
concern of a delete (isolation `snapshot`), or a conflict (`serializable`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from msgspec.structs import replace
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.errors import CommitConflict
from eventlog.format.entry_order import entry_key
from eventlog.log import chain
from eventlog.model.actions import (
    Action,
    Add,
    DeleteRows,
    Drop,
    Replace,
    Restore,
    SetOrigin,
    Unchanged,
    Update,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment, stored_bitmap
from eventlog.model.records import App, Commit, Transaction
from eventlog.query.predicate import Where
from eventlog.segments.vectors import VectorReader
from eventlog.staging.vector_object import stage_vectors, stored_bytes
from eventlog.state.delta import drop_of
from eventlog.store.parallel import each
from eventlog.table.stage_again import Copies, commit_staged, current_adds
from eventlog.writers.changing.finding import Found, Hits, Place

Isolation = Literal["snapshot", "serializable"]
ISOLATIONS = ("snapshot", "serializable")
_MOST_ATTEMPTS = 100  # each follows another writer's commit to the same segments

logger = logging.getLogger(__name__)


def arrivals_of(isolation: str) -> Literal["ignore", "refuse"]:
    """Return what becomes of rows that are added meanwhile, by the isolation of a change."""
    return "refuse" if isolation == "serializable" else "ignore"


class RowChange(int):
    """The version that a change of rows committed, with what it touched.

    It is the newest version that was read where nothing was committed. Of a dry run, the numbers
    are those of what would be done, and `bytes` is an estimate.

    Attributes:
        committed: whether this call committed the version: not in a dry run, nor if the unit of
            work was done already, nor if there was nothing to do.
        deleted: number of rows deleted, the old forms of updated ones among them.
        added: number of rows added, the new forms of updated ones among them.
        updated: number of rows that were given new values.
        dropped: number of segments of which all rows were deleted.
        changed: number of segments of which some rows were deleted.
        bytes: number of bytes that were stored beside the commit.
    """

    committed: bool
    deleted: int
    added: int
    updated: int
    dropped: int
    changed: int
    bytes: int

    def __new__(cls, version: int, *, committed: bool = False, **touched: int) -> Self:
        """Return the change that was committed as `version`."""
        self = super().__new__(cls, version)
        self.committed = committed
        for name in ("deleted", "added", "updated", "dropped", "changed", "bytes"):
            setattr(self, name, touched.get(name, 0))
        return self


@dataclass(frozen=True, slots=True)
class Request:
    """What rows a change deletes, and under which conditions.

    Attributes:
        operation: its name in histories.
        where: the predicate; None selects all rows.
        span: the interval of event time in which rows can pass it, in ms UTC.
        arrivals: what becomes of rows that are added to `span` meanwhile: they are ignored, a
            conflict (`refuse`), or searched, too.
        app: the idempotence key, if there is one.
        memory_bytes: about how many bytes to hold.
        transaction: the id of the transaction; None makes one.
        dry_run: of overwrites: commit nothing.
        exact: whether it is a conflict that others changed rows that were there at the start.
    """

    operation: str
    where: Where | None
    span: tuple[int, int]
    arrivals: Literal["ignore", "refuse", "search"]
    app: App | None
    memory_bytes: int
    transaction: str | None = None
    dry_run: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What other writers committed since a version.

    Attributes:
        moved: ids of the segments to which rows of given segments were moved, by compactions and
            updates.
        arrivals: other segments that were added, with the version of each.
        later: ids of the segments that have rows of arrivals.
        mixed: a version that put given rows and rows of arrivals into one segment; None: none did.
        displaced: a version in which a restore or a merge of another log put segments into the
            place of given ones, so that nothing tells which of their rows are those; None: none.
        landed: the version in which a given transaction took effect; None: in none of these.
    """

    moved: frozenset[str] = frozenset()
    arrivals: tuple[tuple[int, Add], ...] = ()
    later: frozenset[str] = frozenset()
    mixed: int | None = None
    displaced: int | None = None
    landed: int | None = None


@dataclass
class _Progress:
    """How far a change has come: what it found, and what it has read of the log since.

    Each commit is read once, however often others overtake the change.
    """

    start: Snapshot
    every: bool
    transaction: Transaction
    known: Mapping[Place, Hits] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    seen: int = -1
    rows: int | None = None
    arrivals: list[tuple[int, Add]] = field(default_factory=list)
    mixed: int | None = None
    displaced: int | None = None
    landed: int | None = None
    copies: Copies = field(default_factory=dict)

    def note(self, found: Found) -> None:
        """Remember what was found, to follow its rows and not to read its segments again."""
        self.known = found.searched
        self.touched.update(one.segment.id for one in found.selected)

    def may_have(self, segment: Segment) -> bool:
        """Return whether a segment is searched: it may have rows that were there at the start."""
        # against rows-that-came-meanwhile-changed
        return self.every or segment.version <= self.start.version or segment.id in self.moved


# The staged segments to add, and the action of an update.
Staged = tuple[Sequence[Add], Update | None]
Adds = Callable[[Found], Staged]


class Finder(Protocol):
    """Finds the rows to delete in a version; see `eventlog.writers.changing.finding.Search`."""

    def find(
        self,
        snapshot: Snapshot,
        among: Callable[[Segment], bool],
        known: Mapping[Place, Hits],
    ) -> Found:
        """Return the rows of a version that are to be deleted."""
        ...


def land(t: Table, request: Request, start: Snapshot, finder: Finder, adds: Adds) -> RowChange:
    """Delete the rows that a request selects, add others, and return what was committed.

    Args:
        t: the table, which has no key.
        request: the request.
        start: the version as of which rows are selected.
        finder: finds them.
        adds: returns the staged segments to add, and the action of an update, given what was
            found. It is called again where rows were moved.

    Raises:
        CommitConflict: rows were added meanwhile (`serializable`), or the table changes faster than
            the rows can be found.
        CommitUnknown: see `append`.
        DataLoss: a segment or a deletion vector is missing or damaged.
        InvalidInput: the predicate is wrong, or fails on a row.
        Unavailable: the store does not answer.
    """
    progress, head = _begin(t, request, start, finder), t.session.head()
    transaction = progress.transaction
    for attempt in range(_MOST_ATTEMPTS):
        _catch_up(t, request, progress, head)
        _check_meanwhile(t, request, progress, head)
        found = finder.find(head, progress.may_have, progress.known)
        progress.note(found)
        _check_same_rows(t, request, progress, found)
        new, update = adds(found)
        if not found.selected and not new and request.app is None:
            return RowChange(head.version)
        actions, touched = _actions(t, found)
        marks: list[Action] = [] if update is None else [update]
        if request.arrivals != "ignore":  # against rows-unseen-when-it-landed
            marks.append(Unchanged(*request.span))
        try:
            staged = current_adds(t.session, new, progress.copies, transaction.id)
            attempted = replace(
                transaction, read_version=head.version, actions=(*marks, *actions, *staged)
            )
            version = commit_staged(t.session, attempted, progress.copies)
        except CommitConflict as conflict:
            newest = t.session.head()
            _catch_up(t, request, progress, newest)
            landed = progress.landed
            # against repeated-without-a-reason
            alone = newest.version == head.version  # no other commit is in the way
            if landed is None and (alone or attempt == _MOST_ATTEMPTS - 1):
                raise
            logger.info("finding the rows again: %s", conflict.message)
            version, head = -1 if landed is None else landed, newest
        if version >= 0:
            touched["added"] = sum(add.rows for add in new)
            touched["updated"] = 0 if update is None else update.rows
            touched["bytes"] += sum(add.bytes for add in new)
            return RowChange(version, committed=True, **touched)
    raise AssertionError("unreachable")  # the last attempt returns or raises


def _begin(t: Table, request: Request, start: Snapshot, finder: Finder) -> _Progress:
    """Return the progress of a change; the rows are found where they were, if others came since."""
    transaction = t.session.transaction(request.operation, [], app=request.app)
    if request.transaction is not None:
        transaction = replace(transaction, id=request.transaction)
    every = request.arrivals == "search"
    progress = _Progress(start, every, transaction, seen=start.version)
    if start.version < t.session.head().version:  # rows may have been moved since
        before = finder.find(start, progress.may_have, {})
        progress.note(before)
        progress.rows = before.rows
    return progress


def would_change(
    found: Found, *, updated: int = 0, inserted: int = 0, inserted_bytes: int | None = None
) -> RowChange:
    """Return what a change would do, committing nothing.

    Its `bytes` are an estimate: a new form of a row takes what a row of the changed segments does.

    Args:
        found: the rows that are deleted.
        updated: the number of them that have new forms.
        inserted: the number of other new rows.
        inserted_bytes: their bytes; None: as many as other rows of the table take.
    """
    parts = [one.positions for one in found.selected if one.positions is not None]
    share = sum(one.segment.bytes * one.rows // one.segment.rows for one in found.selected)
    if inserted_bytes is None:
        totals = found.snapshot.totals
        inserted_bytes = totals.bytes * inserted // max(totals.rows, 1)
    return RowChange(
        found.snapshot.version,
        deleted=found.rows,
        added=updated + inserted,
        updated=updated,
        dropped=len(found.selected) - len(parts),
        changed=len(parts),
        bytes=stored_bytes(parts) + share * updated // max(found.rows, 1) + inserted_bytes,
    )


def commits_between(
    t: Table,
    after: int,
    until: int,
    touched: Iterable[str],
    later: Iterable[str] = (),
    *,
    updated: bool = True,
    transaction: str | None = None,
) -> Meanwhile:
    """Return what was committed in the versions above `after`, up to `until`: one GET for each.

    Args:
        t: the table.
        after: the version before the first one.
        until: the last version.
        touched: ids of the segments whose rows are followed to where they were moved.
        later: `Meanwhile.later` up to `after`.
        updated: whether the new form of an updated row counts as the row, moved; else as another.
        transaction: the id of the transaction that is looked for.

    Raises:
        Corrupt: the commits are those of several logs.
        Unavailable: the store does not answer.
    """
    followed, moved, newer = set(touched), set[str](), set(later)
    mixed: int | None = None
    displaced: int | None = None
    landed: int | None = None
    before: tuple[Commit, bytes] | None = None
    arrivals: list[tuple[int, Add]] = []
    log = t.session.log
    for commit, body in each(log.read, range(after + 1, until + 1)):
        if before is not None:  # against commits-of-another-log-followed
            chain.check_later(*before, commit, t.uri)
        before, version = (commit, body), commit.header.version
        for one in log.taken(commit):
            landed = version if one.id == transaction else landed
            names = {a.id for a in one.actions if isinstance(a, Drop | DeleteRows)}
            new = [a for a in one.actions if isinstance(a, Add)]
            rewrites = any(isinstance(a, Replace) for a in one.actions)
            updates = any(isinstance(a, Update) for a in one.actions)
            moves = (rewrites or (updates and updated)) and not followed.isdisjoint(names)
            if moves:  # against moved-rows-not-followed
                followed.update(add.id for add in new)
                moved.update(add.id for add in new)
            elif new and _brings_back(one) and not followed.isdisjoint(names):
                displaced = version
            if not rewrites:
                arrivals += [(version, add) for add in new]
            if not rewrites or not newer.isdisjoint(names):
                newer.update(add.id for add in new)
                mixed = version if rewrites and moves else mixed
    return Meanwhile(frozenset(moved), tuple(arrivals), frozenset(newer), mixed, displaced, landed)


def _brings_back(transaction: Transaction) -> bool:
    """Return whether a transaction adds rows that an older version or another log had."""
    return any(isinstance(action, Restore | SetOrigin) for action in transaction.actions)


def _catch_up(t: Table, request: Request, progress: _Progress, head: Snapshot) -> None:
    """Look at what was committed since this was last called, up to a version.

    Raises: as `commits_between`.
    """
    meanwhile = commits_between(
        t,
        progress.seen,
        head.version,
        progress.touched,
        progress.later,
        updated=not request.exact,
        transaction=progress.transaction.id,
    )
    progress.moved.update(meanwhile.moved)
    progress.touched.update(meanwhile.moved)
    progress.later.update(meanwhile.later)
    progress.arrivals += meanwhile.arrivals
    progress.mixed = meanwhile.mixed if progress.mixed is None else progress.mixed
    progress.displaced = meanwhile.displaced if progress.displaced is None else progress.displaced
    progress.landed = meanwhile.landed
    progress.seen = max(progress.seen, head.version)  # against commits-read-again-after-each-race


def _check_meanwhile(t: Table, request: Request, progress: _Progress, head: Snapshot) -> None:
    """Check that nothing that was committed since the start is in the way of a request.

    Raises:
        CommitConflict: rows were added to the span of a request that refuses them; or columns were
            changed, so that the names in its expressions may be those of others; or a restore or a
            merge of another log has put others into the place of segments with found rows.
    """
    # against columns-renamed-unseen
    if head.stored_schema.columns != progress.start.stored_schema.columns:
        raise CommitConflict(
            f"columns were changed since version {progress.start.version}; nothing was committed: "
            f"{request.operation} again",
            table=t.uri,
            version=head.version,
        )
    if request.exact and progress.mixed is not None:  # against later-rows-replaced-unseen
        raise CommitConflict(
            f"version {progress.mixed} put rows that are to be replaced and later ones into one "
            f"segment; nothing was committed: read again, and {request.operation} again",
            table=t.uri,
            version=progress.mixed,
        )
    # against rows-that-a-merge-moved-left
    if progress.displaced is not None and request.arrivals != "search":
        raise CommitConflict(
            f"version {progress.displaced} restored rows, or merged those of another log, in the "
            "place of segments with rows that were found; nothing was committed: "
            f"{request.operation} again",
            table=t.uri,
            version=progress.displaced,
        )
    if request.arrivals != "refuse":
        return
    low, high = request.span
    for version, add in progress.arrivals:
        if parse_chunk(add.chunk).overlaps(low, high):
            raise CommitConflict(
                f"version {version} added rows to chunk {add.chunk} since version "
                f"{progress.start.version}; nothing was committed: {request.operation} again",
                table=t.uri,
                version=version,
            )


def _check_same_rows(t: Table, request: Request, progress: _Progress, found: Found) -> None:
    """Check that the rows which the new ones were computed from are all still there.

    Raises:
        CommitConflict: others have updated, replaced or deleted some, and the request is exact.
    """
    if progress.rows is None:
        progress.rows = found.rows
    if request.exact and found.rows != progress.rows:  # against replaced-rows-changed-unseen
        raise CommitConflict(
            f"{progress.rows - found.rows} of the {progress.rows} rows of version "
            f"{progress.start.version} that are to be replaced were changed or deleted since; "
            f"nothing was committed: read again, and {request.operation} again",
            table=t.uri,
            version=found.snapshot.version,
        )


def _actions(t: Table, found: Found) -> tuple[list[Action], dict[str, int]]:
    """Stage the deletion vectors for what was found.

    Returns:
        The drops and deletes, and the counts of `RowChange`.
    """
    some = [one.segment for one in found.selected if one.positions is not None]
    version, table = found.snapshot.version, found.snapshot.header.table
    before = found.vectors or VectorReader(t.store, version, some, table)
    deleted: list[tuple[Segment, BitMap64]] = []
    drops: list[Drop] = []
    for one in found.selected:
        if one.positions is None:
            drops.append(drop_of(one.segment))
        else:
            gone = before.deleted(one.segment) | one.positions  # against earlier-deletes-forgotten
            deleted.append((one.segment, gone))
    positions = [gone for _, gone in deleted]
    vectors = stage_vectors(t.store, t.clock, found.snapshot.version, positions)
    deletes: list[Action] = []
    for (segment, _), vector in zip(deleted, vectors, strict=True):
        named = drop_of(segment)
        deletes.append(DeleteRows(named.id, named.chunk, named.hash, vector))
    counts = {
        "deleted": found.rows,
        "dropped": len(drops),
        "changed": len(deletes),
        "bytes": sum(stored.size for v in vectors if (stored := stored_bitmap(v)) is not None),
    }
    # In the order of a delta, so that drops which are spilled take one object for both.
    drops.sort(key=lambda drop: entry_key(drop.chunk, drop.id))
    return [*drops, *deletes], counts
