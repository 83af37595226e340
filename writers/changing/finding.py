"""Finds the rows that a predicate selects, segment by segment.

Statistics decide for many segments that all of their rows are selected, or none; of the others only
the columns of the predicate are read. For a change that needs whole rows, they are then read of the
row groups that have some, and kept as far as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.format.frames.entry_columns import to_segments
from eventlog.log.snapshot import plan_scan
from eventlog.model.entries import Segment
from eventlog.query.predicate import Where
from eventlog.segments.fragments import POSITION, Reading, ahead_of, positions_in
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
class Hits:
    """The rows of one segment that a predicate selects.

    Attributes:
        positions: of the rows that are not deleted.
        rows: the rows with their positions, in order; None: they are not kept.
    """

    positions: BitMap64
    rows: pa.Table | None = None

    @property
    def bytes(self) -> int:
        """The memory of the rows that are kept."""
        return 0 if self.rows is None else int(self.rows.nbytes)

    def without(self, deleted: BitMap64) -> Hits:
        """Return the rows that are not deleted."""
        left = self.positions - deleted
        return Hits(left, None if self.rows is None else _at(self.rows, left))


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a version that a predicate selects.

    Attributes:
        snapshot: the version.
        selected: the segments with such rows, in the order of scans.
        searched: what was found in each segment that was read, also if it is nothing: as long as
            the segment is live, only deletes change it.
        vectors: the deletion vectors of the segments.
    """

    snapshot: Snapshot
    selected: tuple[Selected, ...] = ()
    searched: Mapping[Place, Hits] = field(default_factory=dict)
    vectors: VectorReader | None = None

    @property
    def rows(self) -> int:
        """The number of selected rows."""
        return sum(one.rows for one in self.selected)

    def kept_rows(self, names: Sequence[str]) -> pa.Table | None:
        """Return some columns of the selected rows, in order; None if some are not kept."""
        kept = [self.kept(one.segment) for one in self.selected]
        if not kept or any(rows is None for rows in kept):
            return None
        return pa.concat_tables(rows.select(names) for rows in kept if rows is not None)

    def kept(self, segment: Segment) -> pa.Table | None:
        """Return the rows of a segment that were found, with positions; None: they are not kept."""
        hits = self.searched.get((segment.id, segment.version))
        return None if hits is None else hits.rows


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the rows that a predicate selects.

    Attributes:
        t: the table, which has no key.
        where: SQL text or a pyarrow expression; None selects all rows.
        memory_bytes: about how many bytes to hold.
        keeps: whether `find` keeps the rows for `rows`, as far as a share of these bytes allows, so
            that their segments are read once.
    """

    t: Table
    where: Where | None
    memory_bytes: int
    keeps: bool = field(default=False, kw_only=True)

    def find(
        self,
        snapshot: Snapshot,
        among: Callable[[Segment], bool] = lambda _: True,
        known: Mapping[Place, Hits] | None = None,
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
        known = known or {}
        every = _candidates(self._plan(snapshot), snapshot.layout.time_column)
        candidates = [(s, whole) for s, whole in every if among(s)]
        unknown = [s for s, whole in candidates if not whole and (s.id, s.version) not in known]
        segments = [s for s, _ in candidates]
        vectors = VectorReader(self.t.store, snapshot.version, segments, snapshot.header.table)
        # What is no longer live never comes back, and its rows need not be kept.
        places = {(s.id, s.version) for s in segments}
        searched = {place: hits for place, hits in known.items() if place in places}
        searched |= self._search(snapshot, unknown, vectors, self.room(searched))
        selected = []
        for segment, whole in candidates:
            positions = None
            if not whole:
                place = segment.id, segment.version
                # against rows-that-others-deleted-found
                if place in known and known[place].positions:
                    searched[place] = known[place].without(vectors.deleted(segment))
                positions = searched[place].positions
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
        others = [one for one in found.selected if found.kept(one.segment) is None]
        only = {one.segment.id: one.positions for one in others if one.positions is not None}
        reading = self._reading(self._plan(found.snapshot), schema)
        reading = replace(reading, filter=None, filter_columns=frozenset())
        read = reading.located([one.segment for one in others], only, found.vectors)
        following = next(read, None)
        for one in found.selected:
            kept = found.kept(one.segment)
            for batch in () if kept is None else kept.select(schema.names).to_batches():
                yield one.segment, batch
            while following is not None and following[0].id == one.segment.id:
                yield following
                following = next(read, None)

    def passing(
        self,
        snapshot: Snapshot,
        segments: Sequence[Segment],
        vectors: VectorReader,
        *,
        columns: Sequence[str] = (),
        room: int = 0,
    ) -> Passing:
        """Yield rows that pass the predicate, with their segments, and whether to keep them.

        Args:
            snapshot: the version.
            segments: the segments to read.
            vectors: their deletion vectors.
            columns: names of the columns that are wanted beside `POSITION`.
            room: rows that take up to so many bytes are yielded with all columns of the table, to
                be kept. The segment of the row after them, whose rows are none of these, is read
                from its start on, and those after it, with the columns that are wanted.

        Raises: as `find`.
        """
        whole, wanted = self.readings(snapshot, columns)
        return rows_passing(whole, wanted, segments, room, vectors)

    def readings(self, snapshot: Snapshot, columns: Sequence[str] = ()) -> tuple[Reading, Reading]:
        """Return how rows that pass are read with all columns, and with some; both have positions.

        Args:
            snapshot: the version.
            columns: the names of these.
        """
        plan, schema = self._plan(snapshot), snapshot.schema
        whole = self._reading(plan, pa.schema([*schema, POSITION]))
        some = pa.schema([*(schema.field(name) for name in columns), POSITION])
        return replace(whole, rare=True), replace(whole, schema=some)

    def room(self, known: Mapping[Place, Hits]) -> int:
        """Return how many bytes more rows to keep may take, beside known ones."""
        if not self.keeps:
            return 0
        return self.memory_bytes // 8 - sum(hits.bytes for hits in known.values())

    def _plan(self, snapshot: Snapshot) -> ScanPlan:
        return plan_scan(snapshot, columns=[], where=self.where)

    def _search(
        self, snapshot: Snapshot, segments: Sequence[Segment], vectors: VectorReader, room: int
    ) -> dict[Place, Hits]:
        """Return the selected rows of these segments that are not deleted."""
        return hits_of(segments, self.passing(snapshot, segments, vectors, room=room))

    def _reading(self, plan: ScanPlan, schema: pa.Schema) -> Reading:
        reading = Reading.of(self.t.store, plan, self.t.session.head().header.table)
        return replace(reading, schema=schema, ahead_bytes=ahead_of(self.memory_bytes))


Passing = Iterator[tuple[Segment, pa.RecordBatch, bool]]  # what `Search.passing` yields


def rows_passing(
    whole: Reading,
    wanted: Reading,
    segments: Sequence[Segment],
    room: int,
    vectors: VectorReader | None = None,
) -> Passing:
    """Yield rows that pass, as `Search.passing` does.

    Args:
        whole: reads rows to keep; see `Search.readings`.
        wanted: reads the other rows.
        segments: the segments to read.
        room: see `Search.passing`.
        vectors: the deletion vectors of the segments, where they are read already.

    Raises: as `Search.find`.
    """
    rest = segments
    if room > 0:
        rest = ()
        with closing(whole.located(segments, vectors=vectors)) as read:
            for segment, batch in read:
                room -= batch.nbytes
                if room < 0:  # against more-rows-kept-than-fit
                    rest = segments[[s.id for s in segments].index(segment.id) :]
                    break
                yield segment, batch, True
    for segment, batch in wanted.located(rest, vectors=vectors):
        yield segment, batch, False


def hits_of(segments: Sequence[Segment], passing: Passing) -> dict[Place, Hits]:
    """Return the rows of each segment that pass.

    Args:
        segments: the segments.
        passing: the rows of these that pass.
    """
    positions = {(s.id, s.version): BitMap64() for s in segments}
    rows = KeptRows()
    for segment, batch, keep in passing:
        positions[segment.id, segment.version] |= positions_in(batch)
        rows.add(segment, batch, keep=keep)
    return {place: rows.hits(place, found) for place, found in positions.items()}


class KeptRows:
    """Gathers the rows to keep among those that `Search.passing` yields."""

    def __init__(self) -> None:
        self._batches: dict[Place, list[pa.RecordBatch]] = {}

    def add(self, segment: Segment, batch: pa.RecordBatch, *, keep: bool) -> None:
        """Take the next rows. No rows of a segment are kept if some are not to be kept."""
        place = segment.id, segment.version
        if keep:
            self._batches.setdefault(place, []).append(batch)
        else:
            self._batches.pop(place, None)  # against some-of-the-rows-kept

    def hits(self, place: Place, positions: BitMap64) -> Hits:
        """Return the rows at some positions of a segment, kept if all that came were to be kept."""
        batches = self._batches.get(place)
        rows = None if batches is None else _at(pa.Table.from_batches(batches), positions)
        return Hits(positions, rows)


def _at(rows: pa.Table, positions: BitMap64) -> pa.Table:
    """Return those of some rows with positions that are at the given ones, one or more."""
    if len(positions) == rows.num_rows:
        return rows
    wanted = pa.array(positions, pa.int64())
    return rows.filter(pc.is_in(rows.column(POSITION.name), value_set=wanted))


def _candidates(plan: ScanPlan, time_column: str | None) -> Iterator[tuple[Segment, bool]]:
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
