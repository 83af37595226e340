"""Translates deletes that landed while a rewrite ran: where its inputs' rows are in its outputs.

The rows of a chunk stand in the outputs in the order of the inputs or, if they were sorted, in that
of a stable sort. So the place of a row follows from its position in its input, or from sorting the
columns of the order once more; the outputs are not read. Deletes may land again before the rewrite
does, so the order is kept where it takes little memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from msgspec.structs import replace
from pyroaring import BitMap64

from eventlog import Table
from eventlog.model.actions import Add
from eventlog.model.chunks import chunk_name
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Schema, Segment
from eventlog.model.schema import to_arrow
from eventlog.rewriting.runs import ACROSS, START, rewrite_runs, with_starts
from eventlog.segments.fragments import POSITION, Reading
from eventlog.segments.vectors import VectorReader
from eventlog.staging.cutting import split_by_chunk
from eventlog.staging.external_sort import sort_on_disk
from eventlog.staging.vector_object import stage_vectors

# A row of the inputs: the number of its input, shifted, and its position there. No table has a
# column of that name: names are printable.
_ROW = pa.field("\n", pa.int64())
_SHIFT = 40
_KEPT_SHARE = 4  # of the memory, for the order of all rows


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a rewrite did, as far as the places of rows depend on it.

    Attributes:
        inputs: the segments that it read, in its order, with the vectors that they had then.
        schema: with which it read them, and wrote the outputs.
        layout: of the outputs, with their granularity.
        by: the columns that rows were sorted by.
        adds: the outputs, in the order of their chunks and rows.
        memory_bytes: about how many bytes to hold.
        order: the rows by chunk, in the order of the outputs, once they were read for that.
    """

    inputs: tuple[Segment, ...]
    schema: Schema
    layout: NamedLayout
    by: tuple[str, ...]
    adds: tuple[Add, ...]
    memory_bytes: int
    order: list[tuple[str, pa.ChunkedArray]] = field(default_factory=list, compare=False)


@dataclass
class _Places:
    """Positions of rows, counted from the first row of their chunk, by chunk."""

    marked: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def count(self, chunk: str, marks: pa.ChunkedArray) -> None:
        """Count the next rows of a chunk; those with a true mark are wanted."""
        before = self.rows.get(chunk, 0)
        found = pc.indices_nonzero(marks).to_pylist()
        self.marked.setdefault(chunk, []).extend(before + place for place in found)
        self.rows[chunk] = before + len(marks)


def translate(t: Table, made: Rewriting, now: Sequence[Segment]) -> tuple[Add, ...]:
    """Return the outputs with vectors for the rows that were deleted since the inputs were read.

    An output of which no row is left is left out. Large vectors are stored; without one, and if the
    vectors of the inputs are small and the rows were not sorted, this sends no request.

    Args:
        t: the table.
        made: the rewrite.
        now: the entries, at the newest version, of the inputs that are live still; their vectors
            may have grown. All rows of the others count as deleted.

    Raises:
        DataLoss: an input or a deletion vector is missing or damaged.
        Unavailable: the store does not answer.
    """
    head = t.session.head()
    before = VectorReader(t.store, head.version, made.inputs, head.header.table)
    after = VectorReader(t.store, head.version, now, head.header.table)
    live = {segment.id: segment for segment in now}
    deleted = {}
    for old in made.inputs:
        new = live.get(old.id)
        gone = BitMap64(range(old.rows)) if new is None else after.deleted(new)
        # against rows-deleted-before-marked-again
        deleted[old.id] = gone - before.deleted(old)
    places = _in_order(made, before, deleted)
    if places is None:
        places = _by_reading(t, made, deleted)
    return _with_vectors(t, made.adds, places)


def _in_order(
    made: Rewriting, before: VectorReader, deleted: Mapping[str, BitMap64]
) -> _Places | None:
    """Return the places by arithmetic; None if rows were sorted or cut into other chunks."""
    runs = rewrite_runs(made.inputs, made.layout.granularity)
    if made.by or ACROSS in runs:
        return None
    places = _Places()
    for chunk, inputs in runs.items():
        first = 0
        for segment in inputs:
            gone = before.deleted(segment)
            places.marked.setdefault(chunk, []).extend(
                # The rank counts the deleted rows before the position, which is not one of them.
                first + position - gone.rank(position)
                for position in deleted[segment.id]
            )
            first += segment.live_rows
        places.rows[chunk] = first
    return places


