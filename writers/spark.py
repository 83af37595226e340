"""Spark's batch writer: tasks stage segments, the driver commits them as one transaction.

Imports eventlog, readers and pyspark (extra `spark`). Every attempt of a task writes under its own
keys and returns its adds to the driver; only those of the attempts that Spark picked are committed
(hazard I1). The transaction's id is created once, on the driver, before the first task. Nothing is
ever deleted here (hazard I6): vacuum removes what a failed job staged.

Modes and options of `df.write.format("eventlog")`:

- `append`: never conflicts with other commits.
- `overwrite`: replaces the whole table, or whole time chunks with `replaceWhere`, or `start` and
  `end`. Segments that other writers add meanwhile are carried forward unless `isolation` is
  `serializable`.
- `readVersion`: the version that the rows of an overwrite were computed from; later segments are
  carried forward, or are a conflict. Without it rows added between the read and the save are
  replaced unseen.
- `timeColumn`, `granularity` (day), `orderBy`, `property.<name>`: create the table if it is absent.
- `appId`, `appSeq`: a job whose unit of work is already in the table stages and commits nothing.
- `memoryBytes`: bound on the memory for rows in one task (512 MiB).
- `storage.<name>`: storage options. They are sent to the executors with the job. Without them each
  executor uses its own AWS environment or profile.

A job that saves from several threads must call `eventlog.readers.spark.activate` in each of them.

TIMESTAMP_NTZ, DATE and STRING values written to columns of instants are read as UTC, whatever the
session's zone, as with every other writer; `cast("timestamp")` in the DataFrame uses the session's
zone.

A new table has the columns of the DataFrame, all of them nullable, as with Spark's own file
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eventlog import Snapshot, Table
from eventlog.errors import AlreadyExists, InvalidInput, TableNotFound
from eventlog.log.history import find_transaction
from eventlog.model.records import Action, Add, Transaction
from eventlog.readers.spark.options import READ_NAMES, SparkOptions, parse_spark_options
from eventlog.readers.spark.types import to_arrow
from eventlog.staging.encoding import Recipe
from eventlog.staging.rows import check_columns
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES, Stager
from eventlog.store.location import open_store
from eventlog.table.restage import commit_staged
from eventlog.writers.batch import already, make_app, overwrite_actions, range_drops, to_range
from eventlog.writers.replace_where import check_aligned, parse_replace_where

if TYPE_CHECKING:
    import pyarrow as pa


_adds = msgspec.json.Decoder(list[Add])  # created once; safe to share between threads


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task returns to the driver: its adds as JSON."""

    adds: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One save: everything that the driver decides before the first task.

    Attributes:
        table: the table; pickled without its snapshot and client.
        recipe: how rows become segments.
        transaction: the transaction, without its actions.
        replaces: the range [start, end) ms whose rows the job replaces; None appends.
        isolation: the isolation of an overwrite, `carry` or `serializable`.
        memory_bytes: bound on the memory for rows in a task, in bytes.
        done: a version that includes the job's (app id, sequence), or None.
    """

    table: Table
    recipe: Recipe
    transaction: Transaction
    replaces: tuple[int, int] | None
    isolation: str
    memory_bytes: int
    done: int | None


class EventLogWriter(DataSourceArrowWriter):
    """Writes the rows of one job. Created on the driver, pickled once for tasks and commit."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._version: int | None = job.done

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task. No commit refers to them yet.

        Raises:
            InvalidInput: rows do not fit the table; the message names column, count and an example.
            Unavailable: the store does not answer; Spark retries the task.
        """
        job = self._job
        if job.done is not None:
            return Staged(b"[]")
        table = job.table
        with Stager(table.store, table.clock, job.recipe, job.memory_bytes) as stager:
            for batch in iterator:
                stager.write(batch)
            return Staged(msgspec.json.encode(stager.finish()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks staged as one transaction. Idempotent.

        Raises:
            CommitConflict: an overwrite cannot be carried to the head; nothing was committed.
            CommitUnknown: it is not known whether the commit landed: run the job again with the
                same `appId` and `appSeq`.
            InvalidInput: an overwrite has rows outside its range; nothing was committed.
        """
        if self._version is None:
            adds = [
                add
                for message in messages
                if isinstance(message, Staged)
                for add in _adds.decode(message.adds)
            ]
            self._version = self._commit(sorted(adds, key=lambda add: (add.chunk, add.id)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: Spark calls this even after a commit that landed (hazard I6)."""

    def _commit(self, adds: list[Add]) -> int:
        job = self._job
        if not adds and job.replaces is None and job.transaction.app is None:
            return job.transaction.read_version
        landed = self._landed()
        if landed is not None:
            return landed
        job.table.log.vouch(adds)  # staged by the job's tasks
        transaction = msgspec.structs.replace(job.transaction, actions=tuple(self._actions(adds)))
        return commit_staged(job.table, transaction)

    def _actions(self, adds: list[Add]) -> list[Action]:
        job = self._job
        if job.replaces is None:
            return list(adds)
        # What was live when the job began. A version never changes, so it is read again, not sent.
        before = job.table.snapshot(version=job.transaction.read_version)
        drops = range_drops(before, *job.replaces)
        return overwrite_actions(adds, drops, *job.replaces, isolation=job.isolation)

    def _landed(self) -> int | None:
        """Return the version in which this job's transaction is already committed, or None."""
        job = self._job
        head, start = job.table.refresh().version, job.transaction.read_version + 1
        return find_transaction(job.table.log, job.transaction.id, start, head)


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> EventLogWriter:
    """Return the writer of one job, after all checks that are possible before a task runs.

    Creates the table if it is absent and `timeColumn` is given. If several jobs do so at once, one
    creates it and the others use it.

    Raises:
        InvalidInput: an option, or the DataFrame's schema, does not fit; no task runs.
        TableNotFound: the table is absent and no option says how to create it.
    """
    given = parse_spark_options(options)
    given.refuse(
        tuple(name for name in READ_NAMES if name != "targetBytes"),
        "is for reads: a write applies to the newest version, with all columns",
    )
    app = make_app(given.named.get("appId"), given.whole("appSeq"))
    isolation = given.named.get("isolation", "carry")
    if isolation not in ("carry", "serializable"):
        raise InvalidInput(
            f"option isolation must be carry or serializable, not {isolation[:40]!r}"
        )
    memory_bytes = given.whole("memoryBytes", DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES)
    if not overwrite:
        given.refuse(
            ("replaceWhere", "start", "end", "isolation", "readVersion"), "needs mode('overwrite')"
        )
    incoming = to_arrow(schema)
    table = _open_or_create(given, incoming)
    head = table.head()
    check_columns(incoming, head.schema, head.layout.time_column)
    done = already(head, app)
    read_version = given.whole("readVersion")
    before = head if read_version is None else table.snapshot(version=read_version)
    replaces = _replaces(given, before) if overwrite else None
    if replaces and done is None:
        range_drops(before, *replaces)  # refuses bounds inside a chunk before the rows are written
    return EventLogWriter(
        Job(
            table=table,
            recipe=Recipe.of(head),
            transaction=table.transaction(
                "overwrite" if overwrite else "append",
                (),
                read_version=before.version,
                app=app,
            ),
            replaces=replaces,
            isolation=isolation,
            memory_bytes=memory_bytes or DEFAULT_MEMORY_BYTES,
            done=done,
        )
    )


def _open_or_create(given: SparkOptions, incoming: pa.Schema) -> Table:
    store = open_store(given.path, given.storage)
    try:
        return _checked(Table.open(given.path, store=store), given)
    except TableNotFound as error:
        if "timeColumn" not in given.named:
            raise TableNotFound(
                "there is no table here: give option timeColumn (and granularity) to create one",
                table=error.table or store.uri,
            ) from None
    try:
        return Table.create(
            given.path,
            incoming,
            time_column=given.named["timeColumn"],
            granularity=given.named.get("granularity", "day"),
            order_by=given.columns("orderBy"),
            properties=given.properties,
            store=store,
        )
    except AlreadyExists:  # another job created it meanwhile
        return _checked(Table.open(given.path, store=store), given)


def _checked(table: Table, given: SparkOptions) -> Table:
    """Refuse options that contradict the existing table."""
    layout = table.head().layout
    for name, wanted, actual in (
        ("timeColumn", given.named.get("timeColumn"), layout.time_column),
        ("granularity", given.named.get("granularity"), layout.granularity),
        ("orderBy", given.columns("orderBy"), list(layout.order_by)),
    ):
        if wanted is not None and wanted != actual:
            raise InvalidInput(
                f"option {name} is {wanted!r}, but the existing table has {actual!r}: "
                "leave it out, or choose another path",
                table=table.uri,
            )
    return table


def _replaces(given: SparkOptions, head: Snapshot) -> tuple[int, int]:
    """Return the range [start, end) ms that an overwrite replaces; everything by default."""
    text = given.named.get("replaceWhere")
    if text is not None:
        given.refuse(("start", "end"), "says the same as replaceWhere: give one of them")
        return parse_replace_where(text, head)
    low, high = to_range(given.named.get("start"), given.named.get("end"))
    check_aligned(low, high, head)
    return low, high
