"""Runs of slices that must be read together, because they share segments. No I/O.

Imports eventlog only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from eventlog.keyed.log_rows import row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, buckets_in


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs in groups that share no segment, in their order."""
    groups: list[list[Run]] = []
    group_of: dict[str, int] = {}
    for run in runs:
        shared = sorted({group_of[s.id] for s in run.segments if s.id in group_of})
        at = shared[0] if shared else len(groups)
        if not shared:
            groups.append([])
        for other in shared[1:]:
            groups[at] += groups[other]
            groups[other] = []
        groups[at].append(run)
        for member in groups[at]:
            group_of.update((s.id, at) for s in member.segments)
    return [group for group in groups if group]


def alike(
    segments: Sequence[Placed], runs: Sequence[Run], *, mixed: bool = False
) -> Iterator[tuple[frozenset[int] | None, list[Placed]]]:
    """Yield the segments in groups that are read together, with the buckets whose rows count.

    Many segments that are read together are read ahead.

    Args:
        segments: segments of the runs; their order is kept.
        runs: runs of one part.
        mixed: whether rows of segments that count everywhere may be looked at by bucket, too,
            because there are others.

    Returns:
        The buckets; None: all rows count.
    """
    if not segments:
        return
    chosen = _counting(segments, runs)
    everywhere = frozenset(b for run in runs for b in range(run.first, run.last + 1))
    # The buckets of one segment alone say nothing of the rows of others.
    if mixed and {*chosen} == {None, everywhere}:
        chosen = [everywhere] * len(segments)
    for where, group in groupby(zip(chosen, segments, strict=True), key=lambda pair: pair[0]):
        yield where, [segment for _, segment in group]


def of_keys(runs: Sequence[Run], keys: pa.Table, rule: MergeRule) -> list[Run]:
    """Return the runs that have a bucket of one of these keys."""
    places = sorted(set(row_buckets(keys, rule).to_pylist()))
    return [r for r in runs if bisect_left(places, r.first) < bisect_right(places, r.last)]


def _counting(segments: Sequence[Placed], runs: Sequence[Run]) -> list[frozenset[int] | None]:
    """Return for each segment the buckets of the runs in which it counts; None: all of its own.

    For one that counts wherever the runs meet its buckets, they are those of all runs.
    """
    every = sorted(b for run in runs for b in range(run.first, run.last + 1))
    together = frozenset(every)
    counts: dict[str, int] = {}
    for run in runs:
        for one in run.placed:
            meets = max(0, min(run.last, one.last) - max(run.first, one.first) + 1)
            counts[one.segment.id] = counts.get(one.segment.id, 0) + meets
    found: list[frozenset[int] | None] = []
    for one in segments:
        own = counts.get(one.segment.id, 0)
        if own == one.last - one.first + 1:
            found.append(None)
        elif own == bisect_right(every, one.last) - bisect_left(every, one.first):
            found.append(together)
        else:
            found.append(frozenset(buckets_in(one, runs)))
    return found


def parts(runs: Sequence[Run], most_bytes: int) -> list[list[Run]]:
    """Return runs of one group in parts whose logs and late rows take at most so many bytes.

    A part has at least one bucket, whatever its size. Sizes are those of stored objects, of which
    each bucket has an equal share.
    """
    found: list[list[Run]] = [[]]
    held = 0.0
    for run in runs:
        each = _each_bucket(run)
        first = run.first
        while first <= run.last:
            if found[-1] and held + each > most_bytes:
                found.append([])
                held = 0.0
            room = max(1, int((most_bytes - held) // each)) if each else run.last - first + 1
            last = min(run.last, first + room - 1)
            found[-1].append(replace(run, first=first, last=last))
            held += each * (last - first + 1)
            first = last + 1
    return found


def _each_bucket(run: Run) -> float:
    return sum([one.bytes_in(1) for one in run.placed if one.kind != "base"])
