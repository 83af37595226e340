"""A streaming query that kills itself: run by test_stream_killed.py in a process of its own.

    python killed_stream.py <source> <target> <checkpoint> <point> <count>

It copies what is available from one table to another, a version to a batch, and dies with its
driver and its JVM when it comes to a point for the `count`-th time. The points: the source's
`latestOffset`, `partitions` and `commit`, which run in a Python process beside the driver; the sink
as a batch begins and ends (`save`, `saved`), and around the PUT of its commit (`before`, `after`).
"""

import os
import sys

from pyspark.sql import SparkSession
from spark.programs import around_commits, kill

import eventlog.writers.spark
from pyspark_eventlog import DefaultSource


class Killed(DefaultSource):
    """The data source, but the driver dies at a point of the reader."""

    @classmethod
    def name(cls):
        return "eventlog-killed"

    def __init__(self, options):
        super().__init__(options)
        self._plan = [self.options.pop(name) for name in ("point", "count", "driver")]

    def streamReader(self, schema):
        point, count, driver = self._plan[0], int(self._plan[1]), self._plan[2].split(",")
        driver = list(map(int, driver))
        reader = super().streamReader(schema)
        if hasattr(reader, point):
            setattr(reader, point, _dying(getattr(reader, point), count, driver))
        return reader


def _dying(method, count, driver):
    calls = iter(range(1, sys.maxsize))

    def call(start=None, *rest):
        if next(calls) == count:
            kill(*driver)
        # Spark 4.0 calls without arguments, later ones look at the number of parameters.
        return method() if start is None else method(start, *rest)

    return call


def main():
    source, target, checkpoint, point, count = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "1")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.dataSource.register(Killed)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    left = {point: int(count)}

    def at(here):
        left[here] = left.get(here, 0) - 1
        if left[here] == 0:
            kill(jvm)

    def save(batch, number):
        at("save")
        eventlog.writers.spark.append(target, batch, app_id="copy", app_seq=number)
        at("saved")

    around_commits(at)
    frame = (
        spark.readStream.format(Killed.name())
        .options(point=point, count=count, driver=f"{jvm},{os.getpid()}")
        .options(maxVersionsPerTrigger=1, startingVersion=0)
        .load(source)
    )
    query = (
        frame.writeStream.foreachBatch(save)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
