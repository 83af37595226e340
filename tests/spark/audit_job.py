"""An audit on a cluster one of whose executors is killed: run by test_cluster.py as a driver.

    python3 audit_job.py <master> <JSON of a table's root, storage options and a marker's path>

Prints the report as JSON, and whether it is that of one process.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
from cluster_job import SETTINGS
from pyspark.sql import SparkSession

from eventlog import Table
from eventlog.fsck.check import fsck
from eventlog.readers.spark import audits


class Killing(audits.SegmentTasks):
    """Kills the executor of one task, before it hands over what it saw."""

    marker = ""

    def seen(self, shares):
        begun = Path(self.marker)
        with begun.open("a") as file:
            file.write("begun\n")
        for batch in audits.SegmentTasks.seen(self, shares):
            with suppress(FileExistsError), begun.with_suffix(".killed").open("x"):
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            yield batch


def read_on(spark, tasks, segments, *, read=audits._read_on):
    return read(spark, Killing(tasks.store, tasks.problems), segments)


def main():
    master, given = sys.argv[1], json.loads(sys.argv[2])
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    Killing.marker, audits.SHARE_BYTES, audits._read_on = given["marker"], 1, read_on
    table = Table.open(given["uri"], storage_options=given["storage"])
    there = fsck(table, checksums=True, driver="spark")
    here = fsck(table, checksums=True)
    spark.stop()
    said = {"report": msgspec.to_builtins(there), "equal": here == there}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
