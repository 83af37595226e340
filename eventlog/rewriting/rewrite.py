"""Rewriting: turns segments into fewer, larger, or differently cut and sorted segments.

Imports eventlog and readers only. Rows stream from the inputs to the encoder in bounded memory. The
rows written are compared with the rows read before they can be committed (hazard K6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.errors import InvalidInput
from eventlog.model.actions import Add
from eventlog.model.chunks import chunk_name
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Granularity, Schema, Segment
from eventlog.model.records import packs_of
from eventlog.model.schema import check_timeless, to_arrow
from eventlog.rewriting.outputs import Outputs, Sizes, writing_bytes
from eventlog.rewriting.row_digest import NOTHING, Digest, check_same, digest
from eventlog.rewriting.runs import ACROSS, START, rewrite_runs, with_starts
from eventlog.rewriting.stored_rows import Taken, Taking, read_or_take
from eventlog.segments.fragments import Reading
from eventlog.staging.cutting import split_by_chunk
from eventlog.staging.encoding import Recipe, footer_without_rows
from eventlog.staging.external_sort import sort_on_disk

Progress = Callable[[str, int, int], None]
Pulse = Callable[[], None]
Rows = Generator[pa.Table, None, None]
_TAKEN_PARTS = 16  # fraction of the memory for a segment that is taken as it is stored
_PARTS = 32  # fraction of the memory that is divided at once


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a rewrite.

    Attributes:
        adds: the new segments, in the order of their chunks and rows.
        rows: number of rows in all of them.
        bytes: total size of their objects.
        digest: digest of the rows, equal to that of the inputs.
        schema: of the new segments.
        layout: of the new segments.
        by: the columns that rows were sorted by.
    """

    adds: tuple[Add, ...]
    rows: int
    bytes: int
    digest: Digest
    schema: Schema
    layout: NamedLayout
    by: tuple[str, ...]


def rewrite(
    t: Table,
    inputs: Sequence[Segment],
    granularity: Granularity,
    sizes: Sizes,
    *,
    sort_by: Sequence[str] | None = None,
    progress: Progress | None = None,
    pulse: Pulse | None = None,
    verify: bool = False,
) -> Rewritten:
    """Read the inputs and stage the segments that will replace them.

    Each chunk gets the fewest segments of about equal rows such that none exceeds
    `sizes.target_bytes`, as far as sizes can be estimated. Data beyond the memory limit is kept in
    temporary files; only unsorted rows of coarser inputs, written to many chunks at once, get
    smaller segments instead. Without columns to sort by, rows keep the order of the inputs.

    Args:
        t: the table. Its newest known version provides the schema and is the epoch of the staged
            segments.
        inputs: live segments, in (chunk start, chunk end, version, partition) order.
        granularity: granularity of the new segments.
        sizes: the sizes of segments and of memory.
        sort_by: columns by which rows are sorted; the table's `order_by` if None.
        progress: called with ("rows", done, total).
        pulse: called between batches of rows; an exception from it ends the rewrite.
        verify: decode the encoded segments and compare those rows, instead of the encoder's input.

    Raises:
        Corrupt: the rows written are not the rows read.
        DataLoss: an input is missing or damaged.
        InvalidInput: a column to sort by does not exist, or is nested; or the table has no time
            column to cut smaller chunks by.
        Unavailable: the store does not answer.
        OSError: the disk is full.
    """
    head = t.session.head()
    recipe = _recut(Recipe.of(head), granularity)
    by = recipe.layout.order_by if sort_by is None else sort_by
    check_sort(recipe, by)
    reading = _reading(t, head, to_arrow(recipe.schema), memory := sizes.memory_bytes)
    runs = rewrite_runs(inputs, granularity)
    total = sum(segment.live_rows for segment in inputs)
    on_disk = (by or ACROSS not in runs) and sizes.target_bytes > writing_bytes(memory)
    taking = _taking(recipe, inputs, sizes, verify) if not by and ACROSS not in runs else None
    form = None if taking is None else taking.form
    opened = partial(Outputs, t.store, t.clock, recipe, sizes, verify=verify, form=form)
    with (
        TemporaryDirectory(prefix="eventlog-rewrite-") if on_disk else nullcontext() as folder,
        opened(folder=folder) as outputs,
        closing(read_or_take(reading, runs, taking)) as tables,
    ):
        work = _Work(outputs, recipe, by, memory, pulse)
        written = work.run(runs, _with_progress(tables, progress, total), t.uri)
        adds = tuple(outputs.finish())
    if sum(add.rows for add in adds) != total:
        check_same(Digest(total, {}), written, ", ".join(runs), t.uri)
    size = sum(add.bytes for add in adds)
    return Rewritten(adds, written.rows, size, written, recipe.schema, recipe.layout, tuple(by))


