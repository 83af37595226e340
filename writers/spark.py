"""Spark's batch writer: tasks stage segments, the driver commits them as one transaction.

Imports eventlog, readers and pyspark (extra `spark`). Every attempt of a task writes under keys of
its own and hands its adds to the driver; only those of the attempts that Spark picked are committed
(hazard I1). The transaction's id is formed once, on the driver, before the first task. Nothing is
ever deleted here (hazard I6): what a failed job staged is vacuum's.

Modes and options of `df.write.format("eventlog")`:

- `append`: never conflicts with anything.
- `overwrite`: the whole table; with `replaceWhere`, or `start` and `end`, whole time chunks. What
  other writers add meanwhile is carried forward unless `isolation` is `serializable`.
- `readVersion`: the version that an overwrite was made from; what came since is carried forward, or
  a conflict. Without it rows that came between a read and the save are replaced unseen.
- `timeColumn`, `granularity` (day), `orderBy`, `property.<name>`: create the table if it is absent.
- `appId`, `appSeq`: a job whose unit of work is in the table already stages and commits nothing.
- `memoryBytes`: bound on the rows held by one task (512 MiB).
- `storage.<name>`: storage options. They travel to the executors with the job; without them each
  executor uses its own AWS environment or profile.

A job that saves from several threads calls `eventlog.readers.spark.activate` in each of them first.

Columns of TIMESTAMP_NTZ, DATE and STRING that go into instants are taken as UTC, whatever the
session's zone, as on every other road in: `cast("timestamp")` in the DataFrame takes the session's.

A table is created with the columns of the DataFrame, all of them nullable, as Spark's own file
sources do.
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


_adds = msgspec.json.Decoder(list[Add])  # made once: threads may decode


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task hands to the driver: its adds as JSON."""

    adds: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One save: everything that the driver fixed before the first task.

    Attributes:
        table: without a snapshot once pickled, and never with a client.
        recipe: how rows become segments.
        transaction: without its actions.
        replaces: the range [start, end) ms whose rows the job replaces; None appends.
        isolation: of an overwrite.
        memory_bytes: bound on the rows held by a task.
        done: a version that includes the job's (app id, sequence), if the head has it.
    """

    table: Table
    recipe: Recipe
    transaction: Transaction
    replaces: tuple[int, int] | None
    isolation: str
    memory_bytes: int
    done: int | None


class EventLogWriter(DataSourceArrowWriter):
    """Writes the rows of one job; made on the driver, pickled once for tasks and commit."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._version: int | None = job.done

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task; nothing refers to them yet.

        Raises:
            InvalidInput: rows are bad; the message names column, count and an example.
            Unavailable: the store does not answer; Spark tries the task again.
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
        """Commit what the tasks staged, as one transaction; again is the same once.

        Raises:
            CommitConflict: an overwrite cannot be carried to the head; nothing was committed.
            CommitUnknown: nobody could say whether it landed: run the job again with the same
            `appId`
                and `appSeq`.
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
        job.table.log.vouch(adds)  # made by the stagers of its tasks
        transaction = msgspec.structs.replace(job.transaction, actions=tuple(self._actions(adds)))
        return commit_staged(job.table, transaction)

    def _actions(self, adds: list[Add]) -> list[Action]:
        job = self._job
        if job.replaces is None:
            return list(adds)
        # What was live when the job began; a version never changes, so it need not be shipped.
        before = job.table.snapshot(version=job.transaction.read_version)
        drops = range_drops(before, *job.replaces)
        return overwrite_actions(adds, drops, *job.replaces, isolation=job.isolation)

    def _landed(self) -> int | None:
        """Return the version of an earlier commit of this very job, where its answer was lost."""
        job = self._job
        head, start = job.table.refresh().version, job.transaction.read_version + 1
        return find_transaction(job.table.log, job.transaction.id, start, head)


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> EventLogWriter:
    """Return the writer of one job, after everything that can be checked before a task runs.

    Creates the table if it is absent and `timeColumn` is given; of several jobs that do so at once
    one wins and the others use its table.

    Raises:
        InvalidInput: an option, or the DataFrame's schema, does not fit; no task runs.
        TableNotFound: the table is absent and no option says how to create it.
    """
    given = parse_spark_options(options)
    given.refuse(
        tuple(name for name in READ_NAMES if name != "targetBytes"),
        "is for reads: a write goes to the newest version, with all columns",
    )
    app = make_app(given.named.get("appId"), given.whole("appSeq"))
    isolation = given.named.get("isolation", "carry")
    if isolation not in ("carry", "serializable"):
        raise InvalidInput(f"option isolation is carry or serializable, not {isolation[:40]!r}")
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
                "no table lies here: give option timeColumn (and granularity) to create one",
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
    """Refuse options that describe another table than the one that is there."""
    layout = table.head().layout
    for name, wanted, there in (
        ("timeColumn", given.named.get("timeColumn"), layout.time_column),
        ("granularity", given.named.get("granularity"), layout.granularity),
        ("orderBy", given.columns("orderBy"), list(layout.order_by)),
    ):
        if wanted is not None and wanted != there:
            raise InvalidInput(
                f"option {name} is {wanted!r}, but the table that lies here has {there!r}: "
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
