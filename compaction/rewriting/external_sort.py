"""Sorts more rows than fit into memory: sorted runs on disk, merged range by range.

Writes files to a temporary directory and removes them again. Nulls sort last, NaN after all
numbers; the sort is stable.

The runs are cut at keys sampled from them, densely enough for the rows between two cuts to fit into
memory. Rows equal to a cut need no sorting, however many there are, because the runs are in the
order of their rows. (External merge sort as in Knuth, TAOCP 3, 5.4; the cuts as in sample sort.)
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


def sort_rows(
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
    # A run is held three times: as parts, as one table, and sorted.
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

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, row: int) -> _Key:
        return tuple(_place(self.table.column(name)[row]) for name in self._by)

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
    rows = sum(map(len, runs))
    size = sum(run.table.nbytes for run in runs)
    most = max(1, budget * rows // max(1, size))  # rows sorted at once
    done = [0] * len(runs)
    for cut in _cuts(runs, most):
        below = [bisect_left(run, cut, lo=at) for run, at in zip(runs, done, strict=True)]
        yield from _range(runs, done, below, by)
        equal = [bisect_right(run, cut, lo=at) for run, at in zip(runs, below, strict=True)]
        for run, start, end in zip(runs, below, equal, strict=True):
            for first in range(start, end, most):
                yield run.table.slice(first, min(most, end - first))
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


def _cuts(runs: Sequence[_Run], most: int) -> list[_Key]:
    """Return ascending keys with at most about `most` rows between two of them.

    Between two neighbouring samples each run has fewer rows than the distance of its samples.
    """
    apart = max(1, most // (2 * len(runs)))
    samples: list[tuple[_Key, int]] = []
    for run in runs:
        samples += [(run[row], min(apart, len(run) - row)) for row in range(0, len(run), apart)]
        run.release()  # a sample every few pages would keep most of the file in memory
    samples.sort(key=lambda sample: sample[0])
    cuts: list[_Key] = []
    gathered = 0
    for key, rows in samples:
        if gathered + rows > most // 2 and (not cuts or key != cuts[-1]):
            cuts.append(key)
            gathered = 0
        gathered += rows
    return cuts


def _place(value: pa.Scalar) -> _Part:
    """Return a value's key in Arrow's sort order."""
    if not value.is_valid:
        return _NULL
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (0, bytes(value.as_buffer()))
    if pa.types.is_temporal(kind):
        return (0, value.value)
    number = value.as_py()
    return _NAN if number != number else (0, number)  # noqa: PLR0124 - NaN
