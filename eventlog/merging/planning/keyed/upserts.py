"""Plans what a merge commits on a keyed table: upserts and deletes, in one order for both logs.

No I/O. Log segments are merged. Merges of slices are not: they add no new rows. Rows of one
key that tie are ordered by the log of the *lower* side, whose origin has the smaller name. After
them come the rows that only the other side, the *upper* one, wrote (MERGING.md R19.8). So a merge
into the lower side appends. A merge into the upper side appends the lower side's rows, and then
repeats those of the upper side's own transactions that must come after them: of two equal rows the
later one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from eventlog.keyed.placement import meet, slice_of, span
from eventlog.merging.log_acts import Act, AppliedStep, KnownCommits, Units, chunks_of, old_rows
from eventlog.merging.planning.already_applied import AlreadyApplied
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair
from eventlog.merging.planning.keyed.doubles import Doubles
from eventlog.merging.planning.keyed.overwritten import OverwrittenRows
from eventlog.merging.planning.keyed.planned_rows import PlannedRows, as_new_rows
from eventlog.merging.planning.keyed.source_segments import SourceSegments
from eventlog.merging.planning.keyed.ties import Ties
from eventlog.merging.planning.plan import add_count, joined
from eventlog.merging.planning.small_state import SmallStatePlan
from eventlog.model.entries import Segment
from eventlog.model.records import Meta


class KeyedPlanner:
    """Decides which changes of the source's commits are merged into a keyed table.

    The planner keeps track of the target's state after the transactions that it has planned.

    Args:
        pair: the two logs.
        meta: the target's small state.
        chunks: the target's live segments, for the chunks in which the source drops segments.
        past: what both logs did since the fork point.
        ties: how rows of one key that both sides wrote are ordered.
        renamed: returns the id under which a segment of the target is added once more.

    Attributes:
        skipped: see `MergePlan`.
        declined: see `MergePlan`.
    """

    def __init__(
        self,
        pair: Pair,
        meta: Meta,
        chunks: Mapping[str, Sequence[Segment]],
        past: Divergence,
        *,
        ties: Ties,
        renamed: Callable[[str], str],
    ) -> None:
        self.skipped: dict[int, int] = {}
        self.declined: dict[int, int] = {}
        self._pair, self._ties = pair, ties
        self._repeats = ties == "repeat" and pair.is_upper
        self._seen = max(pair.common, pair.seen)  # the target's version that the source has
        self._applied = AlreadyApplied(pair, meta, past)
        self._small_state = SmallStatePlan(pair, meta, past)
        self._target_steps = past.target
        self._target_acts = [act for step in past.target for act in step.acts]
        self._ours = {s.id: s for act in self._target_acts for s in act.adds}
        self._steps = list(past.source)  # what the source did, so far
        self._source = SourceSegments(self._ours)
        for step in self._steps:
            self._source.note(step)
            self._note_units(step)
        live = (segment for entries in chunks.values() for segment in entries)
        self._overwritten = OverwrittenRows(
            self._target_acts, live, self._source, self._applied.own_ids
        )
        self._rows = PlannedRows(chunks, self._ours, renamed)
        self._adds: list[Segment] = []  # the planned adds, in order
        self._last = Carried(pair.common, "")  # the last planned commit of the source

    def _note_units(self, step: AppliedStep) -> None:
        """Note the source's segments for units of work that both logs did."""
        for act in step.acts:
            for ours in self._applied.units.shared(act):
                if act.unit is not None and ours.is_state and ours.unit is None:
                    self._source.mix(s.id for s in ours.adds)
                is_same = not act.originals.keys().isdisjoint(ours.originals)
                # against own-unit-kept-from-a-later-overwrite
                if ours.unit is not None and not is_same:
                    self._source.arrive_as(act, ours)

    def carry(self, step: AppliedStep) -> Carried | None:
        """Return the transaction to commit for a commit of the source; None if there is none.

        Raises:
            MergeConflict: the commit cannot be merged.
        """
        self._steps.append(step)
        parts: list[Carried | None] = []
        for act in step.acts:
            already = self._applied.find(act)
            if already is None:
                parts.append(self._apply(act))
            else:
                add_count(self.skipped, act, act.does_anything)
                parts.append(self._place(act, already.unit))
        self._note_units(step)
        self._last = Carried(step.version, step.commit)
        self._source.note(step)
        carried = joined(step, parts)
        self._adds += carried.adds if carried is not None else ()
        return carried

    def rest(self) -> Carried | None:
        """Return a transaction that repeats the target's own rows above those of the source.

        It also makes the schemas of both logs one.

        These are the rows that the source does not have, and that come after the merged ones in
        the common order.

        Raises:
            MergeConflict: the rows of the two logs have no common order.
        """
        repeated = self._last
        own = self._own_acts(self._last.version) if self._rows.later and self._repeats else ()
        for act, is_shared in own:
            if not is_shared:  # what a shared unit dropped is not repeated either
                self._check_above(act, self._target_steps)
                self._check_in_place(act)
            mine = () if is_shared else act.adds
            repeated = repeated.then(self._rows.repeat(act, mine, self._is_dropped_here))
        self._adds += repeated.adds
        self._check_doubles()
        schemas = self._small_state.rest()
        repeated = repeated if schemas is None else repeated.then(schemas)
        if repeated.is_empty:
            return None
        return replace(repeated, version=self._last.version, commit=self._last.commit)

    # ----------------------------------------------------------------- transactions of the source

    def _apply(self, act: Act) -> Carried | None:
        """Return the transaction to commit for one transaction of the source, and note it."""
        if act.merges_slices:  # against merged-slices-carried
            add_count(self.declined, act, 1)
            return None
        if act.restores:
            raise MergeConflict(
                "it restores a version, and the target has other segments of a keyed table",
                act.version,
            )
        self._check_above(act, self._steps)
        self._check_repeated(act)
        if any(s.id in self._ours for s in act.adds):
            raise MergeConflict("it adds rows that the target has from another log", act.version)
        changes = self._small_state.changes(act)
        drops, seen = self._drops(act, None)
        if self._ties == "refuse":
            self._check_apart(act)
        adds = tuple(as_new_rows(self._small_state.translated(s)) for s in act.adds)
        self._rows.add(adds)
        rises = self._applied.rises(act)
        if not (adds or drops or changes or rises or act.is_recorded):
            return None
        is_ordered = self._ties == "refuse" or self._repeats
        return Carried(
            act.version,
            "",
            adds,
            drops,
            tuple(changes),
            act.originals,
            rises,
            None,
            (act.transaction.operation,),
            act.count,
            seen=seen if drops else None,
            still=frozenset(s.chunk for s in adds) if is_ordered else frozenset(),
        )

    def _place(self, act: Act, unit: Act | None) -> Carried | None:
        """Repeat rows that both logs have, if they come earlier at the target than at the source.

        Args:
            act: a transaction of the source that the target has.
            unit: the target's transaction that did the same unit of work; None: the target has the
                transaction itself.

        Returns:
            The transaction to commit; None if there is none.
        """
        origin = act.carried
        if origin is not None and origin.commit in self._pair.ours:
            self._seen = max(self._seen, origin.version)
        elif unit is None and self._ties != "none" and act.adds:
            raise MergeConflict(
                "both have merged the same transactions of a third log, and in a keyed table their "
                "order would differ: merge each other log into one of the two only",
                act.version,
            )
        if act.is_state and act.adds and self._repeats:
            raise MergeConflict("it united two logs, with rows in their old places", act.version)
        if unit is None:
            for segment in act.adds:
                self._source.arrive(segment.id, [segment.id])
        else:
            self._source.arrive_as(act, unit)
        parts = []
        if self._repeats:
            mine = act.adds if unit is None else unit.unit_segments
            parts.append(self._rows.repeat(act, mine, self._source.drops))
        if unit is not None and act.drops and not act.merges_slices:
            # against rows-before-a-unit-kept-in-a-keyed-table
            drops, seen = self._drops(act, unit)
            self._applied.check_not_undone(act, unit, {chunk for _, chunk in drops})
            if drops:
                commits = act.originals  # against keyed-unit-undone-at-once-forgotten
                parts.append(Carried(act.version, "", drops=drops, commits=commits, seen=seen))
        return reduce(Carried.then, parts) if parts else None

    def _drops(self, act: Act, unit: Act | None) -> tuple[tuple[tuple[str, str], ...], int]:
        """Return the target's drops for chunks that the source overwrote, and their read version.

        The target drops the rows that the source had seen. Rows that the target wrote since then
        stay, as rows written concurrently with an overwrite stay in one log. If the source merged
        the overwrite from a log that had not seen some rows, these stay too, even if the source had
        them: the read version lies below them.

        Args:
            act: a transaction of the source.
            unit: the target's transaction that did the same unit of work; None: there is none.
        """
        chunks = sorted({drop.chunk for drop in act.drops})
        seen = self._seen
        if chunks and unit is None:
            self._check_restores(act)
        for drop in act.drops:
            self._source.firsts.note(drop.id)
        drops = []
        for chunk in chunks:
            entries = self._rows.live(chunk)
            gone = [s.id for s in entries if self._overwritten.is_dropped(s, act, self._seen)]
            drops += [(name, chunk) for name in gone]
            self._rows.drop(chunk, set(gone))
            # against carried-overwrite-of-what-stays
            places = (span(s)[0] for s in self._rows.live(chunk) if slice_of(s).low is not None)
            seen = min([seen, *(low - 1 for low in places)])
        return tuple(drops), seen

    # ---------------------------------------------------------------- the target's own transactions

    def _own_acts(self, version: int) -> Iterator[tuple[Act, bool]]:
        """Yield what the target did itself and the source did not merge, in order.

        With each act stands whether it is a unit of work that the source did, too. Such a unit has
        its place in both logs, and what it dropped stays dropped.

        Args:
            version: the source's version that is being merged.
        """
        if not self._applied.own:
            return
        source_units = Units(act for step in self._steps for act in step.acts)
        for act in self._applied.own:
            if act.version > self._seen and not act.merges_slices:
                # against units-repeated-above-what-came-after
                if not source_units.shared(act):
                    yield act, False
                elif act.unit is not None:
                    yield act, True
                else:
                    raise MergeConflict(
                        "the target has carried several transactions at once, of which the source "
                        "has done one itself",
                        version,
                        act.version,
                    )

    def _unseen(self, version: int) -> Iterator[Act]:
        """Yield the target's own transactions that this version of the source does not have."""
        return (act for act, is_shared in self._own_acts(version) if not is_shared)

    def _is_dropped_here(self, entry: Segment, act: Act) -> bool:
        """Return whether the target itself dropped the rows that a segment repeats."""
        first = self._ours.get(self._source.firsts.of(entry.id))
        if first is None:
            return False
        gone = [self._ours[drop.id] for drop in act.drops if drop.id in self._ours]
        # against rows-repeated-that-a-union-had-put-elsewhere
        moved = any(self._source.firsts.of(s.id) == first.id for s in gone)
        return moved or any(
            span(s)[0] <= span(first)[0] <= span(s)[1] and meet(s, first) for s in gone
        )

    # -------------------------------------------------------------------- what cannot be merged

    def _check_above(self, act: Act, steps: Sequence[AppliedStep]) -> None:
        """Refuse an overwrite whose rows come below others that were committed before it.

        Merged rows are committed as new rows, and so come above all rows that the target has.

        Args:
            act: a transaction of one of the two logs.
            steps: the commits of this log, in order.
        """
        seen = min((span(s)[0] for s in act.adds), default=act.version)
        if seen >= act.version - 1:
            return
        since = (a for step in steps for a in step.acts if seen < a.version < act.version)
        later = (s for a in since if not a.merges_slices for s in a.adds)
        # against overwritten-rows-carried-above
        if seen < self._pair.common or any(meet(s, o) for o in later for s in act.adds):
            raise MergeConflict(
                f"it overwrites rows as of version {seen}, below others that arrived since then in "
                "the same buckets, and would lie above them where it is carried: read the newest "
                "version there, and overwrite again",
                act.version,
            )

    def _check_in_place(self, act: Act) -> None:
        """Refuse to repeat rows that a restore or a union of the target put below its version."""
        placed = [s for s in act.adds if act.restores and span(s)[0] < act.version]
        # against rows-of-a-state-repeated-as-new-ones
        if any(meet(segment, later) for segment in placed for later in self._rows.later):
            did = "was united with a third log"
            if not act.is_state:
                did = "has restored a version"
            raise MergeConflict(
                f"the target {did}, and its rows would be repeated out of their places",
                self._last.version,
                act.version,
            )

    def _check_repeated(self, act: Act) -> None:
        """Refuse rows that one log repeats, and above which the other log has changes of its own.

        In the other log, later writes, or an overwrite that dropped the rows, come above them. The
        repeated rows would come above these.
        """
        chunks = chunks_of((act,))
        ours = [a for a in self._unseen(act.version) if not chunks.isdisjoint(chunks_of((a,)))]
        if not ours:
            return
        acts = [a for step in self._steps for a in step.acts]
        # against repeated-unit-taken-for-a-new-one
        theirs = [a for a in acts if not (self._applied.has(a) or self._applied.units.shared(a))]
        source_commits, source_units = KnownCommits(self._steps), Units(acts)
        alone = [
            a
            for a in self._applied.own
            if a.version > self._seen and not source_commits.has(a) and not source_units.shared(a)
        ]
        # against repeated-rows-taken-for-new-ones
        if old_rows((act,), theirs) or old_rows(ours, alone):
            raise MergeConflict(
                "rows that both had are repeated above those of another log, and what was done "
                "to them since would lie below them",
                act.version,
                ours[0].version,
            )

    def _check_apart(self, act: Act) -> None:
        """Refuse rows of buckets that the target itself has written to."""
        for ours in self._unseen(act.version) if act.adds and self._pair.own else ():
            for segment in ours.adds:
                # against orders-that-differ
                if any(meet(segment, other) for other in act.adds):
                    raise MergeConflict(
                        f"both wrote rows of the same buckets of chunk {segment.chunk}, and the "
                        "merge rule depends on their order: only `last`, `partial`, and "
                        "`aggregate` by sum, count, min and max can be merged then",
                        act.version,
                        ours.version,
                    )

    def _check_restores(self, act: Act) -> None:
        """Refuse an overwrite of chunks that the target restored without the source's knowledge.

        The restored rows have their old places, below the version that the source had seen.
        """
        chunks = chunks_of((act,))
        unseen = (a for a in self._applied.own if a.version > self._seen)
        for ours in (a for a in unseen if a.restores and not a.is_state):
            # against restored-rows-dropped-by-a-carried-overwrite
            if not chunks.isdisjoint(chunks_of((ours,))):
                raise MergeConflict(
                    "it overwrites rows, and the target has restored a version of these chunks",
                    act.version,
                    ours.version,
                )

    def _check_doubles(self) -> None:
        """Refuse rows that would come above a unit that both did, and are below it in one log."""
        if self._ties == "none" or not self._target_acts:
            return
        source = [act for step in self._steps for act in step.acts]
        target = self._target_acts
        lower, upper = (source, target) if self._pair.is_upper else (target, source)
        doubles = Doubles(lower, upper)
        broken = doubles.broken(target, self._adds) or doubles.broken(source, ())
        if broken is not None:  # against rows-carried-above-a-unit
            row, unit = broken
            raise MergeConflict(
                f"both did the unit of work of version {unit.act.version}, and rows of "
                f"version {row.act.version} that one of them had before it would lie above it",
                self._last.version,
            )
        # against own-unit-repeated-above-what-came-after
        if self._repeats and doubles.overtaken(target, self._adds, source):
            raise MergeConflict(
                "both did a unit of work, and rows that the source has above it would lie below it",
                self._last.version,
            )
