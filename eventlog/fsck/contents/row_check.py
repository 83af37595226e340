"""The check of the rows of a segment: rows that readers refuse, and rows in a wrong place.

Reads by `eventlog.segments.fragments`, as readers do, so that it refuses the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog import limits
from eventlog.errors import Corrupt, DataLoss, KeyNotFound, NotFound
from eventlog.format import codec, keys
from eventlog.format.buckets import buckets_of
from eventlog.fsck.contents.group_statistics import GroupStatistics
from eventlog.inline import inline_objects
from eventlog.keyed.placement import slice_of
from eventlog.keyed.rule import DELETE, OP, VERSION, MergeRule, splits_of, stored_rule
from eventlog.model import stats
from eventlog.model.chunks import parse_chunk
from eventlog.model.columns.named_layout import named_layout
from eventlog.model.entries import Column, ColumnStats, Segment, Slice
from eventlog.model.records import Meta
from eventlog.model.schema import to_arrow
from eventlog.quantities import count_text
from eventlog.segments.fragments import Reading
from eventlog.store.checksum import object_checksum
from eventlog.store.parallel import Executors, each
from eventlog.store.port import ObjectStore

_FLOATS = ("float32", "float64")
_AHEAD_BYTES = 4 * 2**20  # of decoded rows, for each segment that is read
REWRITE = "a compaction that merges these buckets writes them again"
MISSED = "scans with a predicate may miss rows"
WRONG_CHUNK = "with an event time outside of the chunk"
WRONG_BUCKET = "with keys of other buckets"
CONSEQUENCES = {
    WRONG_BUCKET: ": look-ups miss them, and merges may leave them out; upsert these rows "
    f"again, and {REWRITE}",
}


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The results of reading the object of a segment.

    Attributes:
        segment: its entry.
        digest: the sha256 of its bytes; None if they are missing.
        problems: what is wrong with its rows, if its bytes are those that were committed.
        refused: whether readers refuse it for that.
    """

    segment: Segment
    digest: str | None
    problems: Sequence[str] = ()
    refused: bool = False


ReadSegments = Callable[
    [ObjectStore, Iterable[Segment], Callable[[Segment], list[str]]], Iterator[SeenRows]
]  # as `read_segments`: in this process, or elsewhere


class Statistics:
    """The statistics that an entry must have for rows that are read in parts (FORMAT.md R7.4).

    Args:
        columns: those that are looked at.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = {column.id: column for column in columns}
        self._bounds: dict[int, tuple[pa.Scalar, pa.Scalar]] = {}
        self._nulls = dict.fromkeys(self._columns, 0)
        self._nan = set[int]()

    def look_at(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take in some rows."""
        for number, column in self._columns.items():
            values = rows.column(column.name)
            self._nulls[number] += values.null_count
            if values.null_count == len(values) or column.type == "binary":
                continue
            if column.type in _FLOATS and pc.any(pc.is_nan(values)).as_py():
                self._nan.add(number)
            ends = pc.min_max(values)
            if number in self._bounds:
                both = ends["min"], ends["max"], *self._bounds[number]
                ends = pc.min_max(pa.concat_arrays([pa.repeat(end, 1) for end in both]))
            self._bounds[number] = ends["min"], ends["max"]

    def problems(self, known: Iterable[ColumnStats]) -> Iterator[tuple[str, str]]:
        """Yield the names of columns, and what is wrong with their statistics.

        Args:
            known: the statistics of an entry.
        """
        for one in known:
            column = self._columns.get(one.column)
            problem = column and self._problem(column, one)
            if column is not None and problem:
                yield column.name, problem

    def _problem(self, column: Column, known: ColumnStats) -> str | None:
        nulls = self._nulls[column.id]
        if nulls != known.nulls:
            return f"record {known.nulls} nulls, and it has {nulls}"
        bounded = known.min is not None or known.max is not None
        if bounded and column.id in self._nan:
            return "have a bound, and it has a NaN, which counts as greater than every number"
        if column.id not in self._bounds:
            return None
        least, greatest = self._bounds[column.id]
        low, high = (stats.encode(end, column.type) for end in (least, greatest))
        # A value without a code is beyond all that have one.
        below = _is_negative(least) if low is None and column.id not in self._nan else False
        if known.min is not None and (below if low is None else low < known.min):  # type: ignore[operator]
            return f"begin above its least value {as_text(least)}"
        if known.max is not None and (high is None or high > known.max):  # type: ignore[operator]
            return f"end below its greatest value {as_text(greatest)}"
        return None


