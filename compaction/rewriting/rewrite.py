"""Rewriting: the rows of some segments become fewer, larger, or otherwise cut and sorted ones.

Imports eventlog and readers only. Rows stream from the inputs to the encoder within a bound on
memory, and what is written is compared with what was read before anybody may commit it (hazard
K6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa

from eventlog import Table
from eventlog.compaction.policy import Policy
from eventlog.compaction.rewriting.digest import NOTHING, Digest, check_same, digest
from eventlog.compaction.rewriting.external_sort import sort_rows
from eventlog.compaction.rewriting.outputs import Outputs, writing_bytes
from eventlog.compaction.tasks import Task
from eventlog.errors import InvalidInput
from eventlog.model.chunks import chunk_name, chunk_of, parse_chunk
from eventlog.model.records import Add, Granularity, Segment
from eventlog.model.schema import to_arrow
from eventlog.readers.fragments import Reading
from eventlog.readers.whole import read_runs
from eventlog.staging.cutting import chunk_starts, split
from eventlog.staging.encoding import Recipe

Progress = Callable[[str, int, int], None]
Pulse = Callable[[], None]
Rows = Generator[pa.Table, None, None]
_START = ""  # a column that no table has: names of columns are not empty
_PARTS = 32  # of the memory: what is divided at once
_ACROSS = "several chunks"  # the run of a task whose inputs lie across its chunks


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a rewrite staged.

    Attributes:
        adds: the new segments, in the order of their chunks and rows.
        rows: in all of them.
        bytes: size of their objects.
        digest: of the rows, which are those of the inputs.
    """

    adds: tuple[Add, ...]
    rows: int
    bytes: int
    digest: Digest


def rewrite(
    t: Table,
    task: Task,
    policy: Policy,
    *,
    progress: Progress | None = None,
    pulse: Pulse | None = None,
    verify: bool = False,
) -> Rewritten:
    """Read the task's inputs and stage the segments that are to replace them.

    Each chunk gets segments of about equal rows, as few as its size needs with none of them above
    `policy.target_bytes`, as far as that can be known. What memory has no place for lies in
    temporary files; only many chunks side by side, from coarser inputs and unsorted, get smaller
    segments then. Without columns to sort by, rows keep the order of the inputs. Columns that came
    after an input was written are null.

    Args:
        t: the table; the newest version that it knows says with which schema is written, and is
            the epoch of what is staged.
        task: what to rewrite.
        policy: sizes, sort order, memory.
        progress: is told ("rows", done, of so many).
        pulse: is called between batches of rows; what it raises ends the rewrite.
        verify: decode what was encoded and compare that, instead of what was handed to the encoder.

    Raises:
        Corrupt: what was written is not what was read.
        DataLoss: an input is missing or damaged.
        InvalidInput: a column to sort by is not there, or has no order.
        Unavailable: the store does not answer.
        OSError: no place on disk.
    """
    head = t.head()
    recipe = Recipe.of(head)
    layout = msgspec.structs.replace(recipe.layout, granularity=task.granularity)
    recipe = replace(recipe, layout=layout)
    by = layout.order_by if policy.sort_by is None else policy.sort_by
    check_sort(recipe, by)
    schema = to_arrow(recipe.schema)
    memory = policy.memory_bytes
    reading = Reading(
        t.store, head.version, schema, schema, ahead_bytes=memory // 8, table=head.header.table
    )
    runs = _runs(task)
    on_disk = (by or _ACROSS not in runs) and policy.target_bytes > writing_bytes(memory)
    with (
        TemporaryDirectory(prefix="eventlog-rewrite-") if on_disk else nullcontext() as folder,
        Outputs(
            t.store, t.clock, recipe, policy.target_bytes, memory, folder=folder, verify=verify
        ) as outputs,
        closing(read_runs(reading, runs.items())) as tables,
    ):
        work = _Work(outputs, recipe, by, memory, pulse or (lambda: None))
        written = work.run(runs, _told(tables, progress, task.rows), t.uri)
        adds = tuple(outputs.finish())
    if sum(add.rows for add in adds) != task.rows:
        check_same(Digest(task.rows, {}), written, ", ".join(runs), t.uri)
    return Rewritten(adds, written.rows, sum(add.bytes for add in adds), written)


def check_sort(recipe: Recipe, by: Sequence[str]) -> None:
    """Check that rows can be sorted by these columns.

    Raises:
        InvalidInput: naming the column.
    """
    kinds = {column.name: column.type for column in recipe.schema.columns}
    for name in by:
        if name not in kinds:
            raise InvalidInput(f"cannot sort by column {name!r}: the table does not have it")
        if not isinstance(kinds[name], str):
            raise InvalidInput(f"cannot sort by column {name!r}: nested values have no order")


