"""Rows of segments that are in packs: read together, instead of one small file after another.

A pack has the rows of many segments whose bytes stand in commits (`eventlog.inline`). A pack that
is missing, damaged or of other columns is passed over: then the segments are read by themselves,
which finds their bytes or raises the right error.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import UnsetType

from eventlog.cache import Cache
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
_LEAST_HELD = 16 * 2**20  # bytes of packs that are held whatever memory there is
# What a request, decoding a segment by itself, and decoding it in a pack cost: in bytes that take
# as long to fetch.
_REQUEST, _ALONE, _PACKED = 128 * 1024, 4096, 128


@dataclass(frozen=True, slots=True)
class _Opened:
    """A pack, and its rows in the types of the table once they were asked for.

    Attributes:
        packed: the pack.
        places: by the id of a segment, where its rows begin, and their number.
        rows: all of its rows; None: not decoded yet.
    """

    packed: Packed
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: pa.Table | None = None

    def size(self) -> int:
        """Return about how many bytes this takes."""
        return int(self.packed.source.size()) + (0 if self.rows is None else self.rows.nbytes)


class PackedRows:
    """The packs that have rows of some segments.

    Of their bytes and rows about as many are held as `Reading.ahead_bytes` says; what is asked for
    once more is decoded once more.

    Args:
        reading: how rows are read.
        segments: the segments.

    Raises:
        Unavailable: the store does not answer.
    """

    def __init__(self, reading: Reading, segments: Sequence[Segment]) -> None:
        self._reading = reading
        self._keyed = any(not isinstance(segment.slice, UnsetType) for segment in segments)
        self._most = max(reading.ahead_bytes, _LEAST_HELD)
        self._opened: Cache[Pack, _Opened] = Cache(self._most, weigh=_Opened.size)
        self._unusable: set[Pack] = set()
        self._by_version: dict[int, list[Pack]] = {}
        packs = _worthwhile(reading.packs, segments, self._by_version)
        if sum(pack.size for pack in packs) <= self._most:
            for pack, opened in zip(packs, each(self._open, packs), strict=True):
                self._keep(pack, opened)

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
        for pack, run in groupby(segments, key=self._of):
            members = list(run)
            opened = None if pack is None else self._get(pack)
            rows = None if pack is None or opened is None else self._rows(pack, opened)
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

    def _keep(self, pack: Pack, opened: _Opened | None) -> None:
        if opened is None:
            self._unusable.add(pack)
        else:
            self._opened.put(pack, opened)

    def _get(self, pack: Pack) -> _Opened | None:
        """Return an opened pack; None if it cannot be used."""
        if pack in self._unusable:
            return None
        opened = self._opened.get(pack)
        if opened is None:
            opened = self._open(pack)
            self._keep(pack, opened)
        return opened

    def _of(self, segment: Segment) -> Pack | None:
        """Return the pack that has a segment's rows, if one can be used."""
        if isinstance(segment.inline, UnsetType):
            return None
        for pack in self._by_version.get(segment.inline, ()):
            opened = self._get(pack)
            if opened is not None and opened.places.get(segment.id, (0, -1))[1] == segment.rows:
                return pack
        return None

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

    def _rows(self, pack: Pack, opened: _Opened) -> pa.Table | None:
        """Return all rows of a pack: the columns that are read, in the types of the table."""
        if opened.rows is not None:
            return opened.rows
        found = self._decoded(opened)
        self._keep(pack, None if found is None else replace(opened, rows=found))
        return found

    def _decoded(self, opened: _Opened) -> pa.Table | None:
        reading = self._reading
        names = frozenset(reading.schema.names) | reading.filter_columns
        fields = pa.schema([f for f in reading.table_schema if f.name in names])
        try:
            parquet = opened.packed.file.metadata.schema
            file = FileColumns(parquet, reading.columns, keyed=self._keyed)
            needed = {field.name for field in reading.table_schema if not field.nullable}
            file.check_present(needed | reading.required)
            taken = pack_bytes.pack_columns(opened.packed, file.leaves(names), self._most)
            rows = None if taken is None else file.conformed(taken, fields)
            return rows if rows is None or self._is_sound(rows) else None
        except _FAILURES:
            return None

    def _is_sound(self, rows: pa.Table) -> bool:
        """Return whether rows have what is required; else the segments are read one by one."""
        if self._keyed and odd_operation(rows) is not None:
            return False
        return not empty_columns(rows, self._reading.required)  # against unsound-pack-read


def _worthwhile(
    packs: Sequence[Pack], segments: Sequence[Segment], by_version: dict[int, list[Pack]]
) -> list[Pack]:
    """Return the packs that cost less than the segments by themselves.

    Args:
        packs: those that there are.
        segments: those to read.
        by_version: gets these packs by the versions whose segments they may have.
    """
    wanted: dict[int, int] = {}  # by version
    unread = set[int]()
    for segment in segments:
        if not isinstance(segment.inline, UnsetType):
            wanted[segment.inline] = wanted.get(segment.inline, 0) + 1
            if not inline_objects.is_remembered(segment.checksum):
                unread.add(segment.inline)
    versions, found = sorted(wanted), list[Pack]()
    for pack in packs:
        some = versions[bisect_left(versions, pack.first) : bisect_right(versions, pack.last)]
        alone = sum(_ALONE * wanted[v] + _REQUEST * (v in unread) for v in some)
        fetched = 0 if inline_objects.is_remembered(pack.sha256) else _REQUEST + pack.size
        if fetched + _PACKED * pack.segments < alone:
            found.append(pack)
            for version in some:
                by_version.setdefault(version, []).append(pack)
    return found


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