def _is_negative(value: pa.Scalar) -> bool:
    """Return whether a number, or a date, which Python may not have, is below zero."""
    number = value.value if pa.types.is_date(value.type) else value.as_py()
    return bool(number < 0)


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The parts of a version that the check needs.

    Attributes:
        reading: reads the columns of the version's schema.
        rule: the merge rule; None without a key.
        time: the name of the event-time column; None: the version has none.
        columns: of the version's schema.
    """

    reading: Reading
    rule: MergeRule | None
    time: str | None
    columns: Sequence[Column]

    @classmethod
    def of(cls, store: ObjectStore, version: int, meta: Meta) -> RowCheck | None:
        """Return that of a version; None if the version has no schema.

        Raises:
            Corrupt: its layout, schema and properties do not fit together.
        """
        if meta.layout is None or meta.schema is None:
            return None
        schema = to_arrow(meta.schema)
        reading = Reading(store, version, meta.schema, schema, schema, ahead_bytes=_AHEAD_BYTES)
        rule = stored_rule(meta.layout, meta.schema)
        time_column = named_layout(meta.layout, meta.schema).time_column
        return cls(reading, rule, time_column, meta.schema.columns)

    def problems(self, segment: Segment, *, places: bool = True) -> list[str]:
        """Read all rows of a segment, and return what is wrong with them.

        Args:
            segment: its entry.
            places: also look for rows outside of the segment's time chunk and buckets, and at the
                statistics of the columns by which these are found.

        Raises:
            Corrupt: readers refuse the segment.
            NotFound: its object is missing.
            Unavailable: the store does not answer.
        """
        counts: dict[str, int] = {}
        statistics = Statistics(self._described(segment, places=places))
        groups = GroupStatistics()
        reading = replace(self._reading_of(segment), audit=groups)
        for rows in reading.batches([segment]):
            self._count_nulls(rows, counts)
            statistics.look_at(rows)
            if not places:
                continue
            if self.time is not None:
                _count(WRONG_CHUNK, outside_chunk(rows.column(self.time), segment), counts)
            if self.rule is not None:
                known = pa.Table.from_batches([rows.select([*self.rule.key])])
                outside = outside_buckets(known, self.rule, slice_of(segment))
                _count(WRONG_BUCKET, outside, counts)
        faults = [(name, f"of the segment {f}") for name, f in statistics.problems(segment.stats)]
        faults += [(n, f"in the footer of the segment {f}") for n, f in groups.problems.items()]
        return [
            f"the segment has {count_text(count, 'row')} {fault}{CONSEQUENCES.get(fault, '')}"
            for fault, count in counts.items()
        ] + [
            f"the statistics of column {name!r} {fault}: {MISSED}, until a compaction rewrites it"
            for name, fault in faults
        ]

    def _described(self, segment: Segment, *, places: bool) -> Iterator[Column]:
        """Yield the columns of which an entry has statistics that are to be looked at."""
        elsewhere = {self.time}  # what `key_rows` looks at
        if self.rule is not None:
            elsewhere |= {*self.rule.key, self.rule.order}
        known = {statistics.column for statistics in segment.stats}
        for column in self.columns:
            if column.id in known and (places or column.name not in elsewhere):
                yield column

    def _reading_of(self, segment: Segment) -> Reading:
        if self.rule is None:
            return self.reading
        fields = list(self.reading.schema)
        if slice_of(segment).kind != "base":  # rows of deletes have nulls
            fields = [f.with_nullable(f.nullable or f.name not in self.rule.key) for f in fields]
        schema = pa.schema([*fields, pa.field(OP, pa.string()), pa.field(VERSION, pa.int64())])
        return replace(
            self.reading, table_schema=schema, schema=schema, required=self.rule.merged_by
        )

    def _count_nulls(self, rows: pa.RecordBatch, counts: dict[str, int]) -> None:
        """Count the nulls in columns that are not nullable, without those of deletes."""
        needed = [f.name for f in self.reading.schema if not f.nullable]
        empty = [name for name in needed if rows.column(name).null_count]
        if empty and self.rule is not None:
            rows = rows.filter(pc.fill_null(pc.not_equal(rows.column(OP), DELETE), True))
        for name in empty:
            fault = f"without a value in column {name!r}, which is not nullable"
            _count(fault, pc.is_null(rows.column(name)), counts)


def read_segments(
    store: ObjectStore,
    segments: Iterable[Segment],
    problems: Callable[[Segment], list[str]],
) -> Iterator[SeenRows]:
    """Read objects whole, and their rows.

    Several small ones are read at once. The rows of a large one, of which its reader decodes
    several pieces at once, are read by themselves, after all of its bytes.

    Args:
        store: has the objects.
        segments: their entries.
        problems: returns what is wrong with the rows of one; raises as `RowCheck.problems`.

    Raises:
        Unavailable: the store does not answer.
    """

    def hashed(segment: Segment) -> SeenRows:
        try:
            digest: str | None = _digest(store, segment)
        except (Corrupt, KeyNotFound):  # no file, or nothing: its size is reported
            digest = None
        return SeenRows(segment, digest)

    def rows_seen(segment: Segment) -> SeenRows:
        try:
            return SeenRows(segment, segment.checksum, problems(segment))
        except Corrupt as error:
            refusal = f"readers refuse the segment: {damage_of(error)}"
            return SeenRows(segment, segment.checksum, [refusal], refused=True)
        except NotFound:
            return SeenRows(segment, None)

    def small_seen(segment: Segment) -> SeenRows:
        seen = rows_seen(segment)  # which compares all bytes
        if not seen.refused:
            return seen
        whole = hashed(segment)
        return seen if whole.digest == segment.checksum else whole

    by_size: dict[bool, list[Segment]] = {True: [], False: []}
    for segment in segments:
        by_size[segment.bytes <= limits.WHOLE_BYTES].append(segment)
    yield from each(small_seen, by_size[True])
    for seen in each(hashed, by_size[False]):
        yield rows_seen(seen.segment) if seen.digest == seen.segment.checksum else seen


def _digest(store: ObjectStore, segment: Segment) -> str:
    """Return the sha256 of a segment's bytes. Raises: KeyNotFound, Corrupt and Unavailable."""
    if isinstance(segment.inline, UnsetType):
        return object_checksum(store, keys.key_of(segment), segment.bytes + 1)
    return codec.sha256(inline_objects.get_object(store, segment))


