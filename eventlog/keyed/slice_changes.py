"""The changes of slices that a transaction may make in a keyed table: rule F11 of the fold.

FORMAT.md R15.10 and R15.11. No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.keyed.placement import Placed, finer, place, reach
from eventlog.keyed.repetition import repeats
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.keyed.slices import Run, runs_of
from eventlog.model.actions import Merge, Replace, Restore, SetOrigin
from eventlog.model.entries import Keyed, Segment
from eventlog.model.records import Meta, Transaction, origins_of


def slices_problem(
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
    change = _Change(txn, [place(s, splits) for s in adds], drops, _Live(live, splits))
    if merges:
        if any(splits_of(merge) > splits for merge in merges):  # against merge-of-buckets-to-come
            return "a merge names buckets that the table does not have yet"
        return _merge_problem(change, [_renumbered(merge, splits) for merge in merges])
    if any(isinstance(action, Restore) for action in txn.actions):
        return None
    return _write_problem(change) or _repetition_problem(change, meta)


def inputs_problem(merge: Merge, live: Sequence[Segment], splits: int) -> str | None:
    """Return why a merge with these inputs would be void on the live segments of its chunk."""
    merge = _renumbered(merge, splits)
    placed = [place(segment, splits) for segment in live]
    return _input_problem(merge, _between(merge, runs_of(placed, splits)))


class _Live:
    """The live segments of chunks before a transaction, with their places.

    Args:
        read: returns the live segments of a chunk.
        splits: how many times the table's buckets were split.
    """

    def __init__(self, read: Callable[[str], Sequence[Segment]], splits: int) -> None:
        self._read, self.splits = read, splits
        self._chunks: dict[str, list[Placed]] = {}

    def of(self, chunk: str) -> list[Placed]:
        """Return those of a chunk."""
        if chunk not in self._chunks:
            self._chunks[chunk] = [place(segment, self.splits) for segment in self._read(chunk)]
        return self._chunks[chunk]

    def counting(self, chunk: str, adds: Sequence[Placed] = ()) -> set[str]:
        """Return the ids of those that count in a slice of a chunk, also after some adds."""
        after = [*self.of(chunk), *(one for one in adds if one.segment.chunk == chunk)]
        return {one.segment.id for run in runs_of(after, self.splits) for one in run.placed}


@dataclass(frozen=True, slots=True)
class _Change:
    """A transaction, with the places of the segments that it adds."""

    txn: Transaction
    adds: Sequence[Placed]
    drops: Sequence[Segment]
    live: _Live

    def gone(self) -> set[str]:
        """Return the ids of the segments that it drops."""
        return {segment.id for segment in self.drops}

    def chunks(self) -> list[str]:
        """Return the chunks in which it drops segments."""
        return sorted({segment.chunk for segment in self.drops})


def _between(merge: Merge, runs: Sequence[Run]) -> list[Run]:
    """Return the runs that have a bucket of a merge."""
    return [run for run in runs if run.first <= merge.last and merge.first <= run.last]


def _renumbered(merge: Merge, splits: int) -> Merge:
    """Return a merge, which may be older than a split, with the newest numbers of its buckets."""
    first, last = finer(merge.first, merge.last, splits - splits_of(merge))
    return msgspec.structs.replace(merge, first=first, last=last, splits=splits or UNSET)


def _write_problem(change: _Change) -> str | None:
    """Return why a transaction that merges nothing is void, if it is (R15.10)."""
    adds, gone, seen = change.adds, change.gone(), change.txn.read_version
    fresh = adds[0].segment.version if adds else -1
    for one in adds:
        own = one.span in {(fresh, fresh), (seen, seen)}
        ordinal = one.segment.partition
        # against versions-claimed
        if one.kind != "log" or one.level or not own or one.ordinal != ordinal:
            return f"segment {one.segment.id} claims versions that it was not committed in"
    for chunk in change.chunks():
        # A segment with rows of both sides of the read version was merged meanwhile, and must not
        # stay.
        before = change.live.of(chunk)
        left = [one for one in before if one.segment.id not in gone and one.low <= seen]
        if left and change.live.counting(chunk) & gone:  # against chunk-dropped-in-part
            return f"it would drop a part of chunk {chunk} only: segment {left[0].segment.id} stays"
    for chunk in sorted({one.segment.chunk for one in adds if one.low < fresh}):
        above = [one for one in change.live.of(chunk) if one.segment.id not in gone]
        back = next((one.segment for one in above if one.low <= seen), None)
        if back is not None:  # against overwritten-below-what-came-back
            return f"segment {back.id} of chunk {chunk} was not live at version {seen}, and is now"
        merged = next((one.segment for one in above if one.kind != "log"), None)
        if merged is not None:  # against overwritten-below-a-base
            return (
                f"rows arrived in chunk {chunk} after version {seen}, and a compaction has merged "
                f"them (segment {merged.id}), without the deletes that its rows would need"
            )
    return None


def _repetition_problem(change: _Change, meta: Meta) -> str | None:
    """Return why an overwrite is void where it may keep rows that it drops (R15.10, F11.f).

    A merge of two logs may have repeated these rows above others. A transaction that merges two
    logs and overwrites decides itself which segments stay.
    """
    txn, gone = change.txn, change.gone()
    tokens = [origin.token for origin in origins_of(meta).values()]
    if not tokens or any(isinstance(action, SetOrigin) for action in txn.actions):
        return None
    merged = max(tokens)

    def may_repeat(kept: Placed) -> bool:
        compacted = kept.level > 0 and kept.low <= merged
        return repeats(kept.segment.id) or (compacted and merged > txn.read_version)

    for chunk in change.chunks():
        staying = (one for one in change.live.of(chunk) if one.segment.id not in gone)
        kept = next((one.segment for one in staying if may_repeat(one)), None)
        if kept is None:
            continue
        if change.live.counting(chunk) & gone:  # against overwritten-below-its-repetition
            return (
                f"another log was merged after version {txn.read_version}, and segment {kept.id} "
                f"of chunk {chunk} may have rows once more that it drops: read the newest version, "
                "and overwrite again"
            )
    return None


def _fits(segment: Segment, keyed: Keyed) -> bool:
    """Return whether a segment lies in slices of the table (R15.3)."""
    entry = segment.slice
    if isinstance(entry, UnsetType) or entry.low is None or entry.high is None:
        return False
    if splits_of(entry) > splits_of(keyed):  # against numbered-after-a-split-to-come
        return False
    first, last = reach(segment, splits_of(keyed))
    return first <= last < keyed.buckets and entry.low <= entry.high <= segment.version


def _merge_problem(change: _Change, merges: Sequence[Merge]) -> str | None:
    """Return why merges are void, if they are (R15.11). Hazards K4, K5, K6, K7."""
    unclaimed = {one.segment.id for one in change.adds}
    for number, merge in enumerate(merges):
        if merge.version > change.txn.read_version:  # against merge-planned-later-than-read
            return f"it was planned at version {merge.version}, after the version that it read"
        if not merge.low <= merge.high <= merge.version or merge.first > merge.last:
            return "a merge has its buckets or its versions in the wrong order"
        if any(_meet(merge, other) for other in merges[:number]):  # against merges-that-meet
            return "two merges of one transaction meet"
        outputs = [one for one in change.adds if _is_output(one, merge)]
        unclaimed -= {one.segment.id for one in outputs}
        reason = _one_problem(merge, outputs, change.live)
        if reason:
            return reason
    if unclaimed:  # against output-of-no-merge
        return f"segment {min(unclaimed)} belongs to none of its merges"
    gone = change.gone()
    for chunk in change.chunks():
        needed = sorted(change.live.counting(chunk, change.adds) & gone)
        if needed:  # against shared-log-dropped-early
            return f"segment {needed[0]} still counts in a slice that has not taken it in"
    return None


def _meet(a: Merge, b: Merge) -> bool:
    return a.chunk == b.chunk and a.first <= b.last and b.first <= a.last


def _is_output(one: Placed, merge: Merge) -> bool:
    if one.segment.chunk != merge.chunk or one.span != (merge.low, merge.high):
        return False
    return merge.first <= one.first and one.last <= merge.last


def _one_problem(merge: Merge, outputs: Sequence[Placed], live: _Live) -> str | None:
    """Return why one merge is void, if it is."""
    if list(merge.inputs) != sorted(set(merge.inputs)) or not merge.inputs:
        return "a merge must name its inputs in ascending order, each once"
    between = _between(merge, runs_of(live.of(merge.chunk), live.splits))
    reason = _input_problem(merge, between)
    if reason:
        return reason
    known = {one.segment.id: one for one in live.of(merge.chunk)}
    inputs = [known[i] for i in merge.inputs]
    bottom = all(one.high >= merge.low for run in between for one in run.placed)
    reason = _output_problem(merge, outputs, 1 + max(one.level for one in inputs), bottom)
    return reason or _count_problem(merge, outputs, inputs, between)


def _input_problem(merge: Merge, between: Sequence[Run]) -> str | None:
    """Return why the inputs are not exactly the segments that count in the run, if they are not."""
    inputs, met = set(merge.inputs), set[str]()
    for segment, kind, _, _, low, high, *_ in (one for run in between for one in run.placed):
        if merge.high < low <= merge.version < segment.version:  # against restored-above-a-merge
            return f"segment {segment.id} was restored above it after the merge was planned"
        if merge.high < low and kind != "log":  # against merged-below-a-base
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
    outputs: Sequence[Placed],
    level: int,
    bottom: bool,
) -> str | None:
    """Return what is wrong with the segments that a merge adds, if something is."""
    if any(one.level != level for one in outputs):  # against level-not-raised
        return "a merge must add segments one level above its inputs"
    kinds = {one.kind for one in outputs}
    # A log beside a base has the rows of keys whose sums do not fit.
    main = "base" if bottom else "log"
    if "log" in kinds and bottom and "base" not in kinds:
        return "a merge makes a base where nothing lies below it, and at most a log beside it"
    if kinds - {"log"} and not bottom:  # against a-base-above-others
        return "a merge makes a base where nothing lies below it, and a log elsewhere"
    covered = {b for one in outputs if one.kind == main for b in range(one.first, one.last + 1)}
    if not covered.issuperset(range(merge.first, merge.last + 1)):  # against bucket-left-out
        return "a merge must add a segment for each of its buckets, even without rows"
    return None


def _count_problem(
    merge: Merge, outputs: Sequence[Placed], inputs: Sequence[Placed], between: Sequence[Run]
) -> str | None:
    """Return why the rows of a merge do not add up, if they do not."""
    after = sum(one.segment.rows for one in outputs if one.kind != "late")
    most = sum(one.segment.rows for one in inputs if one.kind != "late")
    if merge.rows != after + merge.superseded:  # against merged-rows-not-counted
        return (
            f"{merge.rows} rows would become {after} with {merge.superseded} superseded: the "
            "merge lost or duplicated rows"
        )
    whole = all(
        merge.first <= one.first
        and one.last <= merge.last
        and all(
            one in run.placed for run in between if run.first <= one.last and one.first <= run.last
        )
        for one in inputs
    )
    if merge.rows > most or (whole and merge.rows != most):  # against merged-rows-made-up
        return f"the inputs have {most} rows, and the merge counted {merge.rows}"
    return None
