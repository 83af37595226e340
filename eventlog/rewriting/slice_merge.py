"""Merging slices of a keyed table: turns a run of their segments into a base, or a log.

Imports eventlog and readers only. Rows are sorted by bucket, key and commit order, on disk if they
do not fit into memory, and merged key by key. So the memory does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
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
from eventlog.keyed.placement import Placed, finer, in_order, place
from eventlog.keyed.rule import VERSION, MergeRule, buckets_split
from eventlog.keyed.slices import Run, buckets_in, ineffective, readable_runs
from eventlog.log.history import checked_version_at
from eventlog.model.actions import Add, Merge
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment, Slice, SliceKind
from eventlog.model.properties import setting
from eventlog.model.records import packs_of
from eventlog.model.schema import to_arrow
from eventlog.rewriting.outputs import Sizes, check_opens
from eventlog.segments.fragments import Reading
from eventlog.staging.encoding import Recipe, SegmentWriter, put_segment
from eventlog.staging.external_sort import sort_on_disk, whole_keys
from eventlog.state.fold import segment_of
from eventlog.state.small.timing import effective_time
from eventlog.store.port import store_time_ms

_BUCKET, _RANK = "", " "  # a table could have the second: it is renamed below
_GROUP_BYTES = 2 * 2**20  # Arrow bytes of a row group: a look-up by key reads one of them
_HOUR_MS = 3_600_000
_SHARED = 4  # inputs below this fraction (1 / _SHARED) of `bucket_bytes` give one shared segment


class Buckets(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Slices of a keyed table that are merged: buckets of a chunk, and versions.

    Attributes:
        first: the first bucket.
        last: the last bucket.
        low: the first version whose rows are merged.
        high: the last version whose rows are merged.
        splits: number of splits of the table's buckets that the numbers take into account.
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
        inputs: the segments; they may count in other slices as well.
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
        """The number of rows of the inputs."""
        return sum(segment.rows for segment in self.inputs)


@dataclass(frozen=True, slots=True)
class MergedSlices:
    """The result of a merge of slices.

    Attributes:
        adds: the new segments.
        merge: the action that lists the segments that they replace.
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
    """Merge slices and stage the segments that replace them.

    Args:
        t: the table; its newest known version is the epoch of the staged segments.
        task: what to merge.
        sizes: the sizes of segments and of memory.
        pulse: called between batches of rows; an exception from it ends the work.
        progress: called with ("rows", done, total) likewise. Of shared inputs only a part is read.

    Raises:
        DataLoss: an input is missing or damaged.
        InvalidInput: a sum does not fit its column.
        Unavailable: the store does not answer.
        OSError: the disk is full.
    """
    head = t.session.head()
    recipe = Recipe.of(head)
    if recipe.rule is None:
        raise InvalidInput("the table is not keyed, so it has no slices to merge")
    bounds = parse_chunk(task.chunk)
    live = [s for s in to_segments(head.entries(bounds.start, bounds.end)) if s.chunk == task.chunk]
    work = _Work.of(t, task, sizes, recipe, recipe.rule, readable_runs(live, recipe.rule))
    inputs = _Inputs(work, pulse or (lambda: None), progress or (lambda *_: None))
    with TemporaryDirectory(prefix="eventlog-merge-") as folder:
        outputs = _Outputs(work, Path(folder))
        order = [_BUCKET, *work.rule.key, work.rank]
        memory = sizes.memory_bytes // 2
        ordered = sort_on_disk(inputs.rows(), order, memory_bytes=memory, directory=folder)
        # Closed before the folder is deleted: an interrupted merge still has runs in it.
        with closing(ordered):
            outputs.write(whole_keys(ordered, [_BUCKET, *work.rule.key]), inputs.pulse)
    return work.merged(outputs.adds, read=inputs.read, made=outputs.made)


