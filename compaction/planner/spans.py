"""The live segments as compaction sees them: sums by time chunk, spans, and marks of overlap.

Pure. Imports eventlog only. Entries stay in columns; Python runs once a chunk, not once a segment.
The steps are those of the compaction notes for Druid: parse the timeline into spans, cut it into
chunks of the target granularity, mark the chunks that overlap their neighbours.

A segment belongs to the chunk of the target granularity that holds it. One that is coarser belongs
to its own chunk, and every chunk below that one overlaps its neighbours through it. Chunks of two
granularities are either nested or disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.compaction.policy import Policy
from eventlog.model.chunks import DAY_MS, HOUR_MS, TimeChunk, chunk_of
from eventlog.model.records import Granularity

# Columns that `classified` adds: one of the first two is true, or none.
SMALL, LARGE, SPLITS = "small", "large", "splits"


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over segments.

    Attributes:
        segments, rows, bytes: of all of them.
        newest: the greatest version that added one; -1 of none.
        largest: size of the largest.
        small: how many are below the size that counts as good.
        large: how many are above the target and have rows enough to be divided.
        splits: by how many the large ones would grow if each were divided alone.
        odd_rows, odd_bytes: of the small and the large ones together.
        top: size of the largest small one.
    """

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    newest: int = -1
    largest: int = 0
    small: int = 0
    large: int = 0
    splits: int = 0
    odd_rows: int = 0
    odd_bytes: int = 0
    top: int = 0

    def plus(self, other: Sums) -> Sums:
        """Return the sums over these and other segments."""
        pairs = zip(_SUMS, astuple(self), astuple(other), strict=True)
        return Sums(*(max(a, b) if name in _GREATEST else a + b for name, a, b in pairs))

    def odd(self) -> Sums:
        """Return the sums over the small and the large ones alone."""
        return Sums(
            segments=self.small + self.large,
            rows=self.odd_rows,
            bytes=self.odd_bytes,
            newest=self.newest,
            largest=self.largest,
            small=self.small,
            large=self.large,
            splits=self.splits,
            odd_rows=self.odd_rows,
            odd_bytes=self.odd_bytes,
            top=self.top,
        )


_SUMS = [field.name for field in fields(Sums)]
_GREATEST = ("newest", "largest", "top")
_NONE = Sums()


@dataclass(frozen=True, slots=True)
class TargetChunk:
    """A time chunk that is judged as one, with the segments that belong to it.

    Attributes:
        chunk: at the target granularity, or coarser where its segments are.
        exact: over the segments of this very chunk.
        finer: over those of chunks within it.
        earlier: a coarser segment covers it together with the chunk before it.
        later: a coarser segment covers it together with the chunk after it.
        coarser: it is coarser than the target granularity.
    """

    chunk: TimeChunk
    exact: Sums
    finer: Sums
    earlier: bool
    later: bool
    coarser: bool

    @property
    def sums(self) -> Sums:
        """Over all segments that belong to it."""
        return self.exact if not self.finer.segments else self.exact.plus(self.finer)

    @property
    def foreign(self) -> int:
        """How many segments have another granularity than the target."""
        return self.exact.segments if self.coarser else self.finer.segments


@dataclass(frozen=True, slots=True)
class Span:
    """A run of adjacent or overlapping time chunks that hold segments: `[start, end)` in ms UTC."""

    start: int
    end: int
    chunks: int


def classified(entries: pa.Table, policy: Policy) -> pa.Table:
    """Return the entries with the columns `small`, `large` (booleans) and `splits` (a number)."""
    size, rows = entries.column("bytes"), entries.column("rows")
    target = policy.target_bytes
    # ceil(size / target), but never more segments than rows.
    parts = pc.divide(pc.add(size, target - 1), target)
    parts = pc.min_element_wise(parts, rows)
    large = pc.and_(pc.greater(size, target), pc.greater(rows, 1))
    splits = pc.if_else(large, pc.subtract(parts, 1), 0)
    small = pc.less(size, policy.good_bytes)
    return (
        entries.append_column(SMALL, small)
        .append_column(LARGE, large)
        .append_column(SPLITS, splits.cast(pa.int64()))
    )


def sums_by_chunk(entries: pa.Table) -> list[tuple[TimeChunk, Sums]]:
    """Return the sums over each stored time chunk of `classified` entries, in time order."""
    odd = pc.or_(entries.column(SMALL), entries.column(LARGE))
    columns = {
        "start": entries.column("chunk_start"),
        "end": entries.column("chunk_end"),
        "version": entries.column("version"),
        "rows": entries.column("rows"),
        "bytes": entries.column("bytes"),
        SMALL: entries.column(SMALL).cast(pa.int64()),
        LARGE: entries.column(LARGE).cast(pa.int64()),
        SPLITS: entries.column(SPLITS),
        "odd_rows": pc.if_else(odd, entries.column("rows"), 0),
        "odd_bytes": pc.if_else(odd, entries.column("bytes"), 0),
        "top": pc.if_else(entries.column(SMALL), entries.column("bytes"), 0),
    }
    wanted = [("rows", "count"), ("rows", "sum"), ("bytes", "sum"), ("version", "max")]
    summed = (SMALL, LARGE, SPLITS, "odd_rows", "odd_bytes")
    wanted += [("bytes", "max"), *((name, "sum") for name in summed), ("top", "max")]
    grouped = (
        pa.table(columns)
        .group_by(["start", "end"])
        .aggregate(wanted)
        .sort_by([("start", "ascending"), ("end", "ascending")])
    )
    names = ["start", "end", *("_".join(pair) for pair in wanted)]
    found = [grouped.column(name).to_pylist() for name in names]
    return [(TimeChunk(start, end), Sums(*sums)) for start, end, *sums in zip(*found, strict=True)]