def _taking(recipe: Recipe, inputs: Sequence[Segment], sizes: Sizes, verify: bool) -> Taking | None:
    """Return how inputs are taken as they are stored, where rows keep their order; None: none."""
    most = min(sizes.memory_bytes // _TAKEN_PARTS, sizes.target_bytes)
    taking = Taking(recipe, footer_without_rows(recipe), most, digests=verify)
    return taking if any(map(taking.may_take, inputs)) else None


def _recut(recipe: Recipe, granularity: Granularity) -> Recipe:
    """Return a recipe with another granularity.

    Raises:
        InvalidInput: the table has no time column to cut smaller chunks by.
    """
    if recipe.layout.time_column is None:
        check_timeless(granularity)
    layout = msgspec.structs.replace(recipe.layout, granularity=granularity)
    return replace(recipe, layout=layout)


def _reading(t: Table, head: Snapshot, schema: pa.Schema, memory: int) -> Reading:
    """Return how inputs are read: an input with nulls in a required column counts as damaged."""
    return Reading(
        t.store,
        head.version,
        head.stored_schema,
        schema,
        schema,
        ahead_bytes=memory // 8,
        table=head.header.table,
        required=frozenset(field.name for field in schema if not field.nullable),
        packs=packs_of(head.base),
    )


def check_sort(recipe: Recipe, by: Sequence[str]) -> None:
    """Check that rows can be sorted by these columns.

    Raises:
        InvalidInput: they cannot; the message names the column.
    """
    kinds = {column.name: column.type for column in recipe.schema.columns}
    for name in by:
        if name not in kinds:
            raise InvalidInput(f"cannot sort by column {name!r}: the table does not have it")
        if not isinstance(kinds[name], str):
            raise InvalidInput(f"cannot sort by column {name!r}: nested values have no order")


def _with_progress(
    tables: Iterator[tuple[str, pa.Table | Taken]], progress: Progress | None, total: int
) -> Iterator[tuple[str, pa.Table | Taken]]:
    done = 0
    for name, table in tables:
        yield name, table
        done += table.num_rows
        if progress is not None:
            progress("rows", done, total)


def _joined(tables: Iterable[pa.Table], size: int) -> Rows:
    """Yield the rows in parts of at least `size` bytes."""
    parts: list[pa.Table] = []
    gathered = 0
    for table in tables:
        parts.append(table)
        gathered += table.nbytes
        if gathered >= size:
            yield pa.concat_tables(parts)
            parts, gathered = [], 0
    if parts:
        yield pa.concat_tables(parts)


class _Work:
    """Passes rows from the reader through the sorter to the outputs."""

    def __init__(
        self,
        outputs: Outputs,
        recipe: Recipe,
        by: Sequence[str],
        memory_bytes: int,
        pulse: Pulse | None,
    ) -> None:
        self._outputs, self._layout, self._by = outputs, recipe.layout, by
        self._memory_bytes, self._pulse = memory_bytes, pulse or (lambda: None)
        self._read = NOTHING

    def run(
        self,
        runs: Mapping[str, Sequence[Segment]],
        tables: Iterator[tuple[str, pa.Table | Taken]],
        table: str,
    ) -> Digest:
        """Write the rows of all runs, compare them run by run, and return their digest.

        Raises:
            Corrupt: the rows written are not the rows read.
        """
        written = NOTHING
        for name, named_tables in groupby(tables, key=lambda pair: pair[0]):
            self._read = self._outputs.written = NOTHING
            self._write_run(name, (rows for _, rows in named_tables), runs[name])
            self._outputs.seal()
            # against written-rows-not-compared
            check_same(self._read, self._outputs.written, name, table)
            written += self._outputs.written
        return written

    def _write_run(
        self, name: str, parts: Iterable[pa.Table | Taken], inputs: Sequence[Segment]
    ) -> None:
        """Write the rows of one run."""
        rows = sum(segment.live_rows for segment in inputs)
        stored = sum(segment.rows for segment in inputs)
        row_bytes = sum(segment.bytes for segment in inputs) / max(1, stored)
        if name != ACROSS:
            self._outputs.open(name, rows, row_bytes)
        for kind, some in groupby(parts, key=type):
            if kind is Taken:
                self._take(name, some)
            elif name == ACROSS:
                self._divide(self._watched(some), row_bytes)
            else:
                self._write(name, some)

    def _take(self, name: str, parts: Iterable[Taken]) -> None:
        """Take the rows of segments as they are stored."""
        for part in parts:
            self._pulse()
            self._read += part.digest
            self._outputs.take(name, part)

    def _write(self, name: str, tables: Iterable[pa.Table]) -> None:
        """Write rows of one chunk."""
        with closing(self._ordered(self._watched(tables), self._by)) as ordered:
            for table in ordered:
                self._pulse()
                self._outputs.write(name, table)

    def _divide(self, tables: Iterable[pa.Table], row_bytes: float) -> None:
        """Write rows of several chunks: interleaved or, if sorted, one chunk after another."""
        outputs, layout, by = self._outputs, self._layout, self._by
        # Dividing a few large parts gives fewer pieces than dividing many small ones.
        tables = _joined(tables, self._memory_bytes // _PARTS)
        if by:
            tables = (with_starts(table, layout) for table in tables)
        with closing(self._ordered(tables, (START, *by) if by else ())) as ordered:
            for table in ordered:
                self._pulse()
                plain = table.drop_columns([START]) if by else table
                for bounds, part in split_by_chunk(plain.combine_chunks(), layout):
                    chunk = chunk_name(*bounds)
                    if by and not outputs.is_open(chunk):
                        outputs.seal()  # the chunks before it are complete
                    outputs.open(chunk, None, row_bytes)
                    outputs.write(chunk, part)

    def _ordered(self, tables: Iterable[pa.Table], by: Sequence[str]) -> Rows:
        if by:
            yield from sort_on_disk(tables, by, memory_bytes=self._memory_bytes // 2)
        else:
            yield from tables

    def _watched(self, tables: Iterable[pa.Table]) -> Rows:
        for table in tables:
            self._pulse()
            self._read += digest(table, self._layout.time_column)
            yield table