def _forgettable(t: Table, task: SliceMerge, runs: Sequence[Run], high: int) -> int:
    """Return the version up to which tombstones may be forgotten; -1: none may.

    `tombstone_hours` must have passed twice, up to a commit and again after it: one wrong clock
    makes one step in the times of commits, and can shorten only one of the two periods. Both must
    have passed by this program's clock as well. Otherwise tombstones are kept.

    A tombstone hides older values even if they come above the merge. So no segment that was
    committed when the merge was planned may be above it (FORMAT.md R15.14). A segment that a
    restore brings back was committed in the versions of its span.
    """
    if any(high < one.low <= task.version for run in runs for one in run.placed):
        return -1
    planned = t.snapshot(task.version)
    hours = setting(planned.properties, "tombstone_hours")
    # against forgotten-by-the-times-of-commits-alone
    now_ms = min(planned.header.time, store_time_ms(t.store, t.clock))
    try:
        # A tombstone of exactly that age is kept.
        between = checked_version_at(t.session.log, planned, now_ms - hours * _HOUR_MS - 1)
        between_ms = effective_time(planned.meta.clock, between, t.session.log.header(between).time)
        # against forgotten-by-one-step-of-time
        return checked_version_at(t.session.log, planned, between_ms - hours * _HOUR_MS - 1)
    except (Corrupt, VersionNotFound):
        return -1


def droppable(made: MergedSlices, live: Sequence[Segment], head: Snapshot) -> list[Segment]:
    """Return the inputs that count in no slice any more once the merge has taken effect.

    Args:
        made: the merge.
        live: the live segments of its chunk before the merge.
        head: the version before the one in which the merge takes effect.
    """
    after = [segment_of(add, head.version + 1, number) for number, add in enumerate(made.adds)]
    left = ineffective([*live, *after], buckets_split(head.layout))
    gone = {segment.id for segment in left}
    return [s for s in live if s.id in gone and s.id in made.merge.inputs]


@dataclass(frozen=True, slots=True)
class _Work:
    """The merge as planned, and its inputs and slices in the newest version.

    Attributes:
        t: the table.
        task: the planned merge.
        sizes: the sizes of segments and of memory.
        recipe: how segments are written.
        rule: the merge rule.
        at: the slices, with the newest numbers of their buckets.
        runs: the runs that have one of these buckets.
        inputs: the segments to merge, in the order in which they are applied.
        bottom: whether no segment below the inputs counts, so that the merge makes bases.
        level: the level of the new segments.
    """

    t: Table
    task: SliceMerge
    sizes: Sizes
    recipe: Recipe
    rule: MergeRule
    at: Buckets
    runs: Sequence[Run]
    inputs: Sequence[Placed]
    bottom: bool
    level: int

    @classmethod
    def of(  # noqa: PLR0917 - what `merge_slices` has at hand
        cls,
        t: Table,
        task: SliceMerge,
        sizes: Sizes,
        recipe: Recipe,
        rule: MergeRule,
        live: Sequence[Run],
    ) -> _Work:
        """Return the work, given the runs that are readable now."""
        planned = task.buckets  # they may have been split since
        first, last = finer(planned.first, planned.last, rule.splits - planned.splits)
        at = msgspec.structs.replace(planned, first=first, last=last, splits=rule.splits)
        runs = [run for run in live if run.first <= last and first <= run.last]
        inputs = in_order(place(segment, rule.splits) for segment in task.inputs)
        bottom = all(one.high >= at.low for run in runs for one in run.placed)
        level = 1 + max(one.level for one in inputs)
        return cls(t, task, sizes, recipe, rule, at, runs, inputs, bottom, level)

    @property
    def base_schema(self) -> pa.Schema:
        """The schema of rows of bases."""
        return to_arrow(self.recipe.schema)

    @property
    def log_schema(self) -> pa.Schema:
        """The schema of rows of logs."""
        return log_schema(self.base_schema, self.rule, versions=True)

    @property
    def rank(self) -> str:
        """The name of a column, which the table does not have, for the order of commits."""
        name, names = _RANK, self.log_schema.names
        while name in names:
            name += " "
        return name

    def merged(self, adds: Sequence[Add], *, read: int, made: int) -> MergedSlices:
        """Return the result of the merge.

        Args:
            adds: the new segments.
            read: number of rows of the inputs in these buckets.
            made: number of rows of the new segments.

        Raises:
            InvalidInput: there are more rows than before.
        """
        at, task = self.at, self.task
        if made > read:
            raise InvalidInput(
                f"buckets {at.first} to {at.last} of chunk {task.chunk} have sums that do "
                "not fit their column, and rows of their keys that a merge cannot count: upsert "
                "rows that take a part of the sums back",
                table=self.t.store.uri,
            )
        merge = Merge(
            version=task.version,
            chunk=task.chunk,
            first=at.first,
            last=at.last,
            low=at.low,
            high=at.high,
            inputs=tuple(sorted({segment.id for segment in task.inputs})),
            rows=read,
            superseded=read - made,
            splits=at.splits or UNSET,
        )
        return MergedSlices(tuple(adds), merge, read, sum(add.bytes for add in adds))


