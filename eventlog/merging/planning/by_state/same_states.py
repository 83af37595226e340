"""Whether two logs show the same rows in time chunks. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eventlog.keyed import slices
from eventlog.keyed.repetition import Firsts
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.merging.planning.by_state.sides import Side
from eventlog.model.entries import Segment


def shows_the_same(source: Side, target: Side, chunks: Collection[str]) -> bool:
    """Return whether both logs have the same segments live in chunks, and so the same rows.

    In a keyed table also whether these count in the same slices, in the same order. Segments that
    repeat others count as these. Equal objects of two writers are not the same segment.
    """
    firsts = Firsts()
    for act in (act for side in (source, target) for act in side.acts):
        for name in (*(s.id for s in act.adds), *(d.id for d in act.drops)):
            firsts.note(name)
    both = [[s for s in side.live.values() if s.chunk in chunks] for side in (source, target)]
    if (splits := _splits(source, target)) is None:
        theirs, ours = ({s.id for s in segments} for segments in both)
        return theirs == ours

    def counted(run: slices.Run) -> tuple[str, int, int, list[str]]:
        # against equal-rows-of-two-writers-taken-for-the-same
        names = [firsts.of(s.id) for s in run.segments]
        return run.chunk, run.first, run.last, names

    there, here = ([counted(run) for run in slices.runs(x, splits)] for x in both)
    return there == here


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
