"""How the rows of one version are shared out among tasks. Planned on the driver, read by tasks.

Imports eventlog, readers and pyspark (extra `spark`).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

import msgspec
import pyarrow as pa
from msgspec import UnsetType
from pyspark.sql.types import StructType

from eventlog import Segment, Snapshot, Table
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.keyed.rule import MergeRule
from eventlog.model.records import Pack
from eventlog.query.predicate import Where
from eventlog.readers.keyed import SliceReader
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.spark import slice_shares
from eventlog.readers.spark.expressions import unpack_expression
from eventlog.readers.spark.spark_options import READ_VERSION, SparkOptions
from eventlog.readers.spark.types import declared, to_spark
from eventlog.readers.spark.workers import keeps_rows_without_columns
from eventlog.segments.fragments import Reading, ahead_of
from eventlog.state.scan import ScanPlan
from eventlog.state.version import VersionState
from eventlog.store.branching.roots import root_of
from eventlog.store.location import open_store

DEFAULT_TARGET_BYTES = 128 * 2**20
# Where reads cost no requests, reading far ahead hides no delay, and it is cheaper to use memory
# again than to fill new memory.
NEAR_AHEAD_BYTES = 16 * 2**20
# The cost of opening one segment, as the number of bytes read in the same time.
OPEN_BYTES = 2**20
_COMMITS = 256  # that one task reads, if no pack has their rows
# The columns of a row's segment that a reader may ask for.
FILE, VERSION = "_file", "_version"
SEGMENT_COLUMNS = pa.schema([(FILE, pa.string()), (VERSION, pa.int64())])
SHARE = "share binary"  # the schema of what `Work.rows` reads, as Spark spells it
_segments = msgspec.json.Decoder(list[Segment])  # created once; safe to share between threads
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a DataFrame reads: the state of one version of one table."""

    state: VersionState

    @property
    def table(self) -> str:
        """The id of the table."""
        return self.state.header.table

    @property
    def version(self) -> int:
        """The version."""
        return self.state.header.version


