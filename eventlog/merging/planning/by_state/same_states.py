"""Whether two logs show the same rows in time chunks. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence

from eventlog.keyed import slices
from eventlog.keyed.repetition import Firsts
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.merging.planning.by_state.sides import Side
from eventlog.merging.planning.forms import is_part
from eventlog.model.entries import Segment


class SameStates:
    """Tells in which chunks two logs show the same rows.

    Args:
        source: one log.
        target: the other log.
    """

    def __init__(self, source: Side, target: Side) -> None:
        self._firsts, self._forms = firsts_of(source, target), _forms_of_units(source, target)
        self._live = [by_chunk(side.live.values()) for side in (source, target)]
        self._splits = _splits(source, target)

    def are_in(self, chunks: Collection[str]) -> bool:
        """Return whether both logs have the same segments live in chunks, and so the same rows.

        In a keyed table also whether these count in the same slices, in the same order. Segments
        that repeat others count as these, and of several in a slice the last one counts. So do the
        segments of a unit of work that both did. Equal objects of two writers are not the same
        segment.
        """
        both = [[s for chunk in chunks for s in live.get(chunk, ())] for live in self._live]
        forms, splits = self._forms, self._splits
        if splits is None:
            theirs, ours = (Counter(forms.get(s.id, s.id) for s in segments) for segments in both)
            return theirs == ours
        their_runs, our_runs = (
            [self._counted(run) for run in slices.runs(x, splits)] for x in both
        )
        return their_runs == our_runs

    def _counted(self, run: slices.Run) -> tuple[str, int, int, list[Hashable]]:
        # against equal-rows-of-two-writers-taken-for-the-same
        ids = [self._firsts.of(s.id) for s in run.segments]
        last = {name: n for n, name in enumerate(ids)}
        names = [self._forms.get(name, name) for n, name in enumerate(ids) if last[name] == n]
        return run.chunk, run.first, run.last, names


def by_chunk(segments: Iterable[Segment]) -> dict[str, list[Segment]]:
    """Return segments by their chunks."""
    grouped: dict[str, list[Segment]] = {}
    for segment in segments:
        grouped.setdefault(segment.chunk, []).append(segment)
    return grouped


def firsts_of(source: Side, target: Side) -> Firsts:
    """Return what finds the first segment that one of the two logs' segments repeats."""
    firsts = Firsts()
    for side in (source, target):
        for name in side.live:
            firsts.note(name)
        for act in side.acts:
            for name in (*(s.id for s in act.adds), *(d.id for d in act.drops)):
                firsts.note(name)
    return firsts


def _forms_of_units(source: Side, target: Side) -> dict[str, Hashable]:
    """Return for the segments of units of work what they have in common in the two logs."""
    acts = [act for side in (source, target) for act in side.acts]
    # What was forgotten may have been done again with other rows.
    again = {app for act in acts for app in act.forgets}
    forms: dict[str, Hashable] = {}
    for act in acts:
        # against doings-of-one-unit-taken-for-other-rows
        if act.unit is None or act.unit[0] in again or act.is_state:
            continue
        # Each writer cuts its rows by a bound of its own, and may have dropped a part since.
        whole = [segment for segment in act.unit_segments if not is_part(segment.id)]
        parts = Counter(segment.chunk for segment in whole)
        numbers: Counter[str] = Counter()
        for segment in whole:
            # against parts-of-a-unit-taken-for-the-whole
            place = segment.chunk, numbers[segment.chunk], parts[segment.chunk], segment.live_rows
            forms[segment.id] = (*act.unit, *place)
            numbers[segment.chunk] += 1
    return forms


def same_slices(
    source: Side, target: Side, there: Sequence[Segment], here: Sequence[Segment]
) -> bool:
    """Return whether the same objects count in the same slices, in the same order.

    A segment that got another place has another id, and the same object.

    Args:
        source: the log to merge from.
        target: the log to merge into.
        there: segments of the source.
        here: segments of the target.
    """
    splits = _splits(source, target) or 0
    ours, theirs = ([_counted(run) for run in slices.runs(x, splits)] for x in (here, there))
    return ours == theirs


def _splits(source: Side, target: Side) -> int | None:
    """Return how often the buckets of a keyed table were doubled; None if it is not keyed."""
    layouts = (source.meta.layout, target.meta.layout)
    keyed = (keyed_of(layout) for layout in layouts if layout is not None)
    return max((splits_of(one) for one in keyed if one is not None), default=None)


def _counted(run: slices.Run) -> tuple[str, int, int, list[str]]:
    """Return the place of a run of slices, and the checksums of the objects that count there."""
    objects = [s.checksum for s in run.segments]  # against another-place-taken-for-other-rows
    return run.chunk, run.first, run.last, objects
