"""The batch writer of the data source `eventlog`, on Spark 4.0 and later.

Imports eventlog, readers and pyspark (extra `spark`). It runs the jobs of
`eventlog.writers.spark.jobs`, as `append` and `overwrite` do.

Modes and options of `df.write.format("eventlog")`:

- `append`: never conflicts with other commits. In a keyed table rows are merged with those of
  their key, and a column `_op` distinguishes deletes (`d`) from upserts (`u`, or null).
- `overwrite`: replaces the whole table, or whole time chunks with `replaceWhere`, or `start` and
  `end`. Segments that other writers add meanwhile are carried forward unless `isolation` is
  `serializable`.
- `readVersion`: the version that the rows of an overwrite were computed from; later segments are
  carried forward, or are a conflict. Without it rows added between the read and the save are
  replaced unseen. A temporary view with this option shows that version, `INSERT OVERWRITE` of it
  replaces that version, and `INSERT INTO` of it appends.
- `tableId`: the id that the table must have (`Table.id`).
- `timeColumn`, `granularity` (auto), `orderBy`, `property.<name>`: create the table if absent.
  With granularity `all`, or a key, it needs no time column.
- `key`, `buckets`, `merge`: make the new table a keyed one. An existing one must have the same:
  with `merge` `partial` a frame may lack columns, whose values are kept.
- `missing`: `null` if columns that the frame lacks are to be null where that erases values: in a
  keyed table under the rules `last` and `first`, and where an overwrite replaces rows. Without it
  the frame must have them.
- `mergeSchema`: `true` first gives the table the columns and the wider types of the frame that it
  lacks, as `evolve` of `eventlog.writers.append`.
- `appId`, `appSeq`: a job whose unit of work is already in the table stages and commits nothing.
- `memoryBytes`: bound on the memory for rows in one task (512 MiB).
- `branch`: a branch of the table to write to instead.
- `storage.<name>`: storage options. They are sent to the executors with the job. Without them each
  executor uses its own AWS environment or profile.

A job that saves from several threads must call `eventlog.readers.spark.activate` in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eventlog.errors import InvalidInput
from eventlog.model.properties import MERGE_COLUMN, MERGE_GROUP
from eventlog.readers.spark.spark_options import (
    CHANGES_NAMES,
    EVOLVE,
    OVERWRITE_NAMES,
    PROPERTY_PREFIX,
    READ_NAMES,
    READ_VERSION,
    STREAM_READ_NAMES,
    SparkOptions,
    parse_spark_options,
)
from eventlog.readers.spark.types import arrow_schema
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.writers.batch import check_missing, make_app
from eventlog.writers.spark.jobs import Job, Replacement, prepare
from eventlog.writers.spark.save_target import Creation

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task returns to the driver: its adds, or its rows, as `jobs.stage_task` does."""

    adds: bytes


class EventLogWriter(DataSourceArrowWriter):
    """Writes the rows of one job. Created on the driver, pickled once for tasks and commit."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._version: int | None = None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task; see `Job.stage`."""
        return Staged(self._job.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the segments of the tasks as one transaction, once; see `Job.commit`."""
        if self._version is None:
            staged = (message.adds for message in messages if isinstance(message, Staged))
            self._version = self._job.commit(staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: Spark calls this even after a commit that landed (hazard I6)."""


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> EventLogWriter:
    """Return the writer of one job, after all checks that are possible before a task runs.

    Raises:
        InvalidInput: an option, or the DataFrame's schema, does not fit; no task runs.
        TableNotFound: the table is absent and no option describes how to create it, or it is not
            the one that option `tableId` names.
    """
    given = parse_spark_options(options)
    given.refuse(
        tuple(
            name
            for name in (*READ_NAMES, *CHANGES_NAMES, *STREAM_READ_NAMES)
            if name not in ("targetBytes", "tableId")
        ),
        "is for reads: a write applies to the newest version, with all columns",
    )
    if not overwrite:
        others = tuple(name for name in OVERWRITE_NAMES if name != READ_VERSION)
        given.refuse(others, "needs mode('overwrite')")
    return EventLogWriter(
        prepare(
            given.path,
            arrow_schema(schema),
            storage_options=given.storage,
            table_id=given.named.get("tableId"),
            creation=creation_of(given, schema.names),
            replacement=_replacement(given) if overwrite else None,
            app=make_app(given.named.get("appId"), given.whole("appSeq")),
            memory_bytes=given.whole("memoryBytes", DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES)
            or DEFAULT_MEMORY_BYTES,
            missing=check_missing(given.named.get("missing")),
            evolve=given.flag(EVOLVE, default=False),
        )
    )


def creation_of(given: SparkOptions, columns: Sequence[str]) -> Creation:
    """Return how the options create the table.

    Args:
        given: the options.
        columns: the names of the columns of the rows.

    Raises:
        InvalidInput: an option is wrong.
    """
    return Creation(
        time_column=given.named.get("timeColumn"),
        granularity=given.named.get("granularity"),
        order_by=given.columns("orderBy"),
        properties={_spelled(name, columns): value for name, value in given.properties.items()},
        key=given.columns("key"),
        buckets=given.whole("buckets", low=1),
        merge=given.named.get("merge"),
    )


def _spelled(name: str, columns: Sequence[str]) -> str:
    """Return a property's name, with the column in it spelled as in the rows.

    Spark lower-cases the names of options.

    Raises:
        InvalidInput: several columns differ in capitals only.
    """
    start = next((start for start in (MERGE_GROUP, MERGE_COLUMN) if name.startswith(start)), None)
    if start is None:
        return name
    wanted = name.removeprefix(start)
    matches = [column for column in columns if column.lower() == wanted.lower()]
    if len(matches) > 1:
        raise InvalidInput(
            f"option {PROPERTY_PREFIX}{name} may mean column {' or '.join(matches)}, because Spark "
            "writes it in lower case: create the table with eventlog.writers.spark.append"
        )
    return start + (matches[0] if matches else wanted)


def _replacement(given: SparkOptions) -> Replacement:
    return Replacement(
        where=given.named.get("replaceWhere"),
        start=given.named.get("start"),
        end=given.named.get("end"),
        isolation=given.named.get("isolation", "snapshot"),
        read_version=given.version(READ_VERSION),
    )
