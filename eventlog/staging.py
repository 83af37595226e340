"""Staging: rows become immutable segments, cut by time chunk, within a bound on memory.

Shell layer. All open chunks share one budget; when it is spent the largest chunk is
written out first. Every attempt writes under keys of its own, so an attempt that dies leaves
objects that nothing refers to, and nobody deletes (hazards I1, C7).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from eventlog import codec, keys, stats
from eventlog.chunks import chunk_name
from eventlog.clock import Clock
from eventlog.cutting import sort_rows, split
from eventlog.decoding import PIECE_BYTES, pieces
from eventlog.errors import InvalidInput
from eventlog.model import Add, Column, ColumnStats, Layout, Schema
from eventlog.properties import setting
from eventlog.rows import Problem, conform
from eventlog.schema import to_arrow
from eventlog.slot import put_once
from eventlog.snapshot import Snapshot
from eventlog.store import Body, ObjectStore

DEFAULT_MEMORY_BYTES = 512 * 2**20
MIN_MEMORY_BYTES = 2**20
_UPLOADS = 4
_ROW_GROUP_ROWS = 256 * 1024
_ROW_GROUP_BYTES = 32 * 2**20  # of Arrow: where a writer takes its rows bit by bit
# How every segment is written; see `_parquet`.
_PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    # Past this many bytes a dictionary costs more than it saves (ids, measurements).
    "dictionary_pagesize_limit": 128 * 1024,
    "write_page_index": True,
    "write_page_checksum": True,
    "store_schema": False,  # the log holds the schema
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How rows of one table become segments: everything an executor needs beside the store.

    Attributes:
        epoch: the head that the job read when it started (FORMAT.md "Staging").
        schema: the schema that the segments are written with.
        layout: time column, granularity, sort order.
        stats_columns: the columns that get statistics.
        segment_bytes: Arrow bytes of a chunk that fill a segment.
    """

    epoch: int
    schema: Schema
    layout: Layout
    stats_columns: tuple[Column, ...]
    segment_bytes: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Recipe:
        """Return the recipe of a table as of a snapshot."""
        setting_text = snapshot.properties.get(stats.PROPERTY)
        kinds = {column.name: column.type for column in snapshot.stored_schema.columns}
        # Older releases took columns that have no order: they are passed over.
        order = tuple(n for n in snapshot.layout.order_by if isinstance(kinds.get(n), str))
        layout = msgspec.structs.replace(snapshot.layout, order_by=order)
        return cls(
            epoch=snapshot.version,
            schema=snapshot.stored_schema,
            layout=layout,
            stats_columns=stats.stats_columns(
                snapshot.stored_schema, setting_text, layout.time_column
            ),
            segment_bytes=setting(snapshot.properties, "segment_bytes"),
        )


@dataclass
class _Open:
    """The rows of one chunk that are not written out yet."""

    parts: list[pa.Table] = field(default_factory=list)
    size: int = 0


