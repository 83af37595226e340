"""Reads with Spark: the data source `eventlog`, and `read`, which picks the faster of two engines.

Imports eventlog, readers and pyspark (extra `spark`); see `eventlog.readers.spark.source` for the
options of `spark.read.format("eventlog")`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession

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
from eventlog.readers.spark.types import to_spark
from eventlog.readers.spark.workers import explained, share_python
from eventlog.state.scan import ScanPlan

__all__ = ["activate", "read"]

Engine = Literal["auto", "arrow", "jvm"]

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# The JVM reads exactly the files of the version, or fails: never fewer of them.
_PARQUET_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# The characters that make Hadoop take a path for a pattern (`SparkHadoopUtil.isGlobPath`).
_PATTERN = re.compile(r"[\\*?{}\[\]]")


def read(  # noqa: PLR0917 - the question, as in readers.scan
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

    Engine `jvm` hands the exact list of files to Spark's own vectorised Parquet reader, so that
    Spark prunes columns and pushes filters down by itself. It needs a store that the JVM reaches: a
    local path that every executor shares, or S3 with hadoop-aws, whose endpoint and credentials are
    the session's own (`spark.hadoop.fs.s3a.*`); `storage_options` serve the planning only. Engine
    `arrow` is the data source `eventlog`, which needs nothing but Python on the executors. `auto`
    is `jvm` where a local path or the s3a file system class allows it, else `arrow`; on Spark
    Connect, which shows no JVM, it is `arrow`. Both give the same rows, also under filters that are
    put on the DataFrame later; those on floats are not pushed into Parquet, which would lose -0.0,
    nor those on dates and instants that may lie before 1901, which would lose days of 1582.

    Args:
        spark: the session.
        uri: the table's root.
        columns: names of the columns wanted, in this order; all if None.
        where: SQL text or a pyarrow expression that rows have to pass; times without an offset are
            UTC whatever the session's zone. A pyarrow expression needs engine `arrow`.
        version: which version; the newest if neither this nor `timestamp` is given.
        timestamp: see `Table.snapshot`.
        engine: see above.
        storage_options: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong, or the engine cannot do it.
        NotFound: there is no such table or version, or it was given up.
        DataLoss: with engine `jvm`, a segment is missing or has another size than the log says.
            It compares no bytes (FORMAT.md R7.7); engine `arrow` compares all that it decodes.
    """
    if engine not in ("auto", "arrow", "jvm"):
        raise InvalidInput(f"engine is auto, arrow or jvm, not {engine!r}")
    table = Table.open(uri, storage_options)
    snapshot = kept_snapshot(table, version, timestamp)
    plan = plan_of(snapshot, columns=columns, where=where)
    obstacle = None if engine == "arrow" else _obstacle(spark, table.uri, plan, engine)
    if engine == "jvm" and obstacle is not None:
        raise InvalidInput(f"engine 'jvm' {obstacle}", table=table.uri)
    if engine == "arrow" or obstacle is not None:
        activate(spark)
        options = _options(plan, columns, where, storage_options or {})
        options["tableId"] = snapshot.header.table
        with explained():
            return spark.read.format("eventlog").options(**options).load(str(uri))
    # Spark reads what lies there: it knows nothing of the sizes in the log.
    check_sizes(table.store, plan.in_scan_order(), plan.version)
    return _through_jvm(spark, table.uri, plan, late_columns(snapshot, plan))


def activate(spark: SparkSession) -> None:
    """Make Spark find the data source `eventlog`, in this thread and in the driver's Python.

    PySpark makes a session the active one only in the thread that creates it: a job that saves from
    threads of its own calls this in each of them first. Workers are started with the `python3` of
    the path, whatever Python the driver is: a local session is given the driver's, unless
    PYSPARK_PYTHON names another. `read` calls this itself. On Spark Connect it does nothing.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is not None:
        jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - as PySpark does
        share_python(spark)


def _options(
    plan: ScanPlan,
    columns: Sequence[str] | None,
    where: Where | None,
    storage_options: Mapping[str, str],
) -> dict[str, str]:
    """Return the options of the data source that ask the same question."""
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
    # Before any filter, ours or one that the caller adds to the DataFrame.
    rows = rows.select(
        *[unpushed(kind.name, kind.type, late=kind.name in late) for kind in plan.table_schema]
    )
    condition = None if plan.filter is None else _condition(plan)
    if condition is not None:
        rows = rows.where(condition)
    return rows.select(*[field(name) for name in plan.schema.names])


def _obstacle(spark: SparkSession, root: str, plan: ScanPlan, engine: Engine) -> str | None:
    """Return why Spark's own Parquet reader cannot do it; None if it can."""
    path = _hadoop_root(root).partition(":")[2]
    if ":" in path and _PATTERN.search(path):
        return (
            "cannot read a root with a colon and one of * ? { } [ ] \\, which Hadoop takes for a "
            "pattern that it cannot match: use engine='arrow'"
        )
    if plan.predicate is not None and _condition(plan) is None:
        return "cannot evaluate this where as Arrow does: use engine='arrow'"
    exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    for column in () if exact else plan.table_schema:
        if (two := same_to_spark(column.type)) is not None:
            return (
                f"cannot read the fields {two[0]!r} and {two[1]!r} of {column.name!r}, which Spark "
                "takes for one: use engine='arrow'"
            )
    remote = not hasattr(spark, "_jvm")
    if root.startswith("file:"):
        return "is not chosen on Spark Connect by itself" if remote and engine == "auto" else None
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
    """Return the filter as Spark says it; None where it cannot."""
    found = plan.predicate
    return to_column(found.condition) if isinstance(found, SqlPredicate) else None


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's way to the JVM; Connect has none
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True


def _hadoop_root(root: str) -> str:
    """Return the root as Hadoop spells it, which decodes no percent signs.

    What would make it a pattern is escaped, so that it matches itself only. Spark's own way to say
    that paths are no patterns, the option `__globPaths__`, puts all paths in the place of each one
    that looks like a pattern.
    """
    if root.startswith("s3:"):
        found = f"s3a:{root.removeprefix('s3:')}"
    else:
        found = f"file://{unquote(urlsplit(root).path)}"
    return _PATTERN.sub(r"\\\g<0>", found)
