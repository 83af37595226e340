"""How the slices of a keyed table are shared out among tasks; each task merges its own.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
from msgspec import Struct

from eventlog import Segment
from eventlog.keyed.placement import place
from eventlog.keyed.slice_pruning import is_plain
from eventlog.keyed.slices import Run


class _Share(Struct, frozen=True, array_like=True):
    """The runs of one task; a segment that counts in many of them is written once.

    Attributes:
        segments: the segments of all runs.
        runs: chunk, first and last bucket, which of the segments, and after how many splits.
    """

    segments: list[Segment]
    runs: list[tuple[str, int, int, list[int], int]]


_shares = msgspec.json.Decoder(_Share)  # created once; safe to share between threads


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Return runs as JSON."""
    segments = {s.id: s for run in runs for s in run.segments}
    places = {segment_id: place for place, segment_id in enumerate(segments)}
    return msgspec.json.encode(
        _Share(
            list(segments.values()),
            [
                (r.chunk, r.first, r.last, [places[s.id] for s in r.segments], r.splits)
                for r in runs
            ],
        )
    )


def decode_runs(share: bytes) -> list[Run]:
    """Return the runs that `encode_runs` encoded."""
    decoded = _shares.decode(share)
    return [
        Run(chunk, first, last, tuple(place(decoded.segments[n], splits) for n in numbers), splits)
        for chunk, first, last, numbers, splits in decoded.runs
    ]


def plain_of(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the segments that are read without a merge, by id, each as a separate run."""
    return {
        base.segment.id: Run(run.chunk, base.first, base.last, (base,), run.splits)
        for run in runs
        if is_plain(run)
        for base in run.base
    }


def merging_shares(runs: Sequence[Run], target_bytes: int, open_bytes: int) -> list[list[Run]]:
    """Return the runs that must be merged in shares of about equal weight.

    Neighbours stay together, because a log segment with rows of many buckets is read by every task
    that has one of them.

    Args:
        runs: the runs of a plan; plain ones are left out.
        target_bytes: stored bytes of a share. A run of more is cut by buckets.
        open_bytes: the cost of opening a segment, in bytes.
    """
    parts = [
        part
        for run in runs
        if not is_plain(run)
        for part in _cut(run, -(-_weight(run, open_bytes) // target_bytes))
    ]
    weights = [_weight(part, open_bytes) for part in parts]
    total = sum(weights)
    count = min(len(parts), -(-total // target_bytes))
    shares: list[list[Run]] = []
    before = 0
    for part, weight in zip(parts, weights, strict=True):
        if not shares or before * count >= total * len(shares):
            shares.append([])
        shares[-1].append(part)
        before += weight
    return shares


def _weight(run: Run, open_bytes: int) -> int:
    """Return what a run costs to read: of each segment the part that lies in its buckets."""
    return sum(
        (one.segment.bytes + open_bytes) * run.width // (one.last - one.first + 1)
        for one in run.placed
    )


def _cut(run: Run, count: int) -> Iterator[Run]:
    """Yield the run in up to `count` parts of neighbouring buckets."""
    count = min(max(1, count), run.width)
    edges = [run.first + run.width * number // count for number in range(count + 1)]
    for first, after in pairwise(edges):
        yield replace(run, first=first, last=after - 1)
