"""Slices of a keyed table: which segments count in which buckets.

A slice is one bucket of one time chunk. Its segments have disjoint spans of versions, in which they
are applied, the base first. A merged segment takes the place of those whose span it contains; a log
segment that many buckets share stays live until it counts in none of them (FORMAT.md "Slices").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eventlog.errors import Corrupt
from eventlog.keyed.placement import applied, reach, slice_of, span
from eventlog.keyed.rule import MergeRule
from eventlog.model.entries import Segment


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring buckets of a chunk in which the same segments count.

    Attributes:
        chunk: the time chunk.
        first: the first bucket.
        last: the last bucket.
        segments: the segments that count, in the order in which they are applied.
        splits: after how many splits of the table's buckets they are numbered so.
    """

    chunk: str
    first: int
    last: int
    segments: tuple[Segment, ...]
    splits: int = 0

    @property
    def base(self) -> tuple[Segment, ...]:
        """The rows that all others are applied to, one a key."""
        return tuple(s for s in self.segments if slice_of(s).kind == "base")

    @property
    def late(self) -> tuple[Segment, ...]:
        """What the base does not show and later rows may depend on."""
        return tuple(s for s in self.segments if slice_of(s).kind == "late")

    @property
    def logs(self) -> tuple[Segment, ...]:
        """The rows above the base."""
        return tuple(s for s in self.segments if slice_of(s).kind == "log")


def check_places(entries: Iterable[Segment], rule: MergeRule) -> None:
    """Check that segments lie in buckets that the table has (FORMAT.md R15.3).

    Raises:
        Corrupt: one does not.
    """
    for entry in entries:
        last = reach(entry, rule.splits)[1]
        if last >= rule.buckets:
            raise Corrupt(f"segment {entry.id} lies in bucket {last} of {rule.buckets}")


def readable(segments: Iterable[Segment], rule: MergeRule) -> list[Run]:
    """Return `runs` of segments whose rows are to be read (FORMAT.md R15.3, R15.4).

    Args:
        segments: live segments, all those of their chunks.
        rule: the table's merge rule.

    Raises:
        Corrupt: a segment lies in no bucket of the table, or a base or a late segment counts above
            other versions, which it would have taken in.
    """
    segments = list(segments)
    check_places(segments, rule)
    found = runs(segments, rule.splits)
    for run in found:
        lowest = span(run.segments[0])
        for segment in (*run.base, *run.late):
            if span(segment) != lowest:
                raise Corrupt(
                    f"segment {segment.id} has kind {slice_of(segment).kind}, and lies above "
                    f"segment {run.segments[0].id} in bucket {run.first} of chunk {run.chunk}"
                )
    return found


def in_each(segment: Segment, run: Run) -> float:
    """Return the bytes of a segment in each of its buckets, if all have as many.

    Args:
        segment: the segment.
        run: gives the number of buckets.
    """
    first, last = reach(segment, run.splits)
    return segment.bytes / (last - first + 1)


def runs(segments: Iterable[Segment], splits: int = 0) -> list[Run]:
    """Return which segments count in which buckets, in the order of chunks and buckets.

    Args:
        segments: live segments, all those of their chunks.
        splits: how many times the table's buckets were split.

    Raises:
        Corrupt: a segment has no place in these buckets.
    """
    by_chunk: dict[str, list[Segment]] = {}
    for segment in segments:
        by_chunk.setdefault(segment.chunk, []).append(segment)
    return [run for chunk in sorted(by_chunk) for run in _runs(chunk, by_chunk[chunk], splits)]


def _runs(chunk: str, segments: Sequence[Segment], splits: int) -> list[Run]:
    places = [(reach(s, splits), s) for s in segments]
    edges = sorted({edge for (low, high), _ in places for edge in (low, high + 1)})
    found: list[Run] = []
    for first, after in pairwise(edges):
        here = [s for (low, high), s in places if low <= first and after <= high + 1]
        counting = tuple(sorted(_counting(here), key=applied))
        if not counting:
            continue
        last = found[-1] if found else None
        if last is not None and last.last == first - 1 and last.segments == counting:
            found[-1] = Run(chunk, last.first, after - 1, counting, splits)
        else:
            found.append(Run(chunk, first, after - 1, counting, splits))
    return found


def _counting(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments of one slice that no merged one has taken in (R15.4)."""
    merged = [(*span(s), slice_of(s).level) for s in segments if slice_of(s).level > 0]
    merged = list(dict.fromkeys(merged))

    def taken_in(segment: Segment) -> bool:
        (low, high), level = span(segment), slice_of(segment).level
        return any(lo <= low and high <= hi and above > level for lo, hi, above in merged)

    return [s for s in segments if not taken_in(s)]


def taken_in(live: Iterable[Segment], splits: int = 0) -> list[Segment]:
    """Return the segments that count in no bucket, of all live segments of their chunks."""
    live = list(live)
    counting = {s.id for run in runs(live, splits) for s in run.segments}
    return [s for s in live if s.id not in counting]
