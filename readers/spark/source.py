"""Spark's batch reader: one version, planned on the driver, read by tasks through pyarrow.

Imports eventlog, readers and pyspark (extra `spark`). Options of `spark.read.format("eventlog")`:

- `version`, or `timestamp`: which version; the newest at `load()` by default.
- `columns`: `a,b` or a JSON list. Spark pushes no columns into Python sources, so that naming them
  is what makes a read of two columns of many cheap.
- `where`: one SQL expression; prunes segments on the driver and filters rows exactly. Times without
  an offset are UTC.
- `whereArrow`: the same as a pyarrow expression, packed by `eventlog.readers.spark.expressions`.
- `targetBytes`: stored bytes of a task (128 MiB).
- `tableId`: the id that the table must have (`Table.id`).
- `storage.<name>`: storage options.

The table and its version are pinned when the DataFrame is made: whatever is committed afterwards,
all its actions see the same rows. Where another table lies there by then, they fail. A schema given
by the user leaves that to each action: name `version` and `tableId` with it.
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
# What opening one more segment costs a task, in bytes read meanwhile.
OPEN_BYTES = 2**20
_segments = msgspec.json.Decoder(list[Segment])  # made once: threads may decode


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
        # Each task gets its own share; the list of all of them stays on the driver.
        return {"_reading": self._reading, "_shares": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        return self._shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            DataLoss: a segment that the version needs is missing or damaged.
            Unavailable: the store does not answer; Spark tries the task again.
        """
        if partition.value is not None:  # Spark makes one without a value where there are none
            segments = _segments.decode(partition.value)
            yield from self._reading.batches(segments)


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a DataFrame reads: one version of the table with this id."""

    table: str
    version: int


def load_schema(options: Mapping[str, str]) -> tuple[Pinned, StructType]:
    """Return what a load without a schema is pinned to, and its schema.

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
        options: of the load.
        schema: the columns that Spark wants, in this order: those of `load_schema`, or the user's.
        pinned: what `load_schema` said; None where the user gave the schema.

    Raises:
        InvalidInput: an option is wrong, or the schema is not of columns that the table has.
        NotFound: there is no such table or version, or another table lies there by now.
    """
    given = parse_spark_options(options)
    snapshot = open_snapshot(given, pinned)
    columns = given.columns()
    if columns is not None and sorted(columns) != sorted(schema.names):
        raise InvalidInput(
            f"the schema has columns {', '.join(schema.names)}, option columns {', '.join(columns)}"
        )
    wanted = _check_schema(schema, snapshot)
    found = plan_of(snapshot, columns=schema.names, where=where_of(given))
    target_bytes = given.whole("targetBytes", DEFAULT_TARGET_BYTES, 1) or DEFAULT_TARGET_BYTES
    reading = Reading(
        store=open_store(given.path, given.storage),
        version=found.version,
        table_schema=found.table_schema,
        schema=wanted,
        filter=found.filter,
        filter_columns=found.predicate.columns() if found.predicate else frozenset(),
        table=snapshot.header.table,
    )
    return EventLogReader(reading, found.in_scan_order(), target_bytes)


def open_snapshot(given: SparkOptions, pinned: Pinned | None) -> Snapshot:
    """Return the snapshot that the options name, or the pinned one.

    Raises:
        TableNotFound: another table lies there.
        VersionNotFound: the table has no such version.
    """
    table = Table(open_store(given.path, given.storage))
    table.log.table = given.named.get("tableId") if pinned is None else pinned.table
    if pinned is not None:
        return table.snapshot(version=pinned.version)
    table.head()
    return kept_snapshot(table, given.whole("version"), given.named.get("timestamp"))


def where_of(given: SparkOptions) -> Where | None:
    """Return the filter that the options hold.

    Raises:
        InvalidInput: there are two, or the Arrow one is damaged.
    """
    text, packed = given.named.get("where"), given.named.get("whereArrow")
    if packed is None:
        return text
    if text is not None:
        raise InvalidInput("give option where or whereArrow, not both")
    return unpack_expression(packed)


def pack(segments: Sequence[Segment], target_bytes: int) -> list[list[Segment]]:
    """Return the segments in as few shares as `target_bytes` needs, of about equal weight.

    Longest first, each to the lightest share so far (Graham's LPT rule); deterministic. Inside a
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
    """Return a declared schema in Arrow, if its columns are the table's by name and type."""
    wanted = declared(schema)
    there = declared(to_spark(snapshot.schema))
    for field in wanted:
        if field.name not in there.names:
            raise InvalidInput(
                f"the schema has column {field.name!r}, the table at version {snapshot.version} "
                f"has {', '.join(there.names)}"
            )
        known = there.field(field.name)
        if known.type != field.type or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise InvalidInput(
                f"the schema has column {field.name!r} as {field.type}{not_null}, the table as "
                f"{known.type}, nullable"
            )
    return wanted
