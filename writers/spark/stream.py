"""The streaming sink of the data source `eventlog`, exactly once, on Spark 4.0 and later.

Imports eventlog, readers and pyspark (extra `spark`). On Spark 3.5, and wherever a batch needs more
than an append, `foreachBatch` with `eventlog.writers.spark.append` does the same.

Options of `df.writeStream.format("eventlog")`, in output mode `append`: `timeColumn`,
`granularity`, `orderBy`, `key`, `buckets`, `merge` and `property.<name>` create the table if it is
absent; `memoryBytes`, `missing` and `storage.<name>` are as for a batch
(`eventlog.writers.spark.source`).

Every micro-batch is one append with the app id and sequence (query id, batch id), so that the batch
which Spark repeats after a crash takes effect once. The query id lies in the checkpoint: a new
checkpoint is a new query, whose batches count from 0 again. A batch without rows commits nothing.
No commit refers to segments that a repeated batch staged, and vacuum removes them.

Spark builds the writer twice for each micro-batch: where it plans the tasks, and where it commits
their segments. These are two processes beside the driver, which Spark keeps while triggers come
faster than a minute, and each of them keeps the table open. So a micro-batch costs, once the query
runs:

- planning: one GET of the known head's header, to see that it is still the same table; a GET and
  a LIST once in `REFRESH_S`, to stage in a current epoch and to see changes of the schema;
- a task: one PUT for each segment, except for few rows of a keyed table, which the commit stages;
- committing: one PUT, and the same small GET before it; every 32 batches a key frame of two PUTs,
  and a LIST to see whether other writers wait.

The small GETs are left out where the log was seen within the last second. Measured on 10,000
batches of one segment: 2.03 PUT, 0.03 LIST and at most 2 GET a batch, whatever the length of the
log. With triggers more than a minute apart the two processes start again: 6 more requests a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from eventlog import Table
from eventlog.cache import Cache
from eventlog.commit.identity import WINDOW_S
from eventlog.errors import CommitConflict, EventLogError, InvalidInput, TableNotFound
from eventlog.model.records import App
from eventlog.readers.spark.spark_options import (
    CHANGES_NAMES,
    EVOLVE,
    OVERWRITE_NAMES,
    READ_NAMES,
    STREAM_READ_NAMES,
    parse_spark_options,
)
from eventlog.readers.spark.types import arrow_schema
from eventlog.staging.encoding import Recipe
from eventlog.staging.fitting import coarsest_for_first_rows
from eventlog.staging.incoming.streams import spelled, spelled_names
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.table.stage_again import commit_staged
from eventlog.writers.batch import (
    already,
    check_missing,
    check_rows,
    report_mismatch,
    warn_restored,
)
from eventlog.writers.granularity_choice import choose_granularity
from eventlog.writers.spark.jobs import NO_ADDS, adds_of, stage_task
from eventlog.writers.spark.save_target import Creation, check_agrees, open_or_create
from eventlog.writers.spark.source import creation_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):  # Spark 4.1 and later
    _StreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class _StreamWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """Spark 4.0 hands Arrow batches to what is an Arrow writer, on a stream as well.

        To others it hands rows with naive local times, and one hour a year of these is ambiguous.
        """


logger = logging.getLogger(__name__)

REFRESH_S = 60.0  # how old the head may be that a micro-batch is staged at
_MAX_OPEN = 16

_QUERY_ID = "sql.streaming.queryId"  # the local property that Spark sets for the tasks of a query
# Spark hands these over with the options of the sink, though they are the query's.
_OF_THE_QUERY = ("checkpointlocation", "queryname")


@dataclass(frozen=True)
class StagedPart(WriterCommitMessage):
    """The result of one task of a micro-batch.

    Attributes:
        adds: its adds, or its rows, as `jobs.stage_task` returned them.
        query_id: the id of the streaming query.
        table_id: the id of the table that it staged for.
    """

    adds: bytes
    query_id: str
    table_id: str


class EventLogStreamWriter(_StreamWriter):
    """Writes one micro-batch; Spark pickles it for the tasks, and builds another one to commit.

    Args:
        place: the root and the storage options.
        table: the table there, open.
        names: of the columns of the rows, as the table spells them.
        memory_bytes: bound on the memory for rows in a task, in bytes.
        missing: see `eventlog.writers.upsert`.
    """

    def __init__(
        self,
        place: _Place,
        table: Table,
        names: list[str],
        *,
        memory_bytes: int,
        missing: Missing | None,
    ) -> None:
        self._place = place
        self._table = table
        self._table_id = table.id
        head = table.session.head()
        coarsest = coarsest_for_first_rows(head, part=True)
        self._recipe = Recipe.of(head, fills=missing is not None, coarsest=coarsest)
        self._memory_bytes, self._names = memory_bytes, names

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of one task; see `eventlog.writers.spark.jobs.stage_task`.

        Raises:
            InvalidInput: rows do not fit the table, or Spark does not name the query.
            Unavailable: the store does not answer; Spark retries the task.
        """
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if not query_id:
            raise InvalidInput(
                f"Spark does not give this task the id of its query (local property {_QUERY_ID}), "
                "without which a batch could be written twice: use foreachBatch with "
                "eventlog.writers.spark.append"
            )
        named = (batch.rename_columns(self._names) for batch in iterator)
        adds = stage_task(self._table, self._recipe, named, self._memory_bytes)
        return StagedPart(adds, query_id, self._table_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the segments as one transaction, unless the table has the batch already.

        Raises:
            InvalidInput: Spark did not hand the rows of a task to Python, as with
                `trigger(continuous=...)`; nothing was committed.
            CommitConflict: the table has a later batch of this query, so that it is not known
                whether the rows of this one are in it; or the schema that they were staged with is
                no longer valid.
            CommitUnknown: it is not known whether the commit landed. The query fails, and repeats
                the batch when it is started again.
            TableNotFound: another table has taken the place of the one that the rows were staged
                for.
            Unavailable: the store does not answer; nothing was committed.
        """
        parts = [message for message in messages if isinstance(message, StagedPart)]
        if len(parts) < len(messages):
            # Without this Spark would count the rows as written.
            raise InvalidInput(
                "Spark did not hand over the rows of this batch, and nothing was committed: with "
                "trigger(continuous=...) it drops the rows of every sink in Python. Stop the "
                "query, and start it with trigger(processingTime=...) and a new checkpoint",
                table=self._table.uri,
            )
        parts = [part for part in parts if part.adds != NO_ADDS]
        if not parts:
            return
        table = self._table
        app = App(parts[0].query_id, batchId)
        try:
            if any(part.table_id != table.id for part in parts):
                raise TableNotFound(
                    "the table was replaced by another one while the batch was written: start the "
                    "query again to write to the new one",
                    table=table.uri,
                )
            staged = (part.adds for part in parts)
            adds = adds_of(table, self._recipe, staged, self._memory_bytes)
            if already(table.session.head(), app) is not None:
                table.refresh()  # a restore may have let it be loaded again
            if _repeated(table, app):
                warn_restored(table, table.session.head(), app)
                report_mismatch(table, table.session.head(), app, sum(add.rows for add in adds))
                return
            _report_missing(table, app)
            table.session.log.staged.vouch(adds)  # staged by the tasks of this batch
            choose_granularity(table.session, table.session.head(), adds, self._recipe.coarsest)
            commit_staged(table.session, table.transaction("append", adds, app=app))
            _repeated(table, app)  # raises if a later batch came between
        except EventLogError:
            _open.forget(self._place)  # the next batch of this process opens it again
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark calls this even after a commit that landed (hazard I6)."""


def _repeated(table: Table, app: App) -> bool:
    """Return whether the batch is in the table already, as far as this process has read.

    Raises:
        CommitConflict: a later one is. Spark repeats only the last batch of a query, with the same
            rows; so the checkpoint is an old copy, whose batches may have other rows.
    """
    mark = table.session.head().meta.apps.get(app.id)
    if mark is not None and mark.seq > app.seq:
        raise CommitConflict(
            f"the table already has batch {mark.seq} of query {app.id}, in version {mark.version}, "
            f"but this is batch {app.seq}: two queries run with copies of one checkpoint, or the "
            "checkpoint was restored from an older copy. Stop the other query; or compare the rows "
            "in the table with the source, and start with a new checkpoint from there",
            table=table.uri,
        )
    return mark is not None and mark.seq == app.seq


def _report_missing(table: Table, app: App) -> None:
    """Warn if the table has no earlier batch of a query that has had some.

    It is no error: a batch without rows commits nothing, and the table forgets a query that rests
    for longer than `app_retention_days`.
    """
    if app.seq and app.id not in table.session.head().meta.apps:
        logger.warning(
            "batch %d is the first of query %s that %s has: if earlier batches had rows, they went "
            "to another table, or to one that was here before. A new checkpoint writes them here",
            app.seq,
            app.id,
            table.uri,
        )


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> EventLogStreamWriter:
    """Return the writer of one micro-batch, after all checks that are possible before a task runs.

    Args:
        options: those of the query.
        schema: the schema of the rows.
        overwrite: whether the output mode is `complete`.

    Raises:
        InvalidInput: an option, the output mode, or the schema does not fit; no task runs.
        TableNotFound: the table is absent and no option describes how to create it.
    """
    given = parse_spark_options(
        {name: value for name, value in options.items() if name.lower() not in _OF_THE_QUERY}
    )
    if overwrite:
        raise InvalidInput(
            "outputMode('complete') would replace the whole table with every batch: use "
            "outputMode('append'), or foreachBatch with eventlog.writers.spark.overwrite, which "
            "replaces a range that you choose"
        )
    given.refuse(
        ("appId", "appSeq"),
        "is for batch writes: a stream counts its batches by the id of its query, which lies in "
        "the checkpoint, and a new checkpoint counts from 0 again; leave it out",
    )
    given.refuse(
        OVERWRITE_NAMES,
        "is for overwrites: a stream appends; leave it out, or use foreachBatch with "
        "eventlog.writers.spark.overwrite",
    )
    given.refuse(
        (
            *(name for name in READ_NAMES if name != "targetBytes"),
            *CHANGES_NAMES,
            *STREAM_READ_NAMES,
        ),
        "is for reads: a write applies to the newest version, with all columns",
    )
    given.refuse(
        (EVOLVE,),
        "is for batch writes: the columns of a stream are those that it began with; add columns to "
        "the table first, by Table.add_columns, or use foreachBatch with "
        "eventlog.writers.spark.append(..., evolve=True)",
    )
    memory_bytes = given.whole("memoryBytes", DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES)
    place = (given.path, tuple(sorted(given.storage.items())))
    missing = check_missing(given.named.get("missing"))
    table = _opened(place, arrow_schema(schema), creation_of(given, schema.names), missing)
    names = spelled_names(schema.names, table.session.head().schema.names)
    return EventLogStreamWriter(
        place, table, names, memory_bytes=memory_bytes or DEFAULT_MEMORY_BYTES, missing=missing
    )


@dataclass
class _Open:
    """A table that this process has open, and when its head was last looked for."""

    table: Table
    refreshed_s: float


# One process serves many micro-batches. By the root and the storage options.
_Place = tuple[str, tuple[tuple[str, str], ...]]
_open: Cache[_Place, _Open] = Cache(_MAX_OPEN)


def _opened(
    place: _Place, incoming: pa.Schema, creation: Creation, missing: Missing | None
) -> Table:
    """Return the table, with a head that is at most `REFRESH_S` old and that the rows fit.

    Raises:
        InvalidInput: the rows, or the options of creation, do not fit the table.
        TableNotFound: it is absent and no time column is given.
    """
    known = _open.get(place)
    if known is not None:
        try:
            _look(known, incoming, missing)
        except TableNotFound:
            known = (
                None  # removed; perhaps another one is there by now, or the batch will create one
            )
        except EventLogError:
            _open.forget(place)
            raise
    if known is None:
        _open.forget(place)
        table = open_or_create(place[0], dict(place[1]), incoming, creation)
        known = _Open(table, table.clock.elapsed_s())
        _open.put(place, known)
    table = check_agrees(known.table, creation)
    _check_rows(incoming, table, missing)
    return table


def _look(known: _Open, incoming: pa.Schema, missing: Missing | None) -> None:
    """See that a table is still the same one; read its newest version if that is due.

    Raises:
        TableNotFound: it was removed, or replaced by another one.
    """
    table, now_s = known.table, known.table.clock.elapsed_s()
    if now_s - known.refreshed_s >= REFRESH_S or not _fit(incoming, table, missing):
        table.refresh()
        known.refreshed_s = now_s
    table.verify(WINDOW_S)


def _fit(incoming: pa.Schema, table: Table, missing: Missing | None) -> bool:
    try:
        _check_rows(incoming, table, missing)
    except InvalidInput:
        return False
    return True


def _check_rows(incoming: pa.Schema, table: Table, missing: Missing | None) -> None:
    head = table.session.head()
    check_rows(spelled(incoming, head.schema.names), head, missing)
