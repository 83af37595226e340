"""Which engine reads a version: Spark's own Parquet reader in the JVM, or pyarrow in Python.

Imports eventlog and pyspark (extra `spark`). The facts about a session are gathered into `Facts`,
and the decision is a function of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eventlog.errors import InvalidInput
from eventlog.quantities import count_text
from eventlog.readers.engines.file_list import by_place
from eventlog.readers.spark.jvm import obstacle
from eventlog.readers.spark.workers import has_data_sources
from eventlog.state.scan import ScanPlan
from eventlog.store.options import parse_options

Engine = Literal["auto", "arrow", "jvm"]

# The JVM sends six requests for each file on S3, where pyarrow sends one for a small file. With
# more files than MANY, and smaller ones than SMALL on average, that costs more than it saves.
MANY, SMALL = 64, 4 * 2**20

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine that reads a version.

    Attributes:
        engine: `jvm` or `arrow`.
        reason: why, in words.
    """

    engine: Literal["jvm", "arrow"]
    reason: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the choice depends on.

    Attributes:
        scheme: of the table's root: `s3`, `file` or another one.
        obstacle: why Spark cannot read this version's files; None if it can.
        remote: whether the session is one of Spark Connect.
        s3a: whether the s3a file system is present; None if that is not known.
        unknown_to_jvm: the setting that leads eventlog, but not the JVM, to the store.
        files: number of segments to read that are files.
        bytes: their size.
        inline: number of segments to read that stand in commits, which engine `arrow` reads.
    """

    scheme: str
    obstacle: str | None = None
    remote: bool = False
    s3a: bool | None = None
    unknown_to_jvm: str | None = None
    files: int = 0
    bytes: int = 0
    inline: int = 0


def decide(facts: Facts) -> Choice:
    """Return the engine for `auto`."""
    if facts.obstacle is not None:
        return Choice("arrow", f"engine 'jvm' {facts.obstacle}")
    if facts.scheme not in ("file", "s3"):
        return Choice("arrow", f"the JVM cannot read {facts.scheme} locations")
    if facts.remote:
        return Choice("arrow", "Spark Connect does not show whether the JVM reaches the store")
    if facts.scheme == "s3" and not facts.s3a:
        return Choice("arrow", "the session has no s3a file system (hadoop-aws)")
    if facts.unknown_to_jvm is not None:
        return Choice("arrow", f"the session's spark.hadoop.fs.s3a.* lack {facts.unknown_to_jvm}")
    if facts.inline and facts.bytes < SMALL:
        # Tasks in Python are needed for these: they read little more on the way.
        inline = count_text(facts.inline, "small segment")
        return Choice("arrow", f"the rows of {inline} stand in commits, and few are in files")
    if facts.scheme == "file":
        return Choice("jvm", "Spark's own Parquet reader is the faster one for local files")
    if facts.files > MANY and facts.bytes < facts.files * SMALL:
        files = count_text(facts.files, "small segment")
        return Choice("arrow", f"the JVM sends six requests for each of {files}")
    return Choice("jvm", "Spark's own Parquet reader is the faster one for these segments")


def jvm_refusal(facts: Facts) -> str | None:
    """Return why engine `jvm` cannot be used, in words that follow its name; None if it can."""
    if facts.obstacle is not None:
        return f"{facts.obstacle}: use engine='arrow'"
    if facts.scheme not in ("file", "s3"):
        return f"cannot read {facts.scheme} locations: use engine='arrow'"
    if facts.scheme == "s3" and facts.s3a is False:
        return (
            "needs the s3a file system: start Spark with spark.jars.packages="
            "org.apache.hadoop:hadoop-aws:<the version of Spark's Hadoop>, or use engine='arrow'"
        )
    if facts.inline and facts.remote and not has_data_sources():
        inline = count_text(facts.inline, "small segment")
        return (
            f"finds no files of the rows of {inline}, which stand in commits, and on Spark Connect "
            "only Spark 4.0 and later reads these: connect to a newer server, read with "
            "eventlog.readers.scan, or run `eventlog compact`, which joins several of a time chunk "
            "into a file; new rows are in files where the table has inline_bytes=0"
        )
    return None


def gather_facts(
    spark: SparkSession, root: str, plan: ScanPlan, storage_options: Mapping[str, str] | None
) -> Facts:
    """Return the facts about a session, a table and a plan. No requests."""
    scheme = root.partition(":")[0]
    remote = not hasattr(spark, "_jvm")
    files, inline = by_place(plan)
    s3a = _has_class(spark, _S3A) if scheme == "s3" and not remote else None
    return Facts(
        scheme=scheme,
        obstacle=obstacle(spark, root, files),
        remote=remote,
        s3a=s3a,
        unknown_to_jvm=_unknown_to_jvm(spark, storage_options) if s3a else None,
        files=files.entries.num_rows,
        bytes=pc.sum(files.entries.column("bytes")).as_py() or 0,
        inline=inline.entries.num_rows,
    )


def check_engine(engine: Engine) -> None:
    """Check the name of an engine.

    Raises:
        InvalidInput: it is none.
    """
    if engine not in ("auto", "arrow", "jvm"):
        raise InvalidInput(f"engine is auto, arrow or jvm, not {engine!r}")


def _unknown_to_jvm(spark: SparkSession, storage_options: Mapping[str, str] | None) -> str | None:
    """Return a setting that leads eventlog to the store and that s3a lacks, or None."""
    options = parse_options(storage_options)
    endpoint = (
        options.endpoint_url
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
    )
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as PySpark does
    if endpoint and not settings.get("fs.s3a.endpoint"):
        return "the endpoint (fs.s3a.endpoint)"
    key = settings.get("fs.s3a.access.key")
    if options.access_key_id:
        known = key == options.access_key_id
    else:  # the JVM does not read the profiles of AWS's own tools
        known = options.profile is None or bool(key)
    if not known and _is_default(settings, "fs.s3a.aws.credentials.provider"):
        return "the credentials of storage_options (fs.s3a.access.key, fs.s3a.secret.key)"
    return None


def _is_default(settings: Any, name: str) -> bool:
    """Return whether a setting of Hadoop comes from its own files, not from the session."""
    sources = settings.getPropertySources(name) or ()
    return all(str(source).endswith("-default.xml") for source in sources)


def _has_class(spark: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # noqa: PLC0415 - absent from the client of Spark Connect

    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's way to the JVM; Connect has none
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True
