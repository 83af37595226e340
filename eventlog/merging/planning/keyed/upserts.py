"""Plans what a merge commits on a keyed table: upserts and deletes, in one order for both logs.

No I/O. Log segments are merged. Compacted segments are not: they contain no new rows. Rows of one
key that tie are ordered by the log of the *lower* side, whose origin has the smaller name. After
them come the rows that only the other side, the *upper* one, wrote (MERGING.md R19.8). So a merge
into the lower side appends. A merge into the upper side appends the lower side's rows, and then
repeats those of the upper side's own transactions that must come after them: of two equal rows the
later one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from eventlog.format import keys
from eventlog.keyed.placement import meet, slice_of, span
from eventlog.keyed.repetition import Firsts, repeats
from eventlog.keyed.rule import MergeRule
from eventlog.merging.log_acts import Act, AppliedStep, KnownCommits, Units, chunks_of, old_rows
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair, PastNeeded
from eventlog.merging.planning.columns import translated
from eventlog.merging.planning.keyed.doubles import Doubles
from eventlog.merging.planning.plan import Planner
from eventlog.model.entries import Segment
from eventlog.model.records import Meta

# How rows of one key that both sides wrote are merged: in any order; by repeating the later one;
# not at all, since the rows may be neither reordered nor repeated.
Ties = Literal["none", "repeat", "refuse"]
_COMMUTE = ("sum", "count", "min", "max")


def ties_of(rule: MergeRule) -> Ties:
    """Return how a merge orders rows of one key that both sides wrote."""
    if rule.kind in ("last", "partial"):
        return "repeat"
    if rule.kind == "first":
        return "refuse"
    commute = all(f in _COMMUTE or c == rule.order for c, f in rule.functions.items())
    return "none" if commute else "refuse"


class KeyedPlanner(Planner):
    """Decides which changes of the source's commits are merged into a keyed table.

    Args:
        pair: the two logs.
        meta: the target's small state.
        chunks: the target's live segments, for the chunks in which the source drops segments.
        past: what both logs did since the fork point; None if no decision has needed it so far.
        ties: how rows of one key that both sides wrote are ordered.
        renamed: returns the id under which a segment of the target is added once more.
    """

    def __init__(
        self,
        pair: Pair,
        meta: Meta,
        chunks: Mapping[str, Sequence[Segment]],
        past: Divergence | None,
        *,
        ties: Ties,
        renamed: Callable[[str], str],
    ) -> None:
        live: Collection[str] = ()
        super().__init__(pair, meta, live, past)
        self._ties, self._renamed = ties, renamed
        self._upper = pair.own is not None and pair.own > pair.origin
        self._seen = max(pair.common, pair.seen)
        self._chunks = {name: list(entries) for name, entries in chunks.items()}
        self._came: list[Segment] = []  # the planned adds, in order
        self._met: list[Segment] = []  # adds above which the target's own rows may have to come
        self._placed: set[str] = set()  # the target's own segments whose place is decided
        self._again: dict[str, Segment] = {}  # copies of the target's segments, by new id
        self._ours = {} if past is None else {s.id: s for s in _segments(past.target)}
        # Segments that arrived at the source since the fork point: their ids there, by the id of
        # the segment that they repeat.
        self._arrived: dict[str, list[str]] = {}
        self._firsts = Firsts()
        for name in self._ours:
            self._firsts.note(name)
        self._gone: set[str] = set()  # segments that the source dropped since the fork point
        self._merged_to: dict[str, tuple[str, ...]] = {}  # the source's compactions: input, outputs
        # The target's compactions, by output: the inputs. For other segments: the transaction.
        self._made_of: dict[str, tuple[str, ...]] = {}
        self._by: dict[str, Act] = {}
        entries = (s for live in self._chunks.values() for s in live)
        counting = {s.id: s for s in entries if s.id not in self._ours}
        for act in (a for step in past.target for a in step.acts) if past is not None else ():
            if act.merges_slices:
                self._made_of.update((s.id, tuple(_inputs(s, act, counting))) for s in act.adds)
            else:
                self._by.update((name, act) for name in _added(act))
            for drop in act.drops:
                counting.pop(drop.id, None)
            counting.update((s.id, s) for s in act.adds)
        for step in () if past is None else past.source:
            self._note(step)
            for act in step.acts:
                self._note_twins(act)
        self._last = Carried(pair.common, "")
        self._steps = [] if past is None else list(past.source)  # what the source did, so far

    def carry(self, step: AppliedStep) -> Carried | None:
        """See `Planner.carry`."""
        before, self._last = self._last, Carried(step.version, step.commit)
        self._steps.append(step)
        try:
            carried = super().carry(step)
        except MergeConflict:
            self._last = before
            raise
        self._note(step)
        self._came += carried.adds if carried is not None else ()
        return carried

    def _note(self, step: AppliedStep) -> None:
        """Note what a commit of the source did."""
        for act in step.acts:
            for drop in act.drops:
                self._gone.add(drop.id)
                self._firsts.note(drop.id)
                if act.merges_slices:
                    made = (s.id for s in act.adds if s.chunk == drop.chunk)
                    self._merged_to[drop.id] = tuple(made)
            for segment in act.adds:
                self._gone.discard(segment.id)
                self._firsts.note(segment.id)
                self._arrive(segment.id, [segment.id])

    def _note_twins(self, act: Act) -> None:
        """Note the source's segments for units of work that both logs did."""
        for ours in self._applied.units.shared(act) if act.unit is not None else ():
            # against own-unit-kept-from-a-later-overwrite
            if ours.unit is not None and not self._has_already(act):
                for segment in ours.adds:
                    there = (s.id for s in act.adds if s.chunk == segment.chunk)
                    self._arrive(segment.id, [*there])

    def _arrive(self, name: str, there: Sequence[str]) -> None:
        self._arrived.setdefault(self._firsts.of(name), []).extend(there)

    def rest(self) -> Carried | None:
        """Return a transaction that repeats the target's own rows above those of the source.

        These are the rows that the source does not have, and that come after the merged ones in
        the common order.
        """
        found = self._last
        for act, is_shared in self._own_acts() if self._met and self._repeats else ():
            if is_shared:  # what it dropped is not repeated either
                found = found.then(self._repeat(act, (), self._dropped))
                continue
            self._check_above(act, self._past.target if self._past else ())
            placed = [s for s in act.adds if act.restores and span(s)[0] < act.version]
            # against rows-of-a-state-repeated-as-new-ones
            if any(meet(segment, other) for segment in placed for other in self._met):
                did = "was made one with a third log by their states"
                if not act.is_state:
                    did = "has restored a version"
                raise MergeConflict(
                    f"the target {did}, and its rows would be repeated out of their places",
                    self._last.version,
                    act.version,
                )
            found = found.then(self._repeat(act, act.adds, self._dropped))
        self._came += found.adds
        self._check_doubles()
        return None if found.is_empty else found

    def _check_doubles(self) -> None:
        """Refuse rows that would come above a unit that both did, and are below it in one log."""
        if self._past is None or self._ties == "none":
            return
        source = [act for step in self._steps for act in step.acts]
        target = [act for step in self._past.target for act in step.acts]
        doubles = Doubles(source, target) if self._upper else Doubles(target, source)
        found = doubles.broken(target, self._came) or doubles.broken(source, ())
        if found is not None:  # against rows-carried-above-a-unit
            row, unit = found
            raise MergeConflict(
                f"both did the unit of work of version {unit.act.version}, and rows of "
                f"version {row.act.version} that one of them had before it would lie above it",
                self._last.version,
            )
        # against own-unit-repeated-above-what-came-after
        if self._repeats and doubles.overtaken(target, self._came, source):
            raise MergeConflict(
                "both did a unit of work, and rows that the source has above it would lie below it",
                self._last.version,
            )

    @property
    def _repeats(self) -> bool:
        return self._ties == "repeat" and self._upper

    def _unseen(self) -> Iterator[Act]:
        """Yield the target's own transactions that the source does not have."""
        return (act for act, is_shared in self._own_acts() if not is_shared)

    def _own_acts(self) -> Iterator[tuple[Act, bool]]:
        """Yield what the target did itself and the source did not merge, in order.

        With each act stands whether it is a unit of work that the source did, too. Such a unit has
        its place in both logs, and what it dropped stays dropped.
        """
        if self._past is None:
            raise PastNeeded
        done = Units(act for step in self._steps for act in step.acts)
        for act in self._applied.own:
            if act.version > self._seen and not act.merges_slices:
                # against units-repeated-above-what-came-after
                if not done.shared(act):
                    yield act, False
                elif act.unit is not None:
                    yield act, True
                else:
                    raise MergeConflict(
                        "the target has carried several transactions at once, of which the source "
                        "has done one itself",
                        self._last.version,
                        act.version,
                    )

    def _known(self, act: Act) -> Carried | None:
        """Repeat rows that both logs have, if they come earlier at the target than at the source.

        Returns:
            The transaction to commit; None if there is none.
        """
        carried = act.carried
        if carried is not None and carried.commit in self._pair.ours:
            self._seen = max(self._seen, carried.version)
        elif self._applied.unit is None and self._ties != "none" and act.adds:
            raise MergeConflict(
                "both have merged the same transactions of a third log, and in a keyed table their "
                "order would differ: merge each other log into one of the two only",
                act.version,
            )
        if act.is_state and act.adds and self._repeats:
            raise MergeConflict(
                "it made two logs one by their states, in their places", act.version
            )
        mine = act.adds if self._applied.unit is None else self._applied.unit.adds
        for segment in mine:
            there = (s.id for s in act.adds if s.chunk == segment.chunk)
            self._arrive(segment.id, [segment.id] if self._applied.unit is None else [*there])
        found = self._repeat(act, mine, self._overwrites) if self._repeats else None
        if self._applied.unit is None or not act.drops or act.merges_slices:
            return found
        # against rows-before-a-unit-kept-in-a-keyed-table
        drops, seen = self._overwritten(act)
        if not drops:
            return found
        gone = Carried(act.version, "", drops=drops, seen=seen)
        return gone if found is None else found.then(gone)

    def _repeat(
        self, act: Act, mine: Sequence[Segment], lost: Callable[[Segment, Act], bool]
    ) -> Carried:
        """Return copies of the target's segments that must be applied after the merged ones.

        Args:
            act: a transaction of one of the two logs.
            mine: the target's segments with the rows of this transaction.
            lost: whether the transaction dropped a segment that was to be added once more.
        """
        if self._past is None:
            raise PastNeeded
        gone = {drop.chunk for drop in act.drops} if not act.merges_slices else set()
        # against repeated-rows-dropped-with-others
        drops = [(i, s.chunk) for i, s in self._again.items() if s.chunk in gone and lost(s, act)]
        for name, chunk in drops:
            del self._again[name]
            if chunk in self._chunks:
                self._chunks[chunk] = [s for s in self._chunks[chunk] if s.id != name]
        adds, copies = [], {}
        for segment in mine:
            ours = self._ours.get(segment.id)
            if ours is None or segment.id in self._placed or slice_of(ours).level:
                continue
            self._placed.add(segment.id)
            if not any(meet(segment, other) for other in self._met):
                continue
            new = _fresh(msgspec.structs.replace(ours, id=self._renamed(segment.id)))
            adds.append(new)
            self._met.append(new)
            self._again[new.id] = new
            if new.chunk in self._chunks:
                self._chunks[new.chunk].append(new)
            there = [(True, keys.key_of(ours))]
            if segment is not ours:
                there.append((False, keys.key_of(segment)))
            copies[new.id] = tuple(there)
        found = Carried(self._last.version, self._last.commit, tuple(adds), tuple(drops))
        return replace(found, copies=copies, still=frozenset(s.chunk for s in adds))

    def _act(self, act: Act) -> Carried | None:
        """Return the transaction to commit for one transaction of the source, and note it."""
        if act.merges_slices:  # against merged-slices-carried
            self._count(self.declined, act, 1)
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
        changes = self._changes(act)
        drops, seen = self._overwritten(act)
        if self._ties == "refuse":
            self._check_apart(act)
        schema = self._meta.schema
        assert schema is not None  # noqa: S101 - every table has one
        adds = tuple(_fresh(translated(s, self._pair.schema, schema)) for s in act.adds)
        for segment in adds:
            if segment.chunk in self._chunks:
                self._chunks[segment.chunk].append(segment)
        self._met += adds
        if not (adds or drops or changes):
            return None
        guarded = self._ties == "refuse" or self._repeats
        return Carried(
            act.version,
            "",
            adds,
            drops,
            tuple(changes),
            act.originals,
            self._rises(act),
            None,
            (act.transaction.operation,),
            act.count,
            seen=seen if drops else None,
            still=frozenset(s.chunk for s in adds) if guarded else frozenset(),
        )

    def _check_above(self, act: Act, steps: Sequence[AppliedStep]) -> None:
        """Refuse an overwrite whose rows come below others that were committed before it.

        Merged rows are committed as new rows, and so come above all rows that the target has.
        """
        seen = min((span(s)[0] for s in act.adds), default=act.version)
        if seen >= act.version - 1:
            return
        if self._past is None and seen < self._steps[0].version - 1:
            raise PastNeeded
        since = (a for step in steps for a in step.acts if seen < a.version < act.version)
        others = (s for a in since if not a.merges_slices for s in a.adds)
        # against overwritten-rows-carried-above
        if seen < self._pair.common or any(meet(s, o) for o in others for s in act.adds):
            raise MergeConflict(
                f"it overwrites rows as of version {seen}, below others that arrived since then in "
                "the same buckets, and would lie above them where it is carried: read the newest "
                "version there, and overwrite again",
                act.version,
            )

    def _check_repeated(self, act: Act) -> None:
        """Refuse rows that one log repeats, and above which the other log has changes of its own.

        In the other log, later writes, or an overwrite that dropped the rows, come above them. The
        repeated rows would come above these.
        """
        if self._past is None:
            if any(repeats(s.id) for s in act.adds):
                raise PastNeeded
            return
        chunks = chunks_of((act,))
        acts = [a for step in self._steps for a in step.acts]
        # against repeated-unit-taken-for-a-new-one
        theirs = [a for a in acts if not (self._has_already(a) or self._applied.units.shared(a))]
        ours = [a for a in self._unseen() if not chunks.isdisjoint(chunks_of((a,)))]
        known, done = KnownCommits(self._steps), Units(acts)
        alone = [
            a
            for a in self._applied.own
            if a.version > self._seen and not known.has(a) and not done.shared(a)
        ]
        # against repeated-rows-taken-for-new-ones
        if ours and (old_rows((act,), theirs) or old_rows(ours, alone)):
            raise MergeConflict(
                "rows that both had are repeated above those of another log, and what was done "
                "to them since would lie below them",
                act.version,
                ours[0].version,
            )

    def _has_already(self, act: Act) -> bool:
        return self._applied.known is not None and self._applied.known.has(act)

    def _check_apart(self, act: Act) -> None:
        """Refuse rows of buckets that the target itself has written to."""
        for ours in self._unseen() if act.adds and self._pair.own else ():
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

    def _overwritten(self, act: Act) -> tuple[tuple[tuple[str, str], ...], int]:
        """Return the target's drops for chunks that the source overwrote, and their read version.

        The target drops the rows that the source had seen. Rows that the target wrote since then
        stay, as rows written concurrently with an overwrite stay in one log. If the source merged
        the overwrite from a log that had not seen some rows, these stay too, even if the source had
        them: the read version lies below them.
        """
        chunks = sorted({drop.chunk for drop in act.drops})
        version = self._seen
        if not chunks:
            return (), version
        if self._past is None:
            raise PastNeeded
        self._check_restores(act)
        for drop in act.drops:
            self._firsts.note(drop.id)
        found = []
        for chunk in chunks:
            gone = [s for s in self._chunks.get(chunk, ()) if self._was_seen(s, act)]
            found += [(s.id, chunk) for s in gone]
            lost = {s.id for s in gone}
            kept = self._chunks[chunk] = [
                s for s in self._chunks.get(chunk, ()) if s.id not in lost
            ]
            # against carried-overwrite-of-what-stays
            places = (span(s)[0] for s in kept if slice_of(s).low is not None)
            version = min([version, *(low - 1 for low in places)])
            self._met = [s for s in self._met if s.id not in lost]
            for name in lost:
                self._again.pop(name, None)
        return tuple(found), version

    def _check_restores(self, act: Act) -> None:
        """Refuse an overwrite of chunks that the target restored without the source's knowledge.

        The restored rows have their old places, below the version that the source had seen.
        """
        chunks = chunks_of((act,))
        unseen = (
            a for a in self._applied.own if a.version > self._seen and self._applied.unit is None
        )
        for ours in (act for act in unseen if act.restores and not act.is_state):
            # against restored-rows-dropped-by-a-carried-overwrite
            if not chunks.isdisjoint(chunks_of((ours,))):
                raise MergeConflict(
                    "it overwrites rows, and the target has restored a version of these chunks",
                    act.version,
                    ours.version,
                )

    def _was_seen(self, entry: Segment, act: Act) -> bool:
        """Return whether the source had the rows of a segment when it overwrote its chunk."""
        # against rows-beside-an-overwrite-dropped
        if self._firsts.of(entry.id) in self._arrived:
            return self._overwrites(entry, act)
        if slice_of(entry).low is None:
            return True
        parts = self._parts(entry)
        seen = {self._loses(name, entry, act) for name in parts}
        if len(seen) > 1 or None in seen:
            raise MergeConflict(
                f"it overwrites chunk {entry.chunk}, where one of the two has compacted rows that "
                "it drops together with rows that stay",
                act.version,
                entry.version,
            )
        return False not in seen

    def _parts(self, entry: Segment) -> set[str]:
        """Return the ids of the segments that the target compacted to one since the fork point."""
        found, pending = set(), [entry.id]
        while pending:
            name = pending.pop()
            made = self._ours.get(name)
            if made is None or meet(made, entry):
                pending += self._made_of.get(name, ())
                if name not in self._made_of:
                    found.add(name)
        return found

    def _loses(self, name: str, entry: Segment, act: Act) -> bool | None:
        """Return whether the source drops the rows of a target's segment; None: a part of them."""
        first = self._firsts.of(name)  # against renamed-rows-kept-from-an-overwrite
        if first in self._arrived:
            # against rows-beside-a-carried-overwrite-dropped
            return self._overwrites(self._ours.get(name, entry), act)
        if first in self._by:
            ours = self._by[first]
            return ours.transaction.id not in self._applied.own_ids or ours.version <= self._seen
        kept = self._keeps(first, {drop.id for drop in act.drops})
        return None if kept is None else not kept

    def _keeps(self, name: str, gone: Collection[str]) -> bool | None:
        """Return whether the source keeps the rows of its segment; None: a part of them."""
        if name not in gone and name not in self._gone:
            return True
        # against rows-below-a-carried-overwrite-dropped
        found = {self._keeps(one, gone) for one in self._merged_to.get(name, ())}
        return None if len(found) > 1 else next(iter(found), False)

    def _overwrites(self, entry: Segment, act: Act) -> bool:
        """Return whether the source drops the rows of a segment that arrived there.

        It keeps rows that were written concurrently with the overwrite, at the source or in the log
        that the overwrite was merged from.

        Raises:
            MergeConflict: the source drops a part of the rows.
        """
        gone = {drop.id for drop in act.drops}
        forms = self._arrived.get(self._firsts.of(entry.id), ())
        kept = {self._keeps(name, gone) for name in forms}
        if None in kept:
            raise MergeConflict(
                f"it overwrites chunk {entry.chunk}, where it has compacted rows that it drops "
                "together with rows that stay",
                act.version,
                entry.version,
            )
        return True not in kept

    def _dropped(self, entry: Segment, act: Act) -> bool:
        """Return whether the target itself dropped the rows that a segment repeats."""
        first = self._ours.get(self._firsts.of(entry.id))
        gone = (self._ours[drop.id] for drop in act.drops if drop.id in self._ours)
        return first is not None and any(
            span(s)[0] <= span(first)[0] <= span(s)[1] and meet(s, first) for s in gone
        )


