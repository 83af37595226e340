"""Which commits may have written rows of rewritten segments.

The log records which segments a rewrite read, not which row came from which of them. So a row is
looked for in these, as far as they are still stored: vacuum deletes them later than the log.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import UnsetType

from eventlog.errors import DataLoss, KeyNotFound, VersionVacuumed
from eventlog.format import keys
from eventlog.model.entries import Segment, deleted_rows
from eventlog.readers.blaming.segment_lineage import LineageStep, Occurrence, occurrence
from eventlog.segments.fragments import Reading
from eventlog.store.parallel import each

# Returns the names of rows: rows of one name are not told apart.
Names = Callable[[pa.RecordBatch], Sequence[str]]


class RowWriters:
    """Finds which commits may have written rows, by the segments that are still stored.

    Each segment is read at most once, and of its rows only those that are asked for are held.

    Args:
        steps: the lineage of the segments that have the rows.
        reading: how the segments are read; its filter passes all rows that are asked for.
        names: of rows.
        wanted: the names of the rows that are asked for.
    """

    def __init__(
        self,
        steps: Mapping[Occurrence, LineageStep],
        reading: Reading,
        names: Names,
        wanted: Iterable[str],
    ) -> None:
        self._steps, self._reading, self._names = steps, reading, names
        self._wanted = frozenset(wanted)
        # By segment the names of its rows that are wanted; None: it cannot be read any more.
        self._rows: dict[Occurrence, frozenset[str] | None] = {}
        self._lost: dict[Occurrence, bool] = {}
        writes = [step.entry for step in steps.values() if step.begins]
        self._read(writes)

    def writers(self, segment: Segment, rows: Iterable[str]) -> dict[str, list[LineageStep]]:
        """Return the steps that may have written rows of a segment, by the names of the rows.

        A step is left out if its segment is still stored and lacks the row. In a copy that lacks
        the inputs of a rewrite, the rewrite stands for them.

        Args:
            segment: the segment, whose lineage is known.
            rows: the names of rows of it, that are wanted.

        Raises:
            Unavailable: the store does not answer.
        """
        found = self._possible(segment, frozenset(rows))
        return {
            row: [self._steps[name] for name in sorted(names, key=lambda n: (n[1], n[0]))]
            for row, names in found.items()
        }

    def has_lost(self, segment: Segment) -> bool:
        """Return whether a segment that wrote rows of this one cannot be read any more."""
        name = occurrence(segment)
        if name not in self._lost:
            step = self._steps[name]
            if step.begins:
                self._lost[name] = self._rows.get(name) is None
            else:
                lost = bool(step.unknown) or any(self.has_lost(one) for one in step.inputs)
                self._lost[name] = lost
        return self._lost[name]

    def _possible(self, segment: Segment, rows: frozenset[str]) -> dict[str, set[Occurrence]]:
        name = occurrence(segment)
        step = self._steps[name]
        found: dict[str, set[Occurrence]] = {row: set() for row in rows}
        if step.begins or step.unknown:
            for row in rows:
                found[row].add(name)
        for one in step.inputs:
            for row, names in self._possible(one, self._in(one, rows)).items():
                found[row] |= names
        return found

    def _in(self, segment: Segment, rows: frozenset[str]) -> frozenset[str]:
        """Return those of some rows that a segment has, or may have had."""
        name = occurrence(segment)
        # A segment between is read only where those before it do not decide: some are gone, or have
        # rows that were deleted of it.
        decides = not deleted_rows(segment.vector)  # against deleted-row-blamed
        if name not in self._rows and (not decides or self.has_lost(segment)):
            self._read([segment])
        known = self._rows.get(name)
        return rows if known is None else rows & known

    def _read(self, segments: Sequence[Segment]) -> None:
        for segment, rows in zip(segments, each(self._rows_of, segments), strict=True):
            self._rows[occurrence(segment)] = rows

    def _rows_of(self, segment: Segment) -> frozenset[str] | None:
        try:
            # A vacuumed segment costs one request: the error of a reader looks for the reason.
            if isinstance(segment.inline, UnsetType):
                self._reading.store.get(keys.key_of(segment), length=1)
            batches = (batch for _, batch in self._reading.located([segment]))
            return frozenset(n for b in batches for n in self._names(b) if n in self._wanted)
        except (DataLoss, KeyNotFound, VersionVacuumed):
            return None  # against lost-input-never-blamed


def whole_row_names(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """Return the values of rows as text: equal rows have one name."""
    columns = [column.cast(_countable(column.type)).to_pylist() for column in batch.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _countable(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers in place of times, some of which Python cannot represent."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(_countable(kind.key_type), _countable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_countable(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _countable(field.type)) for field in kind])
    return kind
