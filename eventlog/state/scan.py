"""Scan planning: which segments a scan must read, and how many rows metadata alone can count.

Plans are computed on entry tables, in columns; `Segment` values are made only on request. The cost
of a time range is proportional to the range: only key frame leaves that overlap it are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.arguments import name_list, shown
from eventlog.errors import InvalidInput
from eventlog.format.entry_order import first_key
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slice_pruning import is_plain, prune_runs
from eventlog.keyed.slices import Run, readable_runs
from eventlog.model.chunks import MAX_MS, MIN_MS, TimeChunk, parse_chunk
from eventlog.model.entries import Column, Schema, Segment
from eventlog.model.records import Leaf, Pack, Piece, packs_of
from eventlog.model.schema import list_names, stored_time_column, to_arrow
from eventlog.query import predicate
from eventlog.query.engine_filters import EngineFilter
from eventlog.query.predicate import Predicate, Where
from eventlog.state import verification
from eventlog.state.questions import Entries
from eventlog.state.version import VersionState

Chunks = Iterable[str | TimeChunk] | str | TimeChunk
# The order in which a scan reads segments: by time, then in commit order.
SCAN_ORDER = [
    ("chunk_start", "ascending"),
    ("chunk_end", "ascending"),
    ("version", "ascending"),
    ("partition", "ascending"),
]

# The columns of an entry table that describe rows without statistics.
_WITHOUT_STATS = {"chunk_start", "chunk_end", "rows"}


@dataclass(frozen=True, slots=True)
class Pruning:
    """How many segments of a snapshot were pruned, and how; the last four add up to the first.

    Attributes:
        considered: live segments of the snapshot.
        by_chunk: pruned because their chunk is outside the requested time.
        by_leaf: pruned together with their key frame leaf, by the leaf's statistics.
        by_statistics: pruned by their own statistics.
        read: segments to read.
    """

    considered: int
    by_chunk: int
    by_leaf: int
    by_statistics: int
    read: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What one scan of one version must read.

    Attributes:
        version: the version to read.
        schema: the Arrow schema of the result: the requested columns, in the requested order.
        columns: the table's columns at that version.
        table_schema: the Arrow schema of the table at that version, which the filter refers to.
        entries: the segments to read, in columns (`eventlog.format.frames.entry_columns`), in no
            particular order.
        predicate: the row filter, or None.
        pruning: how the other segments were pruned.
        covered: whether every row of the segments is known to pass the filter.
        rule: the merge rule of a keyed table; None for others.
        runs: in a keyed table: which of the segments count in which buckets, less the segments that
            cannot have a key that passes.
        packs: those of the key frame.
    """

    version: int
    schema: pa.Schema
    columns: Schema
    table_schema: pa.Schema
    entries: pa.Table
    predicate: Predicate | None
    pruning: Pruning
    covered: bool
    rule: MergeRule | None = None
    runs: tuple[Run, ...] = ()
    packs: tuple[Pack, ...] = ()

    @property
    def filter(self) -> pc.Expression | None:
        """The filter that rows still have to pass, over `table_schema`; None if all pass."""
        return None if self.predicate is None or self.covered else self.predicate.to_arrow()

    def segments(self) -> list[Segment]:
        """Return the segments to read, in (chunk, id) order."""
        return entry_columns.to_segments(self.entries.sort_by(entry_columns.ORDER))

    def in_scan_order(self) -> list[Segment]:
        """Return the segments to read, in (chunk, version, partition) order."""
        return entry_columns.to_segments(self.entries.sort_by(SCAN_ORDER))

    def count(self) -> int | None:
        """Return the exact number of rows of the result; None if rows must be read to count."""
        if self.filter is not None and self.entries.num_rows:
            return None
        if self.rule is not None:
            plain = all(is_plain(run) for run in self.runs)
            bases = {p.segment.id: p.segment.rows for run in self.runs for p in run.base}
            return sum(bases.values()) if plain else None
        rows: int = pc.sum(self.entries.column("rows"), min_count=0).as_py()
        return rows - entry_columns.deleted_sum(self.entries)