class Stager:
    """Takes batches and stages segments. Use as `write(...)` until the rows end, then `finish()`.

    After a problem in the rows nothing more is staged; the rest is only counted, so that the error
    says how many rows are bad.

    Args:
        store: where segments go.
        clock: ids and waits.
        recipe: how.
        memory_bytes: bound on rows held and being encoded.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        recipe: Recipe,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        if memory_bytes < MIN_MEMORY_BYTES:
            raise InvalidInput(f"memory_bytes is at least {MIN_MEMORY_BYTES}")
        self._store, self._clock, self._recipe = store, clock, recipe
        self._wanted = to_arrow(recipe.schema)
        # Cutting copies rows, encoding holds them beside their Parquet bytes, and the allocator
        # keeps what is freed: measured, a quarter for what waits keeps the whole within bounds.
        self._budget = memory_bytes // 4
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._open: dict[tuple[int, int], _Open] = {}
        self._open_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        self._flying: dict[Future[Add], int] = {}
        self._staged: list[Add] = []
        self._problems: dict[tuple[str, str], Problem] = {}
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch.

        Raises:
            Unavailable: the store does not answer.
        """
        for part in pieces(batch):
            if part.num_rows:
                self._take(part)

    def _take(self, batch: pa.RecordBatch) -> None:
        table = conform(batch, self._wanted, self._recipe.layout.time_column)
        if isinstance(table, Problem):
            self._note(table)
            return
        if self._problems:
            return
        self.rows += table.num_rows
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        # Bounded for large budgets too: what is put together stays far below 2 GiB a column.
        if self._pending_bytes >= min(self._budget // 4, PIECE_BYTES):
            self._split()

    def finish(self) -> list[Add]:
        """Write out what is left and return all staged segments, in chunk order.

        Raises:
            InvalidInput: rows were bad; nothing of this job is to be committed.
            Unavailable: the store does not answer.
        """
        if self._problems:
            raise InvalidInput("; ".join(map(_sentence, self._problems.values())))
        self._split()
        for chunk in sorted(self._open):
            self._flush(chunk, last=len(self._open) == 1)
        for future in list(self._flying):
            self._land(future)
        return sorted(self._staged, key=lambda add: add.chunk)

    def _note(self, problem: Problem) -> None:
        known = self._problems.get((problem.column, problem.why), problem)
        count = problem.count + (known.count if known is not problem else 0)
        self._problems[problem.column, problem.why] = Problem(
            problem.column, problem.why, count, known.example
        )
        self._pending, self._open = [], {}

    def _split(self) -> None:
        """Move the pending rows into their chunks; write out what is full or does not fit."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        for bounds, part in split(table, self._recipe.layout):
            chunk = self._open.setdefault(bounds, _Open())
            chunk.parts.append(part)
            chunk.size += part.nbytes
            self._open_bytes += part.nbytes
            if chunk.size >= self._recipe.segment_bytes:
                self._flush(bounds)
        while self._open_bytes > self._budget // 2 and self._open:
            self._flush(max(self._open, key=lambda bounds: self._open[bounds].size))

    def _flush(self, bounds: tuple[int, int], *, last: bool = False) -> None:
        """Write one chunk's rows out as a segment, beside others unless it is the only one."""
        chunk = self._open.pop(bounds)
        self._open_bytes -= chunk.size
        if last and not self._flying:
            self._staged.append(self._write_segment(bounds, chunk.parts))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="eventlog-stage")
        while self._flying and sum(self._flying.values()) + chunk.size > self._budget // 2:
            done, _ = wait(self._flying, return_when="FIRST_COMPLETED")
            for future in done:
                self._land(future)
        self._flying[self._pool.submit(self._write_segment, bounds, chunk.parts)] = chunk.size

    def _land(self, future: Future[Add]) -> None:
        del self._flying[future]
        self._staged.append(future.result())

    def _write_segment(self, bounds: tuple[int, int], parts: list[pa.Table]) -> Add:
        recipe = self._recipe
        table = pa.concat_tables(parts)
        if recipe.layout.order_by:
            table = sort_rows(table, recipe.layout.order_by)
        body = encode(table)
        found = stats.compute(table, recipe.stats_columns)
        add = _add(recipe, self._clock, chunk_name(*bounds), body, rows=table.num_rows, found=found)
        put_segment(self._store, self._clock, add, body)
        return add


