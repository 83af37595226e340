"""Spark's batch reader: one version, planned on the driver, read by tasks through pyarrow.

Imports eventlog, readers and pyspark (extra `spark`). Options of `spark.read.format("eventlog")`:

- `version`, or `timestamp`: the version to read; the newest at `load()` by default.
- `columns`: `a,b` or a JSON list. Spark does not push column selection into Python sources: name
  the columns here to read only those.
- `where`: one SQL expression. It prunes segments on the driver and filters rows exactly. Times
  without an offset are UTC.
- `whereArrow`: the same as a pyarrow expression, packed by `eventlog.readers.spark.expressions`.
- `targetBytes`: stored bytes per task (default 128 MiB).
- `tableId`: the id that the table must have (`Table.id`).
- `storage.<name>`: storage options.

The table and its version are pinned when the DataFrame is created: all its actions see the same
rows, whatever is committed afterwards. They fail if the table has been replaced by another one.
With a schema given by the user each action resolves the version anew: give `version` and `tableId`
with it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eventlog import Segment, Snapshot, Table
from eventlog.errors import InvalidInput
from eventlog.log.snapshot import plan as plan_of
from eventlog.query.predicate import Where
from eventlog.readers.fragments import Reading
from eventlog.readers.scanner import kept_snapshot
from eventlog.readers.spark.expressions import unpack_expression
from eventlog.readers.spark.options import SparkOptions, parse_spark_options
from eventlog.readers.spark.types import declared, to_spark
from eventlog.state import scan
from eventlog.store.location import open_store

DEFAULT_TARGET_BYTES = 128 * 2**20
# The cost of opening one segment, as the number of bytes read in the same time.
OPEN_BYTES = 2**20
_segments = msgspec.json.Decoder(list[Segment])  # created once; safe to share between threads


class EventLogReader(DataSourceReader):
    """Reads one version of a table.

    It never overrides `pushFilters`: a pushed filter would leak to every other query of the same
    DataFrame.
    """

    def __init__(self, reading: Reading, segments: Sequence[Segment], target_bytes: int) -> None:
        self._reading = reading
        shares = pack(segments, target_bytes)
        self._shares = [InputPartition(msgspec.json.encode(share)) for share in shares]

    def __getstate__(self) -> dict[str, object]:
        # Each task gets its own share; the list of all shares stays on the driver.
        return {"_reading": self._reading, "_shares": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions, one per task."""
        return self._shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            DataLoss: a segment that the version needs is missing or damaged.
            Unavailable: the store does not answer; Spark retries the task.
        """
        # Spark creates a partition without a value if the table has no segments.
        if partition.value is not None:
            segments = _segments.decode(partition.value)
            yield from self._reading.batches(segments)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The version that a DataFrame reads, and the id of its table."""

    table: str
    version: int


def load_schema(options: Mapping[str, str]) -> tuple[Pinned, StructType]:
    """Return what a load without a user-given schema is pinned to, and its schema.

    Raises:
        InvalidInput: an option is wrong.
        NotFound: there is no such table or version.
    """
    given = parse_spark_options(options)
    snapshot = open_snapshot(given, None)
    columns = given.columns()
    schema = to_spark(scan.project(snapshot.schema, columns, snapshot.stored_schema))
    return Pinned(snapshot.header.table, snapshot.version), schema


def make_reader(
    options: Mapping[str, str], schema: StructType, pinned: Pinned | None
) -> EventLogReader:
    """Return the reader of a version.

    Args:
        options: the options of the load.
        schema: the columns for Spark, in this order: those of `load_schema`, or the user's.
        pinned: what `load_schema` returned; None if the user gave the schema.

    Raises:
        InvalidInput: an option is wrong, or the schema has columns that the table does not have.
        NotFound: there is no such table or version, or another table has replaced it.
    """
    given = parse_spark_options(options)
    snapshot = open_snapshot(given, pinned)
    columns = given.columns()
    if columns is not None and sorted(columns) != sorted(schema.names):
        raise InvalidInput(
            f"the schema has columns {', '.join(schema.names)}, option columns {', '.join(columns)}"
        )
    wanted = _check_schema(schema, snapshot)
    plan = plan_of(snapshot, columns=schema.names, where=where_of(given))
    target_bytes = given.whole("targetBytes", DEFAULT_TARGET_BYTES, 1) or DEFAULT_TARGET_BYTES
    reading = Reading(
        store=open_store(given.path, given.storage),
        version=plan.version,
        table_schema=plan.table_schema,
        schema=wanted,
        filter=plan.filter,
        filter_columns=plan.predicate.columns() if plan.predicate else frozenset(),
        table=snapshot.header.table,
    )
    return EventLogReader(reading, plan.in_scan_order(), target_bytes)


def open_snapshot(given: SparkOptions, pinned: Pinned | None) -> Snapshot:
    """Return the snapshot that the options name, or the pinned one.

    Raises:
        TableNotFound: there is no table, or another one than expected.
        VersionNotFound: the table has no such version.
    """
    table = Table(open_store(given.path, given.storage))
    table.log.table = given.named.get("tableId") if pinned is None else pinned.table
    if pinned is not None:
        return table.snapshot(version=pinned.version)
    table.head()
    return kept_snapshot(table, given.whole("version"), given.named.get("timestamp"))


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


def pack(segments: Sequence[Segment], target_bytes: int) -> list[list[Segment]]:
    """Return the segments in as few shares as `target_bytes` allows, of about equal weight.

    Largest first, each to the lightest share so far (Graham's LPT rule); deterministic. Within a
    share segments keep their order.
    """
    if not segments:
        return []
    weights = [segment.bytes + OPEN_BYTES for segment in segments]
    count = min(len(segments), -(-sum(weights) // target_bytes))
    loads = [(0, share) for share in range(count)]
    shares: list[list[int]] = [[] for _ in range(count)]
    for at in sorted(range(len(segments)), key=lambda i: (-weights[i], i)):
        load, share = loads[0]
        shares[share].append(at)
        heapq.heapreplace(loads, (load + weights[at], share))
    return [[segments[at] for at in sorted(share)] for share in shares]


def _check_schema(schema: StructType, snapshot: Snapshot) -> pa.Schema:
    """Return a declared schema in Arrow, after a check that the table has its columns and types."""
    wanted = declared(schema)
    available = declared(to_spark(snapshot.schema))
    for field in wanted:
        if field.name not in available.names:
            raise InvalidInput(
                f"the schema has column {field.name!r}, the table at version {snapshot.version} "
                f"has {', '.join(available.names)}"
            )
        known = available.field(field.name)
        if known.type != field.type or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise InvalidInput(
                f"the schema has column {field.name!r} as {field.type}{not_null}, the table as "
                f"{known.type}, nullable"
            )
    return wanted