def enclosing_chunk(chunk: str, granularity: Granularity) -> str | None:
    """Return the chunk of a granularity that a chunk lies in; None where it lies across several."""
    inner = parse_chunk(chunk)
    outer = chunk_of(inner.start, granularity)
    return outer.name if inner.end <= outer.end else None


def _runs(task: Task) -> dict[str, list[Segment]]:
    """Return the inputs by the chunk that takes all of their rows, or all in one run."""
    runs: dict[str, list[Segment]] = {}
    for segment in task.inputs:
        name = enclosing_chunk(segment.chunk, task.granularity)
        if name is None:
            return {_ACROSS: list(task.inputs)}
        runs.setdefault(name, []).append(segment)
    return runs


def _told(
    tables: Iterator[tuple[str, pa.Table]], progress: Progress | None, total: int
) -> Iterator[tuple[str, pa.Table]]:
    done = 0
    for name, table in tables:
        yield name, table
        done += table.num_rows
        if progress is not None:
            progress("rows", done, total)


def _joined(tables: Iterable[pa.Table], size: int) -> Rows:
    """Yield the rows in parts of at least so many bytes."""
    parts: list[pa.Table] = []
    held = 0
    for table in tables:
        parts.append(table)
        held += table.nbytes
        if held >= size:
            yield pa.concat_tables(parts)
            parts, held = [], 0
    if parts:
        yield pa.concat_tables(parts)


class _Work:
    """The way of rows from the reader through the sorter into the outputs."""

    def __init__(
        self, outputs: Outputs, recipe: Recipe, by: Sequence[str], memory_bytes: int, pulse: Pulse
    ) -> None:
        self._outputs, self._layout, self._by = outputs, recipe.layout, by
        self._memory_bytes, self._pulse = memory_bytes, pulse
        self._read = NOTHING

    def run(
        self,
        runs: Mapping[str, Sequence[Segment]],
        tables: Iterator[tuple[str, pa.Table]],
        table: str,
    ) -> Digest:
        """Write the rows of all runs, compare them run by run, and return their digest.

        Raises:
            Corrupt: what was written is not what was read.
        """
        written = NOTHING
        for name, found in groupby(tables, key=lambda pair: pair[0]):
            self._read = self._outputs.written = NOTHING
            self._write(name, (rows for _, rows in found), runs[name])
            self._outputs.seal()
            # against written-rows-not-compared
            check_same(self._read, self._outputs.written, name, table)
            written += self._outputs.written
        return written

    def _write(self, name: str, tables: Iterable[pa.Table], inputs: Sequence[Segment]) -> None:
        """Write the rows of one run."""
        rows = sum(segment.rows for segment in inputs)
        row_bytes = sum(segment.bytes for segment in inputs) / max(1, rows)
        if name == _ACROSS:
            self._divide(self._watched(tables), row_bytes)
            return
        self._outputs.open(name, rows, row_bytes)
        with closing(self._ordered(self._watched(tables), self._by)) as ordered:
            for table in ordered:
                self._pulse()
                self._outputs.write(name, table)

    def _divide(self, tables: Iterable[pa.Table], row_bytes: float) -> None:
        """Write rows that belong to several chunks: side by side or, sorted, one after another."""
        outputs, layout, by = self._outputs, self._layout, self._by
        # Few large parts fall into fewer small ones than many small parts do.
        tables = _joined(tables, self._memory_bytes // _PARTS)
        if by:
            tables = map(self._with_starts, tables)
        with closing(self._ordered(tables, (_START, *by) if by else ())) as ordered:
            for table in ordered:
                self._pulse()
                plain = table.drop_columns([_START]) if by else table
                for bounds, part in split(plain.combine_chunks(), layout):
                    chunk = chunk_name(*bounds)
                    if by and not outputs.is_open(chunk):
                        outputs.seal()  # those before it are complete
                    outputs.open(chunk, None, row_bytes)
                    outputs.write(chunk, part)

    def _ordered(self, tables: Iterable[pa.Table], by: Sequence[str]) -> Rows:
        if by:
            yield from sort_rows(tables, by, memory_bytes=self._memory_bytes // 2)
        else:
            yield from tables

    def _watched(self, tables: Iterable[pa.Table]) -> Rows:
        for table in tables:
            self._pulse()
            self._read += digest(table, self._layout.time_column)
            yield table

    def _with_starts(self, table: pa.Table) -> pa.Table:
        starts = chunk_starts(table.column(self._layout.time_column), self._layout.granularity)
        return table.append_column(_START, starts)
