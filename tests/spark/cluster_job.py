"""A job on a cluster: run by test_cluster.py as a driver in a process of its own.

    python3 cluster_job.py <master> <JSON of places>

A place is a table's root and storage options. Prints what it found as JSON.
"""

import json
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from eventlog.readers.spark import read
from eventlog.readers.spark.workers import has_data_sources
from eventlog.writers.spark import append

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Both executors, before the first task.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


def whereabouts(batches):
    """Where each task runs: its worker's name, its folder, and whether it has AWS's environment."""
    for _ in batches:
        row = {
            "home": os.environ["HOME_OF"],
            "folder": os.getcwd(),  # noqa: PTH109 - as text
            "aws": any(name.startswith("AWS_") for name in os.environ),
        }
        yield pa.RecordBatch.from_pylist([row])


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def save_and_read(spark, uri, storage):
    """Write by both ways, and read by both and by both engines: the ids by the way."""
    times = "timestamp_seconds(1357516800 + id * 8640) as ts"
    rows = spark.range(0, 80, 1, 4).selectExpr("id", times, "concat('name-', id) as name")
    first = rows.where("id < 40")
    found = {"version": append(uri, first, time_column="ts", storage_options=storage)}
    rest = rows.where("id >= 40")
    options = {f"storage.{name}": value for name, value in storage.items()}
    if has_data_sources():
        rest.write.format("eventlog").mode("append").options(**options).save(uri)
        found["source"] = ids(spark.read.format("eventlog").options(**options).load(uri))
    else:
        append(uri, rest, storage_options=storage)
    # The JVM reaches S3 only with hadoop-aws.
    for engine in ("arrow", "jvm") if uri.startswith("file") else ("arrow",):
        found[engine] = ids(read(spark, uri, engine=engine, storage_options=storage))
        old = read(spark, uri, ["id"], "id < 15", 1, engine=engine, storage_options=storage)
        found[f"{engine}, version 1"] = ids(old)
    return found


def main():
    master, places = sys.argv[1], json.loads(sys.argv[2])
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    schema = "home string, folder string, aws boolean"
    tasks = spark.range(0, 8, 1, 8).mapInArrow(whereabouts, schema).distinct().collect()
    said = {"tasks": [row.asDict() for row in tasks]}
    said["places"] = {uri: save_and_read(spark, uri, storage) for uri, storage in places.items()}
    spark.stop()
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
