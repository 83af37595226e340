"""A streaming query in a process of its own, which test_stream_sink.py kills.

    python stream_job.py <uri> <folder> <checkpoint> <before|after|run>

It reads the folder's files one a micro-batch. `before` and `after` kill the JVM, the driver's
Python and the committing process around the PUT of the second batch's commit; `run` ends when the
folder is read.
"""

import os
import signal
import sys

from pyspark.sql import SparkSession

from eventlog.format.keys import parse_log_key
from eventlog.store.local import LocalStore
from eventlog.store.s3.adapter import S3Store
from pyspark_eventlog import DefaultSource

SCHEMA = "id bigint, ts timestamp, name string"


def read_stream(spark, folder):
    """The rows of a folder of JSON files, one file a micro-batch; negative ids are left out."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return files.json(str(folder)).where("id >= 0")


class Dying(DefaultSource):
    """The data source, but processes are killed around the commit of one batch.

    Options: `dies` is `before` or `after` the PUT, `batch` the batch's number, and `pids` are
    processes that die with the one that commits.
    """

    @classmethod
    def name(cls):
        return "eventlog-dying-stream"

    def streamWriter(self, schema, overwrite):
        when, batch = self.options.pop("dies"), int(self.options.pop("batch"))
        pids = [int(pid) for pid in self.options.pop("pids", "").split(",") if pid]
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def dying_commit(messages, batch_id):
            if batch_id == batch:
                for store in (S3Store, LocalStore):
                    _die_at_the_slot(store, when, pids)
            commit(messages, batch_id)

        writer.commit = dying_commit
        return writer


def _die_at_the_slot(store, when, pids):
    put_if_absent = store.put_if_absent

    def die():
        for pid in (*pids, os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def put(self, key, body):
        slot = parse_log_key(key) is not None
        if slot and when == "before":
            die()
        created = put_if_absent(self, key, body)
        if slot:
            die()
        return created

    store.put_if_absent = put


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
        spark.dataSource.register(Dying)
        stream = stream.format(Dying.name()).options(
            dies=when, batch=1, pids=f"{jvm},{os.getpid()}"
        )
    query = stream.option("timeColumn", "ts").trigger(availableNow=True).start(uri)
    query.awaitTermination()


if __name__ == "__main__":
    main()
