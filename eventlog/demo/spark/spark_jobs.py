"""The Spark side of the demo: a quiet local session, and concurrent jobs.

Needs the extra `spark` and Java 17 or newer.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eventlog.demo.surroundings import Terminal, counted
from eventlog.errors import EventLogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFIGURATION = {
    # The demo is too short for the optimizing compiler to pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""
_TAIL_LINES = 15


def check_java() -> None:
    """Check that Java is installed.

    Raises:
        EventLogError: it is not; the message says what to run.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise EventLogError(
            "the demo's Spark jobs need Java 17 or newer, and none was found: put it on PATH or "
            "in JAVA_HOME (from a clone `make setup` installs it or says how), or run `eventlog "
            "demo` without Spark"
        )


@contextmanager
def quiet_session(folder: Path, terminal: Terminal | None = None) -> Iterator[SparkSession]:
    """Yield a quiet `local[2]` session, whose output goes to `folder`/spark.log.

    Its Python workers get the current environment.

    Args:
        folder: for logs and temporary files.
        terminal: shows that Spark starts.

    Raises:
        EventLogError: PySpark is missing, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise EventLogError(
            "the demo needs PySpark: pip install 'eventlog-tables[demo,spark]'"
        ) from None
    (folder / "log4j2.properties").write_text(_LOGGING)
    os.environ |= {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    log = folder / "spark.log"
    builder = SparkSession.builder.master("local[2]").appName("eventlog demo")
    for name, value in _CONFIGURATION.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder)).config(
        "spark.sql.warehouse.dir", str(folder / "warehouse")
    )
    with _stderr_to(log):
        # The Python side of Spark also logs every failed query that it raises.
        # The bar replaces `sys.stderr` while it is shown, and so must not outlast the line above.
        with counted(terminal, "starting Spark", 1) as done:
            spark = _start(builder, log)
            done()
        try:
            yield spark
        finally:
            spark.stop()


def append_at_once(
    spark: SparkSession, feeds: Mapping[str, pa.Table], uri: str, done: Callable[[], None]
) -> None:
    """Append every feed with a Spark job of its own, all concurrently.

    Args:
        spark: the session.
        feeds: rows by the name of the job, which becomes its app id.
        uri: the table.
        done: called when a job has ended.
    """

    def run(name: str) -> None:
        # createDataFrame makes the session the active one of this new thread. Without an active
        # session Spark does not find data sources written in Python.
        rows = spark.createDataFrame(feeds[name]).coalesce(1)
        job = rows.write.format("eventlog").mode("append")
        job.option("appId", f"feed {name}").option("appSeq", "1").save(uri)
        done()

    with ThreadPoolExecutor(len(feeds)) as pool:
        for job in [pool.submit(run, name) for name in feeds]:
            job.result()


def append_late(
    spark: SparkSession,
    late: Sequence[Iterable[pa.Table]],
    uri: str,
    *,
    done: Callable[[], None],
    options: Mapping[str, str] | None = None,
) -> list[Future[int]]:
    """Start appending the batches of each late feed, the feeds concurrently.

    Each batch is a Spark job of its own; the batches of a feed are appended in order. Into a table
    with a key they are upserted.

    Args:
        spark: the session.
        late: the batches of each feed.
        uri: the table.
        done: called when a batch was appended.
        options: more options of the data source.

    Returns:
        For each feed a future with the number of its appends.
    """

    def run(name: str, batches: Iterable[pa.Table]) -> int:
        number = 0
        for number, batch in enumerate(batches, 1):
            rows = spark.createDataFrame(batch).coalesce(1)
            job = rows.write.format("eventlog").mode("append")
            job = job.options(**(options or {}))
            job.option("appId", name).option("appSeq", str(number)).save(uri)
            done()
        return number

    pool = ThreadPoolExecutor(len(late))
    running = [pool.submit(run, f"late {at}", batches) for at, batches in enumerate(late, 1)]
    pool.shutdown(wait=False)
    return running


def mean_delays(spark: SparkSession, uri: str, where: str, version: int) -> dict[str, object]:
    """Return the number of flights and the mean departure delay by origin, read by Spark."""
    from pyspark.sql import functions  # noqa: PLC0415 - the extra may be missing

    rows = (
        spark.read.format("eventlog")
        .option("version", str(version))
        .option("where", where)
        .option("columns", "origin,dep_delay")
        .load(uri)
    )
    grouped = rows.groupBy("origin").agg(
        functions.count("*").alias("flights"), functions.avg("dep_delay").alias("delay")
    )
    delays = {row["origin"]: (row["flights"], row["delay"]) for row in grouped.collect()}
    return dict(sorted(delays.items()))


def _start(builder: SparkSession.Builder, log: Path) -> SparkSession:
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        raise EventLogError(
            f"Spark does not start: {error}. Its last output: {' | '.join(lines)}. `make setup` "
            "checks what it needs"
        ) from error
    return spark


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect file descriptor 2, to which Spark's JVM writes, into a file.

    Output that Python itself writes to `sys.stderr` still reaches the terminal.
    """
    kept, python_stderr = os.dup(2), sys.stderr
    with log.open("ab") as file, os.fdopen(os.dup(kept), "w", buffering=1) as terminal:
        os.dup2(file.fileno(), 2)
        sys.stderr = terminal
        try:
            yield
        finally:
            sys.stderr = python_stderr
            os.dup2(kept, 2)
            os.close(kept)
