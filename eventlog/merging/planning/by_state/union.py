"""Plans the one transaction that unites the target with the source by their states. No I/O.

What both logs did since the fork point is compared: settings (`setting_choices`), chunk by chunk
(`chunk_states`), and the sequences of apps (`app_marks`). See MERGING.md R19.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventlog.merging.log_acts import BOTH, CHOSEN, PURE, Act, chunks_of, dropped_segments, kept
from eventlog.merging.planning.by_state.app_marks import Recounts, app_changes, units_without
from eventlog.merging.planning.by_state.chunk_states import (
    ChunkRules,
    UnitedChunks,
    coupled_regions,
    overlapping_chunks,
)
from eventlog.merging.planning.by_state.expected_rows import ExpectedRows
from eventlog.merging.planning.by_state.setting_choices import choose_settings
from eventlog.merging.planning.by_state.sides import LeftOut, LogDifference, Side, Take, differences
from eventlog.merging.planning.by_state.united_segments import UnitedSegments
from eventlog.merging.planning.carried import Carried, MergeConflict
from eventlog.merging.planning.keyed.ties import Ties
from eventlog.merging.planning.schemas.merged_schema import translated
from eventlog.merging.sequences import Runs, joined_runs
from eventlog.model.chunks import parse_chunk


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
        upper: in a keyed table, whether new rows of the target come after those of the source.
        ties: how rows of one key that both wrote are ordered; None: the table is not keyed.
        take: whose state counts where both did something; None: that is a conflict.
        renamed: returns the id of a segment that is added in another place, too; its arguments are
            the segment's id and the reason.

    Raises:
        MergeConflict: both changed the same, and no choice was made that resolves it.
    """
    theirs, ours = differences(source, target)
    settings = choose_settings(theirs, ours, take)
    as_ours = partial(translated, source=settings.theirs, target=settings.ours)
    changed = partial(
        UnitedSegments, theirs, ours, translated=as_ours, common=common, renamed=renamed
    )
    expected = ExpectedRows(theirs, ours, once=ties is None)
    is_right = partial(_is_right, expected, changed)
    rules = ChunkRules(
        theirs, ours, upper=upper, ties=ties, is_right=is_right, joined=expected.joined
    )
    regions = overlapping_chunks([*source.acts, *target.acts])
    recounts = Recounts(theirs, ours)
    whole = _whole_choice(recounts, regions, rules, take)
    if whole is None:
        # In a keyed table no transaction moves rows.
        is_keyed = ties is not None
        # against moved-row-torn-by-a-choice
        groups = [[c] for c in regions] if is_keyed else coupled_regions(regions, theirs, ours)
        states = _states(groups, rules, take)
    else:
        states = _whole_states(regions, rules, whole)
    segments = changed(states)
    left = _units_left_out(theirs, ours, states, expected, segments)
    apps = app_changes(theirs, ours, recounts, left, whole)
    chosen = bool(settings.left_out or whole or any(state.chosen for state in states))
    carried = replace(
        _carried(theirs, states, segments, chosen=chosen),
        changes=settings.changes,
        apps=apps.rises,
        resets=apps.resets,
    )
    left_out = (*settings.left_out, *(s.left_out for s in states if s.left_out is not None))
    is_needed = chosen or not _is_seen(source, target)
    return Union(carried if is_needed else None, left_out, segments.room)


def _carried(
    source: LogDifference, states: Sequence[UnitedChunks], segments: UnitedSegments, *, chosen: bool
) -> Carried:
    """Return the transaction of a union, without changes of settings and of units of work.

    Args:
        source: what the source did, compared with the target.
        states: the rows of the target after the union.
        segments: what the union adds and drops.
        chosen: whether somebody chose one of the two logs.
    """
    acts = (*source.acts, *_units(source, states))
    return Carried(
        source.side.version,
        source.side.commit,
        tuple(segments.adds),
        tuple((s.id, s.chunk) for s in segments.drops),
        commits={name: version for act in acts for name, version in act.originals.items()},
        operations=tuple(name for act in source.acts for name in act.operations),
        transactions=sum(act.count for act in source.acts),
        copies=segments.copies,
        # against what-a-union-met-forgotten
        still=frozenset(segments.still if chosen else segments.still | segments.met),
        united=CHOSEN if chosen else _plain(states),  # against choice-taken-for-known
    )


