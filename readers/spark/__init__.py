"""Reads with Spark 3.5 and later: `read`, which picks the faster of two engines.

Imports eventlog, readers and pyspark (extra `spark`). The data source `eventlog` of Spark 4.0 and
later (`spark.read.format("eventlog")`) does the same as engine `arrow`; see
`eventlog.readers.spark.source` for its options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventlog import Snapshot, Table
from eventlog.arguments import whole
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import reader_rule
from eventlog.log.snapshot import plan_scan
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers.changefeed.reader import changed_range
from eventlog.readers.engines.file_list import by_place
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.spark.changes import of_options, schema_of
from eventlog.readers.spark.engines import (
    Choice,
    Engine,
    check_engine,
    decide,
    gather_facts,
    jvm_refusal,
)
from eventlog.readers.spark.expressions import pack_expression
from eventlog.readers.spark.jvm import through_jvm
from eventlog.readers.spark.jvm.lateness import late_columns
from eventlog.readers.spark.shares import (
    SEGMENT_COLUMNS,
    SHARE,
    Work,
    check_segment_columns,
    share_out_scan,
)
from eventlog.readers.spark.spark_options import (
    INLINE_ONLY,
    MEMORY,
    SEGMENTS,
    STORAGE_PREFIX,
    located,
    parse_spark_options,
)
from eventlog.readers.spark.table_functions import register_functions
from eventlog.readers.spark.types import declared, to_spark
from eventlog.readers.spark.workers import explained, has_data_sources, prepare_workers
from eventlog.segments.segment_object import check_sizes
from eventlog.session.tags import VersionOrName
from eventlog.staging.stager import MIN_MEMORY_BYTES
from eventlog.state.scan import ScanPlan
from eventlog.store.location import open_store

__all__ = ["Choice", "activate", "choose_engine", "read", "read_changes"]


def read(  # noqa: PLR0913, PLR0917 - the same query as in readers.scan
    spark: SparkSession,
    uri: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    overflow: str = "error",
    engine: Engine = "auto",
    branch: str | None = None,
    memory_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    segment_columns: bool = False,
) -> DataFrame:
    """Return a DataFrame of one version of a table.

    Engine `jvm` passes the list of files to Spark's own Parquet reader, which prunes columns and
    pushes filters down. It needs a store that the JVM can reach: a local path that every executor
    shares, or S3 with hadoop-aws. On S3 it uses the session's endpoint and credentials
    (`spark.hadoop.fs.s3a.*`); `storage_options` apply to planning only. Rows of small appends,
    which stand in commits, are added by engine `arrow`. Engine `arrow` reads with pyarrow in the
    tasks (`DataFrame.mapInArrow`), which need eventlog installed. `auto` selects `jvm` where the
    session is known to reach the store and there are not many small segments; `choose_engine`
    returns which and why. Both engines return the same rows, also under filters that are added to
    the DataFrame later. Filters on floats are not pushed into Parquet, which would lose -0.0, nor
    filters on dates and instants that may be before 1901, which would lose days of 1582. In a keyed
    table rows of one key are merged in the tasks, by engine `arrow`; `jvm` reads what compaction
    has merged. Costs three requests for the newest version and two for any other; more for leaves
    and segments.

    Args:
        spark: the session.
        uri: the table's root.
        columns: names of the columns to read, in this order; all if None.
        where: SQL text (times without an offset are UTC), or for `arrow` a pyarrow expression.
        version: as for `eventlog.readers.scan`, like `timestamp` and `overflow`.
        timestamp: the time whose version to read.
        overflow: `error`, or `null`.
        engine: `auto`, `arrow` or `jvm`; see above.
        branch: the name of a branch of the table to read instead.
        memory_bytes: bound on the rows that a task of engine `arrow` holds; see `readers.scan`.
        storage_options: see `eventlog.store.options`.
        segment_columns: see option `segmentColumns` of `eventlog.readers.spark.source`.

    Raises:
        InvalidInput: an argument is wrong, or the engine cannot read this; the message names it.
        NotFound: there is no such table or version, or the version was vacuumed.
        DataLoss: a segment is missing or damaged; `jvm` compares sizes alone (FORMAT.md R7.7).
    """
    check_engine(engine)
    table = Table(open_store(located(uri, branch), storage_options))
    snapshot = kept_snapshot(table, version, timestamp)
    plan = _plan(snapshot, columns, where, overflow)
    engine = _engine_of_segments(engine, snapshot) if segment_columns else engine
    options = {"tableId": snapshot.header.table, "path": str(located(uri, branch))}
    options |= _options(plan, columns, where, storage_options or {}, memory_bytes)
    if _engine(spark, table.uri, plan, engine, storage_options) == "jvm":
        return _through_both(spark, table, snapshot, plan, options)
    return _through_python(spark, snapshot, plan, options, located=segment_columns)


def read_changes(  # noqa: PLR0913, PLR0917 - the same question as in readers.changes
    spark: SparkSession,
    uri: str,
    start: VersionOrName,
    end: VersionOrName | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    *,
    overflow: str = "error",
    branch: str | None = None,
    memory_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a DataFrame of the changes of a table's rows after `start`, up to `end`.

    Tasks compute them in parts; the rows are in no order. The columns are those of
    `eventlog.readers.changes`: the table's, `_change`, `_version` and `_time`.

    Args:
        spark: the session.
        uri: the table's root.
        start: as for `eventlog.readers.changes`, like `end`, `columns`, `where` and `overflow`.
        end: the last version whose changes are read.
        columns: names of the columns to read, in this order; all if None.
        where: SQL text that selects rows.
        overflow: `error`, or `null`.
        branch: the name of a branch of the table to read instead.
        memory_bytes: bound on the rows that a task holds.
        storage_options: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: `start` was vacuumed.
    """
    root = located(uri, branch)
    first, last = changed_range(Table(open_store(root, storage_options)), start, end)
    options = {f"{STORAGE_PREFIX}{name}": value for name, value in (storage_options or {}).items()}
    options |= {
        "path": str(root),
        "readChanges": "true",
        "tableId": last.header.table,
        "startingVersion": str(first.version + 1),
        "endingVersion": str(last.version),
        "overflow": overflow,
    }
    if columns is not None:
        options["columns"] = msgspec.json.encode(list(columns)).decode()
    if where is not None:
        options["where"] = where
    if memory_bytes is not None:
        options[MEMORY] = str(whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES))
    given = parse_spark_options(options)
    schema = to_spark(schema_of(last, given.columns()))
    return _in_tasks(spark, of_options(given, schema, last), schema, options)