@dataclass(frozen=True, slots=True)
class ScanQuestion:
    """The question of which segments a scan must read; its answer is a plan. Made by `question`.

    Attributes:
        schema: the Arrow schema of the result.
        columns: the table's columns.
        table_schema: the Arrow schema of the table.
        predicate: the row filter, or None.
        spans: the intervals that the scan is restricted to, disjoint and in time order, in ms UTC;
            None: unrestricted.
        start: the start of the requested time, in ms UTC; None: unbounded.
        end: its end, exclusive; None: unbounded.
        time_column: the table's time column; None: it has none.
        checked: false: only those entries are compared with their hashes whose statistics decide
            that they are not read, and those with a deletion vector.
        rule: the merge rule of a keyed table; None for others.
        statistics: false: entries of the plan may lack their statistics. Where nothing is pruned,
            no more than the other columns are decoded then, which is most of the work.
    """

    schema: pa.Schema
    columns: Schema
    table_schema: pa.Schema
    predicate: Predicate | None
    spans: Sequence[tuple[int, int]] | None
    start: int | None
    end: int | None
    time_column: Column | None
    checked: bool = False
    rule: MergeRule | None = None
    statistics: bool = True

    @property
    def _time(self) -> str | None:
        return None if self.time_column is None else self.time_column.name

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """Return the leaves that may contain segments to read. See `Question.needs` for stems."""
        # In a keyed table a segment that is not read may decide that another does not count.
        if self.predicate is None or self.rule is not None:
            return self._in_time(state)
        return self._in_time(state, partial(self.predicate.leaf_may_match, time_column=self._time))

    def without_statistics(self, state: VersionState, needed: Sequence[Leaf]) -> Collection[str]:
        """See `Question.without_statistics`."""
        pruned = self.predicate is not None or self.spans is not None or self.rule is not None
        if self.statistics or pruned:
            return ()
        # Entries with a vector, and those that the delta drops, are compared with their hashes.
        dropping = {piece.sha256 for piece in state.pieces_of_drops()}
        return {
            leaf.sha256
            for leaf in needed
            if isinstance(leaf.deleted, UnsetType) and leaf.sha256 not in dropping
        }

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> ScanPlan:
        """Return the plan.

        Raises:
            Corrupt: an entry that would be left out, or that has a deletion vector, does not match
                its hash.
        """
        entries = Entries(self.start, self.end, checked=False).answer(state, leaves)
        if self.rule is not None:
            return self._of_slices(state, entries, self.rule)
        chosen = _choose(entries, self.spans, self.predicate, self.time_column)
        verification.check_hashes(chosen.trusted, state.base)
        # against vector-of-a-leaf-trusted
        verification.check_hashes(entry_columns.with_vector(chosen.entries), state.base)
        total, in_time = state.header.totals.segments, chosen.in_time
        pruned = (piece for piece in self._in_time(state) if piece.sha256 not in leaves)
        # A leaf may still count segments that were dropped since its key frame.
        by_leaf = min(sum(piece.segments for piece in pruned), total - in_time)
        return ScanPlan(
            version=state.version,
            schema=self.schema,
            columns=self.columns,
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
            packs=packs_of(state.base),
        )

    def _of_slices(self, state: VersionState, entries: pa.Table, rule: MergeRule) -> ScanPlan:
        """Return the plan for a keyed table."""
        verification.check_hashes(entries, state.base)
        if self.spans is not None:
            entries = entries.filter(_overlap(entries, self.spans))
        live = entry_columns.to_segments(entries)
        kept = prune_runs(readable_runs(live, rule), self.predicate, rule, self.time_column)
        read = {s.id: s for run in kept for s in run.segments}
        chosen = entry_columns.from_segments(list(read.values()))
        plain = all(is_plain(run) for run in kept)
        total = state.header.totals.segments
        return ScanPlan(
            version=state.version,
            schema=self.schema,
            columns=self.columns,
            table_schema=self.table_schema,
            entries=chosen,
            predicate=self.predicate,
            pruning=Pruning(
                considered=total,
                by_chunk=total - entries.num_rows,
                by_leaf=0,
                by_statistics=entries.num_rows - chosen.num_rows,
                read=chosen.num_rows,
            ),
            covered=self.predicate is None or (plain and self.predicate.covers(chosen, self._time)),
            rule=rule,
            runs=tuple(kept),
            packs=packs_of(state.base),
        )

    def of(self, chosen: Sequence[Segment], version: int) -> ScanPlan:
        """Return the plan that reads these segments, without those that no requested row can be in.

        Args:
            chosen: segments with a schema that the table's schema here succeeds. Their statistics
                are trusted: they come from a commit, or were checked by a plan.
            version: the version to name in errors of reading.
        """
        entries = entry_columns.from_segments(chosen)
        choice = _choose(entries, self.spans, self.predicate, self.time_column)
        return ScanPlan(
            version=version,
            schema=self.schema,
            columns=self.columns,
            table_schema=self.table_schema,
            entries=choice.entries,
            predicate=self.predicate,
            pruning=Pruning(
                considered=entries.num_rows,
                by_chunk=entries.num_rows - choice.in_time,
                by_leaf=0,
                by_statistics=choice.in_time - choice.entries.num_rows,
                read=choice.entries.num_rows,
            ),
            covered=choice.covered,
        )

    def _in_time(
        self, state: VersionState, keep: Callable[[Piece], bool] | None = None
    ) -> Sequence[Piece]:
        """Return the leaves that may contain segments of the requested time, and that are kept."""
        spans = self.spans
        if spans is None:
            return state.pieces(self.start, self.end, keep)
        kept = lambda p: _piece_overlaps(p, spans) and (keep is None or keep(p))  # noqa: E731
        return state.pieces(self.start, self.end, kept)


