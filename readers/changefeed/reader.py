"""Changes: the rows that were inserted, updated and deleted between two versions.

Imports eventlog and readers only. The steps of a plan are read one after another, each in portions
that fit into memory. `change_steps.portions` cuts a step by stored sizes. A portion that takes more
in Arrow is sorted on disk, and cut between keys, or between rows that differ.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.arguments import whole
from eventlog.display import Description
from eventlog.errors import InvalidInput
from eventlog.keyed.row_merging import SumOverflow
from eventlog.keyed.rule import MergeRule
from eventlog.model.entries import Segment
from eventlog.model.records import packs_of
from eventlog.quantities import count_text, size_text
from eventlog.query.predicate import Where
from eventlog.readers.changefeed import change_planning, change_steps, images
from eventlog.readers.changefeed.change_planning import ChangePlan
from eventlog.readers.changefeed.change_steps import (
    Appended,
    Exchanged,
    Replaced,
    Step,
    Updated,
    Written,
)
from eventlog.readers.changefeed.images import COLUMNS, TIME, VERSION
from eventlog.readers.keyed import SliceReader
from eventlog.readers.pinned import kept_snapshot, table_at
from eventlog.readers.row_stream import RowStream
from eventlog.segments.batches import (
    given_up,
    join_tables,
    passing,
    predicate_error,
    retyped,
    take_tables,
)
from eventlog.segments.fragments import DEFAULT_BATCH_ROWS, Reading, ahead_of
from eventlog.segments.vectors import VectorReader
from eventlog.session.tags import VersionOrName, version_number
from eventlog.staging.external_sort import sort_on_disk, whole_keys
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES

# Rows are in memory together with their images, so they may take less than is read ahead. Images
# take about ten times as much as their rows, so they are made of fewer rows at once.
_HELD, _IMAGES = 2, 8
_EXPANDED = 4  # how many times their stored size rows usually take in Arrow: a first guess
_SORTED = 4  # times what is held at once: the memory for sorting more
_NO_ROWS = BitMap64()


@dataclass(frozen=True, slots=True)
class ChangeReading:
    """How steps become batches. Can be pickled.

    Attributes:
        reading: how segments are read; its schema is that of the table's columns in the result, its
            filter that of the result.
        rule: the merge rule of a keyed table; None for others.
        times: the time of each version, in ms UTC.
    """

    reading: Reading
    rule: MergeRule | None
    times: Mapping[int, int]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return pa.schema([*self.reading.schema, *COLUMNS])

    @property
    def portion_bytes(self) -> int:
        """Bytes of Arrow data that the rows of a portion may take."""
        return max(1, self.reading.ahead_bytes // _HELD)

    def batches(self, planned: Iterable[Step]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of steps, in their order.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the filter fails on the rows, or a sum does not fit its column.
            Unavailable: the store does not answer.
            OSError: the disk is full.
        """
        for step in planned:
            for portion in change_steps.portions(step, self.portion_bytes // _EXPANDED):
                for changes in self._of(portion):
                    yield from self._results(changes)

    def _of(self, step: Step) -> Iterator[pa.Table]:
        """Yield the changes that pass the filter, with at least the columns of the result."""
        match step:
            case Appended(segments):
                for rows in self._inserted(segments):
                    yield self._passing(rows)
            case Exchanged(version, dropped, added):
                yield from self._exchanged(version, dropped, added)
            case Updated():
                for changes in self._updated(step):
                    yield self._passing(changes)
            case Written() | Replaced():
                for changes in self._of_keys(step):
                    yield self._passing(changes)

    def _of_keys(self, step: Written | Replaced) -> Iterator[pa.Table]:
        """Yield the changes of keys, also those of rows that do not pass the filter."""
        slices = self._slices()
        # Other columns that are read, such as one that orders the rows of a key, make no update.
        compared = {*self.reading.schema.names, *self.reading.filter_columns}
        match step:
            case Written(after, runs):
                most = max(1, self.portion_bytes // _IMAGES)
                try:
                    for rows in slices.written(runs, after):
                        yield from images.of_versions(rows, slices.rule, after, compared, most)
                except SumOverflow as error:
                    raise slices.located(error, runs) from None
            case Replaced(version, before, after_it, None) if not any(r.segments for r in before):
                for rows in _tables(slices.at(version).merged(after_it)):
                    at = pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)
                    yield images.inserted(rows, at)
            case Replaced(version, before, after_it, above):
                old, new = (
                    _tables(there.merged(runs)) if above is None else there.known(runs, above)
                    for there, runs in (
                        (slices.at(version - 1), before),
                        (slices.at(version), after_it),
                    )
                )
                for one, other in self._paired(old, new, slices.reading.schema, slices.rule.key):
                    yield images.between(one, other, slices.rule, version, compared)

    def _slices(self) -> SliceReader:
        """Return how the rows of slices are read: with key and filter columns, unfiltered."""
        if self.rule is None:
            raise InvalidInput("these are steps of a keyed table")
        return SliceReader(self._unfiltered(self.rule.key), self.rule, self.portion_bytes)

    def _unfiltered(self, more: Sequence[str] = ()) -> Reading:
        """Return how to read all rows, with the columns wanted, of the filter, and these."""
        reading = self.reading
        names = dict.fromkeys([*reading.schema.names, *sorted(reading.filter_columns), *more])
        schema = pa.schema([reading.table_schema.field(name) for name in names])
        return replace(reading, schema=schema, filter=None, filter_columns=frozenset())

    def _inserted(self, segments: Sequence[Segment]) -> Iterator[pa.Table]:
        """Yield the rows of segments, each marked with the version that added it."""
        ends = deque(accumulate(s.live_rows for s in segments))
        versions = deque(s.version for s in segments)
        done = 0
        for batch in self._unfiltered().batches(segments):
            marks = [pa.nulls(0, pa.int64())]
            left = batch.num_rows
            while left:
                count = min(left, ends[0] - done)
                marks.append(pa.repeat(pa.scalar(versions[0], pa.int64()), count))
                left, done = left - count, done + count
                while ends and ends[0] == done:
                    ends.popleft()
                    versions.popleft()
            rows = pa.Table.from_batches([batch])
            yield images.inserted(rows, pa.concat_arrays(marks))

    def _exchanged(
        self, version: int, dropped: Sequence[Segment], added: Sequence[Segment]
    ) -> Iterator[pa.Table]:
        # Only rows that pass are compared, and only in the columns of the result.
        reading = self.reading
        gone, back = self._differing(dropped, added), self._differing(added, dropped)
        dropped = [s for s in dropped if gone.get(s.id) != _NO_ROWS]
        added = [s for s in added if back.get(s.id) != _NO_ROWS]
        if not dropped:
            for batch in reading.batches(added, back):
                rows = pa.Table.from_batches([batch])
                yield images.exchanged(rows.slice(0, 0), rows, version)
        elif not added:
            for batch in reading.batches(dropped, gone):
                rows = pa.Table.from_batches([batch])
                yield images.exchanged(rows, rows.slice(0, 0), version)
        else:
            old = _tables(reading.batches(dropped, gone))
            new = _tables(reading.batches(added, back))
            names = [f.name for f in reading.schema if _is_sorted(f.type)]
            for one, other in self._paired(old, new, reading.schema, names):
                yield images.exchanged(one, other, version)

    def _differing(
        self, entries: Sequence[Segment], others: Sequence[Segment]
    ) -> dict[str, BitMap64]:
        """Return which rows the first ones of two entries have, by the id of their segment.

        Args:
            entries: some entries.
            others: other entries, of some of the same segments.
        """
        store, table = self.reading.store, self.reading.table
        known = {segment.id: segment for segment in others}
        both = [segment for segment in entries if segment.id in known]
        named = [*both, *(known[segment.id] for segment in both)]
        vectors = VectorReader(store, self.reading.version, named, table)
        # against changes-of-the-rows-deleted-before
        return {s.id: vectors.deleted(known[s.id]) - vectors.deleted(s) for s in both}

    def _updated(self, step: Updated) -> Iterator[pa.Table]:
        """Yield the changes of a paired update, also of rows that do not pass the filter."""
        unfiltered = self._unfiltered()
        if not unfiltered.schema.names:
            return  # of no column the values differ
        compared = {*self.reading.schema.names, *self.reading.filter_columns}
        gone = self._differing(step.old, step.left)
        old = _tables(unfiltered.batches(step.old, gone))
        new = _tables(unfiltered.batches(step.new))
        for before, after in _side_by_side(old, new):
            yield images.updated(before, after, step.version, compared)

    def _paired(
        self,
        old: Iterator[pa.Table],
        new: Iterator[pa.Table],
        schema: pa.Schema,
        by: Sequence[str],
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows of both sides in portions.

        Args:
            old: the rows of one side.
            new: those of the other.
            schema: their schema.
            by: names of columns. Rows that are alike in these are in one portion; without any, all.

        Raises:
            OSError: the disk is full.
        """
        empty, most = schema.empty_table(), self.portion_bytes
        if not by:
            yield join_tables([empty, *old]), join_tables([empty, *new])
            return
        olds, more = take_tables(old, most)
        if not more:
            news, more = take_tables(new, most - sum(rows.nbytes for rows in olds))
            if not more:
                yield join_tables([empty, *olds]), join_tables([empty, *news])
                return
            new = chain(given_up(news), new)
        old = chain(given_up(olds), old)
        side = images.free_name(schema.names)

        def marked(rows: Iterable[pa.Table], is_new: bool) -> Iterator[pa.Table]:
            for some in rows:
                yield some.append_column(side, pa.repeat(pa.scalar(is_new), some.num_rows))

        both = chain(marked(old, False), marked(new, True))
        with closing(sort_on_disk(both, by, memory_bytes=_SORTED * most)) as ordered:
            for rows in whole_keys(ordered, by):
                is_new = rows.column(side)
                values = rows.drop_columns([side])
                yield values.filter(pc.invert(is_new)), values.filter(is_new)

    def _passing(self, changes: pa.Table) -> pa.Table:
        """Return the changes that pass the filter, as those of a filtered view."""
        reading = self.reading
        if reading.filter is None:
            return changes
        try:
            passes = passing(changes, reading.filter)
        except (pa.ArrowException, ValueError) as error:
            raise predicate_error(error, reading.store.uri) from error
        return images.of_view(changes, passes, reading.schema.names)

    def _results(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield changes with exactly the schema of the result."""
        if changes.num_rows:
            changes = changes.append_column(TIME, self._times(changes.column(VERSION)))
            changes = retyped(changes, self.schema)
            yield from changes.to_batches(max_chunksize=self.reading.batch_rows)

    def _times(self, versions: pa.ChunkedArray) -> pa.Array:
        known = sorted(self.times)
        places = pc.index_in(versions, value_set=pa.array(known, pa.int64()))
        times = pa.array([self.times[v] * 1000 for v in known], pa.timestamp("us", "UTC"))
        return times.take(places.combine_chunks())


@dataclass(frozen=True, slots=True, repr=False)
class Changes(RowStream):
    """The changes between two versions. No row is read until it is consumed.

    Each consuming method reads again; see `changes` for columns and order.

    Attributes:
        plan: the steps to read.
        reading: how they are read.
    """

    plan: ChangePlan
    reading: ChangeReading

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.plan.schema

    @property
    def start(self) -> int:
        """The version before the first change."""
        return self.plan.start

    @property
    def end(self) -> int:
        """The last version."""
        return self.plan.end

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in batches, in bounded memory.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the predicate fails on the rows, or a sum does not fit its column.
            Unavailable: the store does not answer.
            VersionVacuumed: `start` has been vacuumed since.
        """
        return self.reading.batches(self.plan.steps)

    def _described(self) -> Description:
        segments = self.plan.segments()
        size = size_text(sum(segment.bytes for segment in segments))
        facts = [
            ("columns", ", ".join(self.schema.names)),
            ("versions", f"after {self.start}, up to {self.end}"),
            ("reads", f"{count_text(len(segments), 'segment')}, at most {size}"),
        ]
        return Description("Changes of rows (no row is read before it is consumed)", facts)


def changes(  # noqa: PLR0913 - the parts of one question
    t: Table | str | os.PathLike[str],
    start: VersionOrName,
    end: VersionOrName | None = None,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    *,
    overflow: str = "error",
    batch_rows: int = DEFAULT_BATCH_ROWS,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> Changes:
    """Return the changes of a table's rows in the versions after `start`, up to `end`.

    The rows have the columns of the table and

    - `_change` (string): `insert`, `update_before`, `update_after` or `delete`. Without a key only
      `update` makes updates, if its new rows stand in the order of the old ones.
    - `_version` (int64): the version that made the change.
    - `_time` (timestamp, us, UTC): when that was committed.

    They are the differences between each version and the one before it. Writing an equal row again
    changes nothing. Nor does compaction, except where it forgets a tombstone that hid a row. So the
    changes after 5 up to 7 and those after 7 up to 9 are together those after 5 up to 9. Changes of
    one key come in the order of versions, an `update_before` directly before its `update_after`;
    without a key those of a version come together. No other order is promised.

    The cost follows the changes: a GET for each version, the segments that were written, and of a
    keyed table the rows of those keys in the slices that they are in.

    Args:
        t: the table, or its root.
        start: the version that is known already; 0, in which a table has no rows, or later.
        end: the last version whose changes are read; the newest if None.
        columns: names of the table's columns to read; all if None. Only their values are compared:
            an update of others is none, and without a key rows that are alike in these cancel out.
        where: SQL text or a pyarrow expression that selects rows, of those before and after each
            change: a row that leaves it has an `update_before` only, one that enters it the other.
        overflow: `error`, or `null` in place of a sum that does not fit its column at a version.
        batch_rows: the largest number of rows in a batch.
        memory_bytes: as for `scan`.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong, or a column has the name of one of those above.
        VersionNotFound: there is no such version.
        VersionVacuumed: `start` was vacuumed: its rows, and the changes of them, may be gone.
    """
    t = table_at(t, storage_options)
    batch_rows = whole(batch_rows, "batch_rows", 1, 2**31 - 1)
    memory_bytes = whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES)
    first, last = changed_range(t, start, end)
    asked = change_planning.change_question(last.state, columns, where, overflow)
    versions = change_planning.read_versions(t, first, last.version)
    clock = last.meta.clock
    plan = change_planning.plan_changes(
        first.version, last.version, versions, t.snapshot, asked, clock
    )
    return Changes(plan, reading_of(plan, t, last, batch_rows, memory_bytes))


def changed_range(
    t: Table, start: VersionOrName, end: VersionOrName | None
) -> tuple[Snapshot, Snapshot]:
    """Return the versions that changes lie between; see `changes` for the arguments.

    Raises:
        InvalidInput: one is no number of a version, or the end is before the start.
        VersionNotFound, VersionVacuumed: see `changes`.
    """
    start = version_number(t.session, start, "start")
    last = kept_snapshot(t, None if end is None else version_number(t.session, end, "end"))
    if start > last.version:
        raise InvalidInput(
            f"there are no changes after version {start} up to version {last.version}: the end is "
            "before the start"
        )
    return kept_snapshot(t, start), last


def reading_of(
    plan: ChangePlan,
    t: Table,
    snapshot: Snapshot,
    batch_rows: int,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> ChangeReading:
    """Return how the steps of a plan are read.

    Args:
        plan: the plan.
        t: the table.
        snapshot: a version of it, at or near the end: its packs have rows of small segments.
        batch_rows: the largest number of rows in a batch.
        memory_bytes: see `changes`.
    """
    predicate = plan.predicate
    reading = Reading(
        store=t.store,
        version=plan.start,
        columns=plan.table,
        table_schema=plan.table_schema,
        schema=plan.columns,
        filter=None if predicate is None else predicate.to_arrow(),
        filter_columns=frozenset() if predicate is None else predicate.columns(),
        batch_rows=batch_rows,
        ahead_bytes=ahead_of(memory_bytes),
        table=snapshot.header.table,
        packs=packs_of(snapshot.base),
    )
    return ChangeReading(reading, plan.rule, plan.times)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_batches([batch])


def _side_by_side(
    old: Iterator[pa.Table], new: Iterator[pa.Table]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the rows of both, which have equally many, in portions of equally many rows."""
    after: pa.Table | None = None
    for before in old:
        done = 0
        while done < before.num_rows:
            while after is None or not after.num_rows:
                after = next(new)
            count = min(before.num_rows - done, after.num_rows)
            yield before.slice(done, count), after.slice(0, count)
            done, after = done + count, after.slice(count)


def _is_sorted(kind: pa.DataType) -> bool:
    """Return whether rows can be sorted by values of a type, so that equal ones are neighbours."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind)
    )
