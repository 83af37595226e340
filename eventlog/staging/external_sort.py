"""Sorts more rows than fit into memory: sorted runs on disk, merged range by range.

Writes files to a temporary directory and removes them again. Nulls sort last, NaN after all
numbers; the sort is stable.

The runs are cut at keys sampled from them, densely enough for the rows between two cuts to fit into
memory, whatever the sizes of single rows. Rows equal to a cut need no sorting, however many there
are, because the runs are in the order of their rows. (External merge sort as in Knuth, TAOCP 3,
5.4; the cuts as in sample sort.)
"""

from __future__ import annotations

import mmap
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from eventlog.staging import cutting

# A value's sort key: its class (value, NaN, null), and the value if it has one.
_Part = tuple[int, Any]
_Key = tuple[_Part, ...]
_NAN: _Part = (1, None)
_NULL: _Part = (2, None)
_TEXT_BYTES = 256  # rows are not cut between texts whose first bytes, this many, are equal


def sort_on_disk(
    tables: Iterable[pa.Table],
    by: Sequence[str],
    *,
    memory_bytes: int,
    directory: str | None = None,
) -> Generator[pa.Table, None, None]:
    """Yield all rows in the order of the columns `by`, ascending.

    Close the iterator if it is not read to its end: that removes the files at once.

    Args:
        tables: the rows, in parts with the same schema.
        by: names of columns, most significant first.
        memory_bytes: memory for sorting, not including the parts that it is given.
        directory: directory for the runs; the system's temporary directory if None.

    Raises:
        OSError: the disk is full.
    """
    # A run is in memory three times: as parts, as one table, and sorted.
    budget = max(1, memory_bytes // 4)
    with tempfile.TemporaryDirectory(prefix="eventlog-sort-", dir=directory) as folder:
        runs: list[_Run] = []
        part: list[pa.Table] = []
        size = 0
        for table in tables:
            part.append(table)
            size += table.nbytes
            if size >= budget:
                runs.append(_spill(part, by, Path(folder, f"{len(runs)}.arrow")))
                part, size = [], 0
        if not runs:
            if part:
                yield _sorted(part, by)
            return
        if part:
            runs.append(_spill(part, by, Path(folder, f"{len(runs)}.arrow")))
        del part
        yield from _merged(runs, by, budget)


def _sorted(parts: Sequence[pa.Table], by: Sequence[str]) -> pa.Table:
    return cutting.sort_rows(pa.concat_tables(parts), by)


class _Run:
    """One sorted run on disk, mapped into memory."""

    def __init__(self, path: Path, by: Sequence[str]) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.table = pa.ipc.open_file(pa.py_buffer(self._map)).read_all()
        self._by = by
        self._keys: list[_Key] = []  # of sampled rows
        self._rows: list[int] = []

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, row: int) -> _Key:
        parts: list[_Part] = []
        for name in self._by:
            parts.append(_place(self.table.column(name)[row]))
            if _is_cut_off(parts[-1]):
                break
        return tuple(parts)

    def sampled(self, share: int) -> list[tuple[_Key, int]]:
        """Return the key of the first of about each `share` bytes of rows, and their bytes."""
        steps = list(_steps(self.table, share))
        self._rows = [row for row, _ in steps]
        self._keys = [self[row] for row in self._rows]
        self.release()  # a sample every few pages would keep most of the file in memory
        return [(key, size) for key, (_, size) in zip(self._keys, steps, strict=True)]

    def below(self, key: _Key) -> int:
        """Return how many rows come before a key."""
        place = bisect_left(self._keys, key)
        rows = bisect_left(self, key, *self._near(place))
        self.release()  # each row that is looked at maps those around it
        return rows

    def up_to(self, key: _Key) -> int:
        """Return how many rows come before a key or have it."""
        place = bisect_right(self._keys, key)
        rows = bisect_right(self, key, *self._near(place))
        self.release()
        return rows

    def _near(self, place: int) -> tuple[int, int]:
        """Return the rows between which a key lies, given its place among the samples."""
        low = self._rows[place - 1] if place else 0
        return low, self._rows[place] if place < len(self._rows) else len(self)

    def release(self) -> None:
        """Release the pages that were read."""
        self._map.madvise(mmap.MADV_DONTNEED)