class SegmentWriter:
    """One segment written bit by bit: what waits in memory is encoded, but for a row group.

    Use as `write(...)` for the rows in their order, then `seal()`, and store what it returns with
    `put_segment`.

    Args:
        clock: the segment's id.
        recipe: how; rows come in the order they are to have.
        chunk: name of the time chunk that all rows lie in.
        watch: is shown all rows right before they are encoded.
        group_bytes: Arrow bytes that fill a row group.
        path: a file for what is encoded, so that only rows that wait are held in memory.
    """

    def __init__(
        self,
        clock: Clock,
        recipe: Recipe,
        chunk: str,
        *,
        watch: Callable[[pa.Table], None] | None = None,
        group_bytes: int = _ROW_GROUP_BYTES,
        path: Path | None = None,
    ) -> None:
        self._clock, self._recipe, self._watch = clock, recipe, watch
        self.chunk, self._group_bytes, self._path = chunk, group_bytes, path
        self._sink = pa.BufferOutputStream() if path is None else pa.OSFile(str(path), "wb")
        schema = to_arrow(recipe.schema)
        self._file = pq.ParquetWriter(self._sink, schema, **_parquet(schema))
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._groups: list[tuple[int, tuple[ColumnStats, ...]]] = []
        self.rows = 0
        self.encoded_rows = 0

    @property
    def encoded_bytes(self) -> int:
        """Bytes of the row groups that are encoded, those of `encoded_rows` rows."""
        return int(self._sink.tell())

    @property
    def held_bytes(self) -> int:
        """What it holds in memory: encoded row groups, and rows that wait."""
        return self._pending_bytes + (0 if self._path else self.encoded_bytes)

    def write(self, table: pa.Table) -> None:
        """Take rows of exactly the recipe's schema."""
        self.rows += table.num_rows
        while table.num_rows:
            part = table.slice(0, _ROW_GROUP_ROWS - self._pending_rows)
            table = table.slice(part.num_rows)
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += part.nbytes
            if self._pending_rows >= _ROW_GROUP_ROWS or self._pending_bytes >= self._group_bytes:
                self.flush()

    def flush(self) -> None:
        """Encode the rows that wait, as a row group of their own."""
        if not self._pending:
            return
        group = pa.concat_tables(self._pending).combine_chunks()
        if self._watch is not None:
            self._watch(group)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        self._file.write_table(group, row_group_size=_ROW_GROUP_ROWS)
        self._groups.append((group.num_rows, stats.compute(group, self._recipe.stats_columns)))
        self.encoded_rows += group.num_rows

    def seal(self) -> tuple[Add, memoryview]:
        """Return the action that will add the segment, and the bytes of its object.

        Where they are in a file, that is removed; the bytes stay for as long as they are in use.
        """
        self.flush()
        self._file.close()
        if self._path is None:
            body = memoryview(self._sink.getvalue())
        else:
            self._sink.close()
            with self._path.open("rb") as file:
                body = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._path.unlink()
        found = stats.merge(self._groups)
        return _add(self._recipe, self._clock, self.chunk, body, rows=self.rows, found=found), body


def put_segment(store: ObjectStore, clock: Clock, add: Add, body: Body) -> None:
    """Store the object of a staged segment; nothing refers to it before a commit does.

    Raises:
        Unavailable: the store does not answer.
    """
    put_once(store, clock, keys.segment_key(add.epoch, add.chunk, add.id), body)


def encode(table: pa.Table) -> memoryview:
    """Return the table as the bytes of a segment: zstd Parquet with statistics."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=_ROW_GROUP_ROWS, **_parquet(table.schema))
    return memoryview(sink.getvalue())


def _parquet(schema: pa.Schema) -> dict[str, Any]:
    """Return how segments of a schema are written.

    Float columns get no statistics in the file: Arrow leaves NaN out of them, and engines that
    prune by them would not find it, which is greater than every number. Nested ones neither.
    """
    plain = (
        field.name
        for field in schema
        if not pa.types.is_floating(field.type) and not pa.types.is_nested(field.type)
    )
    return {**_PARQUET, "write_statistics": list(plain)}


def _add(
    recipe: Recipe,
    clock: Clock,
    chunk: str,
    body: memoryview,
    *,
    rows: int,
    found: tuple[ColumnStats, ...],
) -> Add:
    return Add(
        id=clock.token(),
        chunk=chunk,
        epoch=recipe.epoch,
        rows=rows,
        bytes=len(body),
        checksum=codec.sha256(body),
        schema=recipe.schema.id,
        stats=found,
    )


def _sentence(problem: Problem) -> str:
    return (
        f"column {problem.column!r}: {problem.count} {problem.why}, for example {problem.example}; "
        "nothing was committed"
    )
