"""Writes from Spark, on Spark 3.5 and later: append, overwrite, upsert, delete, update, merge.

Imports eventlog, readers and pyspark (extra `spark`). Tasks stage segments
(`DataFrame.mapInArrow`), the driver commits them as one transaction. The data source `eventlog` of
Spark 4.0 and later (`df.write.format("eventlog")`) runs the same jobs, with the arguments here as
options (`eventlog.writers.spark.source`).

TIMESTAMP_NTZ, DATE and STRING values written to columns of instants are read as UTC, whatever the
session's zone, as with every other writer; `cast("timestamp")` in the DataFrame uses the session's
zone. A new table has the columns of the DataFrame, all of them nullable, as with Spark's own file
sources, except those of a key and the one that orders its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from eventlog import Table
from eventlog.arguments import whole
from eventlog.errors import InvalidInput
from eventlog.model.records import App
from eventlog.query.moments import Moment
from eventlog.readers.spark.spark_options import located
from eventlog.readers.spark.types import arrow_schema
from eventlog.readers.spark.workers import explained, prepare_workers
from eventlog.session.tags import VersionOrName
from eventlog.staging.incoming.streams import spelled
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.store.location import open_store
from eventlog.writers.batch import (
    check_evolving,
    check_missing,
    evolve_to,
    make_app,
    naming_version,
)
from eventlog.writers.changing.deletes import delete_where
from eventlog.writers.changing.joining import (
    Matched,
    Merging,
    check_source,
    merging_of,
    values_of,
)
from eventlog.writers.changing.landing import Isolation, RowChange
from eventlog.writers.changing.updating import update_where
from eventlog.writers.spark.changing import SparkSearch, SparkUpdates
from eventlog.writers.spark.dataframe_merge import (
    SparkMatching,
    bounds_of,
    conformed,
    in_table_types,
)
from eventlog.writers.spark.jobs import STAGED, Operation, Replacement, prepare
from eventlog.writers.spark.save_target import Creation

__all__ = ["append", "delete", "merge", "overwrite", "update", "upsert"]


def append(  # noqa: PLR0913 - the public API
    uri: str,
    df: DataFrame,
    *,
    time_column: str | None = None,
    granularity: str | None = None,
    order_by: str | Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    buckets: int | None = None,
    merge: str | None = None,
    properties: Mapping[str, str] | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
) -> int:
    """Append the rows of a DataFrame and return the committed version.

    To a keyed table the rows are upserted, see `upsert`. An append never conflicts with other
    commits. Without rows and without an app id nothing is committed, and the newest known version
    is returned. Costs two requests to open the table (three if it has a key frame), one for each
    segment, and one to commit; one more if the job takes longer than a second, to see that it is
    still the same table.

    Args:
        uri: the table's root.
        df: the rows. Its tasks need eventlog installed.
        time_column: the event-time column; it, a key, or granularity `all` creates an absent table.
            An existing one must agree with the arguments for a new one, except `properties`.
        granularity: hour, day, month, year, all or auto, of a new table; None: auto, if keyed all.
        order_by: columns by which rows are sorted inside a segment of a new table.
        key: makes a new table a keyed one; see `upsert`, and there for `buckets` and `merge`.
        buckets: see `upsert`.
        merge: see `upsert`.
        properties: properties of a new table (FORMAT.md R7.5).
        app_id: with `app_seq`, makes the append idempotent: an append whose sequence is not above
            the last one of this id stages and commits nothing.
        app_seq: 0 or more; must grow with every unit of work of the app.
        branch: the name of a branch of the table to write to instead. It is not created.
        storage_options: see `eventlog.store.options`. They are sent to the executors with the job.
            Without them each executor uses its own AWS environment, profile or role.
        memory_bytes: bound on the memory for rows in one task, in bytes.
        missing: if keyed: see `upsert`. Else a nullable column that `df` lacks has its default.
        evolve: see `eventlog.writers.append`; option `mergeSchema` of the data source.

    Raises:
        InvalidInput: an argument or the DataFrame's columns do not fit; no task ran. Rows that do
            not fit fail the task that has them: Spark raises its own error, which quotes this one.
        TableNotFound: the table is absent, and the arguments are not those of a new one.
        CommitConflict: the schema that the rows were written with is no longer valid.
        CommitUnknown: it is not known whether the commit landed. Append again with the same app id
            and sequence, or call `Table.find_transaction`.
        Unavailable: the store does not answer; nothing was committed.
    """
    creation = Creation(time_column, granularity, order_by, properties or {}, key, buckets, merge)
    options = _Options(app_id, app_seq, storage_options, memory_bytes, missing, evolve)
    return _save(df, located(uri, branch), "append", creation, options)


def upsert(  # noqa: PLR0913 - the public API
    uri: str,
    df: DataFrame,
    *,
    time_column: str | None = None,
    granularity: str | None = None,
    order_by: str | Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    buckets: int | None = None,
    merge: str | None = None,
    properties: Mapping[str, str] | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
) -> int:
    """Insert rows, or merge them with those of the same key; return the committed version.

    Nothing is read, and no other commit is in conflict. The table's merge rule decides what becomes
    of several rows of a key (docs/guides/keyed.md). Rows of one DataFrame that no column orders
    count in the order of its partitions, and in these as they come. Costs as `append`.

    Args:
        uri: see `append`.
        df: the rows. Beside the table's columns they may have `_op`: `u` or null for rows to merge,
            `d` for keys to delete, whose other columns are ignored except the event time and the
            one that orders rows. Under the rule `partial` columns that are missing keep their
            values, as do those in which a row is null.
        time_column: see `append`.
        granularity: see `append`. A key is unique within its time chunk: unless this is `all`, the
            event time of a key must never change.
        order_by: of a new table: the column whose values decide which row of a key is the later
            one. Without it the order of commits does.
        key: of a new table: the columns that identify a row.
        buckets: of a new table: into how many parts keys are divided; 16 if None. An existing
            table must have as many, or have had before they were split.
        merge: the merge rule: `last` (of a new table, if None), `first`, `partial` or `aggregate`.
            An existing table must have it. Under `partial` columns that `df` lacks keep their
            values; under `last` and `first` see `missing`.
        properties: see `append`. Those named `merge.<column>` and `merge.group.<column>` are part
            of the merge rule.
        app_id: see `append`.
        app_seq: see `append`.
        branch: see `append`.
        storage_options: see `append`.
        memory_bytes: see `append`.
        missing: see `eventlog.writers.upsert`.
        evolve: see `append`.

    Raises:
        InvalidInput: see `append`, `missing`; or the table has no key, or another merge rule.
        TableNotFound: see `append`.
        CommitConflict, CommitUnknown, Unavailable: see `append`.
    """
    names = time_column, granularity, order_by, properties or {}, key, buckets, merge
    options = _Options(app_id, app_seq, storage_options, memory_bytes, missing, evolve)
    return _save(df, located(uri, branch), "upsert", Creation(*names, keyed=True), options)


def delete(  # noqa: PLR0913 - the public API
    uri: str,
    keys: DataFrame | SparkSession,
    *,
    where: str | None = None,
    isolation: Isolation = "snapshot",
    dry_run: bool = False,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Delete rows: those of keys, or those that a predicate selects; return the committed version.

    In a keyed table the keys are gone from this version on, whatever was committed before it; a row
    that is committed later counts again. Nothing is read, and no other commit is in conflict. To
    delete the rows that a predicate selects, give the keys that `eventlog.readers.spark.read` finds
    with it.

    In a table without a key, give the session and `where`: tasks look for the rows in segments that
    statistics do not decide about, and the driver commits their positions.

    Args:
        uri: see `append`.
        keys: the session; of a keyed table a DataFrame as `eventlog.writers.delete` takes rows.
        where: of a table without a key: SQL text; see `eventlog.writers.delete`.
        isolation: of a table without a key: see `eventlog.writers.delete`.
        dry_run: of a table without a key: see `eventlog.writers.delete`.
        app_id: see `append`.
        app_seq: see `append`.
        branch: see `append`.
        storage_options: see `append`.
        memory_bytes: see `append`.

    Returns:
        The version; with `where` also the numbers of rows and segments that were touched.

    Raises:
        InvalidInput: see `append`; or the table has no key, or the columns are not those of a key,
            or the predicate is wrong.
        TableNotFound: there is no table.
        CommitConflict: see `append`, and `eventlog.writers.delete`.
        CommitUnknown: see `append`.
        DataLoss: a segment or a deletion vector is missing or damaged.
        Unavailable: see `append`.
    """
    options = _Options(app_id, app_seq, storage_options, memory_bytes)
    root = located(uri, branch)
    if where is not None:
        return _delete_selected(_session(keys), root, where, isolation, options, dry_run=dry_run)
    frame = cast(DataFrame, keys)
    return RowChange(_save(frame, root, "delete", Creation(keyed=True), options))