class _Inputs:
    """Reads the rows of the inputs.

    Attributes:
        pulse: called between batches of rows.
        read: number of rows read that count in these slices, without late ones.
    """

    def __init__(
        self, work: _Work, pulse: Callable[[], None], progress: Callable[[str, int, int], None]
    ) -> None:
        self._work, self.pulse, self._progress = work, pulse, progress
        self.read, self._total = 0, work.task.rows
        at = work.at
        inputs = {one.segment.id for one in work.inputs}
        self._runs = [
            run.cut(at.first, at.last)
            for run in work.runs
            if any(one.segment.id in inputs for one in run.placed)
        ]

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows in these slices as rows of logs, with their bucket and commit order."""
        work, schema, rank = self._work, self._work.log_schema, 0
        late_keys = self._late_keys()
        last: Placed | None = None
        for is_base, some in groupby(work.inputs, key=lambda one: one.kind == "base"):
            for one, rows in self._tables(some, work.base_schema if is_base else schema):
                self.pulse()
                if one is not last:
                    last, counting = one, self._buckets(one)
                buckets = row_buckets(rows, work.rule)
                mask = pc.is_in(buckets, value_set=counting)
                if one.kind != "late":
                    self.read += pc.sum(mask).as_py() or 0
                self._progress("rows", self.read, self._total)
                # The late rows hold the full state of these keys: skip the base's copy.
                if is_base and late_keys.num_rows:
                    hidden = key_lookup.among(rows, late_keys, work.rule.key)
                    mask = pc.and_(mask, pc.invert(hidden))
                numbers = pa.array(range(rank, rank + rows.num_rows), pa.int64())
                rank += rows.num_rows
                # The rows of an overwrite have its read version as place, but its commit's age.
                version = None if one.level else one.segment.version
                filled = as_log(rows, schema, version)
                filled = filled.append_column(_BUCKET, buckets).append_column(work.rank, numbers)
                yield filled.filter(mask)

    def _late_keys(self) -> pa.Table:
        """Return the keys that occur in late segments."""
        work = self._work
        schema = pa.schema([work.base_schema.field(name) for name in work.rule.key])
        parts = [schema.empty_table()]
        late = [one for one in work.inputs if one.kind == "late"]
        for one, rows in self._tables(late, schema):
            buckets = row_buckets(rows, work.rule)
            parts.append(rows.filter(pc.is_in(buckets, value_set=self._buckets(one))))
        return key_lookup.distinct(pa.concat_tables(parts), work.rule.key)

    def _buckets(self, one: Placed) -> pa.Array:
        """Return the buckets of these slices in which an input counts."""
        return pa.array(sorted(buckets_in(one, self._runs)), pa.int32())

    def _tables(
        self, inputs: Iterable[Placed], schema: pa.Schema
    ) -> Iterator[tuple[Placed, pa.Table]]:
        """Yield the rows of inputs with the input that has them, in order."""
        work, head = self._work, self._work.t.session.head()
        reading = Reading(
            work.t.store,
            head.version,
            work.recipe.schema,
            schema,
            schema,
            ahead_bytes=work.sizes.memory_bytes // 8,
            table=head.header.table,
            required=work.rule.merged_by,
            packs=packs_of(head.base),
        )
        placed = {one.segment.id: one for one in inputs}
        for segment, batch in reading.located(one.segment for one in placed.values()):
            yield placed[segment.id], pa.Table.from_batches([batch])


class _Outputs:
    """Merges rows, and stages the new segments.

    Attributes:
        adds: the segments that were staged.
        made: number of rows in these segments, without late ones.
    """

    def __init__(self, work: _Work, folder: Path) -> None:
        self._work = work
        self.adds: list[Add] = []
        self.made = 0
        self._main = _KindWriter(work, "base" if work.bottom else "log", folder, self.adds)
        self._late = _KindWriter(work, "late", folder, self.adds)
        self._beside = _KindWriter(work, "log", folder, self.adds)
        self._forgettable: int | None = None

    def write(self, pieces: Iterable[pa.Table], pulse: Callable[[], None]) -> None:
        """Write all rows.

        Args:
            pieces: the rows of the inputs, in the order of bucket, key and commit; each table has
                all rows of its keys.
            pulse: called between the tables.
        """
        writers = (self._main, self._late, self._beside)
        try:
            for buckets, rows in self._divided(pieces, pulse):
                self._merge(buckets, rows)
            for writer in writers:
                writer.close()
        except BaseException:
            for writer in writers:
                writer.abandon()
            raise

    def _divided(
        self, pieces: Iterable[pa.Table], pulse: Callable[[], None]
    ) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Yield rows and the buckets of their segment: all buckets if rows are few, else one.

        Each bucket gets a segment, even one without rows, because the inputs lose their effect
        there.
        """
        work, first, last = self._work, self._work.at.first, self._work.at.last
        shared = work.task.bytes * _SHARED <= work.recipe.bucket_bytes
        left = {(first, last)} if shared else {(b, b) for b in range(first, last + 1)}
        for piece in pieces:
            pulse()
            buckets = piece.column(_BUCKET)
            rows = piece.drop_columns([_BUCKET, work.rank])
            present = pc.unique(buckets).to_pylist()
            if shared and present:
                left.clear()
                yield (first, last), rows
                continue
            for bucket in present:
                left.discard((bucket, bucket))
                yield (bucket, bucket), rows.filter(pc.equal(buckets, bucket))
        for empty in sorted(left):
            yield empty, work.log_schema.empty_table()

    def _merge(self, buckets: tuple[int, int], rows: pa.Table) -> None:
        work = self._work
        # A sum that does not fit now may fit together with later rows, so its rows are kept.
        rows, unfit = row_merging.fitting(rows, work.rule)
        kept = row_merging.condensed(rows, work.rule, bottom=work.bottom)
        if not work.bottom:
            self._count(buckets, pa.concat_tables([kept, unfit]), self._main)
            return
        if unfit.num_rows:
            self._count(buckets, unfit, self._beside)
        shown = row_merging.visible(kept, work.rule)
        self._count(buckets, shown.cast(work.base_schema), self._main)
        residue = row_merging.residue(self._remembered(kept), work.rule)
        if residue.num_rows:
            self._late.write(buckets, in_key_order(residue, work.rule)[0])

    def _count(self, buckets: tuple[int, int], rows: pa.Table, writer: _KindWriter) -> None:
        self.made += rows.num_rows
        writer.write(buckets, in_key_order(rows, self._work.rule)[0])

    def _remembered(self, kept: pa.Table) -> pa.Table:
        """Return the rows without the tombstones that no longer need to hide older values."""
        deletes = deleted(kept)
        if not pc.any(deletes, min_count=0).as_py():
            return kept
        work = self._work
        if self._forgettable is None:  # computed once, and only if there are tombstones
            self._forgettable = _forgettable(work.t, work.task, work.runs, work.at.high)
        old = pc.less_equal(kept.column(VERSION), self._forgettable)
        return kept.filter(pc.invert(pc.and_(deletes, pc.fill_null(old, False))))