def question(
    state: VersionState,
    columns: Sequence[str] | None = None,
    where: Where | EngineFilter | None = None,
    chunks: Chunks | None = None,
    *,
    statistics: bool = True,
) -> ScanQuestion:
    """Return the question of which segments a scan must read.

    Args:
        state: the version to read.
        columns: names of the wanted columns, in this order; all if None; may be empty.
        where: the filter: SQL text or a pyarrow expression.
        chunks: chunks or chunk names; only segments that overlap them are read.
        statistics: see `ScanQuestion`.

    Raises:
        InvalidInput: a column is unknown or named twice, or the predicate or a chunk name is
            invalid.
        Corrupt: the table has no schema or no layout, or a merge rule that does not fit them.
    """
    stored = state.stored_schema
    table_schema = to_arrow(stored)
    schema = project(table_schema, columns, stored)
    row_filter = None if where is None else predicate.parse_predicate(where, stored)
    time_column = stored_time_column(stored, state.layout)
    spans = None if chunks is None else _spans(chunks)
    start, end = _interval(row_filter, time_column, spans)
    return ScanQuestion(
        schema=schema,
        columns=stored,
        table_schema=table_schema,
        predicate=row_filter,
        spans=spans,
        start=start,
        end=end,
        time_column=time_column,
        rule=state.merge_rule,
        statistics=statistics,
    )


def project(table_schema: pa.Schema, columns: Sequence[str] | None, stored: Schema) -> pa.Schema:
    """Return the schema of the wanted columns, in the order given.

    Args:
        table_schema: the Arrow schema of the table.
        columns: names of the wanted columns; all if None.
        stored: the table's schema, for the error.

    Raises:
        InvalidInput: a column is unknown or named twice.
    """
    if columns is None:
        return table_schema
    columns = name_list(columns, "columns")
    unknown = [name for name in columns if name not in table_schema.names]
    if unknown:
        raise InvalidInput(
            f"unknown columns: {', '.join(map(repr, unknown))}; columns: {list_names(stored)}"
        )
    if len(set(columns)) != len(columns):
        raise InvalidInput("a column is named twice")
    return pa.schema([table_schema.field(name) for name in columns])


