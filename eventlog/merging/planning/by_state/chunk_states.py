"""The rows of each time chunk of the target after a union (MERGING.md R19.10). No I/O.

Where only one of the two logs did something that the other one lacks, the target gets the segments
of that log. Where one of them only added rows, these come beside the segments of the other one.
Where neither holds, somebody has to choose one of the two logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eventlog.keyed.placement import span
from eventlog.keyed.repetition import repeated
from eventlog.merging.log_acts import Act, chunks_of, dropped_segments, old_rows
from eventlog.merging.planning.by_state.same_states import SameStates
from eventlog.merging.planning.by_state.sides import (
    LeftOut,
    LogDifference,
    Side,
    Take,
    crossed_unions,
)
from eventlog.merging.planning.carried import MergeConflict
from eventlog.merging.planning.keyed.doubles import Doubles
from eventlog.merging.planning.keyed.ties import Ties
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment

_SHOWN = 3  # chunks in a text

# Ids of the target's segments that go, and the source's segments that come.
JoinedRows = tuple[Collection[str], Sequence[Segment]]


@dataclass(frozen=True, slots=True)
class Addition:
    """Rows that the target gets above what it has then.

    Attributes:
        segment: their segment in the log that has them.
        mine: whether that log is the target.
        again: whether the target has the same rows below them, too.
    """

    segment: Segment
    mine: bool
    again: bool = False


@dataclass(frozen=True, slots=True)
class UnitedChunks:
    """The rows of the target after the union, in chunks that overlap.

    Attributes:
        chunks: the chunks.
        base: the log whose segments the target has; None: the target's, as they are.
        rows: the rows above these.
        gone: the ids of those of these segments that go all the same.
        left_out: what a choice leaves out; None: nothing.
        lost: the transactions that did that.
        chosen: whether it was decided by a choice.
        met: whether the target gets to know something that the source did there.
    """

    chunks: frozenset[str]
    base: Take | None
    rows: Sequence[Addition] = ()
    gone: frozenset[str] = frozenset()
    left_out: LeftOut | None = None
    lost: Sequence[Act] = ()
    chosen: bool = False
    met: bool = False


@dataclass(slots=True)
class _New:
    """What one log did to chunks, and the other one does not have.

    Attributes:
        acts: the transactions.
        adds: the segments that they added.
        only_adds: whether they did nothing else.
        old: the ids of segments among these that repeat rows which the other log had.
    """

    acts: list[Act] = field(default_factory=list)
    adds: list[Segment] = field(default_factory=list)
    only_adds: bool = True
    old: set[str] = field(default_factory=set)

    @property
    def rows(self) -> list[Segment]:
        """The segments with new rows."""
        return [s for s in self.adds if s.id not in self.old]

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the transactions, in order."""
        return tuple(dict.fromkeys(act.version for act in self.acts))