class _KindWriter:
    """Writes segments of one kind, one after another.

    Args:
        work: the merge.
        kind: the kind of the segments.
        folder: directory for segments until they are stored.
        adds: receives the segments that were staged.
    """

    def __init__(self, work: _Work, kind: SliceKind, folder: Path, adds: list[Add]) -> None:
        self._work, self._kind, self._folder, self._adds = work, kind, folder, adds
        self._writer: SegmentWriter | None = None
        self._buckets = (-1, -1)

    def write(self, buckets: tuple[int, int], rows: pa.Table) -> None:
        """Write rows of these buckets, in their order."""
        full = self._writer is not None and (
            self._writer.encoded_bytes + self._writer.held_bytes // 4
            >= self._work.sizes.target_bytes
        )
        if buckets != self._buckets or full:
            self.close()
        if self._writer is None:
            self._buckets = buckets
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
        work, at = self._work, self._work.at
        splits = at.splits or UNSET
        entry = Slice(self._kind, *self._buckets, at.low, at.high, work.level, None, splits)
        add, body = self._writer.seal(entry)
        check_opens(add, body, work.t.store.uri)
        put_segment(work.t.store, work.t.clock, add, body)
        self._adds.append(add)
        self._writer = None

    def _opened(self, schema: pa.Schema) -> SegmentWriter:
        work = self._work
        return SegmentWriter(
            work.t.clock,
            work.recipe,
            work.task.chunk,
            group_bytes=_GROUP_BYTES,
            path=self._folder / f"{self._kind}-{len(self._adds)}.parquet",
            schema=schema,
        )