def _spill(parts: Sequence[pa.Table], by: Sequence[str], path: Path) -> _Run:
    table = _sorted(parts, by).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        # One batch, so that access to a row needs no search for its Arrow chunk.
        file.write_table(table, max_chunksize=max(1, table.num_rows))
    return _Run(path, by)


def _merged(runs: Sequence[_Run], by: Sequence[str], budget: int) -> Iterator[pa.Table]:
    done = [0] * len(runs)
    for cut in _cuts(runs, budget):
        below = [run.below(cut) for run in runs]
        yield from _range(runs, done, below, by)
        equal = [run.up_to(cut) for run in runs]
        if _is_cut_off(cut[-1]):  # these differ
            yield from _range(runs, below, equal, by)
            below = equal
        for run, start, end in zip(runs, below, equal, strict=True):
            for piece in cutting.bounded(run.table.slice(start, end - start), end, budget):
                yield piece
                run.release()
        done = equal
    yield from _range(runs, done, list(map(len, runs)), by)


def _range(
    runs: Sequence[_Run], start: Sequence[int], end: Sequence[int], by: Sequence[str]
) -> Iterator[pa.Table]:
    parts = [
        run.table.slice(low, high - low)
        for run, low, high in zip(runs, start, end, strict=True)
        if high > low
    ]
    if parts:
        yield _sorted(parts, by)
        for run in runs:
            run.release()


def _cuts(runs: Sequence[_Run], budget: int) -> list[_Key]:
    """Return ascending keys with about `budget` bytes of rows between two of them at most.

    Between two neighbouring samples each run has fewer bytes than its share, or a single row.
    """
    share = max(1, budget // (2 * len(runs)))
    samples = sorted((s for run in runs for s in run.sampled(share)), key=lambda sample: sample[0])
    cuts: list[_Key] = []
    gathered = 0
    for key, size in samples:
        if gathered + size > budget // 2 and (not cuts or key != cuts[-1]):
            cuts.append(key)
            gathered = 0
        gathered += size
    return cuts


def _steps(table: pa.Table, share: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces of a table of at most about `share` bytes begin, and their bytes."""
    apart = max(1, share * table.num_rows // max(1, table.nbytes))
    for start in range(0, table.num_rows, apart):
        piece = table.slice(start, apart)
        if piece.nbytes <= 2 * share:
            yield start, piece.nbytes
            continue
        for part in cutting.bounded(piece, apart, share):
            yield start, part.nbytes
            start += part.num_rows  # noqa: PLW2901


def whole_keys(tables: Iterable[pa.Table], key: Sequence[str]) -> Iterator[pa.Table]:
    """Yield sorted rows in tables that have all rows of each of their keys.

    Args:
        tables: the rows, sorted by `key`.
        key: names of columns.
    """
    rest: pa.Table | None = None
    for table in tables:
        rows = table if rest is None else pa.concat_tables([rest, table])
        if not rows.num_rows:
            continue
        ends = _of_last_key(rows, key)
        first = rows.num_rows - ends
        rest = rows.slice(first)
        if first:
            yield rows.slice(0, first)
    if rest is not None and rest.num_rows:
        yield rest


def _of_last_key(rows: pa.Table, key: Sequence[str]) -> int:
    """Return how many of the last rows have the key of the last one; rows are sorted by key."""
    low, high = 0, rows.num_rows - 1
    last = [rows.column(name)[high] for name in key]
    while low < high:
        middle = (low + high) // 2
        same = all(
            rows.column(name)[middle].equals(value) for name, value in zip(key, last, strict=True)
        )
        low, high = (low, middle) if same else (middle + 1, high)
    return int(rows.num_rows) - low


def _is_cut_off(part: _Part) -> bool:
    """Return whether a key ends with the beginning of a text, which other texts may share."""
    return isinstance(part[1], bytes) and len(part[1]) == _TEXT_BYTES


def _place(value: pa.Scalar) -> _Part:
    """Return a value's key in Arrow's sort order."""
    if not value.is_valid:
        return _NULL
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (0, bytes(memoryview(value.as_buffer())[:_TEXT_BYTES]))
    if pa.types.is_temporal(kind):
        return (0, value.value)
    number = value.as_py()
    return _NAN if number != number else (0, number)  # noqa: PLR0124 - NaN
