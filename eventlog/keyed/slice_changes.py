"""What a transaction may do to the slices of a keyed table: rule F11 of the fold.

FORMAT.md R15.10 and R15.11. No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.keyed.placement import finer, reach, slice_of, span
from eventlog.keyed.repetition import repeats
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.keyed.slices import Run, runs
from eventlog.model.actions import Merge, Replace, Restore, SetOrigin
from eventlog.model.entries import Keyed, Segment
from eventlog.model.records import Meta, Transaction, origins_of


def problem(
    txn: Transaction,
    meta: Meta,
    adds: Sequence[Segment],
    drops: Sequence[Segment],
    live: Callable[[str], Sequence[Segment]],
) -> str | None:
    """Return why a transaction may not change the slices as it would, if it may not (F11).

    Args:
        txn: the transaction, with all its actions.
        meta: the small state.
        adds: the entries that it would add.
        drops: the entries that it would drop.
        live: returns the live segments of a chunk, before the transaction.
    """
    merges = [action for action in txn.actions if isinstance(action, Merge)]
    keyed = keyed_of(meta.layout) if meta.layout else None
    if keyed is None:
        if merges or any(not isinstance(s.slice, UnsetType) for s in adds):
            return "the table has no key, and so no slices"
        return None
    if any(isinstance(action, Replace) for action in txn.actions):  # against replace-of-slices
        return "in a keyed table segments are replaced by `merge`"
    misplaced = next((s for s in adds if not _fits(s, keyed)), None)
    if misplaced is not None:  # against slice-out-of-bounds
        return f"segment {misplaced.id} lies in no slice of the table"
    splits = splits_of(keyed)
    if merges:
        if any(splits_of(merge) > splits for merge in merges):  # against merge-of-buckets-to-come
            return "a merge names buckets that the table does not have yet"
        numbered = [_renumbered(merge, splits) for merge in merges]
        return _merge_problem(txn, numbered, adds, drops, live)
    if any(isinstance(action, Restore) for action in txn.actions):
        return None
    reason = _write_problem(txn, adds, drops, live, splits)
    return reason or _repetition_problem(txn, meta, drops, live, splits)


def still_due(merge: Merge, live: Sequence[Segment], splits: int) -> str | None:
    """Return why a merge with these inputs would be void on the live segments of its chunk."""
    merge = _renumbered(merge, splits)
    return _input_problem(merge, _between(merge, live))


def _between(merge: Merge, live: Sequence[Segment]) -> list[Run]:
    here = runs(live, splits_of(merge))
    return [r for r in here if r.first <= merge.last and merge.first <= r.last]


def _renumbered(merge: Merge, splits: int) -> Merge:
    """Return a merge that may have been planned before a split, with its buckets numbered anew."""
    first, last = finer(merge.first, merge.last, splits - splits_of(merge))
    return msgspec.structs.replace(merge, first=first, last=last, splits=splits or UNSET)


def _write_problem(
    txn: Transaction,
    adds: Sequence[Segment],
    drops: Sequence[Segment],
    live: Callable[[str], Sequence[Segment]],
    splits: int,
) -> str | None:
    """Return why a transaction that merges nothing is void, if it is (R15.10)."""
    fresh = adds[0].version if adds else -1
    seen = txn.read_version
    for segment in adds:
        place = slice_of(segment)
        own = span(segment) in {(fresh, fresh), (seen, seen)}
        # against versions-claimed
        if place.kind != "log" or place.level or not own or place.ordinal != segment.partition:
            return f"segment {segment.id} claims versions that it was not committed in"
    gone = {s.id for s in drops}
    for chunk in sorted({s.chunk for s in drops}):
        here = live(chunk)
        # What has rows of both sides of the read version was merged meanwhile, and must not stay.
        left = [s for s in here if s.id not in gone and span(s)[0] <= txn.read_version]
        counting = {s.id for run in runs(here, splits) for s in run.segments}
        if left and counting & gone:  # against chunk-dropped-in-part
            return f"it would drop a part of chunk {chunk} only: segment {left[0].id} stays"
    for chunk in sorted({s.chunk for s in adds if span(s)[0] < fresh}):
        above = [s for s in live(chunk) if s.id not in gone]
        back = next((s for s in above if span(s)[0] <= seen), None)
        if back is not None:  # against overwritten-below-what-came-back
            return f"segment {back.id} of chunk {chunk} was not live at version {seen}, and is now"
        merged = next((s for s in above if slice_of(s).kind != "log"), None)
        if merged is not None:  # against overwritten-below-a-base
            return (
                f"rows arrived in chunk {chunk} after version {seen}, and a compaction has merged "
                f"them (segment {merged.id}), without the deletes that its rows would need"
            )
    return None


def _repetition_problem(
    txn: Transaction,
    meta: Meta,
    drops: Sequence[Segment],
    live: Callable[[str], Sequence[Segment]],
    splits: int,
) -> str | None:
    """Return why an overwrite is void where it may keep rows that it drops (R15.10, item 6).

    A merge of two logs may have repeated them above what has arrived. One that carries an overwrite
    decides itself what stays.
    """
    tokens = [origin.token for origin in origins_of(meta).values()]
    if not tokens or any(isinstance(action, SetOrigin) for action in txn.actions):
        return None
    merged, gone = max(tokens), {s.id for s in drops}

    def may_repeat(kept: Segment) -> bool:
        compacted = slice_of(kept).level > 0 and span(kept)[0] <= merged
        return repeats(kept.id) or (compacted and merged > txn.read_version)

    for chunk in sorted({s.chunk for s in drops}):
        here = live(chunk)
        found = next((s for s in here if s.id not in gone and may_repeat(s)), None)
        if found is None:
            continue
        counting = {s.id for run in runs(here, splits) for s in run.segments}
        if counting & gone:  # against overwritten-below-its-repetition
            return (
                f"another log was merged after version {txn.read_version}, and segment {found.id} "
                f"of chunk {chunk} may have rows once more that it drops: read the newest version, "
                "and overwrite again"
            )
    return None


def _fits(segment: Segment, keyed: Keyed) -> bool:
    place = segment.slice
    if isinstance(place, UnsetType) or place.low is None or place.high is None:
        return False
    if splits_of(place) > splits_of(keyed):  # against numbered-after-a-split-to-come
        return False
    first, last = reach(segment, splits_of(keyed))
    return first <= last < keyed.buckets and place.low <= place.high <= segment.version


def _merge_problem(
    txn: Transaction,
    merges: Sequence[Merge],
    adds: Sequence[Segment],
    drops: Sequence[Segment],
    live: Callable[[str], Sequence[Segment]],
) -> str | None:
    """Return why merges are void, if they are (R15.11). Hazards K4, K5, K6, K7."""
    unclaimed = {s.id for s in adds}
    for number, merge in enumerate(merges):
        if merge.version > txn.read_version:  # against merge-planned-later-than-read
            return f"it was planned at version {merge.version}, after the version that it read"
        if not merge.low <= merge.high <= merge.version or merge.first > merge.last:
            return "a merge has its buckets or its versions in the wrong order"
        if any(_meet(merge, other) for other in merges[:number]):  # against merges-that-meet
            return "two merges of one transaction meet"
        outputs = [s for s in adds if _is_output(s, merge)]
        unclaimed -= {s.id for s in outputs}
        reason = _one_problem(merge, outputs, live(merge.chunk))
        if reason:
            return reason
    if unclaimed:  # against output-of-no-merge
        return f"segment {min(unclaimed)} belongs to none of its merges"
    for chunk in sorted({s.chunk for s in drops}):
        after = [*live(chunk), *(s for s in adds if s.chunk == chunk)]
        counting = {s.id for run in runs(after, splits_of(merges[0])) for s in run.segments}
        needed = sorted(counting & {s.id for s in drops})
        if needed:  # against shared-log-dropped-early
            return f"segment {needed[0]} still counts in a slice that has not taken it in"
    return None


def _meet(a: Merge, b: Merge) -> bool:
    return a.chunk == b.chunk and a.first <= b.last and b.first <= a.last


def _is_output(segment: Segment, merge: Merge) -> bool:
    if segment.chunk != merge.chunk or span(segment) != (merge.low, merge.high):
        return False
    first, last = reach(segment, splits_of(merge))
    return merge.first <= first and last <= merge.last


def _one_problem(merge: Merge, outputs: Sequence[Segment], live: Sequence[Segment]) -> str | None:
    """Return why one merge is void, if it is."""
    if list(merge.inputs) != sorted(set(merge.inputs)) or not merge.inputs:
        return "a merge must name its inputs in ascending order, each once"
    here = _between(merge, live)
    reason = _input_problem(merge, here)
    if reason:
        return reason
    known = {s.id: s for s in live}
    inputs = [known[i] for i in merge.inputs]
    bottom = all(span(s)[1] >= merge.low for run in here for s in run.segments)
    reason = _output_problem(merge, outputs, 1 + max(slice_of(s).level for s in inputs), bottom)
    return reason or _count_problem(merge, outputs, inputs, here)


def _input_problem(merge: Merge, here: Sequence[Run]) -> str | None:
    """Return why the inputs are not exactly what counts in the run, if they are not."""
    inputs, met = set(merge.inputs), set[str]()
    for segment in (s for run in here for s in run.segments):
        low, high = span(segment)
        if merge.high < low <= merge.version < segment.version:  # against restored-above-a-merge
            return f"segment {segment.id} was restored above it after the merge was planned"
        if merge.high < low and slice_of(segment).kind != "log":  # against merged-below-a-base
            return f"segment {segment.id} lies above it, and a base has nothing below it"
        if high < merge.low or low > merge.high:
            continue
        if segment.id not in inputs:  # against a-run-with-a-gap
            return f"segment {segment.id} lies in the run and is not among its inputs"
        if low < merge.low or high > merge.high:  # against cut-through-a-segment
            return f"segment {segment.id} lies across the end of the run"
        met.add(segment.id)
    if met != inputs:  # against merged-twice
        return f"segment {min(inputs - met)} does not count in these slices any more"
    return None


def _output_problem(
    merge: Merge,
    outputs: Sequence[Segment],
    level: int,
    bottom: bool,
) -> str | None:
    """Return what is wrong with the segments that a merge adds, if something is."""
    if any(slice_of(s).level != level for s in outputs):  # against level-not-raised
        return "a merge must add segments one level above its inputs"
    kinds = {slice_of(s).kind for s in outputs}
    # A log beside a base has the rows of keys whose sums do not fit.
    main = "base" if bottom else "log"
    if "log" in kinds and bottom and "base" not in kinds:
        return "a merge makes a base where nothing lies below it, and at most a log beside it"
    if kinds - {"log"} and not bottom:  # against a-base-above-others
        return "a merge makes a base where nothing lies below it, and a log elsewhere"
    covered = {b for s in outputs if slice_of(s).kind == main for b in _buckets(s, merge)}
    if not covered.issuperset(range(merge.first, merge.last + 1)):  # against bucket-left-out
        return "a merge must add a segment for each of its buckets, even without rows"
    return None


def _count_problem(
    merge: Merge, outputs: Sequence[Segment], inputs: Sequence[Segment], here: Sequence[Run]
) -> str | None:
    """Return why the rows of a merge do not add up, if they do not."""
    after = sum(s.rows for s in outputs if slice_of(s).kind != "late")
    most = sum(s.rows for s in inputs if slice_of(s).kind != "late")
    if merge.rows != after + merge.superseded:  # against merged-rows-not-counted
        return (
            f"{merge.rows} rows would become {after} with {merge.superseded} superseded: the "
            "merge lost or duplicated rows"
        )
    whole = all(
        merge.first <= first
        and last <= merge.last
        and all(s in run.segments for run in here if run.first <= last and first <= run.last)
        for s in inputs
        for first, last in (reach(s, splits_of(merge)),)
    )
    if merge.rows > most or (whole and merge.rows != most):  # against merged-rows-made-up
        return f"the inputs have {most} rows, and the merge counted {merge.rows}"
    return None


def _buckets(segment: Segment, merge: Merge) -> range:
    first, last = reach(segment, splits_of(merge))
    return range(first, last + 1)
