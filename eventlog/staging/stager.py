"""Staging: rows become immutable segments, split by time chunk, in bounded memory.

All open chunks share one memory budget; when it is used up, the largest chunk is written first.
Every attempt writes under fresh keys, so a failed attempt leaves objects that nothing refers to;
the writer does not delete them (hazards I1, C7).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog import limits
from eventlog.arguments import whole
from eventlog.clock import Clock
from eventlog.errors import InvalidInput
from eventlog.inline import inline_objects
from eventlog.model import stats
from eventlog.model.actions import Add
from eventlog.model.chunks import chunk_name
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.entries import Slice
from eventlog.model.schema import to_arrow
from eventlog.query.row_checks import RowChecks
from eventlog.staging import upsert_rows
from eventlog.staging.compact_arrays import PIECE_BYTES, even, pieces
from eventlog.staging.cutting import bounded, chunk_sizes, sort_rows, split_by_chunk
from eventlog.staging.encoding import Recipe, encode_segment, make_add, put_segment
from eventlog.staging.fitting import ARROW_TIMES, PARTS_COARSEST, coarser_fit
from eventlog.staging.incoming.absent_columns import with_defaults, write_defaults
from eventlog.staging.incoming.casting import conform
from eventlog.staging.incoming.problems import Problem
from eventlog.staging.uploads import Uploads
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

DEFAULT_MEMORY_BYTES = 512 * 2**20
MIN_MEMORY_BYTES = 2**20
_UPLOADS = 4
_SMALLER = 16  # times: rows that take more in Arrow hardly ever become as few bytes as a commit has


@dataclass
class _Open:
    """The rows of one chunk that are not written yet."""

    parts: list[pa.Table] = field(default_factory=list)
    size: int = 0


# Overhead of an array beside its values; in small batches it is larger than they are.
_ARRAY_BYTES = 1024


class Stager:
    """Takes batches and stages segments. Call `write(...)` for every batch, then `finish()`.

    After a problem in the rows nothing more is staged; the remaining rows are only checked, so that
    the error counts all bad ones.

    Args:
        store: receives the segments.
        clock: for ids and pauses.
        recipe: how the segments are written.
        memory_bytes: bound on the memory for rows, including those being encoded.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        recipe: Recipe,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        memory_bytes = whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES)
        self._store, self._clock, self._recipe = store, clock, recipe
        self._wanted = to_arrow(recipe.schema)
        self._defaults = write_defaults(recipe.schema)
        # Splitting copies rows, encoding holds them beside their Parquet bytes, and the allocator
        # retains freed memory. By measurement, a quarter of the bound for waiting rows keeps the
        # total within it.
        self._budget = memory_bytes // 4
        self._piece_bytes = max(recipe.segment_bytes, self._budget // 4)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._open: dict[tuple[int, int], _Open] = {}
        self._open_bytes = 0
        self._uploads: Uploads[list[Add]] = Uploads(_UPLOADS, self._budget // 2)
        self._staged: list[Add] = []
        self._flushed = False
        self._all_rows = False  # whether no chunk was written before the last row came
        self._problems: dict[tuple[str, str], Problem] = {}
        self._checks = RowChecks(recipe.schema, checks_of(recipe.schema), recipe.tested)
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._uploads.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch.

        Raises:
            InvalidInput: a row is larger than the format allows.
            Unavailable: the store does not answer.
        """
        batch = even(batch)
        # Nulls for missing columns take memory here, though none in the batch.
        nulls = sum(_value_bytes(f.type) for f in self._wanted if _is_missing(batch.schema, f.name))
        most = max(1, self._budget // 4 // nulls) if nulls else batch.num_rows
        for start in range(0, batch.num_rows, most or 1):
            for part in pieces(batch.slice(start, most)):
                self._take(part)

    def _take(self, batch: pa.RecordBatch) -> None:
        table = self._conformed(batch)
        if isinstance(table, Problem):
            self._note(table)
            return
        self._checks.look_at(table)
        if self._checks.broken:
            self._pending, self._open = [], {}
        if self._problems or self._checks.broken:
            return
        # One large batch must give the same segments as several small ones.
        for rows in bounded(table, table.num_rows, self._piece_bytes):
            self._hold(rows)

    def _conformed(self, batch: pa.RecordBatch) -> pa.Table | Problem:
        """Return the rows in the form in which they are held, or the first problem in them."""
        rule, layout = self._recipe.rule, self._recipe.layout
        given = batch.schema
        batch = with_defaults(batch, self._defaults)
        if rule is None:
            return conform(batch, self._wanted, layout.time_column)
        wanted = upsert_rows.incoming(self._wanted, rule, batch.schema)
        # A delete of a key that is unique in the table needs no event time.
        timeless = wanted is not self._wanted and layout.granularity == "all"
        table = conform(batch, wanted, layout.time_column, time_required=not timeless)
        if isinstance(table, Problem):
            return table
        chunked_by = None if layout.granularity == "all" else layout.time_column
        lacking = [] if self._recipe.fills else upsert_rows.erased(self._wanted, rule, given)
        return upsert_rows.checked(table, self._wanted, rule, chunked_by, lacking)

    def _hold(self, rows: pa.Table) -> None:
        size = rows.nbytes
        if size > limits.ROW_BYTES and rows.num_rows == 1:
            name = max(rows.column_names, key=lambda name: rows.column(name).nbytes)
            raise InvalidInput(
                f"row {self.rows} takes {size} bytes, most of them in column {name!r}; a row may "
                f"take at most {limits.ROW_BYTES}: store such values elsewhere, and their location "
                "here; nothing was committed"
            )
        self.rows += rows.num_rows
        self._pending.append(rows)
        self._pending_bytes += size + _ARRAY_BYTES * rows.num_columns
        # PIECE_BYTES keeps the combined columns far below 2 GiB, whatever the budget is.
        if self._pending_bytes >= min(self._budget // 4, PIECE_BYTES):
            self._split()

    def finish(self) -> list[Add]:
        """Write the remaining rows and return all staged segments, in chunk order.

        Raises:
            InvalidInput: some rows were bad; nothing may be committed.
            Unavailable: the store does not answer.
        """
        self._refuse()
        self._split(goes_on=False)
        self._all_rows = not self._flushed
        if self._may_be_inline():
            return self._staged_together()
        for chunk in sorted(self._open):
            self._flush(chunk, last=len(self._open) == 1)
        uploaded = (add for adds in self._uploads.results() for add in adds)
        staged = [*uploaded, *self._staged]
        return sorted(staged, key=lambda add: add.chunk)

    def _may_be_inline(self) -> bool:
        """Return whether the bytes of all segments are few enough to stand in the commit, maybe."""
        most = _SMALLER * self._recipe.inline_bytes
        return bool(self._open) and not self._flushed and self._open_bytes <= most

    def _staged_together(self) -> list[Add]:
        """Return the adds of all rows, which have their bytes if these are few; else store them."""
        chunks = [(chunk, self._open.pop(chunk)) for chunk in sorted(self._open)]
        segments = [one for bounds, open_ in chunks for one in self._segments(bounds, open_.parts)]
        adds = [add for add, _ in segments]
        # against large-rows-in-the-commit
        if sum(add.bytes for add in adds) > self._recipe.inline_bytes:
            list(each(lambda one: put_segment(self._store, self._clock, *one), segments))
            return adds
        adds = [msgspec.structs.replace(add, parquet=bytes(body)) for add, body in segments]
        inline_objects.remember_objects(adds)
        return adds

    def few(self, most_bytes: int) -> pa.Table | None:
        """Return all rows, in the table's types, if they are few and nothing was staged yet.

        Another stager that is handed them stages the same rows as this one would.

        Args:
            most_bytes: bytes of Arrow data above which they are not few.

        Raises:
            InvalidInput: some rows were bad.
        """
        self._refuse()
        if self._open or self._staged or self._uploads.under_way():
            return None
        if not self._pending or self._pending_bytes > most_bytes:
            return None
        return pa.concat_tables(self._pending)

    def _refuse(self) -> None:
        if self._problems:
            raise InvalidInput("; ".join(map(_sentence, self._problems.values())))
        self._checks.refuse("nothing was committed")

    def _note(self, problem: Problem) -> None:
        known = self._problems.get((problem.column, problem.why), problem)
        count = problem.count + (known.count if known is not problem else 0)
        self._problems[problem.column, problem.why] = Problem(
            problem.column, problem.why, count, known.example
        )
        self._pending, self._open = [], {}

    def _split(self, *, goes_on: bool = True) -> None:
        """Move the pending rows into their chunks; write chunks that are full or do not fit."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        try:
            table = table.combine_chunks()
        except pa.ArrowIndexError:  # raised for empty lists whose offset is out of bounds
            copies = [part.take(pa.array(range(part.num_rows))) for part in table.to_batches()]
            table = pa.Table.from_batches(copies).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        self._recipe = _fitting(self._recipe, table, goes_on=goes_on)
        for bounds, part in split_by_chunk(table, self._recipe.layout):
            chunk = self._open.setdefault(bounds, _Open())
            chunk.parts.append(part)
            size = part.nbytes
            chunk.size += size
            self._open_bytes += size
            if chunk.size >= self._recipe.segment_bytes:
                self._flush(bounds)
        while self._open_bytes > self._budget // 2 and self._open:
            self._flush(max(self._open, key=lambda bounds: self._open[bounds].size))

    def _flush(self, bounds: tuple[int, int], *, last: bool = False) -> None:
        """Write one chunk's rows as a segment; in a thread, unless it is the only one."""
        self._flushed = True
        chunk = self._open.pop(bounds)
        self._open_bytes -= chunk.size
        if last and not self._uploads.under_way():
            self._staged += self._write_segments(bounds, chunk.parts)
            return
        self._uploads.add(chunk.size, self._write_segments, bounds, chunk.parts)

    def _write_segments(self, bounds: tuple[int, int], parts: list[pa.Table]) -> list[Add]:
        """Store a chunk's rows as one segment or more."""
        adds = []
        for add, body in self._segments(bounds, parts):
            put_segment(self._store, self._clock, add, body)
            adds.append(add)
        return adds

    def _segments(
        self, bounds: tuple[int, int], parts: list[pa.Table]
    ) -> Iterator[tuple[Add, memoryview]]:
        """Yield the segments of a chunk's rows, each with the bytes of its object."""
        recipe = self._recipe
        table = pa.concat_tables(parts)
        if recipe.rule is not None:
            rule, most, whole = recipe.rule, recipe.bucket_bytes, self._all_rows
            cuts = upsert_rows.cut(table, self._wanted, rule, most, all_rows=whole)
            splits = recipe.rule.splits or UNSET
            for cut in cuts:
                place = Slice("log", cut.first, cut.last, None, None, 0, None, splits)
                yield self._segment(bounds, cut.rows, place)
            return
        if recipe.layout.order_by:
            table = sort_rows(table, recipe.layout.order_by)
        yield self._segment(bounds, table)

    def _segment(
        self, bounds: tuple[int, int], table: pa.Table, place: Slice | UnsetType = UNSET
    ) -> tuple[Add, memoryview]:
        recipe = self._recipe
        encoded = encode_segment(table, recipe.schema, recipe.sorted_by)
        column_stats = stats.compute(table, recipe.stats_columns)
        add = make_add(
            recipe,
            self._clock,
            chunk_name(*bounds),
            encoded,
            rows=table.num_rows,
            column_stats=column_stats,
            place=place,
        )
        return add, encoded.body


def _fitting(recipe: Recipe, table: pa.Table, *, goes_on: bool) -> Recipe:
    """Return the recipe with the granularity that the first rows suggest, if they may."""
    coarsest, layout = recipe.coarsest, recipe.layout
    if coarsest is None:
        return recipe
    sizes, target = chunk_sizes(table, layout), ARROW_TIMES * recipe.segment_bytes
    if goes_on:
        coarsest = PARTS_COARSEST
    wanted = coarser_fit(sizes, layout.granularity, target, coarsest=coarsest)
    cut = msgspec.structs.replace(layout, granularity=wanted)
    return dataclasses.replace(recipe, layout=cut, coarsest=None)


def _is_missing(given: pa.Schema, name: str) -> bool:
    at = given.get_field_index(name)
    return at < 0 or bool(pa.types.is_null(given.field(at).type))


def _value_bytes(kind: pa.DataType) -> int:
    """Return the bytes of a null of a type, or slightly more."""
    if pa.types.is_struct(kind):
        return 1 + sum(_value_bytes(field.type) for field in kind)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return max(1, int(kind.bit_width) // 8)
    return 4  # an offset


def _sentence(problem: Problem) -> str:
    return (
        f"column {problem.column!r}: {problem.count} {problem.why}, for example {problem.example}; "
        "nothing was committed"
    )
