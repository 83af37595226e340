"""Long work on a cluster one of whose executors is killed: run by test_cluster.py as a driver.

    python3 executors_job.py <master> <JSON of storage options, roots, and a folder for marks>

Audits, copies and publishes; an executor is killed during each. Prints the report of the audit as
JSON, whether it is that of one process, and what the copies and publications returned.
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
from eventlog.publishing import publish
from eventlog.readers.spark import executors
from eventlog.replication import backfill, follow


class Killing:
    """Work that kills the executor of one task, before it hands over its answers."""

    def __init__(self, work, marker):
        self.work, self.marker = work, marker

    def __call__(self, share):
        begun = Path(self.marker)
        with begun.open("a") as file:
            file.write("begun\n")
        answers = [*self.work(share)]
        with suppress(FileExistsError), begun.with_suffix(".killed").open("x"):
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        return answers


def main():
    master, given = sys.argv[1], json.loads(sys.argv[2])
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    marker = ""

    def run_tasks(session, work, shares, *, run=executors.run_tasks):
        return run(session, Killing(work, marker), shares)

    executors.SHARE_BYTES, executors.run_tasks = 1, run_tasks
    storage, folder = given["storage"], Path(given["folder"])
    plain = Table.open(given["plain"], storage_options=storage)
    keyed = Table.open(given["keyed"], storage_options=storage)
    marker = str(folder / "audit")
    there = fsck(plain, checksums=True, driver="spark")
    said = {"report": msgspec.to_builtins(there), "equal": there == fsck(plain, checksums=True)}
    options = {"target_options": storage, "driver": "spark"}
    marker = str(folder / "copy")
    said["copied"] = follow(keyed, given["copy"], start="keyframe", **options).versions
    marker = str(folder / "backfill")
    said["filled"] = backfill(keyed, given["copy"], **options).versions
    for name in ("delta", "iceberg"):
        marker = str(folder / name)
        said[name] = publish(keyed, name, driver="spark").last
    spark.stop()
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
