"""The state at one version: a key frame plus the delta that the version's commit carries.

Pure layer: what has to be fetched comes through the `Frames` that the snapshot was given. Large
tables stay columnar; `Segment` values are made only when asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import keys, places, segments
from eventlog.model.chunks import MAX_MS, MIN_MS, TimeChunk
from eventlog.model.records import (
    Add,
    Drop,
    Header,
    KeyFrame,
    Layout,
    Leaf,
    Meta,
    Schema,
    Segment,
    Totals,
)
from eventlog.model.schema import to_arrow
from eventlog.state import keyframe, verification
from eventlog.state.delta import Delta
from eventlog.state.fold import segments_sum

if TYPE_CHECKING:
    from eventlog.query.predicate import Where

logger = logging.getLogger(__name__)


class Frames(Protocol):
    """Where a snapshot gets the parts of key frames that a question needs."""

    def leaves(self, wanted: Sequence[Leaf], *, checked: bool = True) -> Mapping[str, pa.Table]:
        """Return the entries of leaves, by their sha256, in the order given.

        Args:
            wanted: as the root names them.
            checked: also compare each entry with its hash, which costs more than reading it.

        Raises:
            Corrupt: the bytes of one are not what the root names, or an entry has another hash.
            KeyNotFound: one is not there.
        """
        ...

    def without_keyframe(self, version: int) -> Snapshot:
        """Return the snapshot at `version`, resolved without the key frame of that version."""
        ...

    def vouched(self, segment_id: str) -> bool:
        """Say whether this program made the id for an upload of its own: it is in no key frame."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkTotals:
    """One time chunk of a snapshot and the sums over its live segments."""

    chunk: TimeChunk
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Snapshot:
    """The table at one version. Immutable; reading it never mixes versions.

    Attributes:
        header: of the version's commit.
        commit_hash: sha256 of that commit's bytes.
        meta: the small state.
        base: the key frame that `delta` starts from; None is the empty state.
        delta: net adds and drops since.
        frames: where leaves come from.
        commit_bytes: size of the commit, which decides when a key frame is due.
    """

    header: Header
    commit_hash: str
    meta: Meta
    base: KeyFrame | None
    delta: Delta
    frames: Frames
    commit_bytes: int = 0

    @property
    def version(self) -> int:
        """The version."""
        return self.header.version

    @property
    def timestamp(self) -> datetime:
        """When the version was committed (UTC); grows with every version."""
        return datetime.fromtimestamp(self.header.time / 1000, tz=UTC)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return to_arrow(self.stored_schema)

    @property
    def stored_schema(self) -> Schema:
        """The schema with column ids.

        Raises:
            Corrupt: the table has none.
        """
        if self.meta.schema is None:
            raise Corrupt("the table has no schema", version=self.version)
        return self.meta.schema

    @property
    def layout(self) -> Layout:
        """Time column, granularity and sort order.

        Raises:
            Corrupt: the table has none.
        """
        if self.meta.layout is None:
            raise Corrupt("the table has no layout", version=self.version)
        return self.meta.layout

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties that are set."""
        return self.meta.properties

    @property
    def totals(self) -> Totals:
        """Number of live segments, their rows and their bytes."""
        return self.header.totals

    def segments(
        self,
        where: Where | None = None,
        chunks: Iterable[str | TimeChunk] | str | TimeChunk | None = None,
    ) -> list[Segment]:
        """Return the live segments in (chunk, id) order.

        Args:
            where: SQL text or pyarrow expression; segments that cannot match are left out.
            chunks: chunks, or their names, to restrict to (those that overlap them).

        Raises:
            InvalidInput: the predicate or a chunk's name is wrong.
        """
        from eventlog.state import scan  # noqa: PLC0415 - scan plans over snapshots

        return scan.plan(self, where=where, chunks=chunks).segments()

    def chunks(self) -> list[ChunkTotals]:
        """Return every chunk that has live segments, in time order."""
        grouped = (
            self.entries()
            .group_by(["chunk_start", "chunk_end"])
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
        keep: Callable[[Leaf], bool] | None = None,
        *,
        checked: bool = True,
    ) -> pa.Table:
        """Return the live entries of chunks that overlap [start, end) ms, in columns.

        Only the leaves that overlap and that `keep` accepts are read. Columns: see
        `eventlog.format.segments`; order: leaf order, then what came since the key frame.

        Args:
            start: ms UTC; None: from the first chunk on.
            end: ms UTC, exclusive; None: to the last chunk.
            keep: says of a leaf whether to read it; None: all are.
            checked: compare each entry with its hash (FORMAT.md R9.8). Without it only those are
                compared that are left out here; a caller that leaves out more calls `are_true`.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
        """
        if (older := self.settled()) is not self:
            return older.entries(start, end, keep, checked=checked)
        leaves = self._leaves(start, end, keep)
        try:
            tables = list(self.frames.leaves(leaves, checked=checked).values())
            if self.base is not None and self.base.segments:
                tables.append(self._inlined)
            live = self._kept(segments.concat(tables))
            inside = _overlapping(live, start, end)
            if not checked and inside.num_rows < live.num_rows:
                left = live.filter(pc.invert(_overlap(live, start, end)))
                verification.check_hashes(left, self.base)
            found = segments.concat([inside, _overlapping(self._added, start, end)])
            if start is None and end is None and len(leaves) == len(self._leaves()):
                verification.check_totals(found, self.header)
        except (Corrupt, KeyNotFound) as error:
            return self._over_older(error).entries(start, end, keep, checked=checked)
        return found

    def are_true(self, entries: pa.Table) -> bool:
        """Say whether entries that came unchecked, and are to be left out, are what they seem."""
        try:
            verification.check_hashes(entries, self.settled().base)
        except Corrupt:
            return False
        return True

    def live(self, drops: Sequence[Drop]) -> Mapping[str, Segment]:
        """Return the segments of these drops that are live, by id."""
        found = {d.id: self.delta.adds[d.id] for d in drops if d.id in self.delta.adds}
        gone = found.keys() | self.delta.drops.keys()
        rest = [d for d in drops if d.id not in gone and keys.is_segment_id(d.id)]
        if not rest or self.base is None:
            return found
        if (older := self.settled()) is not self:
            return older.live(drops)
        # A drop that names no chunk is of no live segment, which says nothing of the others.
        placed = (places.place(d.chunk, d.id) for d in rest)
        try:
            wanted = keyframe.holding(self.base.leaves, (p for p in placed if p is not None))
            leaves = [self.base.leaves[index] for index in sorted(wanted)]
            tables = list(self.frames.leaves(leaves).values())
            entries = segments.concat([*tables, *([self._inlined] if self.base.segments else [])])
            ids = pa.array([bytes.fromhex(d.id) for d in rest], pa.binary(16))
            entries = self._kept(entries.filter(pc.is_in(entries.column("id"), ids)))
        except (Corrupt, KeyNotFound) as error:
            return self._over_older(error).live(drops)
        return found | {s.id: s for s in segments.to_segments(entries)}

    def arrived(self, start: int, end: int, after: int) -> Segment | None:
        """Return a live segment that overlaps [start, end) ms and came after `after`."""
        if self.base is None or self.base.version <= after:
            entries = _overlapping(self._added, start, end)
        else:
            entries = self.entries(start, end)
        newer = entries.filter(pc.greater(entries.column("version"), after))
        return segments.to_segments(newer.slice(0, 1))[0] if newer.num_rows else None

    def present(self, adds: Sequence[Add]) -> set[str]:
        """Return the ids of those adds that are live already."""
        found = {a.id for a in adds if a.id in self.delta.adds}
        if self.base is None:
            return found
        # A fresh id that was staged at the key frame or later does not stand in it, so that a warm
        # append reads no leaf. Of other ids that is not known: they may have been used before.
        older = [
            add
            for add in adds
            if add.id not in found
            and not (add.epoch >= self.base.version and self.frames.vouched(add.id))
        ]
        live = self.live([Drop(a.id, a.chunk, "") for a in older])
        return found | live.keys()

    def hash_sum(self) -> str:
        """Return the sum of the entry hashes of the live segments."""
        return segments_sum(self.header, self.meta)

    def settled(self) -> Snapshot:
        """Return this snapshot, on the older key frame if its own turned out to be unusable."""
        found = self
        while "_fallback" in found.__dict__:
            found = found.__dict__["_fallback"]
        return found

    def on_keyframe(self, root: KeyFrame) -> Snapshot:
        """Return the same state seen from the key frame of its own version.

        Raises:
            Corrupt: the key frame is not of this state.
        """
        keyframe.check(root)
        if (root.state_hash, root.totals, root.table, root.commit) != (
            self.header.state_hash,
            self.header.totals,
            self.header.table,
            self.commit_hash,
        ):
            # against key-frame-of-another-commit
            raise Corrupt("the key frame is not of this commit", version=self.version)
        return replace(self, base=root, delta=Delta(), commit_bytes=0)

    @cached_property
    def _added(self) -> pa.Table:
        return segments.from_segments(list(self.delta.adds.values()))

    @cached_property
    def _inlined(self) -> pa.Table:
        return segments.from_segments(self.base.segments if self.base else ())

    def _leaves(
        self,
        start: int | None = None,
        end: int | None = None,
        keep: Callable[[Leaf], bool] | None = None,
    ) -> list[Leaf]:
        leaves = self.base.leaves if self.base else ()
        return [
            leaf
            for leaf in leaves
            if (end is None or places.first_key(leaf).start < end)
            and (start is None or leaf.end > start)
            and (keep is None or keep(leaf))
        ]

    def _kept(self, entries: pa.Table) -> pa.Table:
        return verification.undropped(entries, self.delta.drops)

    def _over_older(self, error: Exception) -> Snapshot:
        """Return the same state resolved over an older key frame (hazard P1)."""
        known: Snapshot | None = self.__dict__.get("_fallback")
        if known is not None:
            return known
        if self.base is None:
            raise error
        logger.warning(
            "key frame %d is unusable, reading an older one: %s", self.base.version, error
        )
        older = self.frames.without_keyframe(self.base.version)
        fallback = replace(self, base=older.base, delta=older.delta.compose(self.delta))
        verification.check_sums(fallback.header, fallback.meta, fallback.base, fallback.delta)
        self.__dict__["_fallback"] = fallback
        return fallback


def _overlapping(entries: pa.Table, start: int | None, end: int | None) -> pa.Table:
    if (start is None and end is None) or not entries.num_rows:
        return entries
    return entries.filter(_overlap(entries, start, end))


def _overlap(entries: pa.Table, start: int | None, end: int | None) -> pa.ChunkedArray:
    """Say which entries are of chunks that overlap [start, end) ms."""
    late_enough = pc.greater(entries.column("chunk_end"), MIN_MS if start is None else start)
    early_enough = pc.less(entries.column("chunk_start"), MAX_MS if end is None else end)
    return pc.and_(late_enough, early_enough)
