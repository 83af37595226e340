"""One Spark session that upserts: `upsert_job.py PLAN`, a line of JSON for each step.

After each line it waits for one on its standard input, so that the caller can ask the server for
its counts.
"""

# ruff: noqa: PLC0415 - what is measured is imported where it is used
import json
import os
import sys
import time
from pathlib import Path

from harness import split_cpu_s
from upsert_systems import SUMMED, SYSTEMS

SUMS = 3  # of each state


def main():
    plan = json.loads(sys.argv[1])
    system = SYSTEMS[plan["system"]](Path(plan["folder"]))
    spark = session(system, Path(plan["folder"]))
    try:
        _run(spark, system, plan)
        tell("end")
    finally:
        spark.stop()


def session(system, folder):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **system.conf(),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _run(spark, system, plan):
    """Warm up in a small table, then measure in the large one."""

    def rows(folder):
        # Rows that a job made or read elsewhere, not to be read again while they are merged.
        frame = spark.read.parquet(folder).persist()
        frame.count()
        return frame

    small = rows(plan["small"])
    system.create(spark, small, "small")
    for _ in range(2):
        system.upsert(spark, small.where("flight % 7 = 1"), "small")
        _sum(system, spark, "small")
    updates = [rows(folder) for folder in plan["updates"]]
    tell("start", version=spark.version)
    measure("create", lambda: system.create(spark, spark.read.parquet(plan["rows"]), "flights"))
    for number in range(len(updates) + 1):
        if number:
            measure("upsert", lambda: system.upsert(spark, updates[number - 1], "flights"))  # noqa: B023
        for _ in range(SUMS):
            measure("sum", lambda: {"sums": _sum(system, spark, "flights")}, number=number)


def _sum(system, spark, name):
    from pyspark.sql import functions as F  # noqa: N812

    frame = system.read(spark, name, SUMMED)
    (row,) = frame.agg(*(F.sum(column) for column in SUMMED)).collect()
    return list(row)


def measure(step, action, **more):
    before, start = sum(split_cpu_s(os.getpid())), time.monotonic()
    told = action() or {}
    seconds = time.monotonic() - start
    tell(step, cpu_s=sum(split_cpu_s(os.getpid())) - before, seconds=seconds, **more, **told)


def tell(step, **more):
    print(json.dumps({"step": step, **more}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
