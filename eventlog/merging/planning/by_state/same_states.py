"""Whether two logs show the same rows in time chunks, by the same objects. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eventlog.keyed import slices
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.merging.planning.by_state.sides import Side
from eventlog.model.entries import Segment


def shows_the_same(source: Side, target: Side, chunks: Collection[str]) -> bool:
    """Return whether both logs have the same objects live in chunks, and so the same rows."""
    there, here = ([s for s in x.live.values() if s.chunk in chunks] for x in (source, target))
    layout = target.meta.layout
    if layout is not None and keyed_of(layout) is not None:
        return same_slices(source, target, there, here)
    ours, theirs = (sorted((s.chunk, s.checksum) for s in x) for x in (here, there))
    return ours == theirs


def same_slices(
    source: Side, target: Side, there: Sequence[Segment], here: Sequence[Segment]
) -> bool:
    """Return whether the same rows count in the same slices, in the same order.

    A segment that got another place has another id, and the same object.

    Args:
        source: the log to merge from.
        target: the log to merge into.
        there: segments of the source.
        here: segments of the target.
    """
    splits = max(
        splits_of(keyed)
        for layout in (source.meta.layout, target.meta.layout)
        if layout is not None and (keyed := keyed_of(layout)) is not None
    )
    ours, theirs = ([_counted(run) for run in slices.runs(x, splits)] for x in (here, there))
    return ours == theirs


def _counted(run: slices.Run) -> tuple[str, int, int, list[str]]:
    """Return the place of a run of slices, and the checksums of the objects that count there."""
    objects = [s.checksum for s in run.segments]  # against another-place-taken-for-other-rows
    return run.chunk, run.first, run.last, objects
