"""Reads with Spark 3.5 and later: `read`, which picks the faster of two engines.

Imports eventlog, readers and pyspark (extra `spark`). The data source `eventlog` of Spark 4.0 and
later (`spark.read.format("eventlog")`) does the same as engine `arrow`; see
`eventlog.readers.spark.source` for its options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.log.snapshot import plan as plan_of
from eventlog.query.moments import Moment
from eventlog.query.predicate import SqlPredicate, Where
from eventlog.readers.objects import check_sizes
from eventlog.readers.scanner import kept_snapshot
from eventlog.readers.spark.expressions import pack_expression
from eventlog.readers.spark.filters import field, same_to_spark, to_column, unpushed
from eventlog.readers.spark.lateness import late_columns
from eventlog.readers.spark.options import STORAGE_PREFIX
from eventlog.readers.spark.shares import SHARE, Work, share_out
from eventlog.readers.spark.types import to_spark
from eventlog.readers.spark.workers import activate, explained, has_data_sources
from eventlog.state.scan import ScanPlan
from eventlog.store.location import open_store

__all__ = ["activate", "read"]

Engine = Literal["auto", "arrow", "jvm"]

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# The JVM must read all files of the version or fail, never skip one.
_PARQUET_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# The characters that make Hadoop treat a path as a pattern (`SparkHadoopUtil.isGlobPath`).
_PATTERN = re.compile(r"[\\*?{}\[\]]")


def read(  # noqa: PLR0917 - the same query as in readers.scan
    spark: SparkSession,
    uri: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
    *,
    engine: Engine = "auto",
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a DataFrame of one version of a table.

    Engine `jvm` passes the exact list of files to Spark's own vectorised Parquet reader, so that
    Spark prunes columns and pushes filters down itself. It needs a store that the JVM can reach: a
    local path that every executor shares, or S3 with hadoop-aws. On S3 it uses the session's
    endpoint and credentials (`spark.hadoop.fs.s3a.*`); `storage_options` apply to planning only.
    Engine `arrow` is the data source `eventlog`, which needs only Python on the executors. `auto`
    selects `jvm` if the table is on a local path or the s3a file system class is available, else
    `arrow`; on Spark Connect, which does not expose the JVM, it selects `arrow`. Both engines
    return the same rows, also under filters that are added to the DataFrame later. Filters on
    floats are not pushed into Parquet, which would lose -0.0, nor filters on dates and instants
    that may be before 1901, which would lose days of 1582.

    Args:
        spark: the session.
        uri: the table's root.
        columns: names of the columns to read, in this order; all if None.
        where: SQL text or a pyarrow expression that selects rows. Times without an offset are UTC,
            whatever the session's zone is. A pyarrow expression needs engine `arrow`.
        version: the version to read; the newest if neither this nor `timestamp` is given.
        timestamp: the time whose version to read; see `Table.snapshot`.
        engine: `auto`, `arrow` or `jvm`; see above.
        storage_options: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong, or the engine cannot read this; the message says why.
        NotFound: there is no such table or version, or the version was vacuumed.
        DataLoss: with engine `jvm`, a segment is missing or has another size than the log says.
            That engine does not check bytes (FORMAT.md R7.7); engine `arrow` checks all bytes that
            it decodes.
    """
    if engine not in ("auto", "arrow", "jvm"):
        raise InvalidInput(f"engine is auto, arrow or jvm, not {engine!r}")
    table = Table(open_store(uri, storage_options))
    snapshot = kept_snapshot(table, version, timestamp)
    plan = plan_of(snapshot, columns=columns, where=where)
    obstacle = None if engine == "arrow" else _obstacle(spark, table.uri, plan, engine)
    if engine == "jvm" and obstacle is not None:
        raise InvalidInput(f"engine 'jvm' {obstacle}", table=table.uri)
    if engine == "arrow" or obstacle is not None:
        schema = to_spark(plan.schema)
        work = share_out(uri, storage_options, snapshot, plan, schema)
        options = _options(plan, columns, where, storage_options or {})
        options |= {"tableId": snapshot.header.table, "path": str(uri)}
        return _through_python(spark, work, schema, options)
    # Spark does not compare the files with the sizes in the log.
    check_sizes(table.store, plan.in_scan_order(), plan.version)
    return _through_jvm(spark, table.uri, plan, late_columns(snapshot, plan))


