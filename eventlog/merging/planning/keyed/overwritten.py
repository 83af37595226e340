"""Which rows of the target the source had when it overwrote a chunk (R19.8 item 4). No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from eventlog.keyed.placement import meet, slice_of, span
from eventlog.merging.log_acts import Act
from eventlog.merging.planning.carried import MergeConflict
from eventlog.merging.planning.keyed.source_segments import SourceSegments
from eventlog.model.entries import Segment


class OverwrittenRows:
    """Decides which segments of the target an overwrite of the source drops.

    Args:
        acts: what the target did since the fork point.
        live: the target's live segments of the chunks in which the source drops segments.
        source: what became of the source's segments.
        unseen: the ids of the target's own transactions that the source does not have.
    """

    def __init__(
        self,
        acts: Iterable[Act],
        live: Iterable[Segment],
        source: SourceSegments,
        unseen: Collection[str],
    ) -> None:
        self._source, self._unseen = source, unseen
        self._added: dict[str, Segment] = {}  # by the target since the fork point
        self._made_of: dict[str, tuple[str, ...]] = {}  # by merges of slices: output, inputs
        self._by: dict[str, Act] = {}  # of other segments: the transaction that added them
        # For rows that a union added: the segments from before the fork point that it dropped. It
        # has perhaps taken rows out of these.
        self._instead: dict[str, list[str]] = {}
        acts, live = list(acts), list(live)
        added = {s.id for act in acts for s in act.adds}
        live_then = {s.id: s for s in live if s.id not in added}
        # Of before the fork point: what is live since then, and what was dropped first.
        self._old = set(live_then)
        for act in acts:
            self._old.update(d.id for d in act.drops if d.id not in self._added)
            self._added.update((s.id, s) for s in act.adds)
            if act.merges_slices:
                self._made_of.update((s.id, tuple(_inputs(s, act, live_then))) for s in act.adds)
            else:
                for segment in _new_segments(act):
                    self._by[segment.id] = act
                    if act.is_state:
                        self._instead[segment.id] = [
                            drop.id
                            for drop in act.drops
                            if drop.chunk == segment.chunk and drop.id not in self._added
                        ]
            for drop in act.drops:
                live_then.pop(drop.id, None)
            live_then.update((s.id, s) for s in act.adds)

    def is_dropped(self, entry: Segment, act: Act, seen: int) -> bool:
        """Return whether an overwrite drops a segment: the source had its rows, and keeps none.

        Args:
            entry: a live segment of the target, of a chunk that the act overwrites.
            act: the overwrite.
            seen: the target's version up to which the source had everything.

        Raises:
            MergeConflict: the overwrite drops some of the rows.
        """
        # against rows-beside-an-overwrite-dropped
        if self._source.has_arrived(self._source.firsts.of(entry.id)):
            return self._source.drops(entry, act)
        if slice_of(entry).low is None:
            return True
        dropped = {self._loses(name, entry, act, seen) for name in self._parts(entry)}
        if len(dropped) > 1 or None in dropped:
            raise MergeConflict(
                f"it overwrites chunk {entry.chunk}, where one of the two has compacted rows that "
                "it drops together with rows that stay",
                act.version,
                entry.version,
            )
        return False not in dropped

    def _parts(self, entry: Segment) -> set[str]:
        """Return the ids of the segments that the target merged into one since the fork point."""
        parts, pending = set(), [entry.id]
        while pending:
            name = pending.pop()
            made = self._added.get(name)
            if made is None or meet(made, entry):
                pending += self._made_of.get(name, ())
                if name not in self._made_of:
                    parts.add(name)
        return parts

    def _loses(self, name: str, entry: Segment, act: Act, seen: int) -> bool | None:
        """Return whether the source drops the rows of a target's segment; None: perhaps some."""
        first = self._source.firsts.of(name)  # against renamed-rows-kept-from-an-overwrite
        if self._source.has_arrived(first):
            # against rows-beside-a-carried-overwrite-dropped
            return self._source.drops(self._added.get(name, entry), act)
        if first in self._by:
            ours, gone = self._by[first], {drop.id for drop in act.drops}
            instead = self._instead.get(first, ())
            # against rows-of-before-the-fork-taken-for-new-ones
            if not all(self._source.keeps(old, gone) for old in instead):
                return None
            return ours.transaction.id not in self._unseen or ours.version <= seen
        if self._source.is_mixed(first):  # against rows-of-a-unit-in-a-union-kept
            return None
        # A union brought rows that a third log had merged, the source's among them perhaps.
        # against rows-of-a-third-log-taken-for-kept
        if first not in self._old and slice_of(self._added.get(name, entry)).level:
            return None
        kept = self._source.keeps(first, {drop.id for drop in act.drops})
        return None if kept is None else not kept


def _inputs(made: Segment, act: Act, live: Mapping[str, Segment]) -> Iterator[str]:
    """Yield the ids of the segments whose rows a merge of slices put into a segment.

    Inputs that also have rows of other buckets stay live beside it.

    Args:
        made: the new segment.
        act: the transaction that made it.
        live: the segments that were live before.
    """
    yield from (drop.id for drop in act.drops if drop.chunk == made.chunk)
    low, high = span(made)
    for name, segment in live.items():
        first, last = span(segment)
        # against rows-merged-in-part-kept-from-an-overwrite
        if low <= first and last <= high and meet(segment, made):
            yield name


def _new_segments(act: Act) -> Iterator[Segment]:
    """Yield the segments that a transaction added, without those that a union put lower."""
    for segment in act.adds:
        # against rows-of-a-state-taken-for-new-ones
        if not (act.is_state and span(segment)[0] < act.version):
            yield segment
