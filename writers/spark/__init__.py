"""Writes of Spark DataFrames: `append` and `overwrite`, on Spark 3.5 and later.

Imports eventlog, readers and pyspark (extra `spark`). Tasks stage segments
(`DataFrame.mapInArrow`), the driver commits them as one transaction. The data source `eventlog` of
Spark 4.0 and later (`df.write.format("eventlog")`) runs the same jobs, with the arguments here as
options (`eventlog.writers.spark.source`).

TIMESTAMP_NTZ, DATE and STRING values written to columns of instants are read as UTC, whatever the
session's zone, as with every other writer; `cast("timestamp")` in the DataFrame uses the session's
zone. A new table has the columns of the DataFrame, all of them nullable, as with Spark's own file
sources.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Literal

from pyspark.sql import DataFrame

from eventlog.arguments import whole
from eventlog.errors import InvalidInput
from eventlog.query.moments import Moment
from eventlog.readers.spark.types import to_arrow
from eventlog.readers.spark.workers import activate, explained
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.writers.batch import make_app
from eventlog.writers.spark.jobs import STAGED, Creation, Replacement, prepare

__all__ = ["append", "overwrite"]


def append(  # noqa: PLR0913 - the public API
    df: DataFrame,
    uri: str,
    *,
    time_column: str | None = None,
    granularity: str | None = None,
    order_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> int:
    """Append the rows of a DataFrame and return the committed version.

    An append never conflicts with other commits. Without rows and without an app id nothing is
    committed, and the newest known version is returned. Costs two requests to open the table (three
    if it has a key frame), one for each segment, and one to commit; one more if the job takes
    longer than a second, to see that it is still the same table.

    Args:
        df: the rows. Its tasks need eventlog installed.
        uri: the table's root.
        time_column: the event-time column; creates the table if it is absent. An existing table
            must have the same one; so too for `granularity` and `order_by`.
        granularity: of the time chunks of a new table: hour, day (if None), month, year or all.
        order_by: columns by which rows are sorted inside a segment of a new table.
        properties: properties of a new table (FORMAT.md R7.5).
        app_id: with `app_seq`, makes the append idempotent: an append whose sequence is not above
            the last one of this id stages and commits nothing.
        app_seq: 0 or more; must grow with every unit of work of the app.
        storage_options: see `eventlog.store.options`. They are sent to the executors with the job.
            Without them each executor uses its own AWS environment, profile or role.
        memory_bytes: bound on the memory for rows in one task, in bytes.

    Raises:
        InvalidInput: an argument or the DataFrame's columns do not fit; no task ran. Rows that do
            not fit fail the task that has them: Spark raises its own error, which quotes this one.
        TableNotFound: the table is absent and `time_column` is not given.
        CommitConflict: the schema that the rows were written with is no longer valid.
        CommitUnknown: it is not known whether the commit landed. Append again with the same app id
            and sequence, or call `Table.find_transaction`.
        Unavailable: the store does not answer; nothing was committed.
    """
    creation = Creation(time_column, granularity, order_by, properties or {})
    return _save(df, uri, creation, None, app_id, app_seq, storage_options, memory_bytes)


def overwrite(  # noqa: PLR0913 - the public API
    df: DataFrame,
    uri: str,
    *,
    where: str | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    isolation: Literal["carry", "serializable"] = "carry",
    read_version: int | None = None,
    time_column: str | None = None,
    granularity: str | None = None,
    order_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> int:
    """Replace the rows of a table, or of a time range, and return the committed version.

    The segments live in the range at the read version are dropped and the rows of the DataFrame
    take their place. Segments that other writers add meanwhile are kept (carried forward).

    Args:
        df: see `append`; every row's time must lie in the range.
        uri: see `append`.
        where: the range as SQL text: `ts >= '2013-01-01' AND ts < '2013-02-01'`. Its bounds, like
            `start` and `end`, lie at chunk boundaries.
        start: start of the range (inclusive); unbounded if None.
        end: end of the range (exclusive); unbounded if None.
        isolation: `serializable` makes segments that arrived after the read version a conflict.
        read_version: the version that the rows were computed from: later segments are carried
            forward, or are a conflict. The newest version if None: then rows added between your
            read and this call are dropped unseen.
        time_column: see `append`.
        granularity: see `append`.
        order_by: see `append`.
        properties: see `append`.
        app_id: see `append`.
        app_seq: see `append`.
        storage_options: see `append`.
        memory_bytes: see `append`.

    Raises:
        InvalidInput: see `append`; or rows are outside the range, or a bound is inside a chunk.
        CommitConflict: a segment to drop was replaced meanwhile, or with `serializable` one was
            added to the range; nothing was committed.
        CommitUnknown: see `append`.
        TableNotFound: see `append`.
        Unavailable: see `append`.
    """
    creation = Creation(time_column, granularity, order_by, properties or {})
    replacement = Replacement(where, start, end, isolation, read_version)
    return _save(df, uri, creation, replacement, app_id, app_seq, storage_options, memory_bytes)


def _save(  # noqa: PLR0917 - all that the two public functions are told
    df: DataFrame,
    uri: str,
    creation: Creation,
    replacement: Replacement | None,
    app_id: str | None,
    app_seq: int | None,
    storage_options: Mapping[str, str] | None,
    memory_bytes: int,
) -> int:
    if not hasattr(df, "mapInArrow"):
        raise InvalidInput(
            f"a Spark DataFrame was expected, not {type(df).__name__}: write other rows with "
            "eventlog.writers.append, or make a frame of them with spark.createDataFrame"
        )
    job = prepare(
        str(uri),
        to_arrow(df.schema),
        storage_options=storage_options,
        creation=creation,
        replacement=replacement,
        app=make_app(app_id, app_seq),
        memory_bytes=whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES),
    )
    if job.done is not None:
        return job.done
    activate(df.sparkSession)
    # Numbered, because mapInArrow would take a name with a dot for a path.
    numbered = df.toDF(*map(str, range(len(df.columns))))
    stage = functools.partial(job.stage_rows, names=tuple(df.columns))
    with explained():
        staged = numbered.mapInArrow(stage, STAGED).collect()
    return job.commit(bytes(row.adds) for row in staged)