class _Choice(NamedTuple):
    """The entries to read, and those whose statistics were trusted for the choice.

    An entry that is read needlessly costs a request; one that is left out wrongly hides rows.

    Attributes:
        entries: the segments to read.
        trusted: the entries whose statistics were trusted, to be compared with their hashes.
        in_time: the number of segments in the requested time.
        covered: whether every row to read is known to pass the filter.
    """

    entries: pa.Table
    trusted: pa.Table
    in_time: int
    covered: bool


def _choose(
    candidates: pa.Table,
    spans: Sequence[tuple[int, int]] | None,
    row_filter: Predicate | None,
    time: Column | None,
) -> _Choice:
    inside, trusted = candidates, list[pa.Table]()
    if spans is not None:
        inside, trusted = _split(candidates, _overlap(candidates, spans))
    if row_filter is None:
        return _Choice(inside, entry_columns.concat(trusted), inside.num_rows, covered=True)
    named = None if time is None else time.name
    entries, pruned = _split(inside, row_filter.prune(inside, named))
    # The chunk is part of the key, so it is checked when the segment is read.
    known = _WITHOUT_STATS if time is None else {*_WITHOUT_STATS, f"nulls_{time.id}"}
    bare = entries.select([name for name in entries.column_names if name in known])
    covered = row_filter.covers(bare, named)
    trusted += pruned
    if not covered and row_filter.covers(entries, named):
        covered, trusted = True, [*trusted, entries]
    return _Choice(entries, entry_columns.concat(trusted), inside.num_rows, covered)


def _split(entries: pa.Table, mask: pa.BooleanArray) -> tuple[pa.Table, list[pa.Table]]:
    """Return the entries in the mask, and the others, if any, as a list of one table."""
    kept = entries.filter(mask)
    if kept.num_rows == entries.num_rows:
        return entries, []
    return kept, [entries.filter(pc.invert(mask))]


def _interval(
    row_filter: Predicate | None, time: Column | None, spans: Sequence[tuple[int, int]] | None
) -> tuple[int | None, int | None]:
    """Return the start and end of the requested time in ms; None where it is unbounded."""
    low, high = MIN_MS, MAX_MS
    if row_filter is not None and time is not None:
        low, high = row_filter.interval(time.name)
    if spans is not None:
        low = max(low, spans[0][0] if spans else MAX_MS)
        high = min(high, spans[-1][1] if spans else MIN_MS)
    return (low if low > MIN_MS else None), (high if high < MAX_MS else None)


def _spans(chunks: Chunks) -> list[tuple[int, int]]:
    """Return the chunks as disjoint intervals in time order.

    Raises:
        InvalidInput: a name is not the name of a chunk.
    """
    given = [chunks] if isinstance(chunks, str | TimeChunk) else chunks
    if not isinstance(given, Iterable):
        raise InvalidInput(f"chunks are names such as 2013-01-07, not {shown(chunks)}")
    given = list(given)
    if not all(isinstance(chunk, str | TimeChunk) for chunk in given):
        raise InvalidInput(f"chunks are names such as 2013-01-07, not {shown(chunks)}")
    parsed = [parse_chunk(chunk) if isinstance(chunk, str) else chunk for chunk in given]
    merged: list[tuple[int, int]] = []
    for chunk in sorted(parsed):
        if merged and chunk.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], chunk.end))
        else:
            merged.append((chunk.start, chunk.end))
    return merged


def _piece_overlaps(piece: Piece, spans: Sequence[tuple[int, int]]) -> bool:
    first = first_key(piece).start
    return any(first < end and start < piece.end for start, end in spans)


def _overlap(entries: pa.Table, spans: Sequence[tuple[int, int]]) -> pa.BooleanArray:
    starts, ends = entries.column("chunk_start"), entries.column("chunk_end")
    mask = pa.repeat(pa.scalar(False), entries.num_rows)
    for start, end in spans:
        mask = pc.or_(mask, pc.and_(pc.less(starts, end), pc.greater(ends, start)))
    return mask
