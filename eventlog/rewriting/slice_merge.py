"""Merging slices of a keyed table: a run of their segments becomes a base, or a log.

Imports eventlog and readers only. Rows are sorted by bucket, key and commit order, on disk if they
do not fit into memory, and merged key by key; so memory does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Struct

from eventlog import Snapshot, Table
from eventlog.errors import Corrupt, InvalidInput, VersionNotFound
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.log_rows import as_log, deleted, in_key_order, log_schema, row_buckets
from eventlog.keyed.placement import applied, finer, reach, slice_of
from eventlog.keyed.rule import VERSION, MergeRule, buckets_split
from eventlog.keyed.slices import Run, readable, taken_in
from eventlog.log.history import checked_version_at
from eventlog.model.actions import Add, Merge
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment, Slice, SliceKind
from eventlog.model.properties import setting
from eventlog.model.schema import to_arrow
from eventlog.readers.keyed.external_sort import sort_rows, whole_keys
from eventlog.rewriting.outputs import Sizes, check_opens
from eventlog.segments.fragments import Reading
from eventlog.staging.encoding import Recipe, SegmentWriter, put_segment
from eventlog.state.fold import segment_of
from eventlog.state.small.timing import effective
from eventlog.store.port import store_time_ms

_BUCKET, _RANK = "", " "  # a table could have the second: it is renamed below
_GROUP_BYTES = 4 * 2**20  # Arrow bytes of a row group: a look-up by key reads one of them
_HOUR_MS = 3_600_000
_SHARED = 4  # inputs below this fraction (1 / _SHARED) of `bucket_bytes` give one shared segment


class Buckets(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Slices of a keyed table that are merged: buckets of a chunk, and versions.

    Attributes:
        first: the first bucket.
        last: the last bucket.
        low: the first version whose rows are merged.
        high: the last one.
        splits: after how many splits of the table's buckets these are numbered so.
    """

    first: int
    last: int
    low: int
    high: int
    splits: int = 0


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """What to merge: segments of one chunk, in some of its buckets.

    Attributes:
        version: the version at which the merge was planned.
        chunk: the chunk.
        inputs: the segments; they may count in other slices, too.
        buckets: the slices.
    """

    version: int
    chunk: str
    inputs: tuple[Segment, ...]
    buckets: Buckets

    @property
    def bytes(self) -> int:
        """The size of the inputs in bytes."""
        return sum(segment.bytes for segment in self.inputs)

    @property
    def rows(self) -> int:
        """The rows of the inputs."""
        return sum(segment.rows for segment in self.inputs)


@dataclass(frozen=True, slots=True)
class MergedSlices:
    """What merging staged.

    Attributes:
        adds: the new segments.
        merge: the action that says what they replace.
        rows: number of rows of the inputs in these buckets.
        bytes: total size of the new objects.
    """

    adds: tuple[Add, ...]
    merge: Merge
    rows: int
    bytes: int


