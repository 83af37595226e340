"""One Spark session that changes rows: `spark_changes_job.py PLAN`, a line of JSON for each step.

The plan names the system, the folder of the rows and how many there are. Each step that changes
rows is done in a small table first, so that the session is warm, then once in the large one.
"""

# ruff: noqa: PLC0415 - what is measured is imported where it is used
import json
import os
import sys
from pathlib import Path

import upsert_systems
from peers import TIME
from upsert_job import measure, session, tell

READS = 3  # of each state


class Eventlog(upsert_systems.Eventlog):
    """A table without a key, by the hour."""

    def create(self, spark, rows, name):
        from eventlog.writers.spark import append

        append(self.root(name), rows, time_column=TIME, granularity="hour")

    def delete(self, spark, name, where):
        from eventlog.writers.spark import delete

        delete(self.root(name), spark, where=where)

    def update(self, spark, name):
        from eventlog.writers.spark import update

        update(self.root(name), spark, {"value": "value + 1"}, "mark = 2")

    def read(self, spark, name):
        from eventlog.readers.spark import read

        return read(spark, self.root(name))


class Delta(upsert_systems.Delta):
    """By the hour, with deletion vectors."""

    def create(self, spark, rows, name):
        rows.repartition("hour").write.format("delta").partitionBy("hour").save(self.root(name))

    def delete(self, spark, name, where):
        spark.sql(f"DELETE FROM delta.`{self.root(name)}` WHERE {where}")

    def update(self, spark, name):
        spark.sql(f"UPDATE delta.`{self.root(name)}` SET value = value + 1 WHERE mark = 2")

    def read(self, spark, name):
        return spark.read.format("delta").load(self.root(name))


class Iceberg(upsert_systems.Iceberg):
    """By the hour, format 3 (deletion vectors), merge on read."""

    version = 3

    def create(self, spark, rows, name):
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
        rows.createOrReplaceTempView("first_rows")
        modes = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("delete", "update"))
        spark.sql(
            f"CREATE TABLE ice.db.{name} USING iceberg PARTITIONED BY (hour) TBLPROPERTIES "
            f"('format-version'='{self.version}', {modes}) AS SELECT * FROM first_rows"
        )

    def delete(self, spark, name, where):
        spark.sql(f"DELETE FROM ice.db.{name} WHERE {where}")

    def update(self, spark, name):
        spark.sql(f"UPDATE ice.db.{name} SET value = value + 1 WHERE mark = 2")

    def read(self, spark, name):
        return spark.table(f"ice.db.{name}")


class Iceberg2(Iceberg):
    """The same in format 2: files of deleted positions."""

    version = 2


SYSTEMS = {
    "eventlog": Eventlog,
    "Delta Lake": Delta,
    "Iceberg, format 3": Iceberg,
    "Iceberg, format 2": Iceberg2,
}


def main():
    plan = json.loads(sys.argv[1])
    folder = Path(plan["folder"])
    system = SYSTEMS[plan["system"]](folder)
    spark = session(system, folder)
    try:
        system.create(spark, spark.read.parquet(plan["rows"]).where("hour < 20"), "small")
        system.delete(spark, "small", "mark = 1")
        _sums(system, spark, "small")
        system.update(spark, "small")
        system.delete(spark, "small", "hour < 10")
        tell("start", version=spark.version)
        rows = spark.read.parquet(plan["rows"])
        measure("create", lambda: system.create(spark, rows, "large"))
        _read(system, spark, "scan before")
        measure("delete", lambda: system.delete(spark, "large", "mark = 1"))
        _read(system, spark, "scan after")
        measure("update", lambda: system.update(spark, "large"))
        measure("delete of files", lambda: system.delete(spark, "large", f"hour < {plan['half']}"))
        _read(system, spark, "scan at the end", times=1)
        tell("end")
    finally:
        spark.stop()


def _read(system, spark, step, times=READS):
    for _ in range(times):
        measure(step, lambda: {"sums": _sums(system, spark, "large")})


def _sums(system, spark, name):
    """Read all columns of all rows; return their number, and sums of two columns."""
    from pyspark.sql import functions as F  # noqa: N812

    row = (
        system.read(spark, name)
        .agg(F.count("*"), F.sum("value"), F.sum("id"), F.max("name"), F.max(TIME))
        .collect()[0]
    )
    return [row[0], row[1], row[2]]


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
