"""A Spark job that kills its own commit: run by test_driver_killed.py in a process of its own.

    python killed_job.py <uri> <before|after> <source|functions>

The moment is right before, or right after, the PUT of the log's slot. Functions commit in the
driver. The data source commits in a Python process beside it, so that the moment is chosen there:
the driver's Python and its JVM die with it.
"""

import os
import sys

from pyspark.sql import SparkSession
from spark.programs import die_at_commit, dying_source

from eventlog.writers.spark import append


def main():
    uri, when, way = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    times = "timestamp_seconds(1357516800 + id * 8640) as ts"
    rows = spark.range(0, 40, 1, 2).selectExpr("id", times, "concat('name-', id) as name")
    if way == "functions":
        die_at_commit(when, jvm)
        append(uri, rows, app_id="job", app_seq=1)
    source = dying_source()
    spark.dataSource.register(source)
    rows.write.format(source.name()).mode("append").options(
        timeColumn="ts", appId="job", appSeq="1", dies=when, pids=f"{jvm},{os.getpid()}"
    ).save(uri)


if __name__ == "__main__":
    main()
