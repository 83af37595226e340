"""The live segments for compaction: sums by time chunk, spans, and marks of overlap.

No I/O. Imports eventlog only. Entries stay in columns: Python loops over chunks, not segments. The
steps follow the compaction notes for Druid: parse the timeline into spans, cut it into chunks of
the target granularity, mark the chunks that overlap their neighbours.

A segment belongs to the chunk of the target granularity that contains it. A coarser segment belongs
to its own chunk, and every chunk below that one overlaps its neighbours through it. Chunks of two
granularities are either nested or disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.compaction.policy import Policy
from eventlog.format.frames.entry_columns import with_live_rows
from eventlog.model.chunks import DAY_MS, HOUR_MS, TimeChunk, chunk_of, home
from eventlog.model.entries import Granularity

# Columns that `classified` adds: at most one of the first three is true.
SMALL, LARGE, SPARSE, SPLITS = "small", "large", "sparse", "splits"
LIVE, DELETED, DELETED_BYTES = "live_rows", "deleted", "deleted_bytes"


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over segments.

    Attributes:
        segments, rows, bytes: totals of all segments; of their rows those that are not deleted.
        newest: the greatest version that added a segment; -1 without segments.
        largest: size of the largest segment.
        small: number of segments below the good size.
        large: number of segments above the target that have enough rows to be divided.
        sparse: number of segments of which so many rows are deleted that they are rewritten.
        splits: number of segments that dividing all large ones would add.
        deleted: number of deleted rows.
        deleted_bytes: about how many of the bytes are those of deleted rows.
        odd_rows, odd_bytes, odd_deleted_bytes: totals of the small, large and sparse segments.
        top: size of the largest small segment.
    """

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    newest: int = -1
    largest: int = 0
    small: int = 0
    large: int = 0
    sparse: int = 0
    splits: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    odd_rows: int = 0
    odd_bytes: int = 0
    odd_deleted_bytes: int = 0
    top: int = 0

    def plus(self, other: Sums) -> Sums:
        """Return the sums over these and other segments."""
        pairs = zip(_SUMS, astuple(self), astuple(other), strict=True)
        return Sums(*(max(a, b) if name in _GREATEST else a + b for name, a, b in pairs))

    def odd(self) -> Sums:
        """Return the sums over the small, the large and the sparse segments only."""
        return replace(
            self,
            segments=self.small + self.large + self.sparse,
            rows=self.odd_rows,
            bytes=self.odd_bytes,
            deleted_bytes=self.odd_deleted_bytes,
        )


_SUMS = [field.name for field in fields(Sums)]
_GREATEST = ("newest", "largest", "top")
_NONE = Sums()


@dataclass(frozen=True, slots=True)
class TargetChunk:
    """A time chunk that gets one verdict, with the sums of its segments.

    Attributes:
        chunk: the chunk, at the target granularity, or coarser if its segments are.
        exact: sums over the segments of exactly this chunk.
        finer: sums over the segments of chunks within it.
        earlier: whether a coarser segment covers it together with the chunk before it.
        later: whether a coarser segment covers it together with the chunk after it.
        coarser: whether it is coarser than the target granularity.
    """

    chunk: TimeChunk
    exact: Sums
    finer: Sums
    earlier: bool
    later: bool
    coarser: bool

    @property
    def sums(self) -> Sums:
        """The sums over all segments that belong to it."""
        return self.exact if not self.finer.segments else self.exact.plus(self.finer)

    @property
    def foreign(self) -> int:
        """The number of segments of another granularity than the target."""
        return self.exact.segments if self.coarser else self.finer.segments


@dataclass(frozen=True, slots=True)
class Span:
    """A run of adjacent or overlapping time chunks with segments: `[start, end)` in ms UTC."""

    start: int
    end: int
    chunks: int


def classified(entries: pa.Table, policy: Policy) -> pa.Table:
    """Return the entries with more columns: `SMALL`, `LARGE`, `SPARSE` (booleans), and numbers.

    A segment is small or large by the bytes that are stored, sparse by its deleted rows.
    """
    size, stored = entries.column("bytes"), entries.column("rows")
    rows = with_live_rows(entries).column("rows")
    deleted = pc.subtract(stored, rows)
    share = pc.divide(deleted.cast(pa.float64()), pc.max_element_wise(stored, 1))
    deleted_bytes = pc.floor(pc.multiply(share, size)).cast(pa.int64(), safe=False)
    sparse = pc.greater(share, policy.deleted_ratio)  # against deleted-rows-never-due
    target = policy.target_bytes
    # ceil(size / target), but never more segments than rows.
    parts = pc.divide(pc.add(size, target - 1), target)
    parts = pc.min_element_wise(parts, rows)
    large = pc.and_(pc.greater(size, target), pc.greater(rows, 1))
    large = pc.and_(large, pc.invert(sparse))
    splits = pc.if_else(large, pc.subtract(parts, 1), 0)
    small = pc.and_(pc.less(size, policy.good_bytes), pc.invert(sparse))
    return (
        entries.append_column(SMALL, small)
        .append_column(LARGE, large)
        .append_column(SPARSE, sparse)
        .append_column(LIVE, rows)
        .append_column(DELETED, deleted)
        .append_column(DELETED_BYTES, deleted_bytes)
        .append_column(SPLITS, splits.cast(pa.int64()))
    )


