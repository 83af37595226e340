"""The segments that the target adds and drops to get the states of chunks. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.keyed import placement
from eventlog.keyed.rule import keyed_of
from eventlog.merging.planning.by_state.chunk_states import Addition, UnitedChunks
from eventlog.merging.planning.by_state.same_states import by_chunk, same_slices
from eventlog.merging.planning.by_state.sides import LogDifference
from eventlog.merging.planning.forms import ObjectPlace, object_place
from eventlog.merging.planning.keyed.planned_rows import as_new_rows
from eventlog.model.entries import Segment, Slice


class UnitedSegments:
    """The adds and drops of a union.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        states: the rows of the target after the union, in some chunks.
        translated: returns an entry of the source as the target has it.
        common: the last version that both share.
        renamed: returns the id of a segment that is added in another place, too; its arguments are
            the segment's id and the reason.

    Attributes:
        adds: the segments to add.
        drops: the segments to drop.
        copies: by id of an add, where its object may be (see `Carried`).
        still: chunks to which nothing may be added before the commit.
        met: chunks that stay as they are, and of which the target gets to know something.
        room: the number of versions that the target lacks for the spans of slices.
    """

    def __init__(
        self,
        source: LogDifference,
        target: LogDifference,
        states: Iterable[UnitedChunks],
        *,
        translated: Callable[[Segment], Segment],
        common: int,
        renamed: Callable[[str, str], str],
    ) -> None:
        self._source, self._target = source, target
        self._translated, self._common, self._renamed = translated, common, renamed
        layout = target.side.meta.layout
        self._keyed = layout is not None and keyed_of(layout) is not None
        self._live = [by_chunk(side.live.values()) for side in (source.side, target.side)]
        acts = target.side.acts if self._keyed else ()
        self._places = {s.id: s.slice for act in acts for s in act.adds}  # the newest of each
        self._dropped = {drop.id for act in acts for drop in act.drops}
        self.adds: list[Segment] = []
        self.drops: list[Segment] = []
        self.copies: dict[str, tuple[ObjectPlace, ...]] = {}
        self.still: set[str] = set()
        self.met: set[str] = set()
        self.room = 0
        for state in states:
            if state.base == "target":
                self._add_beside(state)
            elif state.base == "source":
                self._exchange(state)
            if state.chosen or state.rows or state.gone:
                self.still |= state.chunks
            elif state.met:
                self.met |= state.chunks

    def shown(self) -> list[Segment]:
        """Return the segments that the target has live after the union."""
        gone = {segment.id for segment in self.drops}
        return [*(s for i, s in self._target.side.live.items() if i not in gone), *self.adds]

    def _add_beside(self, state: UnitedChunks) -> None:
        """The target keeps its segments of these chunks, and gets the rows."""
        live = self._target.side.live
        _, in_target = self._live_in(state.chunks)
        gone = {*state.gone, *self._source.dropped}
        self.drops += (s for s in in_target if s.id in gone)
        for row in state.rows:
            if row.again or row.segment.id not in live:
                self._add_rows(row)

    def _live_in(self, chunks: frozenset[str]) -> list[list[Segment]]:
        """Return the live segments of chunks, of the source and of the target."""
        return [[s for c in sorted(chunks) for s in live.get(c, ())] for live in self._live]

    def _exchange(self, state: UnitedChunks) -> None:
        """The target gets the source's segments of these chunks, and the rows."""
        in_source, in_target = self._live_in(state.chunks)
        if not state.chosen:  # against chosen-rows-dropped-by-a-unit
            in_source = [s for s in in_source if s.id not in self._target.dropped]
        self.still |= state.chunks
        if self._keyed:
            self._exchange_slices(in_target, in_source, state.rows)
            return
        kept = {s.id for s in in_source} | {row.segment.id for row in state.rows}
        self.drops += [s for s in in_target if s.id not in kept]
        for segment in in_source:
            if segment.id not in self._target.side.live:
                self._add(self._of_source(segment), (object_place(segment),))
        for row in state.rows:
            if row.segment.id not in self._target.side.live:
                self._add_rows(row)

    def _exchange_slices(
        self, in_target: Sequence[Segment], in_source: Sequence[Segment], rows: Sequence[Addition]
    ) -> None:
        """The target gets the source's segments in their places, and the rows above them."""
        if not rows and same_slices(self._source.side, self._target.side, in_source, in_target):
            return
        ends = {v for s in in_source for v in placement.span(s) if v > self._common}
        places = {v: self._common + 1 + n for n, v in enumerate(sorted(ends))}
        self.room = max(self.room, self._common + len(ends) - self._target.side.version)
        self.drops += in_target
        for segment in in_source:
            low, high = (places.get(v, v) for v in placement.span(segment))
            place = msgspec.structs.replace(placement.slice_of(segment), low=low, high=high)
            entry = msgspec.structs.replace(self._of_source(segment), slice=place)
            self._add(entry, (object_place(segment),), was=segment.slice)
        for row in rows:
            self._add_rows(row)

    def _add_rows(self, row: Addition) -> None:
        segment = as_new_rows(row.segment) if self._keyed else row.segment
        if not row.mine:
            segment = self._of_source(segment)
        if row.again:
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "above"))
        self._add(segment, (object_place(row.segment, mine=row.mine),), was=row.segment.slice)

    def _of_source(self, segment: Segment) -> Segment:
        entry = self._translated(segment)
        return as_new_rows(entry) if self._keyed else entry

    def _add(
        self,
        segment: Segment,
        places: tuple[ObjectPlace, ...],
        *,
        was: Slice | UnsetType = UNSET,
    ) -> None:
        # Of slices that get another place. A restore of the target compares segments by their ids.
        # against place-changed-under-one-id
        if segment.id in self._target.side.live or self._is_moved(segment, was):
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "moved"))
        while segment.id in self.copies:  # another form of the same rows is there
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "again"))
        self.adds.append(segment)
        self.copies[segment.id] = places

    def _is_moved(self, segment: Segment, was: Slice | UnsetType) -> bool:
        """Return whether the target had a segment in another place.

        Args:
            segment: as it is to be added.
            was: where the other log has it, or the target had it.
        """
        if segment.id not in self._dropped:
            return False
        # One that no act added is from before the logs parted.
        return segment.slice != self._places.get(segment.id, was)