def choose_engine(  # noqa: PLR0917 - the same query as in read
    spark: SparkSession,
    uri: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Choice:
    """Return the engine that `read` uses for the same arguments with `auto`, and why.

    Raises:
        InvalidInput: an argument is wrong.
        NotFound: there is no such table or version, or the version was vacuumed.
    """
    table = Table(open_store(located(uri, branch), storage_options))
    snapshot = kept_snapshot(table, version, timestamp)
    plan = plan_scan(snapshot, columns=columns, where=where)
    return decide(gather_facts(spark, table.uri, plan, storage_options))


def activate(spark: SparkSession) -> None:
    """Make the data source `eventlog` and the functions of SQL available to Spark in this thread.

    PySpark makes a session active only in the thread that creates it: a job that saves from its own
    threads must call this in each of them first. Spark starts its workers with the `python3` on the
    path, whatever Python the driver runs: in a local session this makes them use the driver's,
    unless PYSPARK_PYTHON names another one. `read`, and the functions of `eventlog.writers.spark`,
    do this themselves. Only this call registers the functions `eventlog_history`,
    `eventlog_segments` and `eventlog_changes` in the session, see
    `eventlog.readers.spark.table_functions`. On Spark Connect it does nothing else.

    Raises:
        InvalidInput: the Python that was named for the workers of a local session cannot load
            eventlog.
    """
    prepare_workers(spark)
    register_functions(spark)


def _engine_of_segments(engine: Engine, snapshot: Snapshot) -> Engine:
    """Return the engine that reads rows with the columns of their segments.

    Raises:
        InvalidInput: the rows can have none, or another engine was asked for.
    """
    check_segment_columns(snapshot)
    if engine == "jvm":
        raise InvalidInput(
            "engine 'jvm' does not read segment_columns: leave engine out, or give engine='arrow'"
        )
    return "arrow"


def _engine(
    spark: SparkSession,
    root: str,
    plan: ScanPlan,
    engine: Engine,
    storage_options: Mapping[str, str] | None,
) -> Engine:
    if engine == "arrow":
        return engine
    facts = gather_facts(spark, root, plan, storage_options)
    if engine == "auto":
        return decide(facts).engine
    if (why := jvm_refusal(facts)) is not None:
        raise InvalidInput(f"engine 'jvm' {why}", table=root)
    return engine


def _through_both(
    spark: SparkSession,
    table: Table,
    snapshot: Snapshot,
    plan: ScanPlan,
    options: Mapping[str, str],
) -> DataFrame:
    """Return the rows of files as Spark's own reader reads them, and those in commits.

    Spark pushes filters and columns through the union. Raises: DataLoss, as `read`.
    """
    files, inline = by_place(plan)
    if not inline.entries.num_rows:
        return _through_spark(spark, table, snapshot, files)
    few = _through_python(spark, snapshot, inline, {**options, INLINE_ONLY: "true"}, located=False)
    if not files.entries.num_rows:
        return few
    return _through_spark(spark, table, snapshot, files).unionAll(few)


def _through_spark(
    spark: SparkSession, table: Table, snapshot: Snapshot, plan: ScanPlan
) -> DataFrame:
    """Return the rows that Spark's own reader reads. Raises: DataLoss, as `read`."""
    # Spark does not compare the files with the sizes in the log.
    check_sizes(table.store, plan.in_scan_order(), plan.version)
    return through_jvm(spark, table.store, plan, late_columns(snapshot, plan))


def _through_python(
    spark: SparkSession,
    snapshot: Snapshot,
    plan: ScanPlan,
    options: Mapping[str, str],
    *,
    located: bool,
) -> DataFrame:
    """Return the rows that tasks read through pyarrow.

    Args:
        spark: the session.
        snapshot: the version.
        plan: the segments to read.
        options: the same query for the data source.
        located: whether rows have the columns of their segments.
    """
    options = {**options, SEGMENTS: "true"} if located else options
    given = parse_spark_options(options)
    schema = to_spark(pa.schema([*plan.schema, *SEGMENT_COLUMNS]) if located else plan.schema)
    path, storage, wanted = given.path, given.storage, declared(schema)
    work = share_out_scan(
        path, storage, snapshot, plan, wanted, memory_bytes=given.memory_bytes, located=located
    )
    return _in_tasks(spark, work, schema, options)


def _in_tasks(
    spark: SparkSession, work: Work, schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    """Return the rows of shares of work, each read by a task.

    Args:
        spark: the session.
        work: the work.
        schema: its columns.
        options: the same query for the data source, which Spark Connect uses.
    """
    prepare_workers(spark)
    if hasattr(spark, "_jvm"):
        # One partition for each share. Spark has no size for rows that are passed this way, so
        # it does not take the table for a small one and broadcast it.
        shares = [(bytearray(share),) for share in work.shares]
        parts = spark.sparkContext.parallelize(shares, max(1, len(shares)))
        frame = spark.createDataFrame(parts, SHARE, verifySchema=False)
        if not schema.fields:
            return frame.mapInArrow(work.without_shares().places, "place tinyint").select()
        return frame.mapInArrow(work.without_shares().rows, schema)
    if not has_data_sources():
        raise InvalidInput(
            "engine 'arrow' needs Spark 4.0 on Spark Connect: use engine='jvm', or connect to a "
            "newer server"
        )
    with explained():
        return spark.read.format("eventlog").options(**options).load()


def _plan(
    snapshot: Snapshot, columns: Sequence[str] | None, where: Where | None, overflow: str
) -> ScanPlan:
    plan = plan_scan(snapshot, columns=columns, where=where)
    return replace(plan, rule=reader_rule(plan.rule, overflow))


def _options(
    plan: ScanPlan,
    columns: Sequence[str] | None,
    where: Where | None,
    storage_options: Mapping[str, str],
    memory_bytes: int | None,
) -> dict[str, str]:
    """Return the data source's options for the same query."""
    options = {f"{STORAGE_PREFIX}{name}": value for name, value in storage_options.items()}
    options["version"] = str(plan.version)
    if plan.rule is not None:
        options["overflow"] = plan.rule.overflow
    if memory_bytes is not None:
        options[MEMORY] = str(whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES))
    if columns is not None:
        options["columns"] = msgspec.json.encode(list(columns)).decode()
    if isinstance(where, str):
        options["where"] = where
    elif where is not None:
        options["whereArrow"] = pack_expression(where)
    return options
