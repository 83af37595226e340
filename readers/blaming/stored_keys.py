"""The stored rows of keys of a keyed table: those that commits wrote, and what became of them.

Imports eventlog and readers.keyed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import pyarrow as pa

from eventlog.keyed import key_lookup
from eventlog.keyed.log_rows import deleted, log_schema, row_buckets
from eventlog.keyed.placement import Placed, reach, slice_of
from eventlog.keyed.rule import OP, VERSION, MergeRule
from eventlog.keyed.slices import Run, buckets_in, segments_of
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Correction, Segment
from eventlog.readers.blaming.row_writers import RowWriters, whole_row_names
from eventlog.readers.blaming.segment_lineage import (
    LineageReader,
    LineageStep,
    Occurrence,
    occurrence,
)
from eventlog.readers.keyed.segment_rows import having, of_keys
from eventlog.segments.fragments import Reading
from eventlog.state import scan
from eventlog.store.parallel import each


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One stored row of a key.

    Attributes:
        row: the row, as a table of one row: the columns of the table, `_op` and `_version`.
        step: how its segment came into the log.
        live: whether the segment is live and counts for the key at the version asked for.
        version: the version that wrote the row; None if that is not certain.
        steps: those that may have written it.
    """

    row: pa.Table
    step: LineageStep
    live: bool
    version: int | None
    steps: Sequence[LineageStep]

    @property
    def is_delete(self) -> bool:
        """Whether it is a delete."""
        return bool(deleted(self.row)[0].as_py())


class StoredKeys:
    """Reads the stored rows of some keys at a version.

    Args:
        log: the log of the table.
        snapshot: the version.
        rule: the merge rule.
        keys: a table with the key columns; at least one key.
        clock: the newest known corrections of the clock.
    """

    def __init__(
        self,
        log: Log,
        snapshot: Snapshot,
        rule: MergeRule,
        keys: pa.Table,
        clock: Sequence[Correction],
    ) -> None:
        self._rule, self._keys = rule, keys
        question = scan.question(snapshot.state, where=having(keys))
        # A merge leaves deleted keys out, so that its statistics do not show what it took in.
        _, plan = log.answer(snapshot.state, replace(question, predicate=None))
        self._runs: list[Run] = of_keys(plan.runs, keys, rule)
        self._question, self._version = question, snapshot.version
        self._buckets = sorted(set(row_buckets(keys, rule).to_pylist()))
        live = [one.segment for one in segments_of(self._runs, "base", "late", "log")]
        self._lineage = LineageReader(log, clock, self._with_keys)
        self._live = self._with_keys(live)
        schema = log_schema(plan.table_schema, rule, versions=True)
        self._reading = replace(
            Reading.of(log.store, plan, snapshot.header.table),
            table_schema=schema,
            schema=schema,
            filter=having(keys),
            filter_columns=frozenset(rule.key),
            required=rule.merged_by,
        )

    def rows(self) -> list[StoredRow]:
        """Return the stored rows, the newest version first: those of live segments, and others.

        The others are those that commits wrote and merges took in, as far as vacuum has kept them.

        Raises:
            Corrupt: the log does not add up.
            DataLoss: a live segment is missing or damaged.
            Unavailable: the store does not answer.
        """
        steps = self._lineage.steps(self._live)
        writers = RowWriters(steps, self._reading, self._names, self._names(self._keys))
        live = {occurrence(one): self._effective(one) for one in self._live}
        shown = [
            step
            for name, step in steps.items()
            if name in live or (step.begins and not writers.has_lost(step.entry))
        ]
        found = [
            StoredRow(row, step, bucket in live.get(occurrence(step.entry), ()), None, ())
            for step, rows in zip(shown, each(self._rows_in, shown), strict=True)
            for row, bucket in rows
        ]
        values = {
            (occurrence(one.step.entry), whole_row_names(one.row.drop_columns([OP, VERSION]))[0])
            for one in found
        }
        named = [self._written(one, writers, values) for one in found]
        return sorted(named, key=_newest, reverse=True)

    def _written(
        self, stored: StoredRow, writers: RowWriters, values: AbstractSet[tuple[Occurrence, str]]
    ) -> StoredRow:
        """Return a stored row with the steps that may have written it.

        Args:
            stored: the row.
            writers: of the rows of its key.
            values: the values of all stored rows, each with its segment.
        """
        (key,) = self._names(stored.row)
        possible = writers.writers(stored.step.entry, [key])[key]
        version = stored.row.column(VERSION)[0].as_py()
        if version is not None:
            possible = [one for one in possible if one.entry.version == version]
            return replace(stored, version=version, steps=possible)
        if self._rule.kind in ("last", "first") and not stored.is_delete:
            (value,) = whole_row_names(stored.row.drop_columns([OP, VERSION]))
            possible = [
                one
                for one in possible
                if writers.has_lost(one.entry) or (occurrence(one.entry), value) in values
            ]
        versions = {one.entry.version for one in possible}
        certain = len(versions) == 1 or not any(writers.has_lost(one.entry) for one in possible)
        newest = max(versions) if versions and certain else None
        return replace(stored, version=newest, steps=possible)

    def _rows_in(self, step: LineageStep) -> list[tuple[pa.Table, int]]:
        """Return the rows of the keys in a segment, with their buckets."""
        found = []
        for _, batch in self._reading.located([step.entry]):
            rows = pa.Table.from_batches([batch])
            rows = rows.filter(key_lookup.among(rows, self._keys, self._rule.key))
            for at, bucket in enumerate(row_buckets(rows, self._rule).to_pylist()):
                found.append((rows.slice(at, 1), bucket))
        return found

    def _effective(self, segment: Segment) -> frozenset[int]:
        """Return the buckets in which a live segment counts."""
        placed: list[Placed] = [
            one for run in self._runs for one in run.placed if one.segment.id == segment.id
        ]
        return frozenset(buckets_in(placed[0], self._runs)) if placed else frozenset()

    def _with_keys(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return those of some segments that may have rows of the keys, or have taken some in."""
        near = [one for one in segments if self._meets(one)]
        written = [one for one in near if slice_of(one).level == 0]
        chosen = self._question.of(written, self._version).segments() if written else []
        return [*(one for one in near if slice_of(one).level), *chosen]

    def _meets(self, segment: Segment) -> bool:
        first, last = reach(segment, self._rule.splits)
        return any(first <= bucket <= last for bucket in self._buckets)

    def _names(self, rows: pa.Table | pa.RecordBatch) -> list[str]:
        return whole_row_names(rows.select(list(self._rule.key)))


def _newest(stored: StoredRow) -> tuple[int, bool, int]:
    """Return the order of a row: by its version, then by its ordinal in the commit."""
    versions = [one.entry.version for one in stored.steps] or [stored.step.entry.version]
    version = max(versions) if stored.version is None else stored.version
    return version, not stored.step.begins, slice_of(stored.step.entry).ordinal or 0
