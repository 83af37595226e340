"""Spark's batch reader: one version, planned on the driver, read by tasks through pyarrow.

Imports eventlog, readers and pyspark (extra `spark`). Options of `spark.read.format("eventlog")`:

- `version`, or `timestamp`: the version to read; the newest at `load()` by default.
- `readVersion`: the same as `version`, and `INSERT OVERWRITE` of a temporary view with this option
  replaces that version: rows that were written since are carried forward.
- `columns`: `a,b` or a JSON list. Spark does not push column selection into Python sources: name
  the columns here to read only those.
- `where`: one SQL expression. It prunes segments on the driver and filters rows exactly. Times
  without an offset are UTC.
- `whereArrow`: the same as a pyarrow expression, packed by `eventlog.readers.spark.expressions`.
- `targetBytes`: stored bytes per task (default 128 MiB).
- `memoryBytes`: about how many bytes of Arrow data a task holds (512 MiB); more rows to merge go to
  its disk.
- `tableId`: the id that the table must have (`Table.id`).
- `overflow` (`error`): `null`: a null in place of a sum that does not fit its column.
- `segmentColumns` (false): give each row `_file`, the file of its segment, and `_version`, the
  version whose commit added that segment. Of a small append, whose rows stand in the commit,
  `_file` is the place where the file would be. Not for keyed tables.
- `inlineOnly` (false): read only the rows of small appends that stand in commits, which are in no
  file. Not for keyed tables.
- `readChanges` (false): read the changes of rows (`eventlog.readers.changes`): columns of the
  table, `_change`, `_version` and `_time`. Of the versions from `startingVersion` or
  `startingTimestamp` on, 1 by default, up to `endingVersion` or `endingTimestamp`, the newest by
  default, both included.
- `branch`: a branch of the table to read instead.
- `storage.<name>`: storage options.

The table and its version are pinned when the DataFrame is created: all its actions see the same
rows, whatever is committed afterwards. They fail if the table has been replaced by another one.
With a schema given by the user each action resolves the version again, and on Spark Connect it may,
if the server no longer has the plan: give `version` and `tableId` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eventlog.errors import InvalidInput
from eventlog.keyed.rule import reader_rule
from eventlog.log.snapshot import plan_scan
from eventlog.readers.engines.file_list import by_place
from eventlog.readers.spark import changes
from eventlog.readers.spark.shares import (
    DEFAULT_TARGET_BYTES,
    SEGMENT_COLUMNS,
    Pinned,
    Work,
    check_schema,
    check_schema_columns,
    check_segment_columns,
    open_snapshot,
    share_out_scan,
    where_of,
    without_columns_of,
)
from eventlog.readers.spark.spark_options import (
    CHANGES_NAMES,
    INLINE_ONLY,
    OVERWRITE_NAMES,
    READ_VERSION,
    SEGMENTS,
    STARTING_NAMES,
    STREAM_READ_NAMES,
    SparkOptions,
    parse_spark_options,
)
from eventlog.readers.spark.types import declared, to_spark
from eventlog.state import scan
from eventlog.state.scan import ScanPlan


class EventLogReader(DataSourceReader):
    """Reads one version of a table.

    It never overrides `pushFilters`: a pushed filter would leak to every other query of the same
    DataFrame.
    """

    def __init__(self, work: Work) -> None:
        self._work = work.without_shares()
        self._shares = [InputPartition(share) for share in work.shares]

    def __getstate__(self) -> dict[str, object]:
        # Each task gets its own share; the list of all shares stays on the driver.
        return {"_work": self._work, "_shares": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions, one per task."""
        return self._shares

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; see `Work.batches`."""
        # A table without segments: Spark 4.0 and 4.1 pass None, later ones a partition without a
        # value.
        if partition is not None and partition.value is not None:
            yield from self._work.batches(partition.value)


def load_schema(options: Mapping[str, str]) -> tuple[Pinned, StructType]:
    """Return the table and version of a load without a user-given schema, and its schema.

    Raises:
        InvalidInput: an option is wrong.
        NotFound: there is no such table or version.
    """
    given = parse_spark_options(options)
    snapshot = open_snapshot(given, None)
    columns = given.columns()
    if given.reads_changes:
        return Pinned(snapshot.state), to_spark(changes.schema_of(snapshot, columns))
    scan.question(snapshot.state, columns, where_of(given))  # a wrong filter fails here, not later
    read = scan.project(snapshot.schema, columns, snapshot.stored_schema)
    if given.segment_columns:
        check_segment_columns(snapshot)
        read = pa.schema([*read, *SEGMENT_COLUMNS])
    return Pinned(snapshot.state), to_spark(read)


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
    if given.reads_changes:
        return _change_reader(given, schema, pinned)
    given.refuse(CHANGES_NAMES, "is for changes: set option readChanges=true, or leave it out")
    given.refuse(
        STREAM_READ_NAMES,
        "is for streams: read with spark.readStream, or set option readChanges=true to read what "
        "versions did to the rows, or leave the option out",
    )
    given.refuse(
        tuple(name for name in OVERWRITE_NAMES if name != READ_VERSION),
        "is for overwrites: a read takes version, timestamp and where; leave the option out",
    )
    located = given.segment_columns
    columns = without_columns_of(schema, SEGMENT_COLUMNS) if located else schema
    check_schema_columns(given, columns, located=len(columns) < len(schema))
    snapshot = open_snapshot(given, pinned)
    wanted = check_schema(columns, snapshot)
    if located:
        check_segment_columns(snapshot)
        wanted = declared(schema)
    plan = plan_scan(snapshot, columns=columns.names, where=where_of(given))
    plan = replace(plan, rule=reader_rule(plan.rule, given.overflow))
    plan = _inline_part(plan) if given.inline_only else plan
    target = given.whole("targetBytes", DEFAULT_TARGET_BYTES, 1) or DEFAULT_TARGET_BYTES
    path, storage, memory = given.path, given.storage, given.memory_bytes
    return EventLogReader(
        share_out_scan(path, storage, snapshot, plan, wanted, target, memory, located=located)
    )


def _inline_part(plan: ScanPlan) -> ScanPlan:
    """Return the part of a plan whose rows stand in commits. Raises: InvalidInput: of a key."""
    if plan.rule is not None:
        raise InvalidInput(
            "option inlineOnly is not for keyed tables, where a row may be merged from several "
            "segments: leave it out"
        )
    return by_place(plan)[1]


def _change_reader(
    given: SparkOptions, schema: StructType, pinned: Pinned | None
) -> EventLogReader:
    """Return the reader of the changes up to a version. Raises: as `make_reader`."""
    streaming = tuple(name for name in STREAM_READ_NAMES if name not in STARTING_NAMES)
    given.refuse(streaming, "is for streams: leave the option out")
    given.refuse(
        ("version", "timestamp", SEGMENTS, INLINE_ONLY, *OVERWRITE_NAMES),
        "is not for changes: give startingVersion and endingVersion, or the times",
    )
    for one, other in (STARTING_NAMES, CHANGES_NAMES):
        if one in given.named and other in given.named:
            raise InvalidInput(f"give option {one} or {other}, not both")
    snapshot = open_snapshot(given, pinned)
    return EventLogReader(changes.of_options(given, schema, snapshot))