def _inputs(made: Segment, act: Act, counting: Mapping[str, Segment]) -> Iterator[str]:
    """Yield the ids of the segments whose rows a compacted segment contains.

    Inputs that also have rows of other buckets stay live beside it.

    Args:
        made: the compacted segment.
        act: the transaction that made it.
        counting: the segments that were live before.
    """
    yield from (drop.id for drop in act.drops if drop.chunk == made.chunk)
    low, high = span(made)
    for name, segment in counting.items():
        first, last = span(segment)
        # against rows-merged-in-part-kept-from-an-overwrite
        if low <= first and last <= high and meet(segment, made):
            yield name


def _added(act: Act) -> Iterator[str]:
    """Yield the segments that a transaction added, but none that a union of states put lower."""
    for segment in act.adds:
        # against rows-of-a-state-taken-for-new-ones
        if not (act.is_state and span(segment)[0] < act.version):
            yield segment.id


def _fresh(entry: Segment) -> Segment:
    """Return an entry as one of new rows: the commit that adds it determines their version."""
    new = msgspec.structs.replace(slice_of(entry), low=None, high=None, level=0, ordinal=None)
    return msgspec.structs.replace(entry, slice=new)


def _segments(steps: Sequence[AppliedStep]) -> Iterator[Segment]:
    return (segment for step in steps for act in step.acts for segment in act.adds)
