"""How the rows of slices are cut, so that few of them are in memory at once.

Imports eventlog and the other modules of readers.keyed. See `Cuts` for the words and a picture.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.keyed import key_lookup
from eventlog.keyed.log_rows import row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, segments_of
from eventlog.readers.keyed.portions import Portion, sorted_portions
from eventlog.segments.batches import given_up, take_tables

# Rows of bases that are looked through at once, and rows that are merged at once: enough for what a
# step costs by itself, and few enough for the processor's caches.
UNIT_ROWS = 64 * 1024
_PIECE_BYTES = 32 * 2**20
# How many times their stored size rows usually take in Arrow: a first guess, where to cut.
_EXPANDED = 4
_SORTED = 4  # times what is held at once: the memory for sorting more


@dataclass(frozen=True, slots=True)
class BucketUnit:
    """Rows above the bases, of the keys of a few neighbouring buckets.

    Attributes:
        first: the first bucket.
        last: the last one.
        above: the rows of logs, in commit order.
        late: the late rows, likewise.
    """

    first: int
    last: int
    above: pa.Table
    late: pa.Table


@dataclass(frozen=True, slots=True)
class Cuts:
    """How the rows of slices are cut, from the large to the small.

    Rows above the bases (those of logs, and late rows) are held in memory, and the rows of bases
    pass by them::

        buckets   0       1       2       3       4       5       6       7    of a time chunk
        run      |   A   |           B           |   C   |           D          |
        part     |       1       |       2       |   3   |           4          |
        portion  |   a   |  b |c |       a       |   a   |     a     |     b    |
        unit     | . . . | . .|. | . . . | . . . | . . . | . . | . . | . . . . .|
        piece      rows of a base, in tables of some MiB, unit after unit

    - In the buckets of a *run* the same segments count (`eventlog.keyed.slices`).
    - A *part* has buckets whose logs and late rows are few enough bytes as they are stored. It has
      whole buckets, at least one; shared segments are read once for each part.
    - A *portion* has all rows above of its keys, and these fit into memory: all of a part or, where
      they take more in Arrow than was guessed, some of its buckets or keys of one bucket.
    - A *unit* has a few buckets of a portion: keys are looked up among those of few buckets, since
      that is several times faster in a small set than in a large one.
    - A *piece* is what is read of a base at once.

    Attributes:
        rule: the merge rule.
        most_bytes: bytes of Arrow data of rows above the bases that are held at once.
    """

    rule: MergeRule
    most_bytes: int

    @property
    def piece_bytes(self) -> int:
        """Bytes of Arrow data up to which batches of rows are joined."""
        return min(_PIECE_BYTES, self.most_bytes)

    def parts(self, group: Sequence[Run]) -> list[list[Run]]:
        """Return the parts of runs that share segments (`grouped`), or of any runs of a chunk."""
        return in_parts(group, self.most_bytes // _EXPANDED)

    def portions(
        self,
        logs: Iterator[pa.Table],
        late: Callable[[pa.Table | None], Iterator[pa.Table]],
        runs: Sequence[Run],
        schema: pa.Schema,
    ) -> Iterator[Portion]:
        """Yield the rows above the bases of a part in portions.

        Args:
            logs: the rows of logs, in commit order.
            late: returns the late rows that have some keys, or all, in commit order.
            runs: the part.
            schema: the schema of both.

        Raises:
            OSError: the disk is full.
        """
        first, more = take_tables(logs, self.most_bytes)
        if more:
            every = chain(given_up(first), logs)
            yield from sorted_portions(late(None), every, runs, self.rule, self._sorting_bytes)
            return
        above = in_one_table(first, schema)
        # Late rows count only where there are rows above.
        rows = late(key_lookup.distinct(above, self.rule.key)) if above.num_rows else iter(())
        first, more = take_tables(rows, self.most_bytes - above.nbytes)
        if more:
            rows = chain(given_up(first), rows)
            yield from sorted_portions(rows, [above], runs, self.rule, self._sorting_bytes)
        else:
            yield Portion(runs, above, in_one_table(first, schema), whole=True)

    @property
    def _sorting_bytes(self) -> int:
        return _SORTED * self.most_bytes

    def units(self, portion: Portion, *, divided: bool) -> list[BucketUnit]:
        """Return the units of a portion, in the order of their buckets.

        Args:
            portion: the portion.
            divided: whether there may be several. Bases that a filter was applied to are not read
                by segments, so their rows cannot be assigned to units.
        """
        ranges = _unit_ranges(portion.runs) if divided else [(0, self.rule.buckets - 1)]
        above, late = (self._split(rows, ranges) for rows in (portion.above, portion.late))
        return [BucketUnit(*of, *rows) for of, *rows in zip(ranges, above, late, strict=True)]

    def _split(self, rows: pa.Table, ranges: Sequence[tuple[int, int]]) -> list[pa.Table]:
        """Return the rows of each range of buckets, in their order."""
        if len(ranges) == 1 or not rows.num_rows:
            return [rows] * len(ranges)
        buckets = row_buckets(rows, self.rule)
        order = pc.sort_indices(buckets)  # stable
        rows, buckets = rows.take(order), buckets.take(order)
        encoded = pc.run_end_encode(buckets)
        numbers, ends = encoded.values.to_pylist(), encoded.run_ends.to_pylist()
        split = []
        for first, last in ranges:
            low, high = bisect_left(numbers, first), bisect_right(numbers, last)
            start = ends[low - 1] if low else 0
            split.append(rows.slice(start, (ends[high - 1] if high else 0) - start))
        return split


def unit_of(base: Placed, units: Sequence[BucketUnit]) -> int:
    """Return the number of the unit that a base is in."""
    return bisect_right(units, base.first, key=lambda unit: unit.first) - 1


def _unit_ranges(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """Return the ranges of buckets of units. Buckets of one base stay together."""
    sizes: dict[tuple[int, int], int] = {}
    for base in segments_of(runs, "base"):
        reach = base.first, base.last
        sizes[reach] = sizes.get(reach, 0) + base.segment.rows
    for run in runs:
        for bucket in range(run.first, run.last + 1):
            sizes.setdefault((bucket, bucket), 0)
    ranges: list[tuple[int, int]] = []
    size = 0
    for (first, last), rows in sorted(sizes.items()):
        if ranges and (first <= ranges[-1][1] or size + rows <= UNIT_ROWS):
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            size += rows
        else:
            ranges.append((first, last))
            size = rows
    return ranges


def in_parts(runs: Sequence[Run], most_bytes: float) -> list[list[Run]]:
    """Return runs of one chunk in parts whose logs and late rows take at most so many bytes.

    A part has at least one bucket, whatever its size. Sizes are those of stored objects, of which
    each bucket has an equal share.
    """
    above = ([one for one in run.placed if one.kind != "base"] for run in runs)
    sizes = [sum([one.bytes_in(1) for one in placed]) for placed in above]
    spans = [(run.first, run.last, size) for run, size in zip(runs, sizes, strict=True)]
    return [
        [runs[number].cut(first, last) for number, first, last in part]
        for part in filled(spans, most_bytes)
    ]


def filled(
    spans: Iterable[tuple[int, int, float]], most_bytes: float
) -> Iterator[list[tuple[int, int, int]]]:
    """Yield ranges of buckets in parts of at most so many bytes, or of one bucket.

    Args:
        spans: the ranges, in their order: the first bucket, the last one, and the bytes of each.
        most_bytes: the bytes.

    Returns:
        Of each part the ranges in it: the number of the given range, the first and the last bucket.
    """
    part: list[tuple[int, int, int]] = []
    size = 0.0
    for number, (start, end, each) in enumerate(spans):
        first = start
        while first <= end:
            if part and size + each > most_bytes:
                yield part
                part, size = [], 0.0
            room = max(1, int((most_bytes - size) // each)) if each else end - first + 1
            last = min(end, first + room - 1)
            part.append((number, first, last))
            size += each * (last - first + 1)
            first = last + 1
    if part:
        yield part


def in_one_table(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return rows in one piece; the list is emptied, so that they are not held twice."""
    rows = pa.concat_tables(tables or [schema.empty_table()]).combine_chunks()
    tables.clear()
    return rows
