"""Plans the one transaction that unites the target with the source by their states. No I/O.

What both logs did since the fork point is compared: settings (`setting_choices`), chunk by chunk
(`chunk_states`), and the sequences of apps (`app_marks`). See MERGING.md R19.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from eventlog.merging.log_acts import BOTH, CHOSEN, PURE, Act, chunks_of, dropped_segments
from eventlog.merging.planning.by_state.app_marks import Recounts, app_changes
from eventlog.merging.planning.by_state.chunk_states import (
    ChunkRules,
    UnitedChunks,
    overlapping_chunks,
)
from eventlog.merging.planning.by_state.expected_rows import ExpectedRows
from eventlog.merging.planning.by_state.setting_choices import choose_settings
from eventlog.merging.planning.by_state.sides import LeftOut, LogDifference, Side, Take, differences
from eventlog.merging.planning.by_state.united_segments import UnitedSegments
from eventlog.merging.planning.carried import Carried, MergeConflict
from eventlog.merging.planning.keyed.ties import Ties


@dataclass(frozen=True, slots=True)
class Union:
    """How the target is united with the source.

    Attributes:
        carried: the transaction to commit; None: nothing needs to be committed.
        left_out: what is left out, since somebody chose the other log's state.
        room: the number of versions that the target lacks for the spans of slices. That many empty
            ones are to be committed before.
    """

    carried: Carried | None
    left_out: tuple[LeftOut, ...] = ()
    room: int = 0


def unite(
    source: Side,
    target: Side,
    *,
    common: int,
    upper: bool,
    ties: Ties | None,
    take: Take | None,
    renamed: Callable[[str, str], str],
) -> Union:
    """Return how the target is united with the source.

    Args:
        source: the log to merge from, at its newest version.
        target: the log to merge into.
        common: the last version that they share.
        upper: in a keyed table, whether the target's rows come after those of the source where both
            only added some (R19.8).
        ties: how rows of one key that both wrote are ordered; None: the table is not keyed.
        take: whose state counts where both did something; None: that is a conflict.
        renamed: returns the id of a segment that is added in another place, too; its arguments are
            the segment's id and the reason.

    Raises:
        MergeConflict: both changed the same, and nobody has chosen; or a column has two types.
    """
    theirs, ours = differences(source, target)
    settings = choose_settings(theirs, ours, take)
    changed = partial(
        UnitedSegments, theirs, ours, schema=settings.schema, common=common, renamed=renamed
    )
    check = _rows_check(theirs, ours, changed, keyed=ties is not None)
    rules = partial(ChunkRules, theirs, ours, upper=upper, ties=ties, is_right=check)
    regions = overlapping_chunks([*source.acts, *target.acts])
    recounts = Recounts(theirs, ours)
    whole = _whole_choice(recounts, regions, rules(take=None), take)
    states = [rules(take=take).state(chunks, whole=whole is not None) for chunks in regions]
    segments = changed(states)
    apps = app_changes(theirs, ours, recounts, _acts_left_out(states), whole)
    chosen = bool(settings.left_out or whole or any(state.chosen for state in states))
    carried = Carried(
        source.version,
        source.commit,
        tuple(segments.adds),
        tuple((s.id, s.chunk) for s in segments.drops),
        settings.changes,
        {n: v for a in (*theirs.acts, *_units(theirs, states)) for n, v in a.originals.items()},
        apps.rises,
        operations=tuple(name for act in theirs.acts for name in act.operations),
        transactions=sum(act.count for act in theirs.acts),
        copies=segments.copies,
        # against what-a-union-met-forgotten
        still=frozenset(segments.still if chosen else segments.still | segments.met),
        united=CHOSEN if chosen else _plain(states),  # against choice-taken-for-known
        resets=apps.resets,
    )
    left_out = (*settings.left_out, *(s.left_out for s in states if s.left_out is not None))
    # Without anything else it is a record, so that nobody compares the two once more.
    seen = all(a.version <= target.seen or not a.does_anything for a in source.acts)
    return Union(None if seen and not chosen else carried, left_out, segments.room)


def _whole_choice(
    recounts: Recounts, regions: Sequence[frozenset[str]], rules: ChunkRules, take: Take | None
) -> Take | None:
    """Return which of the two logs is chosen as a whole; None: neither need be.

    Args:
        recounts: what changed which units of work count as done.
        regions: the chunks that the two logs have changed, in sets of those that overlap.
        rules: the rules for these chunks, without a choice.
        take: which log was chosen.

    Raises:
        MergeConflict: one must be chosen, and nobody has.
    """
    if not recounts.by_either:
        return None
    conflict = recounts.conflict(regions)
    try:
        for chunks in regions if conflict is None else ():
            rules.state(chunks)
    except MergeConflict as found:  # against part-chosen-beside-a-recount
        conflict = MergeConflict(found.reason, found.version, found.ours, whole=True)
    if conflict is not None and take is None:
        raise conflict
    return None if conflict is None else take


def _rows_check(
    theirs: LogDifference,
    ours: LogDifference,
    changed: Callable[[Sequence[UnitedChunks]], UnitedSegments],
    *,
    keyed: bool,
) -> Callable[[UnitedChunks], bool]:
    """Return what tells whether the target may have the rows of a planned state."""
    expected = ExpectedRows(theirs, ours, once=not keyed)

    def is_right(state: UnitedChunks) -> bool:
        segments = changed([state])
        gone = {segment.id for segment in (*segments.drops, *segments.adds)}
        stay = [s for s in expected.shown(state.chunks) if s.id not in gone]
        # against rows-united-that-must-not-be-there
        return not expected.differ([*stay, *segments.adds], state.chunks)

    return is_right


def _acts_left_out(states: Sequence[UnitedChunks]) -> list[Act]:
    """Return the transactions that a choice leaves out in all of their chunks."""
    chunks = set().union(*(state.chunks for state in states if state.lost))
    return [act for state in states for act in state.lost if chunks_of([act]) <= chunks]


def _plain(states: Iterable[UnitedChunks]) -> str:
    """Return what a union without a choice is called."""
    return BOTH if any(state.rows for state in states) else PURE


def _units(theirs: LogDifference, states: Sequence[UnitedChunks]) -> list[Act]:
    """Return the units of work that both did, and whose doing at the source the union brings.

    These are units by which the source dropped rows of the union, and those of chunks that become
    what they are at the source.
    """
    # against form-of-a-unit-in-a-union-not-recorded
    copied = {chunk for state in states if state.base == "source" for chunk in state.chunks}
    rows = {*theirs.other.live, *(s.id for act in theirs.acts for s in act.adds)}
    by = dropped_segments(theirs.side.acts)
    # against drops-of-a-unit-in-a-union-not-recorded
    doers = {id(by[name]) for name in rows.intersection(theirs.dropped, by)}
    return [
        act
        for act in theirs.shared_units
        if id(act) in doers or not copied.isdisjoint(chunks_of([act]))
    ]