def merge_slices(
    t: Table,
    task: SliceMerge,
    sizes: Sizes,
    pulse: Callable[[], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> MergedSlices:
    """Merge slices and stage the segments that take their place.

    Args:
        t: the table; its newest known version is the epoch of the staged segments.
        task: what to merge.
        sizes: of segments and of memory.
        pulse: called between batches of rows; an exception from it ends the work.
        progress: called with ("rows", done, total) likewise. Of shared inputs only a part is read.

    Raises:
        DataLoss: an input is missing or damaged.
        InvalidInput: a sum does not fit its column.
        Unavailable: the store does not answer.
        OSError: the disk is full.
    """
    head = t.head()
    recipe = Recipe.of(head)
    if recipe.rule is None:
        raise InvalidInput("this is no keyed table")
    bounds = parse_chunk(task.chunk)
    live = [s for s in to_segments(head.entries(bounds.start, bounds.end)) if s.chunk == task.chunk]
    # Its buckets may have been split since it was planned.
    planned, splits = task.buckets, recipe.rule.splits
    first, last = finer(planned.first, planned.last, splits - planned.splits)
    at = msgspec.structs.replace(planned, first=first, last=last, splits=splits)
    work = _Work(t, task, at, recipe, recipe.rule, sizes, pulse or (lambda: None))
    work.progress = progress or work.progress
    return work.run(readable(live, recipe.rule))


def _forgettable(t: Table, task: SliceMerge, here: Sequence[Run], high: int) -> int:
    """Return the version up to which tombstones may be forgotten; -1: none may.

    `tombstone_hours` must have passed twice, up to a commit and again after it: one wrong clock
    makes one step in the times of commits, and can shorten one of the two only. And it must have
    passed twice by the clock of this program. Where it is not, tombstones are kept.

    An older value that lies above the merge was hidden by its tombstone, so nothing may lie there
    that was committed when the merge was planned (FORMAT.md R15.14). What a restore brings back was
    committed in the versions of its span.
    """
    if any(high < one.low <= task.version for run in here for one in run.placed):
        return -1
    planned = t.snapshot(task.version)
    hours = setting(planned.properties, "tombstone_hours")
    # against forgotten-by-the-times-of-commits-alone
    now_ms = min(planned.header.time, store_time_ms(t.store, t.clock))
    try:
        # One of exactly that age is kept.
        between = checked_version_at(t.session.log, planned, now_ms - hours * _HOUR_MS - 1)
        between_ms = effective(planned.meta.clock, between, t.session.log.header(between).time)
        # against forgotten-by-one-step-of-time
        return checked_version_at(t.session.log, planned, between_ms - hours * _HOUR_MS - 1)
    except (Corrupt, VersionNotFound):
        return -1


def droppable(made: MergedSlices, live: Sequence[Segment], head: Snapshot) -> list[Segment]:
    """Return which inputs count in no slice once the merge has taken effect.

    Args:
        made: the merge.
        live: the live segments of its chunk, before it.
        head: the version before the one that it takes effect in.
    """
    after = [segment_of(add, head.version + 1, number) for number, add in enumerate(made.adds)]
    left = taken_in([*live, *after], buckets_split(head.layout))
    gone = {segment.id for segment in left}
    return [s for s in live if s.id in gone and s.id in made.merge.inputs]


@dataclass
class _Work:
    """Merges the slices of one task."""

    t: Table
    task: SliceMerge
    buckets: Buckets
    recipe: Recipe
    rule: MergeRule
    sizes: Sizes
    pulse: Callable[[], None]
    adds: list[Add] = field(default_factory=list)
    read: int = 0
    made: int = 0
    level: int = 0
    bottom: bool = False
    folder: str = ""
    here: Sequence[Run] = ()
    forgotten: int | None = None
    progress: Callable[[str, int, int], None] = lambda *_: None

    def run(self, found: Sequence[Run]) -> MergedSlices:
        """Merge, given which segments count in which buckets now."""
        at, inputs = self.buckets, {s.id for s in self.task.inputs}
        here = [r for r in found if r.first <= at.last and at.first <= r.last]
        bottom = all(one.high >= at.low for run in here for one in run.placed)
        level = 1 + max(slice_of(s).level for s in self.task.inputs)
        with TemporaryDirectory(prefix="eventlog-merge-") as folder:
            self.folder, self.level, self.bottom = folder, level, bottom
            self.here = here
            rows = self._rows([r for r in here if inputs & {s.id for s in r.segments}])
            order = [_BUCKET, *self.rule.key, self._rank]
            memory = self.sizes.memory_bytes // 2
            # Closed before the folder goes: a merge that is interrupted leaves its runs in there.
            with closing(sort_rows(rows, order, memory_bytes=memory, directory=folder)) as ordered:
                self._write(whole_keys(ordered, [_BUCKET, *self.rule.key]))
        if self.made > self.read:
            raise InvalidInput(
                f"buckets {at.first} to {at.last} of chunk {self.task.chunk} have sums that do "
                "not fit their column, and rows of their keys that a merge cannot count: upsert "
                "rows that take a part of the sums back",
                table=self.t.store.uri,
            )
        merge = Merge(
            version=self.task.version,
            chunk=self.task.chunk,
            first=at.first,
            last=at.last,
            low=at.low,
            high=at.high,
            inputs=tuple(sorted(inputs)),
            rows=self.read,
            superseded=self.read - self.made,
            splits=at.splits or UNSET,
        )
        adds = tuple(self.adds)
        return MergedSlices(adds, merge, self.read, sum(add.bytes for add in adds))

    @property
    def _schema(self) -> pa.Schema:
        """The schema of rows of logs."""
        return log_schema(to_arrow(self.recipe.schema), self.rule, versions=True)

    @property
    def _rank(self) -> str:
        """The name of a column that the table does not have."""
        name = _RANK
        while name in self._schema.names:
            name += " "
        return name

    def _rows(self, here: Sequence[Run]) -> Iterator[pa.Table]:
        """Yield the rows of the inputs in these buckets, with bucket and commit order."""
        schema, rank = self._schema, 0
        base = to_arrow(self.recipe.schema)
        late_keys = self._late_keys(here)
        for segment in sorted(self.task.inputs, key=applied):
            counting = _buckets_of(segment, here, self.buckets)
            is_base = slice_of(segment).kind == "base"
            for rows in self._batches(segment, base if is_base else schema):
                self.pulse()
                found = self._found(rows)
                mask = pc.is_in(found, value_set=pa.array(sorted(counting), pa.int32()))
                if slice_of(segment).kind != "late":
                    self.read += pc.sum(mask).as_py() or 0
                self.progress("rows", self.read, self.task.rows)
                if is_base and late_keys.num_rows:  # its late rows say it better
                    told = key_lookup.among(rows, late_keys, self.rule.key)
                    mask = pc.and_(mask, pc.invert(told))
                numbers = pa.array(range(rank, rank + rows.num_rows), pa.int64())
                rank += rows.num_rows
                # The rows of an overwrite lie at its read version, and are as old as its commit.
                version = None if slice_of(segment).level else segment.version
                filled = as_log(rows, schema, version)
                filled = filled.append_column(_BUCKET, found).append_column(self._rank, numbers)
                yield filled.filter(mask)

    def _found(self, rows: pa.Table) -> pa.Array:
        """Return the bucket of each row."""
        return row_buckets(rows, self.rule)

    def _late_keys(self, here: Sequence[Run]) -> pa.Table:
        """Return the keys of which late segments have rows."""
        late = [s for s in self.task.inputs if slice_of(s).kind == "late"]
        keys = to_arrow(self.recipe.schema)
        schema = pa.schema([keys.field(name) for name in self.rule.key])
        parts = [pa.Table.from_batches([], schema)]
        for segment in late:
            counting = pa.array(sorted(_buckets_of(segment, here, self.buckets)), pa.int32())
            for rows in self._batches(segment, schema):
                found = self._found(rows)
                parts.append(rows.filter(pc.is_in(found, value_set=counting)))
        return key_lookup.distinct(pa.concat_tables(parts), self.rule.key)

    def _batches(self, segment: Segment, schema: pa.Schema) -> Iterator[pa.Table]:
        head = self.t.head()
        reading = Reading(
            self.t.store,
            head.version,
            schema,
            schema,
            ahead_bytes=self.sizes.memory_bytes // 8,
            table=head.header.table,
            required=self.rule.merged_by,
        )
        for batch in reading.batches([segment]):
            yield pa.Table.from_batches([batch])

    def _write(self, pieces: Iterable[pa.Table]) -> None:
        """Write the merged rows."""
        main = _Outputs(self, "base" if self.bottom else "log")
        late, beside = _Outputs(self, "late"), _Outputs(self, "log")
        try:
            for place, rows in self._placed(pieces):
                self._merge(rows, place, main, late, beside)
            for outputs in (main, late, beside):
                outputs.close()
        except BaseException:
            for outputs in (main, late, beside):
                outputs.abandon()
            raise

    def _placed(self, pieces: Iterable[pa.Table]) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Yield rows and the buckets of their segment: all if rows are few, else one.

        Each bucket is in a segment, if without rows, because its inputs are taken in, too.
        """
        first, last = self.buckets.first, self.buckets.last
        shared = self.task.bytes * _SHARED <= self.recipe.bucket_bytes
        left = {(first, last)} if shared else {(b, b) for b in range(first, last + 1)}
        for piece in pieces:
            self.pulse()
            buckets = piece.column(_BUCKET)
            rows = piece.drop_columns([_BUCKET, self._rank])
            found = pc.unique(buckets).to_pylist()
            if shared and found:
                left.clear()
                yield (first, last), rows
                continue
            for bucket in found:
                left.discard((bucket, bucket))
                yield (bucket, bucket), rows.filter(pc.equal(buckets, bucket))
        for place in sorted(left):
            yield place, pa.Table.from_batches([], self._schema)

    def _merge(
        self,
        rows: pa.Table,
        place: tuple[int, int],
        main: _Outputs,
        late: _Outputs,
        beside: _Outputs,
    ) -> None:
        # A sum that does not fit may do so together with rows to come, so its rows stay.
        rows, unfit = row_merging.fitting(rows, self.rule)
        kept = row_merging.kept(rows, self.rule, bottom=self.bottom)
        if not self.bottom:
            kept = _by_key(pa.concat_tables([kept, unfit]), self.rule)
            self.made += kept.num_rows
            main.write(place, kept)
            return
        if unfit.num_rows:
            self.made += unfit.num_rows
            beside.write(place, _by_key(unfit, self.rule))
        shown = _by_key(row_merging.shown(kept, self.rule), self.rule)
        shown = shown.cast(to_arrow(self.recipe.schema))
        self.made += shown.num_rows
        main.write(place, shown)
        telling = row_merging.telling(self._remembered(kept), self.rule)
        if telling.num_rows:
            late.write(place, _by_key(telling, self.rule))

    def _remembered(self, kept: pa.Table) -> pa.Table:
        """Return the rows without tombstones that need hide nothing any more."""
        deletes = deleted(kept)
        if not pc.any(deletes, min_count=0).as_py():
            return kept
        if self.forgotten is None:  # asked once, and only where there are tombstones
            self.forgotten = _forgettable(self.t, self.task, self.here, self.buckets.high)
        old = pc.less_equal(kept.column(VERSION), self.forgotten)
        return kept.filter(pc.invert(pc.and_(deletes, pc.fill_null(old, False))))


class _Outputs:
    """Writes the segments of one kind, one after another."""

    def __init__(self, work: _Work, kind: SliceKind) -> None:
        self._work, self._kind = work, kind
        self._writer: SegmentWriter | None = None
        self._place = (-1, -1)

    def write(self, place: tuple[int, int], rows: pa.Table) -> None:
        """Write rows of these buckets, in their order."""
        full = self._writer is not None and (
            self._writer.encoded_bytes + self._writer.held_bytes // 4
            >= self._work.sizes.target_bytes
        )
        if place != self._place or full:
            self.close()
        if self._writer is None:
            self._place = place
            self._writer = self._opened(rows.schema)
        self._writer.write(rows)

    def abandon(self) -> None:
        """Give up the segment being written."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def close(self) -> None:
        """Complete the segment being written, and store it."""
        if self._writer is None:
            return
        work, at = self._work, self._work.buckets
        splits = at.splits or UNSET
        place = Slice(self._kind, *self._place, at.low, at.high, work.level, None, splits)
        add, body = self._writer.seal(place)
        check_opens(add, body, work.t.store.uri)
        put_segment(work.t.store, work.t.clock, add, body)
        work.adds.append(add)
        self._writer = None

    def _opened(self, schema: pa.Schema) -> SegmentWriter:
        work = self._work
        return SegmentWriter(
            work.t.clock,
            work.recipe,
            work.task.chunk,
            group_bytes=_GROUP_BYTES,
            path=Path(work.folder, f"{self._kind}-{len(work.adds)}.parquet"),
            schema=schema,
        )


def _by_key(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Return rows in the order of bucket and key; those of one key stay in theirs."""
    return in_key_order(rows, rule)[0]


def _buckets_of(segment: Segment, here: Sequence[Run], at: Buckets) -> set[int]:
    """Return the buckets of the task in which a segment counts."""
    first, last = reach(segment, at.splits)
    return {
        bucket
        for run in here
        if any(s.id == segment.id for s in run.segments)
        for bucket in range(max(run.first, first, at.first), min(run.last, last, at.last) + 1)
    }