def _through_python(
    spark: SparkSession, work: Work, schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    """Return the rows that tasks read through pyarrow.

    Args:
        spark: the session.
        work: what each task reads.
        schema: the columns.
        options: the same query for the data source.
    """
    activate(spark)
    if hasattr(spark, "_jvm"):
        # One partition for each share. Spark knows no size for rows that it is given this way, so
        # it does not take the table for a small one and broadcast it.
        shares = [(bytearray(share),) for share in work.shares]
        given = spark.sparkContext.parallelize(shares, max(1, len(shares)))
        frame = spark.createDataFrame(given, SHARE, verifySchema=False)
        return frame.mapInArrow(work.without_shares().rows, schema)
    if not has_data_sources():
        raise InvalidInput(
            "engine 'arrow' needs Spark 4.0 on Spark Connect: use engine='jvm', or connect to a "
            "newer server"
        )
    with explained():
        return spark.read.format("eventlog").options(**options).load(options["path"])


def _options(
    plan: ScanPlan,
    columns: Sequence[str] | None,
    where: Where | None,
    storage_options: Mapping[str, str],
) -> dict[str, str]:
    """Return the data source's options for the same query."""
    options = {f"{STORAGE_PREFIX}{name}": value for name, value in storage_options.items()}
    options["version"] = str(plan.version)
    if columns is not None:
        options["columns"] = msgspec.json.encode(list(columns)).decode()
    if isinstance(where, str):
        options["where"] = where
    elif where is not None:
        options["whereArrow"] = pack_expression(where)
    return options


def _through_jvm(spark: SparkSession, root: str, plan: ScanPlan, late: frozenset[str]) -> DataFrame:
    schema = to_spark(plan.table_schema)
    segments = plan.in_scan_order()
    if segments:
        base = _hadoop_root(root)
        paths = [f"{base}/{keys.key_of(segment)}" for segment in segments]
        rows = spark.read.schema(schema).options(**_PARQUET_OPTIONS).parquet(*paths)
    else:
        rows = spark.createDataFrame([], schema)
    # Before any filter, including those that the caller adds to the DataFrame.
    rows = rows.select(
        *[unpushed(kind.name, kind.type, late=kind.name in late) for kind in plan.table_schema]
    )
    condition = None if plan.filter is None else _condition(plan)
    if condition is not None:
        rows = rows.where(condition)
    return rows.select(*[field(name) for name in plan.schema.names])


def _obstacle(spark: SparkSession, root: str, plan: ScanPlan, engine: Engine) -> str | None:
    """Return why Spark's own Parquet reader cannot be used; None if it can."""
    path = _hadoop_root(root).partition(":")[2]
    if ":" in path and _PATTERN.search(path):
        return (
            "cannot read a root with a colon and one of * ? { } [ ] \\, which Hadoop treats as a "
            "pattern that it cannot match: use engine='arrow'"
        )
    if plan.predicate is not None and _condition(plan) is None:
        return "cannot evaluate this where as Arrow does: use engine='arrow'"
    exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    for column in () if exact else plan.table_schema:
        if (two := same_to_spark(column.type)) is not None:
            return (
                f"cannot read the fields {two[0]!r} and {two[1]!r} of {column.name!r}, which Spark "
                "treats as one: use engine='arrow'"
            )
    remote = not hasattr(spark, "_jvm")
    if root.startswith("file:"):
        return (
            "is not selected automatically on Spark Connect"
            if remote and engine == "auto"
            else None
        )
    if root.startswith("s3:"):
        if remote:
            return None if engine == "jvm" else "cannot be checked for on Spark Connect"
        if _has_class(spark, _S3A):
            return None
        return (
            "needs the s3a file system: start Spark with spark.jars.packages="
            "org.apache.hadoop:hadoop-aws:<the version of Spark's Hadoop>, or use engine='arrow'"
        )
    return f"cannot read {root.partition(':')[0]} locations"


def _condition(plan: ScanPlan) -> Column | None:
    """Return the filter as a Spark column; None if Spark cannot evaluate it."""
    predicate = plan.predicate
    return to_column(predicate.condition) if isinstance(predicate, SqlPredicate) else None


def _has_class(spark: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # noqa: PLC0415 - absent from the client of Spark Connect

    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's way to the JVM; Connect has none
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True


def _hadoop_root(root: str) -> str:
    """Return the root as Hadoop expects it: Hadoop does not decode percent-encoding.

    Pattern characters are escaped, so that the root matches only itself. Spark's option against
    patterns, `__globPaths__`, is no help: it replaces each path that looks like a pattern with all
    of the paths.
    """
    if root.startswith("s3:"):
        path = f"s3a:{root.removeprefix('s3:')}"
    else:
        path = f"file://{unquote(urlsplit(root).path)}"
    return _PATTERN.sub(r"\\\g<0>", path)