class ChunkRules:
    """The rules by which the state of a chunk is decided, for two logs.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        upper: in a keyed table, whether the target's rows come after those of the source where both
            only added some (R19.8).
        ties: how rows of one key that both wrote are ordered; None: the table is not keyed.
        is_right: returns whether the target may have these rows. If not, somebody has to choose.
        joined: returns the rows that neither log has removed in chunks, as the ids of the target's
            segments that go and the source's segments that come; None: no segments have just these
            rows.
    """

    def __init__(
        self,
        source: LogDifference,
        target: LogDifference,
        *,
        upper: bool,
        ties: Ties | None,
        is_right: Callable[[UnitedChunks], bool],
        joined: Callable[[frozenset[str], Sequence[Act], Sequence[Act]], JoinedRows | None],
    ) -> None:
        self._source, self._target, self._is_right = source, target, is_right
        self._joined = joined if ties is None else None
        self._target_comes_later = upper and ties is not None
        self._same = SameStates(source.side, target.side)
        crossed = crossed_unions(source, target)
        self._source_acts = [act for act in source.acts if act.commit not in crossed]
        self._target_acts = [act for act in target.acts if act.commit not in crossed]
        lower, higher = (source, target) if upper else (target, source)
        ordered = ties not in (None, "none")
        self._doubles = Doubles(lower.side.acts, higher.side.acts) if ordered else None
        self._repeats = ties == "repeat"
        # against deletes-of-a-unit-that-both-did-united
        self._changed_by_both = set().union(*map(_changed_by_units, (source, target)))
        self._done_twice = chunks_of((*source.shared_units, *target.shared_units))

    def state(self, chunks: frozenset[str]) -> UnitedChunks:
        """Return the rows of the target after the union, in these chunks, which overlap.

        Args:
            chunks: the chunks.

        Raises:
            MergeConflict: both did something to the chunks, so that somebody has to choose.
        """
        theirs = _new_in(self._source, self._source_acts, chunks)
        # against copies-that-agree-changed
        if self.are_same(chunks):
            return UnitedChunks(chunks, None, met=bool(theirs.acts))
        ours = _new_in(self._target, self._target_acts, chunks)
        ways = () if self._is_doubtful(chunks) else self._ways(theirs, ours)
        for base, new in ways:
            rows = self._above(base, new, chunks)
            if rows is not None:
                state = UnitedChunks(chunks, base, rows, met=bool(theirs.acts))
                if self._is_right(state):
                    return state
        joined = None if self._is_doubtful(chunks) else self._join(chunks, theirs, ours)
        if joined is not None:
            return joined
        first = ", ".join(sorted(chunks)[:_SHOWN])
        raise MergeConflict(
            f"both changed rows of {first} in ways that exclude each other",
            min(theirs.versions, default=self._source.side.version),
            min(ours.versions, default=None),
        )

    def are_same(self, chunks: frozenset[str]) -> bool:
        """Return whether both logs have the same rows in these chunks, which overlap."""
        return self._same.are_in(chunks)

    def chosen(self, chunks: frozenset[str], take: Take) -> UnitedChunks:
        """Return the rows of these chunks, which overlap, if somebody chose the state of one log.

        Args:
            chunks: the chunks.
            take: the log that was chosen.
        """
        if self.are_same(chunks):
            return UnitedChunks(chunks, None, chosen=True)
        is_source = take == "source"
        loser, acts = (
            (self._target, self._target_acts) if is_source else (self._source, self._source_acts)
        )
        lost = _new_in(loser, acts, chunks)
        left_out = _left_out(loser, chunks, lost)
        base: Take | None = "source" if is_source else None
        return UnitedChunks(chunks, base, left_out=left_out, lost=lost.acts, chosen=True)

    def _join(self, chunks: frozenset[str], theirs: _New, ours: _New) -> UnitedChunks | None:
        """Return the state in which each log's changes of rows count; None: they are of the same.

        Args:
            chunks: the chunks.
            theirs: what the source did there.
            ours: what the target did there.
        """
        acts = (*theirs.acts, *ours.acts)
        if self._joined is None or not (theirs.acts and ours.acts):
            return None
        if not any(act.exchanged for act in acts):
            return None  # whole segments alone: nothing tells that other rows were meant
        # against rows-united-beside-a-unit-of-both
        if not chunks.isdisjoint(self._done_twice):
            return None  # each log may have these rows in segments of its own, or the other's
        # against rows-united-beside-a-unit-done-at-once
        if _does_units_of_both(self._source, theirs) or _does_units_of_both(self._target, ours):
            return None  # nothing tells which rows are those of the unit
        # What a restore or a choice brought back may be what the other log removed.
        if any(act.chose(chunks) or (act.may_restore and not act.unites_all) for act in acts):
            return None
        joined = self._joined(chunks, theirs.acts, ours.acts)
        if joined is None:
            return None
        gone, new = joined
        rows = [Addition(segment, mine=False) for segment in new]
        state = UnitedChunks(chunks, "target", rows, frozenset(gone), met=bool(theirs.acts))
        return state if self._is_right(state) else None

    def _is_doubtful(self, chunks: frozenset[str]) -> bool:
        """Return whether one log has rows of which nothing tells whether a unit dropped them.

        So it is where a unit that both did deleted rows of segments.
        """
        if any(chunk in chunks for chunk in self._changed_by_both):
            return True
        return any(
            segment.chunk in chunks
            for log in (self._source, self._target)
            for name, segment in log.other.live.items()
            if name in log.doubtful
        )

    def _ways(self, theirs: _New, ours: _New) -> Iterator[tuple[Take, Sequence[Segment]]]:
        """Yield whose segments may be kept, and what comes above them, the best way first."""
        both_add = theirs.only_adds and ours.only_adds and bool(theirs.old) == bool(ours.old)
        if not ours.acts and (theirs.acts or self._target_comes_later):
            # With nothing new on both sides the order of rows may differ in a keyed table.
            yield "source", ()
        elif not theirs.acts:
            yield "target", ()
        elif both_add:
            # against both-repeated-old-rows
            ways: list[tuple[Take, Sequence[Segment]]] = [
                ("target", theirs.rows),
                ("source", ours.rows),
            ]
            yield from reversed(ways) if self._target_comes_later else ways
        elif theirs.only_adds and not theirs.old:
            yield "target", theirs.adds
        elif ours.only_adds and not ours.old:
            yield "source", ours.adds

    def _above(
        self, base: Take, new: Sequence[Segment], chunks: frozenset[str]
    ) -> Sequence[Addition] | None:
        """Return what comes above the segments of one log; None if there is no such order.

        Args:
            base: the log whose segments are kept.
            new: new rows of the other log, in order.
            chunks: the chunks.
        """
        log = self._source if base == "source" else self._target
        side, other = log.side, log.other
        lost = self._target.dropped if base == "source" else self._source.dropped
        if not chunks.isdisjoint(_merged_with_others(side, other, lost)):
            return None
        fresh = {s.id for s in new}
        rows: Sequence[Segment] | None = new
        # against rows-united-above-a-unit
        if self._doubles is not None and (
            self._doubles.broken(side.acts, new, chunks)
            or (self._repeats and self._doubles.overtaken(side.acts, new, other.acts))
        ):
            rows = None
            if self._repeats:  # against unit-repeated-where-rows-count-twice
                rows = self._doubles.above(side.acts, other.acts, new, chunks)
        repeats = [s for s in rows or () if s.id not in fresh]
        if rows is None or not all(s.id in side.live or side.is_there(s) for s in repeats):
            return None
        on_target = base == "target"
        return [
            Addition(s, mine=on_target == (s.id not in fresh), again=s.id not in fresh)
            for s in rows
        ]


