"""Rows of segments that are in packs: read together, instead of one small file after another.

A pack has the rows of many segments whose bytes stand in commits (`eventlog.inline`). A pack that
is missing, damaged or of other columns is passed over: then the segments are read by themselves,
which finds their bytes or raises the right error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import UnsetType

from eventlog.errors import DataLoss
from eventlog.inline import inline_objects, pack_bytes
from eventlog.inline.pack_bytes import Packed
from eventlog.keyed.log_rows import empty_columns, odd_operation
from eventlog.model.entries import Segment
from eventlog.model.records import Pack
from eventlog.segments.batches import join_tables
from eventlog.segments.file_columns import FileColumns
from eventlog.segments.vectors import VectorReader, without_positions
from eventlog.store.parallel import each

if TYPE_CHECKING:
    from eventlog.segments.fragments import Reading

_POSITION = ""  # the name of the column of positions: see `eventlog.segments.fragments`
_FAILURES = (DataLoss, pa.ArrowException, OSError, ValueError)


@dataclass
class _Opened:
    """A pack, and its rows in the types of the table once they were asked for.

    Attributes:
        packed: the pack.
        places: by the id of a segment, where its rows begin, and their number.
        rows: all of its rows; None: not decoded yet.
        usable: whether its columns become the table's.
    """

    packed: Packed
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: pa.Table | None = None
    usable: bool = True


class PackedRows:
    """The packs that have rows of some segments.

    Args:
        reading: how rows are read.
        segments: the segments.

    Raises:
        Unavailable: the store does not answer.
    """

    def __init__(self, reading: Reading, segments: Sequence[Segment]) -> None:
        self._reading = reading
        self._keyed = any(not isinstance(segment.slice, UnsetType) for segment in segments)
        self._opened = list(each(self._open, _worthwhile(reading.packs, segments)))
        self._by_id = {i: o for o in self._opened if o is not None for i in o.places}

    def runs(
        self, segments: Sequence[Segment], vectors: VectorReader, *, apart: bool
    ) -> Iterator[tuple[list[Segment], pa.Table | None]]:
        """Yield runs of segments in the order given, each with its rows where a pack has them.

        Args:
            segments: the segments.
            vectors: their deletion vectors: deleted rows are left out.
            apart: whether each segment is a run of its own where a pack has its rows, which then
                have their positions, if these are asked for.
        """
        for opened, run in groupby(segments, key=self._of):
            members = list(run)
            rows = None if opened is None else self._rows(opened)
            if opened is None or rows is None:
                yield members, None
            elif apart:
                for one in members:
                    yield [one], self._of_one(opened, rows, one, vectors)
            else:
                yield members, join_tables(_slices(opened, rows, members, vectors))

    def _open(self, pack: Pack) -> _Opened | None:
        body = inline_objects.get_pack(self._reading.store, pack)
        packed = None if body is None else pack_bytes.open_pack(body)
        if packed is None:
            return None
        starts = accumulate((entry.rows for entry in packed.segments), initial=0)
        places = {e.id: (start, e.rows) for e, start in zip(packed.segments, starts, strict=False)}
        return _Opened(packed, places)

    def _of(self, segment: Segment) -> _Opened | None:
        """Return the pack that has a segment's rows, if one can be used."""
        opened = self._by_id.get(segment.id)
        if opened is None or isinstance(segment.inline, UnsetType) or not opened.usable:
            return None
        return opened if opened.places[segment.id][1] == segment.rows else None

    def _of_one(
        self, opened: _Opened, rows: pa.Table, segment: Segment, vectors: VectorReader
    ) -> pa.Table:
        start, count = opened.places[segment.id]
        found = rows.slice(start, count)
        if _POSITION in self._reading.schema.names:
            places = pa.array(range(count), pa.int64())
            field = self._reading.schema.field(_POSITION)
            found = found.append_column(field, places)
        deleted = [] if isinstance(segment.vector, UnsetType) else list(vectors.deleted(segment))
        return without_positions(found, deleted) if deleted else found

    def _rows(self, opened: _Opened) -> pa.Table | None:
        """Return all rows of a pack: the columns that are read, in the types of the table."""
        if opened.rows is None and opened.usable:
            reading = self._reading
            names = frozenset(reading.schema.names) | reading.filter_columns
            fields = pa.schema([f for f in reading.table_schema if f.name in names])
            try:
                parquet = opened.packed.file.metadata.schema
                file = FileColumns(parquet, reading.columns, keyed=self._keyed)
                needed = {field.name for field in reading.table_schema if not field.nullable}
                file.check_present(needed | reading.required)
                taken = pack_bytes.pack_columns(opened.packed, file.leaves(names))
                rows = None if taken is None else file.conformed(taken, fields)
                opened.rows = rows if rows is None or self._is_sound(rows) else None
            except _FAILURES:
                opened.rows = None
            opened.usable = opened.rows is not None
        return opened.rows

    def _is_sound(self, rows: pa.Table) -> bool:
        """Return whether rows have what is required; else the segments are read one by one."""
        if self._keyed and odd_operation(rows) is not None:
            return False
        return not empty_columns(rows, self._reading.required)  # against unsound-pack-read


def _worthwhile(packs: Sequence[Pack], segments: Sequence[Segment]) -> list[Pack]:
    """Return the packs that take the place of two or more commits."""
    versions = {s.inline for s in segments if not isinstance(s.inline, UnsetType)}
    return [p for p in packs if sum(p.first <= v <= p.last for v in versions) > 1]


def _slices(
    opened: _Opened, rows: pa.Table, segments: Sequence[Segment], vectors: VectorReader
) -> Iterator[pa.Table]:
    """Yield the rows of segments in order: those that lie side by side together."""
    start = end = 0
    for segment in segments:
        first, count = opened.places[segment.id]
        deleted = [] if isinstance(segment.vector, UnsetType) else list(vectors.deleted(segment))
        if first != end or deleted:
            if start < end:
                yield rows.slice(start, end - start)
            start = end = first
        end += count
        if deleted:
            yield without_positions(rows.slice(first, count), deleted)
            start = end
    if start < end:
        yield rows.slice(start, end - start)