def _is_seen(source: Side, target: Side) -> bool:
    """Return whether the target has seen all that the source did.

    Else a union is a record of that, if of nothing else, so that nobody compares the two again.
    """
    return all(act.version <= target.seen or not act.does_anything for act in source.acts)


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


def _states(
    groups: Sequence[Sequence[frozenset[str]]], rules: ChunkRules, take: Take | None
) -> list[UnitedChunks]:
    """Return the rows of the target after the union, in all chunks.

    Args:
        groups: the chunks, in sets of those that overlap, of which some are chosen together.
        rules: the rules for these chunks.
        take: which log was chosen; None: neither.

    Raises:
        MergeConflict: somebody has to choose, and nobody has.
    """
    states: list[UnitedChunks] = []
    conflicts: list[tuple[MergeConflict, frozenset[str]]] = []
    for group in groups:
        try:
            states += [rules.state(chunks) for chunks in group]
        except MergeConflict as found:
            conflicts.append((found, frozenset().union(*group)))
            states += [rules.chosen(chunks, take) for chunks in group if take is not None]
    if conflicts and take is None:
        first, _ = conflicts[0]
        first.chunks = tuple(sorted(frozenset().union(*(chunks for _, chunks in conflicts))))
        raise first
    return sorted(states, key=lambda state: min(parse_chunk(c).start for c in state.chunks))


def _whole_states(
    regions: Sequence[frozenset[str]], rules: ChunkRules, take: Take
) -> list[UnitedChunks]:
    """Return the rows of the target after the union if somebody chose one log as a whole."""
    return [
        # Chunks in which both are the same are not chosen.
        rules.state(chunks) if rules.are_same(chunks) else rules.chosen(chunks, take)
        for chunks in regions
    ]


def _is_right(
    expected: ExpectedRows,
    changed: Callable[[Sequence[UnitedChunks]], UnitedSegments],
    state: UnitedChunks,
) -> bool:
    """Return whether the target may have the rows of a planned state."""
    segments = changed([state])
    gone = {segment.id for segment in (*segments.drops, *segments.adds)}
    stay = [s for s in expected.shown(state.chunks) if s.id not in gone]
    # against rows-united-that-must-not-be-there
    return not expected.differ([*stay, *segments.adds], state.chunks)


def _units_left_out(
    source: LogDifference,
    target: LogDifference,
    states: Sequence[UnitedChunks],
    expected: ExpectedRows,
    segments: UnitedSegments,
) -> dict[str, Runs]:
    """Return the units of work that choices leave out as a whole.

    Those are the units of transactions of which all chunks are left out, and that the chosen log
    did not do itself. And those of which choices before had left out the other rows.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        states: the rows of the target after the union.
        expected: knows the rows of segments.
        segments: what the union adds and drops.
    """
    chosen = [state for state in states if state.chosen]
    is_source = any(state.base == "source" for state in chosen)
    loser, winner = (target, source) if is_source else (source, target)
    chunks = frozenset().union(*(state.chunks for state in chosen))
    lost = [act for state in chosen for act in state.lost if chunks_of([act]) <= chunks]
    # against unit-of-the-chosen-log-left-out
    left = units_without(lost, winner.units.done)
    own = [act for act in loser.side.acts if act.carried is None and act.unit is not None]
    # against unit-left-out-by-two-choices
    before = (s for s in loser.side.live.values() if s.chunk in chunks)
    gone = expected.units_gone(before, segments.shown())
    for act in own:
        is_same = winner.side.has.has(act) or not winner.units.shared(act)
        if act.unit in gone and is_same:
            app, seq = act.unit
            left[app] = joined_runs(left.get(app, ()), ((seq, seq),))
    return kept(left)  # against published-append-left-out-as-a-unit


def _plain(states: Iterable[UnitedChunks]) -> str:
    """Return what a union without a choice is called."""
    return BOTH if any(state.rows or state.gone for state in states) else PURE


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
