"""Finds the rows that a predicate selects, segment by segment.

Statistics decide for many segments that all of their rows are selected, or none; of the others only
the columns of the predicate are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.format.frames.entry_columns import to_segments
from eventlog.log.snapshot import plan_scan
from eventlog.model.entries import Segment
from eventlog.query.predicate import Where
from eventlog.segments.fragments import POSITION, Reading, ahead_of
from eventlog.segments.vectors import VectorReader
from eventlog.state.scan import SCAN_ORDER, ScanPlan

_SHOWN = 80  # characters of a value
# A segment by its id and the version that added it: what a restore brings back is another one.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected rows of one segment, as of one version.

    Attributes:
        segment: its entry at that version.
        positions: of the selected rows that are not deleted; None: all rows are selected.
    """

    segment: Segment
    positions: BitMap64 | None

    @property
    def rows(self) -> int:
        """The number of selected rows."""
        return self.segment.live_rows if self.positions is None else len(self.positions)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a version that a predicate selects.

    Attributes:
        snapshot: the version.
        selected: the segments with such rows, in the order of scans.
        searched: the positions that were found in each segment that was read, none among them:
            as long as the segment is live, only deletes change them.
        vectors: the deletion vectors of the segments.
    """

    snapshot: Snapshot
    selected: tuple[Selected, ...] = ()
    searched: Mapping[Place, BitMap64] = field(default_factory=dict)
    vectors: VectorReader | None = None

    @property
    def rows(self) -> int:
        """The number of selected rows."""
        return sum(one.rows for one in self.selected)


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the rows that a predicate selects.

    Attributes:
        t: the table, which has no key.
        where: SQL text or a pyarrow expression; None selects all rows.
        memory_bytes: about how many bytes to hold.
    """

    t: Table
    where: Where | None
    memory_bytes: int

    def find(
        self,
        snapshot: Snapshot,
        among: Callable[[Segment], bool] = lambda _: True,
        known: Mapping[Place, BitMap64] | None = None,
    ) -> Found:
        """Return the rows of a version that the predicate selects.

        Args:
            snapshot: the version.
            among: decides which segments are looked at.
            known: `Found.searched` of earlier calls.

        Raises:
            InvalidInput: the predicate is wrong, or fails on a row.
            DataLoss: a segment or a deletion vector is missing or damaged.
            Unavailable: the store does not answer.
        """
        plan, known = self._plan(snapshot), known or {}
        time_column = snapshot.layout.time_column
        candidates = [(s, whole) for s, whole in _candidates(plan, time_column) if among(s)]
        unknown = [s for s, whole in candidates if not whole and (s.id, s.version) not in known]
        segments = [s for s, _ in candidates]
        vectors = VectorReader(self.t.store, snapshot.version, segments, snapshot.header.table)
        searched = {**known, **self._positions(plan, unknown, vectors)}
        selected = []
        for segment, whole in candidates:
            positions = None
            if not whole:
                positions = searched[segment.id, segment.version]
                # against rows-that-others-deleted-found
                if (segment.id, segment.version) in known and positions:
                    positions = positions - vectors.deleted(segment)
                if not positions:
                    continue
                if len(positions) == segment.live_rows:
                    positions = None
            selected.append(Selected(segment, positions))
        return Found(snapshot, tuple(selected), searched, vectors)

    def rows(self, found: Found, schema: pa.Schema) -> Iterator[tuple[Segment, pa.RecordBatch]]:
        """Yield the rows that were found, in the order of scans, with their segments.

        Args:
            found: what `find` returned.
            schema: the wanted columns; `POSITION` may be one of them.

        Raises: as `find`.
        """
        reading = self._reading(self._plan(found.snapshot), schema)
        yield from reading.located([one.segment for one in found.selected], vectors=found.vectors)

    def _plan(self, snapshot: Snapshot) -> ScanPlan:
        return plan_scan(snapshot, columns=[], where=self.where)

    def _positions(
        self, plan: ScanPlan, segments: list[Segment], vectors: VectorReader
    ) -> dict[Place, BitMap64]:
        """Return the positions of the selected rows of these segments that are not deleted."""
        found = {(s.id, s.version): BitMap64() for s in segments}
        reading = self._reading(plan, pa.schema([POSITION]))
        for segment, batch in reading.located(segments, vectors=vectors):
            found[segment.id, segment.version] |= positions_in(batch)
        return found

    def _reading(self, plan: ScanPlan, schema: pa.Schema) -> Reading:
        reading = Reading.of(self.t.store, plan, self.t.head().header.table)
        return replace(reading, schema=schema, ahead_bytes=ahead_of(self.memory_bytes))


def positions_in(batch: pa.RecordBatch) -> BitMap64:
    """Return the positions in a batch that was read with them."""
    column = batch.column(batch.schema.get_field_index(POSITION.name))
    return BitMap64(column.to_pylist())


def _candidates(plan: ScanPlan, time_column: str) -> Iterator[tuple[Segment, bool]]:
    """Yield the segments of a plan, and whether statistics show that all rows are selected."""
    entries = plan.entries.sort_by(SCAN_ORDER)
    if plan.predicate is None:
        whole = [True] * entries.num_rows
    else:
        whole = plan.predicate.covered(entries, time_column).to_pylist()
    yield from zip(to_segments(entries), whole, strict=True)


def row_text(row: Mapping[str, Any]) -> str:
    """Return values of a row for a message: `id = 7, name = 'x'`."""
    return ", ".join(f"{name} = {value!r}"[:_SHOWN] for name, value in row.items())
