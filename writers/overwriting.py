"""Overwrites: the rows of a time range, or those that a predicate selects, are replaced by others.

Imports eventlog only. The rows are staged once, whatever commits land meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec import UnsetType
from msgspec.structs import replace

from eventlog import Table
from eventlog.arguments import choice, opened
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.format.frames.entry_columns import to_segments
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Add, Drop, Unchanged
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.records import Transaction
from eventlog.query.moments import Moment, to_ms
from eventlog.query.predicate import Where
from eventlog.session.tags import VersionOrName
from eventlog.staging.fitting import coarsest_for_first_rows
from eventlog.staging.incoming.streams import spelled, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.state.delta import drop_of
from eventlog.table.stage_again import Copies, commit_staged
from eventlog.telemetry.signals import traced
from eventlog.writers.batch import (
    check_missing,
    check_replacing,
    check_rows,
    evolving,
    make_app,
    skipped,
    stage,
    types_of,
)
from eventlog.writers.changing.deletes import request_of
from eventlog.writers.changing.landing import (
    ISOLATIONS,
    Isolation,
    Request,
    RowChange,
    commits_between,
)
from eventlog.writers.changing.replacing import overwrite_where
from eventlog.writers.granularity_choice import choose_granularity
from eventlog.writers.replace_where import range_within_chunks

_MOST_RENEWALS = 100  # each follows another writer's delete from the same segments


@traced("eventlog.overwrite")
def overwrite(  # noqa: PLR0913 - the public API
    t: Table,
    data: Any,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    where: Where | None = None,
    isolation: Isolation = "snapshot",
    read_version: VersionOrName | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
    dry_run: bool = False,
) -> RowChange:
    """Replace the rows of a time range, or those that a predicate selects.

    `data`, which may have no rows, takes their place. Rows that others add meanwhile are kept: in a
    keyed table above the new ones. With `where`, where there is no key, each row must pass it.

    Args:
        t: the table.
        data: see `append`; every row's chunk must lie in the range.
        start: the first time, at a chunk boundary if the granularity is fixed; unbounded if None.
        end: its end (exclusive), likewise.
        where: SQL text or a pyarrow expression, in the place of a range.
        isolation: `snapshot` keeps rows that came after the read version, `serializable` refuses.
        read_version: the version that `data` was computed from. Its rows are replaced; later ones
            are kept, or a conflict, as is a change of these. None: whatever is there is replaced.
        app_id: see `append`.
        app_seq: see `append`.
        memory_bytes: see `append`.
        missing: `null` if columns and fields that `data` lacks are to be null in place of values.
        evolve: see `append`. Not in a dry run.
        dry_run: read and check `data`, store and commit nothing, and return what would be replaced.

    Returns: the version, with the numbers of rows (if keyed: before they are merged) and segments.

    Raises:
        InvalidInput: rows or a chunk are not wholly in the range; or see `missing`.
        CommitConflict: a segment to drop was replaced, or its rows updated, or with `serializable`
            some were added; or, in a keyed table, a compaction, a restore or a merge of another log
            has changed segments above the rows. Read again, and overwrite again.
        Corrupt: the next version does not follow `read_version`; nothing was committed.
        CommitUnknown, Unavailable: see `append`.
    """
    opened(t)
    app, missing = make_app(app_id, app_seq), check_missing(missing)
    choice(isolation, "isolation", ISOLATIONS)
    done = skipped(t, t.refresh(), app)
    if done is not None:
        return RowChange(done)
    with evolving(t, data, app, evolve=evolve, dry_run=dry_run) as rows:
        before = read_at(t, read_version)
        where, span = _selection(before, start, end, where)
        of = request_of(before, "overwrite", where, isolation, app, memory_bytes, span)
        request = dataclasses.replace(of, dry_run=dry_run, exact=read_version is not None)
        replace_rows = _overwrite_range if where is None else overwrite_where
        return replace_rows(t, rows, request, before, missing)


def _selection(
    before: Snapshot, start: Moment | None, end: Moment | None, where: Where | None
) -> tuple[Where | None, tuple[int, int]]:
    """Return the predicate of an overwrite, and its range [start, end) ms if there is none.

    Raises:
        InvalidInput: both are given, or a bound is wrong.
    """
    low, high = to_range(start, end, before)
    if where is None:
        return range_within_chunks(low, high, before), (low, high)
    if start is not None or end is not None:
        raise InvalidInput("give either a range of time or where")
    return where, (low, high)


def _overwrite_range(
    t: Table, data: Any, request: Request, before: Snapshot, missing: Missing | None
) -> RowChange:
    """Replace the rows of a range. Raises: as `overwrite`."""
    head, (low, high) = t.session.head(), request.span
    drops = range_drops(before, low, high)
    rows = to_reader(data, types_of(head))
    if drops:
        given = spelled(rows.schema, head.schema.names)
        check_rows(given, head, "null")
        check_replacing(head.schema, given, missing)
    whole = (low, high) == (MIN_MS, MAX_MS)
    coarsest = coarsest_for_first_rows(head) if whole and not drops else None
    adds = stage(
        t,
        head,
        rows,
        request.memory_bytes,
        "null",
        kept=not request.dry_run,
        coarsest=coarsest,
    )
    isolation = "snapshot" if request.arrivals == "ignore" else "serializable"
    seen = before.version
    actions = overwrite_actions(adds, drops, low, high, isolation=isolation, read_version=seen)
    touched = {
        "deleted": sum(segment.live_rows for segment in to_segments(before.entries(low, high))),
        "dropped": len(drops),
        "added": sum(add.rows for add in adds),
        "bytes": sum(add.bytes for add in adds),
    }
    if request.dry_run:  # against dry-run-of-a-range-that-commits
        return RowChange(seen, committed=False, **touched)
    choose_granularity(t.session, head, adds, coarsest)
    transaction = t.transaction("overwrite", actions, read_version=seen, app=request.app)
    version = commit_renewed(t, transaction, exact=request.exact)
    return RowChange(version, committed=True, **touched)


def commit_renewed(t: Table, transaction: Transaction, *, exact: bool) -> int:
    """Commit an overwrite; a segment that it drops may have got a deletion vector meanwhile.

    What is dropped needs no delete, so the drop is aimed at the entry as it is now. An update has
    put new forms of dropped rows elsewhere, which would stay: that is a conflict.

    Args:
        t: the table.
        transaction: the overwrite.
        exact: the new rows were computed from the read version, so a delete since is a conflict,
            too.

    Raises: as `commit_staged`.
    """
    if exact:  # against deletes-since-the-read-version-unseen
        return commit_staged(t.session, transaction)
    seen = transaction.read_version
    copies: Copies = {}
    for _ in range(_MOST_RENEWALS):
        try:
            return commit_staged(t.session, transaction, copies)
        except CommitConflict:
            drops = [a for a in transaction.actions if isinstance(a, Drop)]
            live = t.session.head().live(drops)
            before = t.snapshot(transaction.read_version).live(drops)
            renewed: dict[str, Action] = {
                name: drop_of(segment)
                for name, segment in live.items()
                if name in before and before[name].version == segment.version
            }
            actions = tuple(
                renewed.get(a.id, a) if isinstance(a, Drop) else a for a in transaction.actions
            )
            head, names = t.session.head().version, [drop.id for drop in drops]
            moved = commits_between(t, seen, head, names).moved
            if actions == transaction.actions or len(renewed) < len(drops) or moved:
                raise
            now = (copies.get(a.id, a) if isinstance(a, Add) else a for a in actions)
            transaction = replace(transaction, actions=tuple(now))
    return commit_staged(t.session, transaction)


def read_at(t: Table, version: VersionOrName | None) -> Snapshot:
    """Return the version that rows were computed from; the newest that is known if None.

    Raises:
        Corrupt: it is not the one that the next version follows.
        VersionNotFound: there is no such version.
    """
    head = t.session.head()
    if version is None:
        return head
    before = t.snapshot(version)
    t.session.log.check_linked(head, before)  # against overwritten-as-of-another-log
    return before


def to_range(start: Moment | None, end: Moment | None, head: Snapshot) -> tuple[int, int]:
    """Return [start, end) in ms UTC.

    Args:
        start: the first time; None: unbounded.
        end: its end, exclusive; None: unbounded.
        head: the table.

    Raises:
        InvalidInput: a bound is not a time in whole milliseconds, the range is empty, or the table
            has no time column and a bound.
    """
    if head.layout.time_column is None and not (start is None and end is None):
        raise InvalidInput(
            "the table has no time column, so no range of time selects its rows: leave the range "
            "out to overwrite all of them, or give where"
        )
    low = MIN_MS if start is None else to_ms(start, whole=True)
    high = MAX_MS if end is None else to_ms(end, whole=True)
    if not low < high:
        raise InvalidInput(f"the range from {start} to {end} is empty: start must be before end")
    return low, high


def range_drops(head: Snapshot, low: int, high: int) -> list[Action]:
    """Return the drops of every segment live in [low, high) ms.

    Raises:
        InvalidInput: a segment's chunk crosses a boundary.
    """
    inside = to_segments(head.entries(low, high))
    for segment in inside:
        _check_inside(segment.chunk, low, high, "live rows")
    return [drop_of(segment) for segment in inside]


def overwrite_actions(
    adds: Sequence[Add],
    drops: Sequence[Action],
    low: int,
    high: int,
    *,
    isolation: str,
    read_version: int,
) -> list[Action]:
    """Return the actions of an overwrite.

    In a keyed table the new rows take their place at the read version, below everything that
    arrived since (FORMAT.md R15.10).

    Args:
        adds: the staged segments.
        drops: what `range_drops` returned at the read version.
        low: start of the range in ms UTC.
        high: end of the range in ms UTC, exclusive.
        isolation: see `overwrite`.
        read_version: the version that the rows were computed from.

    Raises:
        InvalidInput: a new segment lies outside the range.
    """
    for add in adds:
        _check_inside(add.chunk, low, high, "new rows")
    needs: list[Action] = [Unchanged(low, high)] if isolation == "serializable" else []
    return [*needs, *drops, *(_as_of(add, read_version) for add in adds)]


def _as_of(add: Add, version: int) -> Add:
    """Return an add of new rows whose place in its slices is that of rows of a version."""
    if isinstance(add.slice, UnsetType):
        return add
    place = replace(add.slice, low=version, high=version)
    return replace(add, slice=place)


def _check_inside(chunk: str, low: int, high: int, what: str) -> None:
    bounds = parse_chunk(chunk)
    if bounds.end <= low or bounds.start >= high:
        raise InvalidInput(
            f"there are {what} of {chunk}, outside the range of the overwrite: leave them out, or "
            "widen the range"
        )
    if bounds.start < low or bounds.end > high:
        raise InvalidInput(
            f"chunk {chunk} has {what} but does not lie inside the range: "
            "choose bounds at chunk boundaries"
        )
