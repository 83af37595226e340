"""Reads through Spark's own vectorised Parquet reader, with exactly the rows that Arrow returns.

Imports eventlog and pyspark (extra `spark`). It is given the exact list of files of a version. Rows
that stand in commits are in no file: `eventlog.readers.spark.read` adds them by engine `arrow`.
"""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession

from eventlog.format import keys
from eventlog.query.predicate import SqlPredicate
from eventlog.readers.engines.file_list import files_mislead, is_renamed
from eventlog.readers.spark.jvm.filters import field, same_to_spark, to_column, unpushed
from eventlog.readers.spark.types import to_spark
from eventlog.state.scan import ScanPlan
from eventlog.store.branching.roots import root_of
from eventlog.store.port import ObjectStore

# The JVM must read all files of the version or fail, never skip one.
_PARQUET_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# The characters that make Hadoop treat a path as a pattern (`SparkHadoopUtil.isGlobPath`).
_PATTERN = re.compile(r"[\\*?{}\[\]]")


def through_jvm(
    spark: SparkSession, store: ObjectStore, plan: ScanPlan, late: frozenset[str]
) -> DataFrame:
    """Return the rows of a plan.

    Args:
        spark: the session.
        store: of the table. A branch has segments under several roots.
        plan: the segments to read, all of them files, and the filter.
        late: the columns of dates and instants known to have no value before 1901; see `lateness`.
    """
    schema = to_spark(plan.table_schema)
    segments = plan.in_scan_order()
    if segments:
        base = cache(hadoop_root)
        named = [keys.key_of(segment) for segment in segments]
        paths = [f"{base(root_of(store, key))}/{key}" for key in named]
        rows = spark.read.schema(schema).options(**_PARQUET_OPTIONS).parquet(*paths)
    else:
        rows = spark.createDataFrame([], schema)
    # Before any filter, including those that the caller adds to the DataFrame.
    rows = rows.select(
        *[unpushed(kind.name, kind.type, late=kind.name in late) for kind in plan.table_schema]
    )
    condition = None if plan.filter is None else condition_of(plan)
    if condition is not None:
        rows = rows.where(condition)
    return rows.select(*[field(name) for name in plan.schema.names])


def obstacle(spark: SparkSession, root: str, plan: ScanPlan) -> str | None:
    """Return why Spark's own Parquet reader would not return exactly these rows.

    Args:
        spark: the session.
        root: the table's root.
        plan: the segments that are files (`by_place`).
    """
    if (why := files_mislead(plan)) is not None:
        return why
    if is_renamed(plan):
        return "finds columns by name, and some were renamed, dropped, widened or have a default"
    path = hadoop_root(root).partition(":")[2]
    if ":" in path and _PATTERN.search(path):
        return (
            "cannot read a root with a colon and one of * ? { } [ ] \\, which Hadoop treats as a "
            "pattern that it cannot match"
        )
    if plan.predicate is not None and condition_of(plan) is None:
        return "cannot evaluate this where as Arrow does"
    exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    for column in () if exact else plan.table_schema:
        if (two := same_to_spark(column.type)) is not None:
            return (
                f"cannot read the fields {two[0]!r} and {two[1]!r} of {column.name!r}, which Spark "
                "treats as one"
            )
    return None


def condition_of(plan: ScanPlan) -> Column | None:
    """Return the filter as a Spark column; None if Spark cannot evaluate it."""
    predicate = plan.predicate
    return to_column(predicate.condition) if isinstance(predicate, SqlPredicate) else None


def hadoop_root(root: str) -> str:
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
