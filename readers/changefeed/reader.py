"""Changes: the rows that were inserted, updated and deleted between two versions.

Imports eventlog and readers only. The steps of a plan are read one after another, each in portions
that can be held in memory (`steps.portions`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Table
from eventlog.arguments import whole
from eventlog.errors import InvalidInput
from eventlog.format.buckets import buckets_of
from eventlog.model.records import Segment
from eventlog.query.predicate import Where
from eventlog.readers.batches import passing
from eventlog.readers.changefeed import images, planning, steps
from eventlog.readers.changefeed.images import COLUMNS, TIME, VERSION
from eventlog.readers.changefeed.planning import ChangePlan
from eventlog.readers.changefeed.steps import Appended, Exchanged, Replaced, Step, Written
from eventlog.readers.fragments import DEFAULT_BATCH_ROWS, Reading
from eventlog.readers.keyed import Slices
from eventlog.readers.scanner import Rows, kept_snapshot, table_at
from eventlog.staging.merging import SumOverflow
from eventlog.state.keyed.rule import MAX_KEY, MergeRule

# Rows take several times their stored size in memory, and their images are held beside them.
_HELD = 8


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
        """About how many stored bytes are held at once."""
        return max(1, self.reading.ahead_bytes // _HELD)

    def batches(self, found: Iterable[Step]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of steps, in their order.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the filter fails on the rows, or a sum does not fit its column.
            Unavailable: the store does not answer.
            OSError: the disk is full.
        """
        for step in found:
            for portion in steps.portions(step, self.portion_bytes):
                for changes in self._of(portion):
                    yield from self._told(changes)

    def _of(self, step: Step) -> Iterator[pa.Table]:
        """Yield the changes that pass the filter, with at least the columns of the result."""
        match step:
            case Appended(segments):
                for rows in self._inserted(segments):
                    yield self._passing(rows)
            case Exchanged(version, dropped, added):
                yield from self._exchanged(version, dropped, added)
            case Written() | Replaced():
                for changes in self._of_keys(step):
                    yield self._passing(changes)

    def _of_keys(self, step: Written | Replaced) -> Iterator[pa.Table]:
        """Yield the changes of keys, also those of rows that do not pass the filter."""
        slices = self._slices()
        # What else is read, such as a column that orders the rows of a key, makes no update.
        compared = {*self.reading.schema.names, *self.reading.filter_columns}
        match step:
            case Written(after, runs):
                rows = slices.written(runs, after)
                try:
                    yield from images.of_versions(rows, slices.rule, after, compared)
                except SumOverflow as error:
                    raise slices.located(error, runs) from None
            case Replaced(version, before, after_it, int(above)):
                old = slices.at(version - 1).known(before, above)
                new = slices.at(version).known(after_it, above)
                yield images.between(old, new, slices.rule, version, compared)
            case Replaced(version, before, after_it):
                schema = slices.reading.schema
                if not any(run.segments for run in before):
                    for batch in slices.at(version).merged(after_it):
                        at = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
                        yield images.inserted(pa.Table.from_batches([batch]), at)
                    return
                old, new = (
                    pa.Table.from_batches(slices.at(number).merged(runs), schema)
                    for number, runs in ((version - 1, before), (version, after_it))
                )
                yield images.between(old, new, slices.rule, version, compared)

    def _slices(self) -> Slices:
        """Return how the rows of slices are read: with key and filter columns, unfiltered."""
        if self.rule is None:
            raise InvalidInput("these are steps of a keyed table")
        return Slices(self._unfiltered(self.rule.key), self.rule)

    def _unfiltered(self, more: Sequence[str] = ()) -> Reading:
        """Return how to read all rows, with the columns wanted, of the filter, and these."""
        reading = self.reading
        names = dict.fromkeys([*reading.schema.names, *sorted(reading.filter_columns), *more])
        schema = pa.schema([reading.table_schema.field(name) for name in names])
        return replace(reading, schema=schema, filter=None, filter_columns=frozenset())

    def _inserted(self, segments: Sequence[Segment]) -> Iterator[pa.Table]:
        """Yield the rows of segments, each marked with the version that added it."""
        ends = deque(accumulate(s.rows for s in segments))
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
        if not dropped:
            for batch in reading.batches(added):
                rows = pa.Table.from_batches([batch])
                yield images.exchanged(rows.slice(0, 0), rows, version)
        elif not added:
            for batch in reading.batches(dropped):
                rows = pa.Table.from_batches([batch])
                yield images.exchanged(rows, rows.slice(0, 0), version)
        else:
            size = sum(s.bytes for s in (*dropped, *added))
            count = -(-size // self.portion_bytes) if reading.schema.names else 1
            for old, new in _divided(reading, (dropped, added), count):
                yield images.exchanged(old, new, version)

    def _passing(self, changes: pa.Table) -> pa.Table:
        """Return the changes that pass the filter, as those of a filtered view."""
        reading = self.reading
        if reading.filter is None:
            return changes
        try:
            passes = passing(changes, reading.filter)
        except (pa.ArrowException, ValueError) as error:
            why = str(error).split("\n", 1)[0][:300]
            raise InvalidInput(
                f"the predicate fails on the rows: {why}", table=reading.store.uri
            ) from error
        return images.of_view(changes, passes, reading.schema.names)

    def _told(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield changes with exactly the schema of the result."""
        if changes.num_rows:
            changes = changes.append_column(TIME, self._times(changes.column(VERSION)))
            changes = changes.select(self.schema.names).cast(self.schema)
            yield from changes.to_batches(max_chunksize=self.reading.batch_rows)

    def _times(self, versions: pa.ChunkedArray) -> pa.Array:
        known = sorted(self.times)
        places = pc.index_in(versions, value_set=pa.array(known, pa.int64()))
        times = pa.array([self.times[v] * 1000 for v in known], pa.timestamp("us", "UTC"))
        return times.take(places.combine_chunks())


@dataclass(frozen=True, slots=True)
class Changes(Rows):
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


def changes(
    t: Table | str | os.PathLike[str],
    start: int,
    end: int | None = None,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    *,
    overflow: str = "error",
    batch_rows: int = DEFAULT_BATCH_ROWS,
    storage_options: Mapping[str, str] | None = None,
) -> Changes:
    """Return what the versions after `start`, up to `end`, did to the rows of a table.

    The rows have the columns of the table and

    - `_change` (string): `insert`, `update_before`, `update_after` or `delete`. Updates are told in
      keyed tables only: elsewhere nothing says that two rows are the same one.
    - `_version` (int64): the version that made the change.
    - `_time` (timestamp, us, UTC): when that was committed.

    They tell of each version how it differs from the one before it: to write a row again as it was
    changes nothing, nor does compaction, but where it forgets a tombstone that hid a row. So the
    changes after 5 up to 7 and those after 7 up to 9 are together those after 5 up to 9. Changes of
    one key come in the order of versions, an `update_before` directly before its `update_after`;
    without a key those of a version come together. No other order is promised.

    The cost follows the changes: a GET for each version, the segments that were written, and of a
    keyed table the rows of those keys in the slices that they are in.

    Args:
        t: the table, or its root.
        start: the version that is known already; 0, in which a table has no rows, or later.
        end: the last version to tell of; the newest if None.
        columns: names of the table's columns to read; all if None. Only their values are compared:
            an update of others is none, and without a key rows that are alike in these cancel out.
        where: SQL text or a pyarrow expression that selects rows, of those before and after each
            change: a row that leaves it has an `update_before` only, one that enters it the other.
        overflow: `error`, or `null` in place of a sum that does not fit its column at a version.
        batch_rows: the largest number of rows in a batch.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong, or a column has the name of one of those above.
        VersionNotFound: there is no such version.
        VersionVacuumed: `start` was vacuumed: its rows, and what changed them, may be gone.
    """
    t = table_at(t, storage_options)
    batch_rows = whole(batch_rows, "batch_rows", 1, 2**31 - 1)
    start = whole(start, "start", 0)
    last = kept_snapshot(t, None if end is None else whole(end, "end", 0))
    if start > last.version:
        raise InvalidInput(
            f"the changes after version {start} up to version {last.version} were asked for: the "
            "end is before the start"
        )
    asked = planning.question(last.state, columns, where, overflow)
    first = kept_snapshot(t, start)
    versions = planning.read_versions(t, first, last.version)
    plan = planning.plan(start, last.version, versions, t.snapshot, asked, last.meta.clock)
    return Changes(plan, reading_of(plan, t, last.header.table, batch_rows))


def reading_of(plan: ChangePlan, t: Table, table: str, batch_rows: int) -> ChangeReading:
    """Return how the steps of a plan are read.

    Args:
        plan: the plan.
        t: the table.
        table: the table's id.
        batch_rows: the largest number of rows in a batch.
    """
    predicate = plan.predicate
    reading = Reading(
        store=t.store,
        version=plan.start,
        table_schema=plan.table_schema,
        schema=plan.columns,
        filter=None if predicate is None else predicate.to_arrow(),
        filter_columns=frozenset() if predicate is None else predicate.columns(),
        batch_rows=batch_rows,
        table=table,
    )
    return ChangeReading(reading, plan.rule, plan.times)


def _divided(
    reading: Reading, sides: tuple[Sequence[Segment], Sequence[Segment]], count: int
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the rows of both sides in parts: rows that are alike are in the same part.

    Args:
        reading: how they are read.
        sides: the segments of each side.
        count: number of parts; they are put on disk if there is more than one.
    """
    if count == 1:
        old, new = (pa.Table.from_batches(reading.batches(s), reading.schema) for s in sides)
        yield old, new
        return
    names = [f.name for f in reading.schema if _hashed(f.type)][:MAX_KEY]
    with TemporaryDirectory(prefix="eventlog-changes-") as folder:
        for side, segments in enumerate(sides):
            paths = [Path(folder) / f"{side}-{part}" for part in range(count)]
            _spread(reading.batches(segments), reading.schema, names, paths)
        for part in range(count):
            old, new = (_part(Path(folder) / f"{side}-{part}") for side in (0, 1))
            yield old, new


def _spread(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    names: Sequence[str],
    paths: Sequence[Path],
) -> None:
    """Write rows to files, by the values of some columns."""
    writers = [pa.ipc.new_file(path, schema) for path in paths]
    try:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            parts = _part_numbers(rows, names, len(paths))
            for number, writer in enumerate(writers):
                writer.write_table(rows.filter(pc.equal(parts, number)))
    finally:
        for writer in writers:
            writer.close()


def _part_numbers(rows: pa.Table, names: Sequence[str], count: int) -> pa.Array:
    """Return the part of each row, by the values of some columns."""
    if not names:
        return pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    columns = [rows.column(name) for name in names]
    blanks = ["" if pa.types.is_string(column.type) else 0 for column in columns]
    filled = [
        pc.fill_null(column, pa.scalar(blank, column.type))
        for column, blank in zip(columns, blanks, strict=True)
    ]
    return buckets_of(pa.table(filled, list(names)), names, count)


def _part(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _hashed(kind: pa.DataType) -> bool:
    """Return whether values of a type decide the part of their row."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind)
    )
