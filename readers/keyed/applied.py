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
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.cache import Cache
from eventlog.format import codec
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, segments_of
from eventlog.model.entries import Schema

_MOST_BYTES = 32 * 2**20  # of what is kept of all parts
_NUMBER = pa.uint32()
_MOST_ROWS = 2**32 - 1


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
        hidden: by the checksum of a base the numbers of its rows that are not shown, ascending.
            Another table may have a base of the same bytes and another id.
        shown: the rows of logs that are shown, in the order of a scan.
    """

    hidden: dict[str, list[pa.Array]] = field(default_factory=dict)
    shown: list[ShownLogRows] = field(default_factory=list)

    def hide(self, base: str, numbers: pa.Array) -> None:
        """Add rows of the base of a checksum, which come after those that were added."""
        self.hidden.setdefault(base, []).append(numbers.cast(_NUMBER))

    def show(self, before: int | None, numbers: pa.Array | pa.ChunkedArray) -> None:
        """Add rows of logs that are shown; see `ShownLogRows`."""
        if isinstance(numbers, pa.ChunkedArray):
            numbers = numbers.combine_chunks()
        self.shown.append(ShownLogRows(before, numbers.cast(_NUMBER)))

    def hidden_in(self, base: str, start: int, count: int) -> pa.Array:
        """Return which of `count` rows of a base, from row `start` on, are hidden, from 0 on."""
        found = pa.concat_arrays([pa.nulls(0, _NUMBER), *self.hidden.get(base, ())])
        within = pc.and_(pc.greater_equal(found, start), pc.less(found, start + count))
        return pc.subtract(found.filter(within).cast(pa.int64()), start)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        arrays = [numbers for of_base in self.hidden.values() for numbers in of_base]
        return sum(numbers.nbytes for numbers in (*arrays, *(one.numbers for one in self.shown)))


_kept: Cache[str, Applied] = Cache(_MOST_BYTES, weigh=lambda applied: applied.nbytes + 1024)


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
