"""Streams of a client of Spark Connect: run by test_connect.py in a process of its own.

    python connect_stream_job.py <sc://…> <JSON of queries> [light]

Runs one query after the other, each until it has read what there is. Prints what became of them.
See connect_job.py for `light`.
"""

import sys

from spark.connect_job import client

SCHEMA = "id bigint, ts timestamp, name string"


def rows_of(spark, source, storage):
    """The rows of a folder of JSON files, one file a micro-batch, or of a table."""
    if "files" in source:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return files.json(source["files"])
    return spark.readStream.format("eventlog").options(**storage).load(source["table"])


def saving(uri, storage_options, lost):
    """A function for foreachBatch. Its first batch is committed, but Spark does not hear of it."""

    # The server's Python runs this: it has what the client sends, and what it imports itself.
    def save(batch, number):
        from pathlib import Path  # noqa: PLC0415

        from eventlog.writers.spark import append  # noqa: PLC0415

        once = {"app_id": "checkpoint-1", "app_seq": number}
        append(uri, batch, time_column="ts", storage_options=storage_options, **once)
        if not Path(lost).exists():
            Path(lost).touch()
            raise ConnectionError("lost after the commit")

    return save


def run(spark, source, sink, checkpoint, *, trigger, storage, options):
    """Run a query; return its id, the number of rows that it read, and the error that ended it."""
    named = {f"storage.{name}": value for name, value in storage.items()}
    stream = rows_of(spark, source, named | options).writeStream
    stream = stream.option("checkpointLocation", checkpoint).trigger(**trigger)
    if "lost" in sink:
        query = stream.foreachBatch(saving(sink["table"], storage, sink["lost"])).start()
    else:
        stream = stream.format("eventlog").option("timeColumn", "ts").options(**named)
        query = stream.start(sink["table"])
    error = None
    try:
        if "availableNow" in trigger:
            query.awaitTermination()
        else:
            query.processAllAvailable()
    except Exception as ended:  # noqa: BLE001 - the test looks at it
        error = f"{type(ended).__name__}: {ended}"
    finally:
        query.stop()
    rows = sum(batch.numInputRows for batch in query.recentProgress)
    return {"id": str(query.id), "rows": rows, "error": error}


def main():
    with client() as (spark, queries, said):
        said["queries"] = [run(spark, **query) for query in queries]
        said["eventlog"] = "eventlog" in sys.modules


if __name__ == "__main__":
    main()
