"""Scan planning: which segments a question needs, and how many rows metadata alone can tell.

Pure layer. Works on entry tables as a whole; `Segment` values are made only when asked for. A time
range costs in proportion to the range: only key frame leaves that overlap it are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.arguments import name_list, shown
from eventlog.errors import InvalidInput
from eventlog.format import segments
from eventlog.format.places import first_key
from eventlog.model.chunks import MAX_MS, MIN_MS, TimeChunk, parse_chunk
from eventlog.model.records import Column, Leaf, Schema, Segment
from eventlog.model.schema import check_time_column, names, to_arrow
from eventlog.query import predicate
from eventlog.query.predicate import Predicate, Where
from eventlog.state import verification
from eventlog.state.questions import Entries
from eventlog.state.version import VersionState

Chunks = Iterable[str | TimeChunk] | str | TimeChunk
# The order in which a scan reads segments: by time, then as they were committed.
SCAN_ORDER = [
    ("chunk_start", "ascending"),
    ("chunk_end", "ascending"),
    ("version", "ascending"),
    ("partition", "ascending"),
]

# What an entry says of its rows without statistics.
_WHERE = {"chunk_start", "chunk_end", "rows"}


@dataclass(frozen=True, slots=True)
class Pruning:
    """Where the segments of a snapshot went; the last four add up to the first.

    Attributes:
        considered: live segments of the snapshot.
        by_chunk: left out because their chunk lies outside the time asked for.
        by_leaf: left out with their whole key frame leaf, by its statistics.
        by_statistics: left out by their own statistics.
        read: left to read.
    """

    considered: int
    by_chunk: int
    by_leaf: int
    by_statistics: int
    read: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to read in order to answer one question about one version.

    Attributes:
        version: the version that the plan is of.
        schema: the Arrow schema of the answer: the columns asked for, in the order asked for.
        table_schema: the Arrow schema of the table at that version, which the filter refers to.
        entries: the segments to read, in columns (`eventlog.format.segments`), in no promised
            order.
        predicate: the row filter, or None.
        pruning: where the other segments went.
        covered: whether every row of the segments is known to pass the filter.
    """

    version: int
    schema: pa.Schema
    table_schema: pa.Schema
    entries: pa.Table
    predicate: Predicate | None
    pruning: Pruning
    covered: bool

    @property
    def filter(self) -> pc.Expression | None:
        """The filter that rows still have to pass, over `table_schema`; None where all do."""
        return None if self.predicate is None or self.covered else self.predicate.to_arrow()

    def segments(self) -> list[Segment]:
        """Return the segments to read in (chunk, id) order."""
        return segments.to_segments(self.entries.sort_by(segments.ORDER))

    def in_scan_order(self) -> list[Segment]:
        """Return the segments to read in (chunk, version, partition) order."""
        return segments.to_segments(self.entries.sort_by(SCAN_ORDER))

    def count(self) -> int | None:
        """Return the exact number of rows of the answer, or None if only the rows can tell."""
        if self.filter is not None and self.entries.num_rows:
            return None
        return pc.sum(self.entries.column("rows"), min_count=0).as_py()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Scan:
    """The question what to read; its answer is a plan. Made by `question`.

    Attributes:
        schema: of the answer.
        table_schema: of the table.
        predicate: the row filter, or None.
        spans: disjoint intervals of ms, in time order, to which it is restricted; None: to none.
        start: where the hull of what is asked for begins; None: no bound.
        end: where it ends.
        time_column: the table's.
        checked: only the entries are compared with their hashes that are left out by what they say.
    """

    schema: pa.Schema
    table_schema: pa.Schema
    predicate: Predicate | None
    spans: Sequence[tuple[int, int]] | None
    start: int | None
    end: int | None
    time_column: Column
    checked: bool = False

    def needs(self, state: VersionState) -> Sequence[Leaf]:
        """Return the leaves that may hold segments to read."""
        return [
            leaf
            for leaf in self._in_time(state)
            if self.predicate is None or self.predicate.leaf_may_match(leaf, self.time_column.name)
        ]

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> ScanPlan:
        """Return the plan.

        Raises:
            Corrupt: an entry that is to be left out is not what it seems.
        """
        entries = Entries(self.start, self.end, checked=False).answer(state, leaves)
        chosen = _choose(entries, self.spans, self.predicate, self.time_column)
        verification.check_hashes(chosen.judged, state.base)
        total, in_time = state.header.totals.segments, chosen.in_time
        refused = (leaf for leaf in self._in_time(state) if leaf.sha256 not in leaves)
        # A leaf may still count segments that were dropped since its key frame.
        by_leaf = min(sum(leaf.segments for leaf in refused), total - in_time)
        return ScanPlan(
            version=state.version,
            schema=self.schema,
            table_schema=self.table_schema,
            entries=chosen.entries,
            predicate=self.predicate,
            pruning=Pruning(
                considered=total,
                by_chunk=total - in_time - by_leaf,
                by_leaf=by_leaf,
                by_statistics=in_time - chosen.entries.num_rows,
                read=chosen.entries.num_rows,
            ),
            covered=chosen.covered,
        )

    def _in_time(self, state: VersionState) -> Sequence[Leaf]:
        """Return the leaves that may hold segments of the time asked for."""
        spans = self.spans
        keep = None if spans is None else lambda leaf: _leaf_overlaps(leaf, spans)
        return state.leaves(self.start, self.end, keep)