def read_elsewhere(
    executors: Executors,
    store: ObjectStore,
    segments: Iterable[Segment],
    problems: Callable[[Segment], list[str]],
) -> Iterator[SeenRows]:
    """Do the same as `read_segments`, by executors, in the same order."""
    by_size = sorted(segments, key=lambda segment: segment.bytes > limits.WHOLE_BYTES)
    found = executors(SegmentReads(store, problems), by_size, lambda segment: segment.bytes)
    for segment, seen in zip(by_size, found, strict=True):
        yield SeenRows(segment, *seen)


@dataclass(frozen=True, slots=True)
class SegmentReads:
    """Reads shares of segments. Can be pickled.

    Attributes:
        store: has the objects.
        problems: see `read_segments`.
    """

    store: ObjectStore
    problems: Callable[[Segment], list[str]]

    def __call__(
        self, share: Sequence[Segment]
    ) -> Iterator[tuple[str | None, Sequence[str], bool]]:
        """Yield the results for each segment, without its entry.

        Raises:
            Unavailable: the store does not answer.
        """
        found = {s.segment.id: s for s in read_segments(self.store, share, self.problems)}
        for segment in share:
            seen = found[segment.id]
            yield seen.digest, seen.problems, seen.refused


def outside_chunk(times: pa.Array, segment: Segment) -> pa.Array:
    """Return for each event time whether it lies outside of the time chunk of its segment."""
    bounds = parse_chunk(segment.chunk)
    if segment.chunk == "all":
        return pa.repeat(pa.scalar(False), len(times))
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us"))
    micros = times.cast(pa.int64())
    outside = pc.or_(
        pc.less(micros, bounds.start * 1000), pc.greater_equal(micros, bounds.end * 1000)
    )
    return pc.fill_null(outside, False)


def outside_buckets(rows: pa.Table, rule: MergeRule, place: Slice) -> pa.Array:
    """Return for each row, of which each has a key, whether it lies outside of the buckets."""
    buckets = buckets_within(rows, rule, place)
    return pc.or_(pc.less(buckets, place.first), pc.greater(buckets, place.last))


def buckets_within(rows: pa.Table, rule: MergeRule, place: Slice) -> pa.Array:
    """Return the buckets of rows, of those that the table had when their segment was written."""
    now = splits_of(place)
    return buckets_of(rows, rule.key, rule.buckets >> (rule.splits - now), now)


def as_text(value: pa.Scalar) -> str:
    """Return a value as text, whatever it is."""
    try:
        return str(value.as_py())
    except UnicodeDecodeError:
        return ascii(value.as_buffer().to_pybytes())
    except (OverflowError, ValueError):  # a time outside the range of Python's types
        return str(value.value)


def damage_of(error: Corrupt) -> str:
    """Return what is wrong with a segment that readers refuse."""
    return (error.damage if isinstance(error, DataLoss) else None) or error.message


def _count(fault: str, mask: pa.Array, counts: dict[str, int]) -> None:
    count = pc.sum(mask).as_py() or 0
    if count:
        counts[fault] = counts.get(fault, 0) + count
