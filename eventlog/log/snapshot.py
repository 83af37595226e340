"""The table at one version, as callers see it. The data for a question are fetched from the log.

The state itself is a pure value (`state.version`), and so are the questions about it
(`state.questions`). Large tables stay columnar; `Segment` values are made only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from eventlog.display import Described, Description
from eventlog.errors import Corrupt
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import MergeRule, shown_properties
from eventlog.model.actions import Drop
from eventlog.model.chunks import TimeChunk, parse_chunk, utc
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Header, KeyFrame, Leaf, Meta, Piece, Totals, pieces_in
from eventlog.model.schema import to_arrow
from eventlog.model.schema_text import type_text
from eventlog.quantities import count_text, size_text
from eventlog.query.engine_filters import EngineFilter
from eventlog.query.predicate import Where
from eventlog.query.row_checks import check_texts
from eventlog.state import scan, verification
from eventlog.state.delta import Delta
from eventlog.state.questions import Answer, Entries, Leaves, Live, Question
from eventlog.state.scan import Chunks, ScanPlan
from eventlog.state.small.timing import shown_time
from eventlog.state.version import VersionState

_SHOWN_COLUMNS = 20


class Reader(Protocol):
    """Reads the leaves that a question needs. `Log` is one."""

    def answer(
        self, state: VersionState, question: Question[Answer]
    ) -> tuple[VersionState, Answer]:
        """Return the state over the key frame that was used, and the answer."""
        ...

    def usable(self, state: VersionState) -> VersionState:
        """Return the state over a key frame that is not known to be unusable."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkTotals:
    """One time chunk of a snapshot, and the totals of its live segments.

    Attributes:
        chunk: the time chunk.
        segments: number of its live segments.
        rows: number of their rows.
        bytes: their size in bytes.
    """

    chunk: TimeChunk
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Snapshot(Described):
    """The table at one version. Immutable; reading it never mixes versions.

    Attributes:
        state: the state at the version.
        log: reads the leaves of its key frame.
    """

    state: VersionState
    log: Reader

    @property
    def header(self) -> Header:
        """The header of the version's commit."""
        return self.state.header

    @property
    def commit_hash(self) -> str:
        """The sha256 of that commit's bytes."""
        return self.state.commit_hash

    @property
    def commit_bytes(self) -> int:
        """The size of the commit and its delta's spill; decides when a key frame is due."""
        return self.state.commit_bytes

    @property
    def meta(self) -> Meta:
        """The small state."""
        return self.state.meta

    @property
    def base(self) -> KeyFrame | None:
        """The key frame that `delta` starts from; None is the empty state."""
        return self.state.base

    @property
    def delta(self) -> Delta:
        """Net adds and drops since the key frame."""
        return self.state.delta

    @property
    def version(self) -> int:
        """The version."""
        return self.state.version

    @property
    def timestamp(self) -> datetime:
        """When the version was committed (UTC)."""
        return utc(self.header.time)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return to_arrow(self.state.stored_schema)

    @property
    def stored_schema(self) -> Schema:
        """The schema with column ids.

        Raises:
            Corrupt: the table has none.
        """
        return self.state.stored_schema

    @property
    def layout(self) -> NamedLayout:
        """Time column, granularity and sort order, with the names that columns have.

        Raises:
            Corrupt: the table has none, or one that does not fit its schema.
        """
        return self.state.layout

    @property
    def merge_rule(self) -> MergeRule | None:
        """The merge rule of a keyed table; None for others.

        Raises:
            Corrupt: layout and schema do not fit together.
        """
        return self.state.merge_rule

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that are set on the table, among them the merge rule of a keyed one.

        Those that name columns have their names at this version.

        Raises:
            Corrupt: the merge rule does not fit the schema.
        """
        return shown_properties(self.meta)

    @property
    def checks(self) -> Mapping[str, str]:
        """The expressions of the table's checks, by name."""
        return check_texts(self.stored_schema)

    @property
    def totals(self) -> Totals:
        """Number of live segments, their rows and their bytes."""
        return self.header.totals

    def segments(
        self,
        where: Where | None = None,
        chunks: Chunks | None = None,
    ) -> list[Segment]:
        """Return the live segments in (chunk, id) order.

        Args:
            where: SQL text or a pyarrow expression; segments without matching rows are left out, as
                far as their statistics show that, and in a keyed table those that a scan of the
                others need not read.
            chunks: chunks or chunk names; only segments that overlap them are returned.

        Raises:
            InvalidInput: the predicate or a chunk name is invalid.
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        if where is None:
            # Of a keyed table a scan need not read all of them.
            question = scan.question(self.state, chunks=chunks)
            return self._ask(replace(question, rule=None)).segments()
        return plan_scan(self, where=where, chunks=chunks).segments()

    def chunks(self) -> list[ChunkTotals]:
        """Return every chunk that has live segments, in time order.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        entries = entry_columns.with_live_rows(self.entries())
        grouped = (
            entries.group_by(["chunk_start", "chunk_end"])
            .aggregate([("rows", "count"), ("rows", "sum"), ("bytes", "sum")])
            .sort_by([("chunk_start", "ascending"), ("chunk_end", "ascending")])
        )
        names = ("chunk_start", "chunk_end", "rows_count", "rows_sum", "bytes_sum")
        columns = [grouped.column(name).to_pylist() for name in names]
        return [
            ChunkTotals(TimeChunk(start, end), count, rows, size)
            for start, end, count, rows, size in zip(*columns, strict=True)
        ]

    def entries(
        self,
        start: int | None = None,
        end: int | None = None,
        keep: Callable[[Piece], bool] | None = None,
        *,
        checked: bool = True,
    ) -> pa.Table:
        """Return the live entries of chunks that overlap [start, end) ms, in columns.

        Only leaves that overlap the range and that `keep` accepts are read, and only below stems of
        which that holds, too. The columns are those of `eventlog.format.frames.entry_columns`;
        entries are in leaf order, then those added since the key frame.

        Args:
            start: ms UTC; None: from the first chunk on.
            end: ms UTC, exclusive; None: up to the last chunk.
            keep: decides whether a leaf, or a stem with its leaves, is read; None: all are.
            checked: compare each entry with its hash (FORMAT.md R9.8). If false, only the entries
                that are left out here are compared; a caller that leaves out more must call
                `are_true` on those.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        return self._ask(Entries(start, end, keep, checked))

    def are_true(self, entries: pa.Table) -> bool:
        """Return whether entries that were read unchecked match their hashes."""
        try:
            verification.check_hashes(entries, self.log.usable(self.state).base)
        except Corrupt:
            return False
        return True

    def live(self, drops: Sequence[Drop]) -> Mapping[str, Segment]:
        """Return the segments of these drops that are live, by id.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        return self._ask(Live(drops))

    def leaves(self, but: Collection[str] = ()) -> Sequence[Leaf]:
        """Return the leaves of the key frame, in order.

        Args:
            but: the sha256 of stems; what is below these is not read, and left out.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        return self._ask(Leaves(frozenset(but)))

    def hash_sum(self) -> str:
        """Return the sum of the entry hashes of the live segments."""
        return self.state.hash_sum()

    def on_keyframe(self, root: KeyFrame) -> Snapshot:
        """Return the same state over the key frame of its own version.

        Raises:
            Corrupt: the key frame does not belong to this state.
        """
        return replace(self, state=self.state.on_keyframe(root))

    def over_newer(self, earlier: VersionState, root: KeyFrame) -> Snapshot:
        """Return the same state over the key frame of a version before.

        Args:
            earlier: the state at the key frame's version, over the same key frame as this one.
            root: the key frame.

        Raises:
            Corrupt: the key frame is not that of `earlier`, or they are not of one log.
        """
        return replace(self, state=self.state.over_newer(earlier, root))

    def _described(self) -> Description:
        return version_description(self, f"Snapshot of version {self.version}")

    def _ask(self, question: Question[Answer]) -> Answer:
        return self.log.answer(self.state, question)[1]


def version_description(snapshot: Snapshot, title: str) -> Description:
    """Return what a prompt shows of a version: from its commit alone, without a request.

    Raises:
        Corrupt: layout and schema do not fit together.
    """
    totals, layout, rule = snapshot.totals, snapshot.layout, snapshot.merge_rule
    stored = "rows" if rule is None else "rows before keys are merged"
    chunks = ", by ".join(filter(None, (layout.granularity, layout.time_column)))
    size = f"{size_text(totals.bytes)} in {count_text(totals.segments, 'segment')}"
    facts = [
        ("version", f"{snapshot.version}, committed {shown_time(snapshot.header.time)}"),
        ("size", f"{totals.rows:,} {stored}, {size}"),
        ("chunks", chunks),
    ]
    if rule is not None:
        facts.append(("key", f"{', '.join(rule.key)}; {count_text(rule.buckets, 'bucket')}"))
    columns = snapshot.stored_schema.columns
    rows = [
        (column.name, type_text(column.type) + ("" if column.nullable else " not null"))
        for column in columns[:_SHOWN_COLUMNS]
    ]
    more = len(columns) - len(rows)
    left_out = f"… {more} more of {len(columns)} columns, in .schema" if more else ""
    stacks = _stacks(snapshot)
    return Description(title, facts, ("column", "type"), rows, left_out=left_out, stacks=stacks)


def _stacks(snapshot: Snapshot) -> list[tuple[str, list[int]]]:
    """Return the sizes of segments by time chunk, where all of them are in memory: in no leaves."""
    base, delta = snapshot.base, snapshot.delta
    if pieces_in(base):
        return []
    older = (s for s in (base.segments if base else ()) if s.id not in delta.drops)
    sizes: dict[str, list[int]] = {}
    for segment in (*older, *delta.adds.values()):
        sizes.setdefault(segment.chunk, []).append(segment.bytes)
    return [(name, sizes[name]) for name in sorted(sizes, key=parse_chunk)]


def plan_scan(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Where | EngineFilter | None = None,
    chunks: Chunks | None = None,
    *,
    statistics: bool = True,
) -> ScanPlan:
    """Return the plan of a scan: the answer to `state.scan.question` of the same arguments.

    Raises:
        InvalidInput: as `state.scan.question`.
        Corrupt: neither the key frame nor the commits before it give the entries.
    """
    question = scan.question(snapshot.state, columns, where, chunks, statistics=statistics)
    return snapshot.log.answer(snapshot.state, question)[1]
