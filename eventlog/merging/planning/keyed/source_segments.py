"""What became of the rows of a segment at the source since the fork point. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eventlog.keyed.repetition import Firsts
from eventlog.merging.log_acts import Act, AppliedStep
from eventlog.merging.planning.carried import MergeConflict
from eventlog.model.entries import Segment


class SourceSegments:
    """The segments of the source, kept up to date commit by commit.

    A segment that repeats another one has the same rows, so both go by the id of the first form.

    Args:
        ids: ids of segments of the target, which those of the source may repeat.

    Attributes:
        firsts: for each id, the id of the segment that it repeats in the end.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self.firsts = Firsts()
        for name in ids:
            self.firsts.note(name)
        # Segments that arrived at the source since the fork point: their ids there, by first name.
        self._arrived: dict[str, list[str]] = {}
        # By first name, those that arrived at once with others: their forms are among these.
        self._among: set[str] = set()
        # Of the target: it got them at once with a unit of work that the source did, too.
        self._mixed: set[str] = set()
        self._gone: set[str] = set()  # dropped at the source since the fork point
        self._merged_to: dict[str, tuple[str, ...]] = {}  # by input, the outputs

    def note(self, step: AppliedStep) -> None:
        """Note what a commit of the source did."""
        for act in step.acts:
            for drop in act.drops:
                self._gone.add(drop.id)
                self.firsts.note(drop.id)
                if act.merges_slices:
                    outputs = (s.id for s in act.adds if s.chunk == drop.chunk)
                    self._merged_to[drop.id] = tuple(outputs)
            for segment in act.adds:
                self._gone.discard(segment.id)
                self.firsts.note(segment.id)
                self.arrive(segment.id, [segment.id])

    def arrive(self, name: str, forms: Iterable[str]) -> None:
        """Note that the source has the rows of a segment in these segments."""
        self._arrived.setdefault(self.firsts.of(name), []).extend(forms)

    def arrive_as(self, act: Act, unit: Act) -> None:
        """Note that the source has the rows of a unit of work that both did, chunk by chunk.

        Args:
            act: the source's transaction that did the unit, perhaps at once with others.
            unit: the target's transaction that did the unit.
        """
        for segment in unit.unit_segments:
            forms = (s.id for s in act.unit_segments if s.chunk == segment.chunk)
            self.arrive(segment.id, forms)
            if act.unit is None:
                self._among.add(self.firsts.of(segment.id))

    def mix(self, ids: Iterable[str]) -> None:
        """Note segments of the target that may have rows of a unit which the source did, too."""
        self._mixed.update(map(self.firsts.of, ids))

    def is_mixed(self, first: str) -> bool:
        """Return whether nothing tells which rows of the source are those of a segment."""
        return first in self._mixed

    def has_arrived(self, first: str) -> bool:
        """Return whether rows arrived at the source since the fork point, by their first name."""
        return first in self._arrived

    def keeps(self, name: str, dropped: Collection[str]) -> bool | None:
        """Return whether the source keeps the rows of its segment; None: a part of them.

        Args:
            name: the id of the segment.
            dropped: ids of segments that the source drops now.
        """
        if name not in dropped and name not in self._gone:
            return True
        # against rows-below-a-carried-overwrite-dropped
        kept = {self.keeps(output, dropped) for output in self._merged_to.get(name, ())}
        return None if len(kept) > 1 else next(iter(kept), False)

    def drops(self, entry: Segment, act: Act) -> bool:
        """Return whether an act of the source drops the rows of a segment that arrived there.

        The source keeps rows that were written concurrently with an overwrite, at the source or in
        the log that the overwrite was merged from.

        Raises:
            MergeConflict: the source drops a part of the rows.
        """
        dropped = {drop.id for drop in act.drops}
        first = self.firsts.of(entry.id)
        kept = {self.keeps(name, dropped) for name in self._arrived.get(first, ())}
        if None in kept or (first in self._among and len(kept) > 1):
            raise MergeConflict(
                f"it overwrites chunk {entry.chunk}, where it has compacted rows that it drops "
                "together with rows that stay",
                act.version,
                entry.version,
            )
        return True not in kept
