"""What logs did to the bases of a part, kept by the process: a later scan reads no keys of it.

Imports eventlog only. Under `last`, where no row of a base is shown if one above has its key
(`eventlog.readers.keyed.segment_rows.replaces_all`), the rows that a scan returns are stored rows:
those of the bases less some positions, and some rows of the logs. Which ones follows from the
segments alone, so they are kept by the checksums of these, and never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec import UnsetType

from eventlog.cache import Cache
from eventlog.format import codec
from eventlog.keyed import key_lookup
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, segments_of
from eventlog.model.entries import Schema

_MOST_BYTES = 32 * 2**20  # of what is kept of all parts
_NUMBER = pa.uint32()
_MOST_ROWS = 2**32 - 1
_FEW = 4  # times the bytes of numbers: what booleans may take, which are faster to filter by


@dataclass(frozen=True, slots=True)
class ShownLogRows:
    """Rows of logs that a scan returns in one place.

    Attributes:
        before: the bucket before whose bases they come; None: after all bases.
        numbers: which rows, by their numbers among all rows of the logs of the part.
    """

    before: int | None
    numbers: pa.Array


@dataclass(slots=True)
class Applied:
    """What the logs of a part did.

    Attributes:
        pieces: by the checksum of a base its rows, piece after piece: how many there are, and which
            of them are not shown, by their numbers in the piece, or which are, as booleans. Another
            table may have a base of the same bytes and another id.
        shown: the rows of logs that are shown, in the order of a scan.
    """

    pieces: dict[str, list[tuple[int, pa.Array]]] = field(default_factory=dict)
    shown: list[ShownLogRows] = field(default_factory=list)

    def pass_by(self, base: str, rows: pa.Table, hidden: pa.Array) -> pa.Table:
        """Return the rows of a piece of a base that are shown, and note which these are.

        Args:
            base: the checksum of the base.
            rows: the piece, which comes after those that passed by.
            hidden: the numbers of its rows that are not shown, ascending.
        """
        kept = hidden.cast(_NUMBER)
        if len(hidden):
            marks = key_lookup.all_but(hidden, rows.num_rows)
            rows = rows.filter(marks)
            if _FEW * kept.nbytes >= marks.nbytes:
                kept = marks
        self.pieces.setdefault(base, []).append((len(hidden) + rows.num_rows, kept))
        return rows

    def shown_of(self, base: str, start: int, rows: pa.Table) -> pa.Table:
        """Return the rows of a base that are shown, of some that lie from row `start` on."""
        if not any(len(kept) for _, kept in self.pieces[base]):
            return rows
        marks: list[pa.Array] = []
        end, at = start + rows.num_rows, 0
        for count, kept in self.pieces[base]:
            low, high = max(start, at) - at, min(end, at + count) - at
            at += count
            if low < high:
                marks.append(_marks(count, kept).slice(low, high - low))
        return rows.filter(pa.chunked_array(marks))

    def show(self, before: int | None, numbers: pa.Array | pa.ChunkedArray) -> None:
        """Add rows of logs that are shown; see `ShownLogRows`."""
        if isinstance(numbers, pa.ChunkedArray):
            numbers = numbers.combine_chunks()
        self.shown.append(ShownLogRows(before, numbers.cast(_NUMBER)))

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        arrays = [kept for of_base in self.pieces.values() for _, kept in of_base]
        return sum(kept.nbytes for kept in (*arrays, *(one.numbers for one in self.shown)))


_kept: Cache[str, Applied] = Cache(_MOST_BYTES, weigh=lambda applied: applied.nbytes + 1024)


def _marks(count: int, kept: pa.Array) -> pa.Array:
    """Return which rows of a piece are shown, given what is kept of it."""
    if pa.types.is_boolean(kept.type):
        return kept
    return key_lookup.all_but(kept.cast(pa.int64()), count)


def part_key(runs: Sequence[Run], rule: MergeRule, columns: Schema) -> str | None:
    """Return the key under which the work of a part's logs is kept; None if it is not kept.

    Args:
        runs: the part.
        rule: the merge rule.
        columns: the table's columns.
    """
    if rule.kind != "last" or segments_of(runs, "late") or not segments_of(runs, "log"):
        return None
    segments = [one.segment for run in runs for one in run.placed]
    if not all(isinstance(one.vector, UnsetType) for one in segments):
        return None
    if sum(one.rows for one in segments) > _MOST_ROWS:
        return None
    met: dict[str, int] = {}
    for run in runs:
        for base in run.base:
            meets = min(run.last, base.last) - max(run.first, base.first) + 1
            met[base.segment.id] = met.get(base.segment.id, 0) + meets
    bases = segments_of(runs, "base")
    if any(met[base.segment.id] != base.last - base.first + 1 for base in bases):
        return None  # of which some buckets do not count
    by_name = {column.name: (column.id, column.type) for column in columns.columns}
    merged_by = [by_name[name] for name in (*rule.key, *([rule.order] if rule.order else []))]
    placed = [
        (run.first, run.last, [(p.kind, p.first, p.last, p.segment.checksum) for p in run.placed])
        for run in runs
    ]
    logs = [one.segment.checksum for one in segments_of(runs, "log")]  # as they are numbered
    named = repr((len(rule.key), merged_by, rule.buckets, rule.splits, placed, logs))
    return codec.sha256(named.encode())


def known(key: str | None) -> Applied | None:
    """Return what is kept by a key, if anything is."""
    return None if key is None else _kept.get(key)


def keep(key: str, applied: Applied, most_bytes: int) -> None:
    """Keep what logs did, for a while, unless it takes more than so many bytes."""
    if applied.nbytes <= min(most_bytes, _MOST_BYTES):
        _kept.put(key, applied)


def forget() -> None:
    """Forget all that is kept, as a new process does."""
    _kept.clear()
