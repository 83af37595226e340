"""A Spark job that kills its own commit: run by test_driver_killed.py in a process of its own.

    python killed_job.py <uri> <before|after> <source|functions>

The moment is right before, or right after, the PUT of the log's slot. Functions commit in the
driver. The data source commits in a Python process beside it, so that the moment is chosen there:
the driver's Python and its JVM die with it.
"""

import os
import signal
import sys

from pyspark.sql import SparkSession

from eventlog.format.keys import parse_log_key
from eventlog.store.local import LocalStore
from eventlog.store.s3.adapter import S3Store
from eventlog.writers.spark import append


def killed_source():
    """The data source, but the driver dies around the commit."""
    from pyspark_eventlog import DefaultSource  # noqa: PLC0415 - Spark 3.5 has none

    class Killed(DefaultSource):
        @classmethod
        def name(cls):
            return "eventlog-killed"

        def writer(self, schema, overwrite):
            when = self.options.pop("when")
            driver = [int(pid) for pid in self.options.pop("driver").split(",")]
            writer = super().writer(schema, overwrite)
            commit = writer.commit

            def dying_commit(messages):
                kill_at_commit(when, driver)
                commit(messages)

            writer.commit = dying_commit
            return writer

    return Killed


def kill_at_commit(when, driver):
    for store in (S3Store, LocalStore):
        _kill_at_put(store, when, driver)


def _kill_at_put(store, when, driver):
    put_if_absent = store.put_if_absent

    def put(self, key, body):
        commit = parse_log_key(key) is not None
        if commit and when == "before":
            _kill(driver)
        created = put_if_absent(self, key, body)
        if commit and when == "after":
            _kill(driver)
        return created

    store.put_if_absent = put


def _kill(driver):
    for pid in (*driver, os.getpid()):
        os.kill(pid, signal.SIGKILL)


def main():
    uri, when, way = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    times = "timestamp_seconds(1357516800 + id * 8640) as ts"
    rows = spark.range(0, 40, 1, 2).selectExpr("id", times, "concat('name-', id) as name")
    if way == "functions":
        kill_at_commit(when, [jvm])
        append(rows, uri, app_id="job", app_seq=1)
    killed = killed_source()
    spark.dataSource.register(killed)
    rows.write.format(killed.name()).mode("append").options(
        timeColumn="ts", appId="job", appSeq="1", when=when, driver=f"{jvm},{os.getpid()}"
    ).save(uri)


if __name__ == "__main__":
    main()
