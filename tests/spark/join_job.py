"""Two streaming queries into one keyed table, which test_streaming_join.py stops and kills.

    python join_job.py <uri> <folder> <checkpoints> <side> <before|after|run> <batch>

Each query reads the files of its side, one a micro-batch, until all are read. The JVM, the driver's
Python and the committing process die around the PUT of one batch's commit, that of one side.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from spark.programs import dying_source

SIDES = ("gate", "delay")
TYPES = {"gate": "string", "delay": "bigint"}


def schema_of(side):
    """The columns that a side has of the table's."""
    return f"flight string, day timestamp, {side} {TYPES[side]}, {side}_seen bigint"


def start(spark, uri, side, places, source="eventlog", **options):
    """Start the query of one side; `places` has the folder of files and that of checkpoints."""
    files, checkpoints = places
    stream = spark.readStream.schema(schema_of(side)).option("maxFilesPerTrigger", 1)
    return (
        stream.json(str(Path(files) / side))
        .writeStream.format(source)
        .option("checkpointLocation", str(Path(checkpoints) / side))
        .options(**{"merge": "partial"} | options)
        .trigger(availableNow=True)
        .start(uri)
    )


def main():
    uri, files, checkpoints, dying, when, batch = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "OFF").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    source = dying_source()
    spark.dataSource.register(source)
    death = {"dies": when, "batch": batch, "pids": f"{jvm},{os.getpid()}"}
    queries = [
        start(spark, uri, side, (files, checkpoints), source.name(), **death)
        if side == dying and when != "run"
        else start(spark, uri, side, (files, checkpoints))
        for side in SIDES
    ]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