def is_odd(entries: pa.Table) -> pa.ChunkedArray:
    """Return which `classified` entries are small, large or sparse."""
    odd = pc.or_(entries.column(SMALL), entries.column(LARGE))
    return pc.or_(odd, entries.column(SPARSE))


def sums_by_chunk(entries: pa.Table) -> list[tuple[TimeChunk, Sums]]:
    """Return the sums over each stored time chunk of `classified` entries, in time order."""
    odd = is_odd(entries)
    columns = {
        "start": entries.column("chunk_start"),
        "end": entries.column("chunk_end"),
        "version": entries.column("version"),
        "rows": entries.column(LIVE),
        "bytes": entries.column("bytes"),
        **{name: entries.column(name).cast(pa.int64()) for name in (SMALL, LARGE, SPARSE)},
        **{name: entries.column(name) for name in (SPLITS, DELETED, DELETED_BYTES)},
        "odd_rows": pc.if_else(odd, entries.column(LIVE), 0),
        "odd_bytes": pc.if_else(odd, entries.column("bytes"), 0),
        "odd_deleted_bytes": pc.if_else(odd, entries.column(DELETED_BYTES), 0),
        "top": pc.if_else(entries.column(SMALL), entries.column("bytes"), 0),
    }
    wanted = [("rows", "count"), ("rows", "sum"), ("bytes", "sum"), ("version", "max")]
    counted = (SMALL, LARGE, SPARSE, SPLITS, DELETED, DELETED_BYTES)
    summed = (*counted, "odd_rows", "odd_bytes", "odd_deleted_bytes")
    wanted += [("bytes", "max"), *((name, "sum") for name in summed), ("top", "max")]
    grouped = (
        pa.table(columns)
        .group_by(["start", "end"])
        .aggregate(wanted)
        .sort_by([("start", "ascending"), ("end", "ascending")])
    )
    names = ["start", "end", *("_".join(pair) for pair in wanted)]
    columns_of = [grouped.column(name).to_pylist() for name in names]
    return [
        (TimeChunk(start, end), Sums(*sums)) for start, end, *sums in zip(*columns_of, strict=True)
    ]


def target_chunks(
    stored: Iterable[tuple[TimeChunk, Sums]], granularity: Granularity
) -> list[TargetChunk]:
    """Return the chunks to judge, each with the segments that belong to it.

    They are ordered by start; with the same start the coarser comes first.
    """
    exact: dict[TimeChunk, Sums] = {}
    finer: dict[TimeChunk, Sums] = {}
    for chunk, sums in stored:
        belongs = home(chunk, granularity)
        place = exact if chunk == belongs else finer
        place[belongs] = place[belongs].plus(sums) if belongs in place else sums
    targets, covers = [], list[TimeChunk]()  # chunks that cover the current one, the coarsest first
    for chunk in sorted(exact.keys() | finer.keys(), key=lambda c: (c.start, -c.end)):
        while covers and covers[-1].end <= chunk.start:
            covers.pop()
        targets.append(
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
    return targets


def spans(chunks: Iterable[TimeChunk]) -> list[Span]:
    """Return the runs of adjacent or overlapping chunks, which must be ordered by start."""
    runs: list[Span] = []
    for chunk in chunks:
        if runs and chunk.start <= runs[-1].end:
            last = runs.pop()
            runs.append(Span(last.start, max(last.end, chunk.end), last.chunks + 1))
        else:
            runs.append(Span(chunk.start, chunk.end, 1))
    return runs


def groups(chunks: Sequence[TargetChunk]) -> Iterator[list[TargetChunk]]:
    """Yield the groups of chunks that a coarser segment binds together; most have one chunk."""
    group: list[TargetChunk] = []
    for chunk in chunks:
        if group and chunk.chunk.start >= group[0].chunk.end:
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


def empty_between(runs: Sequence[Span], granularity: Granularity) -> int:
    """Return the number of chunks of the granularity in the gaps between spans.

    The spans must start and end at boundaries of that granularity.
    """
    return sum(
        _ordinal(b.start, granularity) - _ordinal(a.end, granularity) for a, b in pairwise(runs)
    )


def _ordinal(time_ms: int, granularity: Granularity) -> int:
    """Return the number of the chunk that starts at `time_ms`, counted from a fixed one."""
    if granularity in ("hour", "day"):
        return time_ms // (HOUR_MS if granularity == "hour" else DAY_MS)
    # The chunk before it, because Python has no date in the year 10000.
    before = datetime.fromtimestamp(time_ms // 1000 - 1, tz=UTC)
    return {"month": before.year * 12 + before.month, "year": before.year, "all": 0}[granularity]


def sizes_by_chunk(
    entries: pa.Table, bounds: Sequence[int], granularity: Granularity
) -> dict[TimeChunk, list[int]]:
    """Return a histogram of segment sizes for each chunk that segments belong to.

    Args:
        entries: live entries.
        bounds: ascending sizes in bytes; a segment is counted at the first bound above its size.
        granularity: the target granularity.

    Returns:
        Numbers of segments, one for each bound and one for those not below the last.
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
    histograms: dict[TimeChunk, list[int]] = {}
    names = ("start", "end", "place", "count_all")
    for start, end, at, count in zip(*(grouped.column(n).to_pylist() for n in names), strict=True):
        belongs = home(TimeChunk(start, end), granularity)
        histograms.setdefault(belongs, [0] * (len(bounds) + 1))[at] += count
    return histograms