def _changed_by_units(log: LogDifference) -> set[str]:
    """Return the chunks in which a unit of work that both logs did changed rows of segments.

    Left out are those of which the log was chosen since, when it had seen the other log's doing.
    """
    found: set[str] = set()
    for act in log.shared_units:
        if act.deletes or act.updated:
            twins = log.other_units.shared(act)
            is_seen = all(twin.version <= log.side.seen for twin in twins)
            later = [one for one in log.side.acts if is_seen and one.version > act.version]
            chunks = chunks_of([act])
            # against choice-between-doings-of-a-unit-asked-again
            open_still = {c for c in chunks if not any(one.chose([c]) for one in later)}
            found |= open_still
    return found


def _does_units_of_both(log: LogDifference, new: _New) -> bool:
    """Return whether a log did, at once with others, a unit of work that the other did by itself.

    Args:
        log: the log.
        new: what it did to some chunks, and the other log does not have.
    """
    twins = (twin for act in new.acts for twin in log.other_units.shared(act))
    return not all(map(log.side.has.has, twins))


def overlapping_chunks(acts: Iterable[Act]) -> list[frozenset[str]]:
    """Return the chunks that these transactions changed, in sets of those that overlap."""
    sets: list[set[str]] = []
    end = 0
    for name in sorted(chunks_of(acts), key=lambda n: (parse_chunk(n).start, -parse_chunk(n).end)):
        chunk = parse_chunk(name)
        if sets and chunk.start < end:
            sets[-1].add(name)
            end = max(end, chunk.end)
        else:
            sets.append({name})
            end = chunk.end
    return [frozenset(names) for names in sets]