def question(
    state: VersionState,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    chunks: Chunks | None = None,
) -> Scan:
    """Return the question what a scan has to read.

    Args:
        state: the version to read.
        columns: names of the columns wanted, in this order; all if None; may be empty.
        where: SQL text or a pyarrow expression that rows have to pass.
        chunks: chunks, or their names, to restrict to: segments that overlap them.

    Raises:
        InvalidInput: a column is unknown or named twice, the predicate or a chunk's name is wrong.
        Corrupt: the table has no schema or no layout.
    """
    stored = state.stored_schema
    table_schema = to_arrow(stored)
    schema = project(table_schema, columns, stored)
    asked = None if where is None else predicate.parse(where, stored)
    time_column = check_time_column(stored, state.layout.time_column)
    spans = None if chunks is None else _spans(chunks)
    start, end = _interval(asked, time_column.name, spans)
    return Scan(schema, table_schema, asked, spans, start, end, time_column)


def project(table_schema: pa.Schema, columns: Sequence[str] | None, stored: Schema) -> pa.Schema:
    """Return the fields of the columns, in the order given; all if None.

    Raises:
        InvalidInput: a column is unknown or named twice.
    """
    if columns is None:
        return table_schema
    columns = name_list(columns, "columns")
    unknown = [name for name in columns if name not in table_schema.names]
    if unknown:
        raise InvalidInput(
            f"unknown columns: {', '.join(map(repr, unknown))}; columns: {names(stored)}"
        )
    if len(set(columns)) != len(columns):
        raise InvalidInput("a column is named twice")
    return pa.schema([table_schema.field(name) for name in columns])


class _Choice(NamedTuple):
    """The entries to read, and those whose word was taken for that.

    An entry that is read in vain costs a request; one that is left out wrongly hides rows.
    """

    entries: pa.Table
    judged: pa.Table
    in_time: int
    covered: bool


def _choose(
    found: pa.Table,
    spans: Sequence[tuple[int, int]] | None,
    asked: Predicate | None,
    time: Column,
) -> _Choice:
    inside, left = (found, []) if spans is None else _split(found, _overlap(found, spans))
    if asked is None:
        return _Choice(inside, segments.concat(left), inside.num_rows, covered=True)
    entries, pruned = _split(inside, asked.prune(inside, time.name))
    # The chunk is checked when the segment is read, for it stands in the key.
    known = {*_WHERE, f"nulls_{time.id}"}
    bare = entries.select([name for name in entries.column_names if name in known])
    covered = asked.covers(bare, time.name)
    left += pruned
    if not covered and asked.covers(entries, time.name):
        covered, left = True, [*left, entries]
    return _Choice(entries, segments.concat(left), inside.num_rows, covered)


def _split(entries: pa.Table, mask: pa.BooleanArray) -> tuple[pa.Table, list[pa.Table]]:
    kept = entries.filter(mask)
    if kept.num_rows == entries.num_rows:
        return entries, []
    return kept, [entries.filter(pc.invert(mask))]


def _interval(
    asked: Predicate | None, time_column: str, spans: Sequence[tuple[int, int]] | None
) -> tuple[int | None, int | None]:
    """Return the hull of what is asked for; None where it has no bound."""
    low, high = (MIN_MS, MAX_MS) if asked is None else asked.interval(time_column)
    if spans is not None:
        low = max(low, spans[0][0] if spans else MAX_MS)
        high = min(high, spans[-1][1] if spans else MIN_MS)
    return (low if low > MIN_MS else None), (high if high < MAX_MS else None)


def _spans(chunks: Chunks) -> list[tuple[int, int]]:
    """Return the chunks as disjoint intervals in time order.

    Raises:
        InvalidInput: a name is not of a chunk.
    """
    several = [chunks] if isinstance(chunks, str | TimeChunk) else chunks
    if not isinstance(several, Iterable):
        raise InvalidInput(f"chunks are names such as 2013-01-07, not {shown(chunks)}")
    several = list(several)
    if not all(isinstance(chunk, str | TimeChunk) for chunk in several):
        raise InvalidInput(f"chunks are names such as 2013-01-07, not {shown(chunks)}")
    parsed = [parse_chunk(chunk) if isinstance(chunk, str) else chunk for chunk in several]
    merged: list[tuple[int, int]] = []
    for chunk in sorted(parsed):
        if merged and chunk.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], chunk.end))
        else:
            merged.append((chunk.start, chunk.end))
    return merged


def _leaf_overlaps(leaf: Leaf, spans: Sequence[tuple[int, int]]) -> bool:
    first = first_key(leaf).start
    return any(first < end and start < leaf.end for start, end in spans)


def _overlap(entries: pa.Table, spans: Sequence[tuple[int, int]]) -> pa.BooleanArray:
    starts, ends = entries.column("chunk_start"), entries.column("chunk_end")
    found = pa.repeat(pa.scalar(False), entries.num_rows)
    for start, end in spans:
        found = pc.or_(found, pc.and_(pc.less(starts, end), pc.greater(ends, start)))
    return found