def _delete_selected(
    spark: SparkSession,
    root: str,
    where: str,
    isolation: Isolation,
    options: _Options,
    *,
    dry_run: bool,
) -> RowChange:
    """Delete the rows that a predicate selects. Raises: as `delete`."""
    t, app = (
        Table(open_store(root, options.storage_options)),
        make_app(options.app_id, options.app_seq),
    )
    search = SparkSearch(t, where, options.memory_bytes, spark)
    start = t.refresh()
    return delete_where(
        t, start, where, isolation=isolation, app=app, dry_run=dry_run, search=search
    )


def update(  # noqa: PLR0913 - the public API
    uri: str,
    spark: SparkSession,
    set: Mapping[str, Any],  # noqa: A002 - the word of SQL
    where: str | None = None,
    *,
    isolation: Isolation = "snapshot",
    dry_run: bool = False,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Give columns of the rows that a predicate selects new values; return the committed version.

    Tasks look for the rows. The driver stages the new ones where the rows take less than an eighth
    of `memory_bytes`, else tasks read them again and do. See `eventlog.writers.update`.

    Args:
        uri: see `append`; a table without a key.
        spark: the session.
        set: see `eventlog.writers.update`.
        where: SQL text; None: all rows.
        isolation: see `eventlog.writers.delete`.
        dry_run: see `eventlog.writers.update`.
        app_id: see `append`.
        app_seq: see `append`.
        branch: see `append`.
        storage_options: see `append`.
        memory_bytes: bound on the memory for rows in the driver and in a task, in bytes.

    Returns:
        The version, with the numbers of rows and segments that were touched.

    Raises: as `eventlog.writers.update`; and TableNotFound: there is no table.
    """
    app, session = make_app(app_id, app_seq), _session(spark)
    t = Table(open_store(located(uri, branch), storage_options))
    search = SparkSearch(t, where, memory_bytes, session, keeps=not dry_run)
    return update_where(
        t,
        set,
        where,
        isolation=isolation,
        app=app,
        dry_run=dry_run,
        search=search,
        updates=lambda values: SparkUpdates(search, values).stage,
    )


def merge(  # noqa: PLR0913 - the public API
    uri: str,
    df: DataFrame,
    on: str | Sequence[str],
    *,
    when_matched: Matched = "update",
    when_not_matched: str = "insert",
    when_not_matched_by_source: str = "ignore",
    evolve: bool = False,
    dry_run: bool = False,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Merge a DataFrame into a table without a key by the values of some columns.

    Spark joins the rows; the source is kept in Spark's storage while the merge runs. See
    `eventlog.writers.merge`.

    Args:
        uri: see `append`; a table without a key.
        df: the source. It must have the same rows each time that Spark computes it.
        on: see `eventlog.writers.merge`.
        when_matched: see `eventlog.writers.merge`.
        when_not_matched: see `eventlog.writers.merge`.
        when_not_matched_by_source: see `eventlog.writers.merge`.
        evolve: see `eventlog.writers.merge`.
        dry_run: see `eventlog.writers.merge`.
        app_id: see `append`.
        app_seq: see `append`.
        branch: see `append`.
        storage_options: see `append`.
        memory_bytes: see `append`.

    Returns:
        The version, with the numbers of rows and segments that were touched.

    Raises: as `eventlog.writers.merge`; and TableNotFound: there is no table.
    """
    merging = merging_of(on, when_matched, when_not_matched, when_not_matched_by_source)
    t, app = Table(open_store(located(uri, branch), storage_options)), make_app(app_id, app_seq)
    start = t.refresh()
    done = merging.begin(t, start, app)
    if done is not None:
        return done
    search, evolved = SparkSearch(t, None, memory_bytes, df.sparkSession), None
    if evolve:
        merging.check_evolving()
        check_evolving(dry_run=dry_run)
        evolved = evolve_to(t, arrow_schema(df.schema), complete=merging.inserts)
    with naming_version(evolved):
        return _merge_rows(df, search, merging, app, evolved=evolved, dry_run=dry_run)


def _merge_rows(
    df: DataFrame,
    search: SparkSearch,
    merging: Merging,
    app: App | None,
    *,
    evolved: int | None,
    dry_run: bool,
) -> RowChange:
    """Merge rows that have no other columns than the table. Raises: as `merge`."""
    start = search.t.session.head()
    merging = merging.spelled(start)
    given = spelled(arrow_schema(df.schema), start.schema.names)
    check_source(given, start, merging.on, inserts=merging.inserts)
    wanted = conformed(given, start.schema)
    values = values_of(start.stored_schema, given, wanted, merging)
    prepare_workers(df.sparkSession)
    source = in_table_types(df, wanted, start.layout.time_column, evolved).persist()
    try:
        where = None if merging.deletes_others else bounds_of(source, wanted, merging.on)
        matching = SparkMatching(
            replace(search, where=where), merging, values, source, wanted, evolved
        )
        return matching.land(start, app, dry_run=dry_run)
    finally:
        source.unpersist()


def _session(given: object) -> SparkSession:
    """Return the session that was given.

    Raises:
        InvalidInput: it is none.
    """
    if not hasattr(given, "createDataFrame"):
        raise InvalidInput(f"a SparkSession was expected, not {type(given).__name__}")
    return cast(SparkSession, given)


def overwrite(  # noqa: PLR0913 - the public API
    uri: str,
    df: DataFrame,
    *,
    where: str | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    isolation: Isolation = "snapshot",
    read_version: VersionOrName | None = None,
    time_column: str | None = None,
    granularity: str | None = None,
    order_by: str | Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    buckets: int | None = None,
    merge: str | None = None,
    properties: Mapping[str, str] | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
) -> int:
    """Replace the rows of a table, of a time range, or those that a predicate selects.

    Args:
        uri: see `append`.
        df: see `append`; every row's time must lie in the range, or every row pass the predicate.
        where: SQL text. A range of the time column at chunk boundaries, `ts >= '2013-01-01' AND ts
            < '2013-02-01'`, drops whole segments. In a table without a key any predicate may be
            given: see `eventlog.writers.overwrite`.
        start: start of the range (inclusive); unbounded if None.
        end: end of the range (exclusive); unbounded if None.
        isolation: `serializable` makes segments that arrived after the read version a conflict.
        read_version: that of the rows' source. None: the newest; rows since your read are dropped.
        time_column: see `append`.
        granularity: see `append`.
        order_by: see `append`.
        key: see `append`.
        buckets: see `append`.
        merge: see `append`.
        properties: see `append`.
        app_id: see `append`.
        app_seq: see `append`.
        branch: see `append`.
        storage_options: see `append`.
        memory_bytes: see `append`.
        missing: see `eventlog.writers.overwrite`.
        evolve: see `append`.

    Raises:
        InvalidInput: see `append`, `missing`; rows are outside the range; a bound is in a chunk.
        CommitConflict: a segment of the range was replaced meanwhile, or with `serializable` added.
        CommitUnknown, TableNotFound, Unavailable: see `append`.
    """
    creation = Creation(time_column, granularity, order_by, properties or {}, key, buckets, merge)
    options = _Options(app_id, app_seq, storage_options, memory_bytes, missing, evolve)
    replaced = Replacement(where, start, end, isolation, read_version)
    return _save(df, located(uri, branch), "append", creation, options, replacement=replaced)


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments that all four functions share; see `append`."""

    app_id: str | None
    app_seq: int | None
    storage_options: Mapping[str, str] | None
    memory_bytes: int
    missing: Missing | None = None
    evolve: bool = False


def _save(
    df: DataFrame,
    uri: str,
    operation: Operation,
    creation: Creation,
    options: _Options,
    *,
    replacement: Replacement | None = None,
) -> int:
    if not hasattr(df, "mapInArrow"):
        raise InvalidInput(
            f"a Spark DataFrame was expected, not {type(df).__name__}: write other rows with "
            "eventlog.writers.append, or make a frame of them with spark.createDataFrame"
        )
    job = prepare(
        str(uri),
        arrow_schema(df.schema),
        storage_options=options.storage_options,
        creation=creation,
        replacement=replacement,
        app=make_app(options.app_id, options.app_seq),
        memory_bytes=whole(options.memory_bytes, "memory_bytes", MIN_MEMORY_BYTES),
        operation=operation,
        missing=check_missing(options.missing),
        evolve=options.evolve,
    )
    if job.done is not None:
        return job.done
    prepare_workers(df.sparkSession)
    # Numbered, because mapInArrow would take a name with a dot for a path.
    numbered = df.toDF(*map(str, range(len(df.columns))))
    with explained():
        staged = numbered.mapInArrow(job.stage_rows, STAGED).collect()
    return job.commit(bytes(row.adds) for row in staged)