def coupled_regions(
    regions: Sequence[frozenset[str]], source: LogDifference, target: LogDifference
) -> list[list[frozenset[str]]]:
    """Return these sets of chunks in groups, each to be chosen as a whole, in their order.

    Rows that a transaction moved to another chunk would be lost or doubled if somebody chose one
    log in only one of the two chunks.

    Args:
        regions: the chunks that the two logs have changed, in sets of those that overlap.
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
    """
    place = {chunk: n for n, chunks in enumerate(regions) for chunk in chunks}
    first = list(range(len(regions)))  # of each region another one of its group, or itself

    def root(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for chunks in _coupled_chunks(source, target):
        roots = {root(place[chunk]) for chunk in chunks}
        for number in roots:
            first[number] = min(roots)
    groups: dict[int, list[frozenset[str]]] = {}
    for number, chunks in enumerate(regions):
        groups.setdefault(root(number), []).append(chunks)
    return [*groups.values()]


def _coupled_chunks(source: LogDifference, target: LogDifference) -> Iterator[Collection[str]]:
    """Yield the chunks among which transactions may have moved rows, as far as it matters.

    A choice which one of the two logs lacks may have undone what both logs have.
    """
    logs = (source, target)
    yield from (act.coupled_chunks for log in logs for act in (*log.acts, *log.shared_units))
    choices = [act for log in logs for act in log.acts if act.is_choice]
    known = {act.coupled_chunks for log in logs if choices for act in log.side.acts}
    for choice in choices:  # against rows-moved-before-a-choice-not-coupled
        yield from (choice.chosen_among(chunks) for chunks in known)


def _new_in(log: LogDifference, acts: Sequence[Act], chunks: frozenset[str]) -> _New:
    """Return what one log did to these chunks, and the other log does not have.

    Segments that the log dropped by what the other log has, or by a unit of work that both did, are
    left out.

    Args:
        log: the log.
        acts: its transactions that the other log does not have.
        chunks: the chunks.
    """
    new = _New()
    side, other, units = log.side, log.other, log.other_units
    old = old_rows(acts, acts)
    gone = (d.id for a in other.acts if not a.merges_slices for d in a.drops if d.chunk in chunks)
    replaced = repeated(old, gone) | {*log.dropped, *log.replaced}
    for act in acts:
        adds = [s for s in act.adds if s.chunk in chunks and s.id not in replaced]
        drops = [d for d in act.drops if d.chunk in chunks]
        # What came and went again within it is neither added nor dropped by it.
        several = len(act.originals) > 1 or act.count > 1
        parts = [t for t in other.acts if several and t.originals.keys() & act.originals.keys()]
        # against one-of-several-units-seen
        parts = parts + (units.shared(act) if several else [])
        # against choice-of-what-is-there-forgotten
        met = not chunks.isdisjoint(chunks_of(parts)) or act.chose(chunks)
        if adds or drops or met:
            new.acts.append(act)
            new.adds += adds
            # Rows of a keyed table that lie below their version are those of an overwrite.
            low = any(s.slice and span(s)[0] < s.version for s in adds)
            new.old.update(s.id for s in adds if s.id in old)
            # Rewritten rows of which a unit of work deleted some are not what was added.
            shrunk = any(s.id in log.doubtful for s in adds)  # against rows-of-a-unit-added-again
            new.only_adds &= not (drops or met or low or act.restores or shrunk)
    if new.only_adds:
        new.only_adds = all(s.id in side.live or side.is_there(s) for s in new.rows)
    return new


def _merged_with_others(side: Side, other: Side, lost: Collection[str]) -> set[str]:
    """Return the chunks in which a log has merged some of these segments with others.

    Segments from before the log was united with the other one are left out.

    Args:
        side: the log.
        other: the other log.
        lost: ids of segments.
    """
    commits = {act.commit for act in other.acts}
    added: dict[str, str] = {}
    for act in side.acts:
        # against choice-between-merged-rows-asked-again
        if act.is_state and act.carried and act.carried.commit in commits:
            added = {}
        added.update((s.id, s.chunk) for s in act.adds if s.id in lost)
    dropped = dropped_segments(side.acts) if added else {}
    return {chunk for i, chunk in added.items() if i not in side.live and i not in dropped}


def _left_out(loser: LogDifference, chunks: frozenset[str], new: _New) -> LeftOut | None:
    """Return what a choice against a log leaves out of these chunks; None: nothing."""
    lost = [
        segment
        for segment in loser.side.live.values()
        if segment.chunk in chunks and segment.id not in loser.other.live
    ]
    # Rows of a unit that both did are not new, and are left out all the same.
    own = {segment.id for act in loser.side.acts for segment in act.adds}
    versions = new.versions or tuple(sorted({s.version for s in lost if s.id in own}))
    if not versions:
        return None
    what = ", ".join(sorted(chunks)[:_SHOWN]) + (", …" if len(chunks) > _SHOWN else "")
    rows = sum(segment.live_rows for segment in lost)
    return LeftOut(loser.side.uri, f"rows of {what}", versions, rows)