def home(chunk: TimeChunk, granularity: Granularity) -> TimeChunk:
    """Return the chunk that a stored chunk's segments belong to: its own if that is coarser."""
    return max(chunk, chunk_of(chunk.start, granularity), key=lambda c: c.end - c.start)


def target_chunks(
    stored: Iterable[tuple[TimeChunk, Sums]], granularity: Granularity
) -> list[TargetChunk]:
    """Return the chunks to judge, each with the segments that belong to it.

    Order: by start; among those of one start the coarser first.
    """
    exact: dict[TimeChunk, Sums] = {}
    finer: dict[TimeChunk, Sums] = {}
    for chunk, sums in stored:
        belongs = home(chunk, granularity)
        place = exact if chunk == belongs else finer
        place[belongs] = place[belongs].plus(sums) if belongs in place else sums
    found, covers = [], list[TimeChunk]()  # those that cover the present one, the coarsest first
    for chunk in sorted(exact.keys() | finer.keys(), key=lambda c: (c.start, -c.end)):
        while covers and covers[-1].end <= chunk.start:
            covers.pop()
        found.append(
            TargetChunk(
                chunk=chunk,
                exact=exact.get(chunk, _NONE),
                finer=finer.get(chunk, _NONE),
                earlier=bool(covers) and covers[0].start < chunk.start,
                later=bool(covers) and covers[0].end > chunk.end,
                coarser=chunk_of(chunk.start, granularity).end < chunk.end,
            )
        )
        covers.append(chunk)
    return found


def spans(chunks: Iterable[TimeChunk]) -> list[Span]:
    """Return the runs of adjacent or overlapping chunks, which come ordered by start."""
    found: list[Span] = []
    for chunk in chunks:
        if found and chunk.start <= found[-1].end:
            last = found.pop()
            found.append(Span(last.start, max(last.end, chunk.end), last.chunks + 1))
        else:
            found.append(Span(chunk.start, chunk.end, 1))
    return found


def groups(chunks: Sequence[TargetChunk]) -> Iterator[list[TargetChunk]]:
    """Yield runs of chunks that are bound together by a coarser segment; most are alone."""
    group: list[TargetChunk] = []
    for chunk in chunks:
        if group and chunk.chunk.start >= group[0].chunk.end:
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


def empty_between(runs: Sequence[Span], granularity: Granularity) -> int:
    """Return how many chunks of the granularity lie in the gaps between spans, without one inside.

    The spans begin and end where chunks of that granularity do.
    """
    return sum(
        _ordinal(b.start, granularity) - _ordinal(a.end, granularity) for a, b in pairwise(runs)
    )


def _ordinal(time_ms: int, granularity: Granularity) -> int:
    """Return the number of the chunk that begins at `time_ms`, counted from some fixed one."""
    if granularity in ("hour", "day"):
        return time_ms // (HOUR_MS if granularity == "hour" else DAY_MS)
    # The chunk before it: a year 10000 is no date.
    before = datetime.fromtimestamp(time_ms // 1000 - 1, tz=UTC)
    return {"month": before.year * 12 + before.month, "year": before.year, "all": 0}[granularity]


def sizes_by_chunk(
    entries: pa.Table, bounds: Sequence[int], granularity: Granularity
) -> dict[TimeChunk, list[int]]:
    """Return a histogram of segment sizes for each chunk that segments belong to.

    Args:
        entries: live entries.
        bounds: ascending sizes in bytes: a segment is counted at the first that is above its size.
        granularity: the target granularity.

    Returns:
        Numbers of segments, one for each bound and one for what is not below the last.
    """
    size = entries.column("bytes")
    place = pa.chunked_array([pa.repeat(0, len(chunk)) for chunk in size.chunks], pa.int64())
    for bound in bounds:
        place = pc.add(place, pc.greater_equal(size, bound).cast(pa.int64()))
    counted = pa.table(
        {
            "start": entries.column("chunk_start"),
            "end": entries.column("chunk_end"),
            "place": place,
        }
    )
    grouped = counted.group_by(["start", "end", "place"]).aggregate([([], "count_all")])
    found: dict[TimeChunk, list[int]] = {}
    names = ("start", "end", "place", "count_all")
    for start, end, at, count in zip(*(grouped.column(n).to_pylist() for n in names), strict=True):
        belongs = home(TimeChunk(start, end), granularity)
        found.setdefault(belongs, [0] * (len(bounds) + 1))[at] += count
    return found
