"""A streaming query in a process of its own, which test_stream_sink.py kills.

    python stream_job.py <uri> <folder> <checkpoint> <before|after|run>

It reads the folder's files one a micro-batch. `before` and `after` kill the JVM, the driver's
Python and the committing process around the PUT of the second batch's commit; `run` ends when the
folder is read.
"""

import os
import sys

from pyspark.sql import SparkSession
from spark.programs import dying_source

SCHEMA = "id bigint, ts timestamp, name string"


def read_stream(spark, folder):
    """The rows of a folder of JSON files, one file a micro-batch; negative ids are left out."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return files.json(str(folder)).where("id >= 0")


def main():
    uri, folder, checkpoint, when = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "OFF")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    stream = read_stream(spark, folder).writeStream.option("checkpointLocation", checkpoint)
    if when == "run":
        stream = stream.format("eventlog")
    else:
        source = dying_source()
        spark.dataSource.register(source)
        stream = stream.format(source.name()).options(
            dies=when, batch=1, pids=f"{jvm},{os.getpid()}"
        )
    query = stream.option("timeColumn", "ts").trigger(availableNow=True).start(uri)
    query.awaitTermination()


if __name__ == "__main__":
    main()