def _by_reading(t: Table, made: Rewriting, deleted: Mapping[str, BitMap64]) -> _Places:
    """Return the places by sorting and cutting the rows again, by the columns that decide."""
    gone = pa.array(
        [n << _SHIFT | at for n, one in enumerate(made.inputs) for at in deleted[one.id]],
        _ROW.type,
    )
    places = _Places()
    for chunk, rows in _order(t, made):
        places.count(chunk, pc.is_in(rows, value_set=gone))
    return places


def _order(t: Table, made: Rewriting) -> Iterable[tuple[str, pa.ChunkedArray]]:
    """Return the rows of a rewrite by chunk, in the order of its outputs; read once if they fit."""
    if made.order:  # against inputs-read-again-for-each-delete
        return made.order
    found = _in_order_again(t, made)
    size = sum(one.live_rows for one in made.inputs) * _ROW.type.bit_width // 8
    if size > made.memory_bytes // _KEPT_SHARE:
        return found
    made.order.extend(found)
    return made.order


def _in_order_again(
    t: Table, made: Rewriting
) -> Generator[tuple[str, pa.ChunkedArray], None, None]:
    """Yield the rows that the rewrite read by chunk, sorted and cut as it did."""
    for chunk, inputs in rewrite_runs(made.inputs, made.layout.granularity).items():
        across = chunk == ACROSS
        ordered = _numbered_rows(t, made, inputs)
        if made.by:
            by = (START, *made.by) if across else made.by
            started = (with_starts(table, made.layout) if across else table for table in ordered)
            ordered = sort_on_disk(started, by, memory_bytes=made.memory_bytes // 2)
        with closing(ordered):
            for table in ordered:
                if not across:
                    yield chunk, table.column(_ROW.name)
                    continue
                for bounds, part in split_by_chunk(table.combine_chunks(), made.layout):
                    yield chunk_name(*bounds), part.column(_ROW.name)


def _numbered_rows(
    t: Table, made: Rewriting, inputs: Sequence[Segment]
) -> Generator[pa.Table, None, None]:
    """Yield the rows that the rewrite read, each with the number that `_ROW` describes."""
    head = t.session.head()
    schema = to_arrow(made.schema)  # columns may have other names since
    time_column = made.layout.time_column
    names = dict.fromkeys([*made.by, *([] if time_column is None else [time_column])])
    wanted = pa.schema([*(schema.field(name) for name in names), POSITION])
    reading = Reading(
        t.store,
        head.version,
        made.schema,
        schema,
        wanted,
        ahead_bytes=made.memory_bytes // 8,
        table=head.header.table,
    )
    numbers = {segment.id: n << _SHIFT for n, segment in enumerate(made.inputs)}
    for segment, batch in reading.located(inputs):
        table = pa.Table.from_batches([batch])
        rows = pc.add(table.column(POSITION.name), numbers[segment.id]).cast(_ROW.type)
        yield table.drop_columns([POSITION.name]).append_column(_ROW, rows)


def _with_vectors(t: Table, adds: Sequence[Add], places: _Places) -> tuple[Add, ...]:
    """Return the outputs that have rows left, with vectors for the marked places."""
    kept: list[Add] = []
    some: dict[str, BitMap64] = {}
    first = dict.fromkeys(places.rows, 0)
    marked = {chunk: sorted(found) for chunk, found in places.marked.items()}
    for add in adds:
        start = first[add.chunk]
        end = first[add.chunk] = start + add.rows
        found = marked.get(add.chunk, [])
        inside = found[bisect_left(found, start) : bisect_left(found, end)]
        positions = BitMap64([place - start for place in inside])
        if len(positions) == add.rows:  # against emptied-output-kept
            continue
        kept.append(add)
        if positions:
            some[add.id] = positions
    vectors = stage_vectors(t.store, t.clock, t.session.head().version, [*some.values()])
    by_id = dict(zip(some, vectors, strict=True))
    return tuple(replace(add, vector=by_id.get(add.id, UNSET)) for add in kept)
