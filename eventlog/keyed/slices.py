"""Slices of a keyed table: which segments count in which buckets.

A slice is one bucket of one time chunk. Its segments have disjoint spans of versions, in which they
are applied, the base first. A merged segment takes the place of those whose span it contains; a log
segment that many buckets share stays live until it counts in none of them (FORMAT.md "Slices").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from eventlog.errors import Corrupt
from eventlog.keyed.placement import Placed, in_order, place
from eventlog.keyed.rule import MergeRule
from eventlog.model.entries import Segment, SliceKind


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring buckets of a chunk in which the same segments count.

    Attributes:
        chunk: the time chunk.
        first: the first bucket.
        last: the last bucket.
        placed: the segments that count, in the order in which they are applied.
        splits: after how many splits of the table's buckets they are numbered so.
    """

    chunk: str
    first: int
    last: int
    placed: tuple[Placed, ...]
    splits: int = 0

    @property
    def width(self) -> int:
        """The number of buckets."""
        return self.last - self.first + 1

    def cut(self, first: int, last: int) -> Run:
        """Return the part of it that lies in these buckets."""
        return replace(self, first=max(self.first, first), last=min(self.last, last))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that count, without their places."""
        return tuple([p.segment for p in self.placed])

    @property
    def base(self) -> tuple[Placed, ...]:
        """The rows that all others are applied to, one a key."""
        return tuple([p for p in self.placed if p.kind == "base"])

    @property
    def late(self) -> tuple[Placed, ...]:
        """The rows that the base hides and later rows may need."""
        return tuple([p for p in self.placed if p.kind == "late"])

    @property
    def logs(self) -> tuple[Placed, ...]:
        """The rows above the base."""
        return tuple([p for p in self.placed if p.kind == "log"])


def readable_runs(segments: Iterable[Segment], rule: MergeRule) -> list[Run]:
    """Return `runs` of segments whose rows are to be read (FORMAT.md R15.3, R15.4).

    Args:
        segments: live segments, all those of their chunks.
        rule: the table's merge rule.

    Raises:
        Corrupt: a segment lies in no bucket of the table, or a base or a late segment counts above
            other versions, which it would have taken in.
    """
    placed = [place(segment, rule.splits) for segment in segments]
    for one in placed:
        if one.last >= rule.buckets:
            raise Corrupt(f"segment {one.segment.id} lies in bucket {one.last} of {rule.buckets}")
    made = runs_of(placed, rule.splits)
    for run in made:
        lowest = run.placed[0]
        for one in run.placed:
            if one.kind != "log" and one.span != lowest.span:
                raise Corrupt(
                    f"segment {one.segment.id} has kind {one.kind}, and lies above segment "
                    f"{lowest.segment.id} in bucket {run.first} of chunk {run.chunk}"
                )
    return made


def runs(segments: Iterable[Segment], splits: int = 0) -> list[Run]:
    """Return which segments count in which buckets, in the order of chunks and buckets.

    Args:
        segments: live segments, all those of their chunks.
        splits: how many times the table's buckets were split.

    Raises:
        Corrupt: a segment has no place in these buckets.
    """
    return runs_of([place(segment, splits) for segment in segments], splits)


def runs_of(placed: Iterable[Placed], splits: int) -> list[Run]:
    """Return the same of segments with their places."""
    by_chunk: dict[str, list[Placed]] = {}
    for one in placed:
        by_chunk.setdefault(one.segment.chunk, []).append(one)
    return [run for chunk in sorted(by_chunk) for run in _runs(chunk, by_chunk[chunk], splits)]


def _runs(chunk: str, placed: Sequence[Placed], splits: int) -> list[Run]:
    edges = sorted({edge for one in placed for edge in (one.first, one.last + 1)})
    numbers = {edge: number for number, edge in enumerate(edges)}
    between: list[list[Placed]] = [[] for _ in edges]  # the segments from each edge to the next one
    for one in in_order(placed):
        for number in range(numbers[one.first], numbers[one.last + 1]):
            between[number].append(one)
    joined: list[Run] = []
    for number, (first, after) in enumerate(pairwise(edges)):
        counting = effective(between[number])
        if not counting:
            continue
        before = joined[-1] if joined else None
        if before is not None and before.last == first - 1 and before.placed == counting:
            joined[-1] = Run(chunk, before.first, after - 1, counting, splits)
        else:
            joined.append(Run(chunk, first, after - 1, counting, splits))
    return joined


def effective(placed: Sequence[Placed]) -> tuple[Placed, ...]:
    """Return the segments that count in a slice, of the live ones that lie in it (R15.4).

    A segment does not if one of a higher level has its span: a merge has taken it in.
    """
    merged = {(one.low, one.high, one.level) for one in placed if one.level}
    return tuple([one for one in placed if not _is_taken_in(one, merged)])


def _is_taken_in(one: Placed, merged: Iterable[tuple[int, int, int]]) -> bool:
    for low, high, level in merged:
        if low <= one.low and one.high <= high and level > one.level:
            return True
    return False


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


def segments_of(of_runs: Iterable[Run], *kinds: SliceKind) -> list[Placed]:
    """Return the segments of some kinds in runs, each once, in the order in which they apply."""
    chosen = {p.segment.id: p for run in of_runs for p in run.placed if p.kind in kinds}
    return in_order(chosen.values())


def buckets_in(one: Placed, of_runs: Iterable[Run]) -> set[int]:
    """Return the buckets of runs in which a segment counts."""
    buckets: set[int] = set()
    for run in of_runs:
        if one.segment.id in [other.segment.id for other in run.placed]:
            buckets.update(range(max(run.first, one.first), min(run.last, one.last) + 1))
    return buckets


def ineffective(live: Iterable[Segment], splits: int = 0) -> list[Segment]:
    """Return the segments that count in no bucket, of all live segments of their chunks."""
    live = list(live)
    counting = {s.id for run in runs(live, splits) for s in run.segments}
    return [s for s in live if s.id not in counting]