class Work(ABC):
    """Rows in shares of about equal weight, each for one task. Can be pickled.

    Attributes:
        shares: what each task reads.
    """

    __slots__ = ()
    shares: Sequence[bytes]

    @abstractmethod
    def without_shares(self) -> Work:
        """Return the same without shares, for tasks that are each given one."""

    @abstractmethod
    def batches(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one share.

        Raises:
            DataLoss: a segment that the version needs is missing or damaged.
            Unavailable: the store does not answer; Spark retries the task.
        """

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the same as `batches`, in the form that `DataFrame.mapInArrow` calls.

        Args:
            given: batches of one column `share` (`SHARE`).
        """
        for batch in given:
            for share in batch.column(0):
                yield from self.batches(share.as_py())

    def places(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a null for each row, as column `place`; the argument is that of `rows`.

        For frames without columns: PySpark before 4.1 makes no rows of batches that have none.
        """
        for batch in self.rows(given):
            yield pa.record_batch([pa.nulls(batch.num_rows, pa.int8())], ["place"])


@dataclass(frozen=True, slots=True)
class ScanWork(Work):
    """The rows of one version.

    Attributes:
        reading: how segments become batches.
        shares: the segments of each task, or in a keyed table its runs of slices, as JSON.
        rule: the merge rule of a keyed table; None for others.
    """

    reading: Reading
    shares: Sequence[bytes]
    rule: MergeRule | None = None

    def without_shares(self) -> ScanWork:
        """Return the same without shares."""
        return replace(self, shares=())

    def batches(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """See `Work.batches`."""
        if self.rule is None:
            yield from self.reading.batches(_segments.decode(share))
        else:
            yield from SliceReader(self.reading, self.rule).batches(slice_shares.decode_runs(share))


@dataclass(frozen=True, slots=True)
class LocatedWork(Work):
    """The rows of one version of a table without a key, with the segments that have them.

    Attributes:
        reading: how segments become batches of the table's columns.
        schema: those, and some of `SEGMENT_COLUMNS`, as Spark expects them of every batch.
        shares: the segments of each task, as JSON.
    """

    reading: Reading
    schema: pa.Schema
    shares: Sequence[bytes]

    def without_shares(self) -> LocatedWork:
        """Return the same without shares."""
        return replace(self, shares=())

    def batches(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """See `Work.batches`."""
        for segment, batch in self.reading.located(_segments.decode(share)):
            key = keys.key_of(segment)
            own = {FILE: f"{root_of(self.reading.store, key)}/{key}", VERSION: segment.version}
            columns = [
                batch.column(field.name)
                if field.name in self.reading.schema.names
                else pa.repeat(pa.scalar(own[field.name], field.type), batch.num_rows)
                for field in self.schema
            ]
            yield pa.record_batch(columns, schema=self.schema)


def share_out_scan(  # noqa: PLR0917 - what a plan needs to become work
    uri: str,
    storage_options: Mapping[str, str] | None,
    snapshot: Snapshot,
    plan: ScanPlan,
    wanted: pa.Schema,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    memory_bytes: int | None = None,
    *,
    located: bool = False,
) -> ScanWork | LocatedWork:
    """Return the work of a plan.

    Args:
        uri: the table's root.
        storage_options: see `eventlog.store.options`.
        snapshot: the version.
        plan: the segments to read.
        wanted: the columns for Spark, in this order, as `declared` or `check_schema` returns them.
        target_bytes: stored bytes per share.
        memory_bytes: about how many bytes of Arrow data a task holds; None: the default.
        located: whether `wanted` has some of `SEGMENT_COLUMNS`.
    """
    store = open_store(uri, storage_options)
    _ = store.forks  # sent along with a branch, so that no task reads it
    read = wanted
    if located:
        read = pa.schema([field for field in wanted if field.name not in SEGMENT_COLUMNS.names])
    reading = replace(Reading.of(store, plan, snapshot.header.table), schema=read)
    if memory_bytes is not None:
        reading = replace(reading, ahead_bytes=ahead_of(memory_bytes))
    elif reading.store.near and plan.rule is None:  # merging reads logs again where it has less
        reading = replace(reading, ahead_bytes=NEAR_AHEAD_BYTES)
    if plan.rule is not None:
        return ScanWork(reading, _of_slices(plan, target_bytes), plan.rule)
    shares = [msgspec.json.encode(share) for share in segment_shares(plan, target_bytes)]
    return LocatedWork(reading, wanted, shares) if located else ScanWork(reading, shares)


def segment_shares(plan: ScanPlan, target_bytes: int) -> list[list[Segment]]:
    """Return the segments of a plan in shares of about equal weight, each in the order of a scan.

    Segments whose rows may be in one pack, or in commits since the last one, stay together: each
    task that reads some of them fetches the pack.

    Args:
        plan: of a table without a key.
        target_bytes: stored bytes of a share.
    """
    order = {segment.id: place for place, segment in enumerate(plan.in_scan_order())}
    together: dict[object, list[Segment]] = {}
    for segment in plan.in_scan_order():
        together.setdefault(_pack_of(segment, plan.packs) or segment.id, []).append(segment)
    items = list(together.values())
    shares = pack_shares(items, target_bytes, weigh=lambda some: sum(s.bytes for s in some))
    return [
        sorted((segment for some in share for segment in some), key=lambda s: order[s.id])
        for share in shares
    ]


def _pack_of(segment: Segment, packs: Sequence[Pack]) -> tuple[int, int] | None:
    """Return the commits among which an inline segment lies, of one pack or since the last."""
    stands = segment.inline
    if isinstance(stands, UnsetType):
        return None
    found = [(p.first, p.last) for p in packs if p.first <= stands <= p.last]
    since = max((pack.last for pack in packs), default=-1)
    # Of packs with other columns, which may lie among the same commits, any will do.
    return min(found, key=lambda ends: ends[1] - ends[0], default=(since + 1, stands // _COMMITS))


def _of_slices(plan: ScanPlan, target_bytes: int) -> list[bytes]:
    """Return the shares of a plan for a keyed table."""
    plain = slice_shares.plain_of(plan.runs)
    bases = [segment for run in plain.values() for segment in run.segments]
    shares = [
        *([plain[s.id] for s in share] for share in pack_shares(bases, target_bytes)),
        *slice_shares.merging_shares(plan.runs, target_bytes, OPEN_BYTES),
    ]
    return [slice_shares.encode_runs(share) for share in shares]


def open_snapshot(given: SparkOptions, pinned: Pinned | None) -> Snapshot:
    """Return the snapshot that the options name, or the pinned one.

    Raises:
        InvalidInput: two options name a version.
        TableNotFound: there is no table, or another one than expected.
        VersionNotFound: the table has no such version.
    """
    table = Table(open_store(given.path, given.storage))
    if pinned is not None:
        table.session.adopt(pinned.state)
        return table.session.head()
    table.session.log.table = given.named.get("tableId")
    if given.reads_changes:
        last, when = given.version("endingVersion"), given.named.get("endingTimestamp")
        return kept_snapshot(table, last, when)
    version, read_version = given.version("version"), given.version(READ_VERSION)
    if version is not None and read_version is not None:
        raise InvalidInput("give option version or readVersion, not both")
    version = read_version if version is None else version
    return kept_snapshot(table, version, given.named.get("timestamp"))


def check_schema_columns(given: SparkOptions, schema: StructType, *, located: bool = False) -> None:
    """Check that a schema has the columns that option `columns` names, if it is given.

    Args:
        given: the options.
        schema: the table's columns that are read.
        located: whether Spark is given some of `SEGMENT_COLUMNS` besides.

    Raises:
        InvalidInput: it has not; or it has none, and Spark would lose the rows.
    """
    if not schema.fields and not located and not keeps_rows_without_columns():
        raise InvalidInput(
            "Spark 4.0 loses the rows of a data source without columns: name a column, or use "
            "eventlog.readers.spark.read"
        )
    columns = given.columns()
    if columns is not None and sorted(columns) != sorted(schema.names):
        raise InvalidInput(
            f"the schema has columns {', '.join(schema.names)}, but option columns has "
            f"{', '.join(columns)}"
        )


def check_segment_columns(snapshot: Snapshot) -> None:
    """Check that the rows of a version can have `SEGMENT_COLUMNS`.

    Raises:
        InvalidInput: the table has a key, or columns of these names.
    """
    if snapshot.merge_rule is not None:
        raise InvalidInput(
            "in a keyed table a row may be merged from several segments, so it has no _file and no "
            "_version: leave segmentColumns out; eventlog.readers.spark.read_changes returns the "
            "version of each change"
        )
    for name in snapshot.schema.names:
        if name.lower() in SEGMENT_COLUMNS.names:  # Spark tells no capitals apart
            raise InvalidInput(
                f"the table has a column {name!r} of its own: leave segmentColumns out"
            )


def without_columns_of(schema: StructType, own: pa.Schema) -> StructType:
    """Return a schema without the columns that are not the table's, which have their types.

    Args:
        schema: the schema.
        own: those columns; nothing is said of others.

    Raises:
        InvalidInput: one of them has another type.
    """
    known = to_spark(own)
    for field in schema.fields:
        if field.name in own.names and known[field.name].dataType != field.dataType:
            wanted = known[field.name].dataType.simpleString()
            raise InvalidInput(
                f"the schema has column {field.name!r} as {field.dataType.simpleString()}, but its "
                f"type is {wanted}"
            )
    return StructType([field for field in schema.fields if field.name not in own.names])


def where_of(given: SparkOptions) -> Where | None:
    """Return the filter given in the options.

    Raises:
        InvalidInput: both forms are given, or the Arrow one is damaged.
    """
    text, packed = given.named.get("where"), given.named.get("whereArrow")
    if packed is None:
        return text
    if text is not None:
        raise InvalidInput("give option where or whereArrow, not both")
    return unpack_expression(packed)


def pack_shares(
    items: Sequence[_Item],
    target_bytes: int,
    weigh: Callable[[_Item], int] = attrgetter("bytes"),
) -> list[list[_Item]]:
    """Return items in as few shares as `target_bytes` allows, of about equal weight.

    Largest first, each to the lightest share so far (Graham's LPT rule); deterministic. Within a
    share items keep their order.

    Args:
        items: the items, such as segments.
        target_bytes: of one share.
        weigh: returns the bytes of an item.
    """
    if not items:
        return []
    weights = [weigh(item) + OPEN_BYTES for item in items]
    count = min(len(items), -(-sum(weights) // target_bytes))
    loads = [(0, share) for share in range(count)]
    shares: list[list[int]] = [[] for _ in range(count)]
    for at in sorted(range(len(items)), key=lambda i: (-weights[i], i)):
        load, share = loads[0]
        shares[share].append(at)
        heapq.heapreplace(loads, (load + weights[at], share))
    return [[items[at] for at in sorted(share)] for share in shares]


def check_schema(schema: StructType, snapshot: Snapshot) -> pa.Schema:
    """Return a declared schema in Arrow, after a check that the table has its columns and types.

    Raises:
        InvalidInput: it has columns that the table does not have, or has with another type.
    """
    wanted = declared(schema)
    available = declared(to_spark(snapshot.schema))
    for field in wanted:
        if field.name not in available.names:
            raise InvalidInput(
                f"the schema has column {field.name!r}, but the table at version "
                f"{snapshot.version} has {', '.join(available.names)}"
            )
        known = available.field(field.name)
        if known.type != field.type or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise InvalidInput(
                f"the schema has column {field.name!r} as {field.type}{not_null}, but the table "
                f"has it as {known.type}, nullable"
            )
    return wanted
