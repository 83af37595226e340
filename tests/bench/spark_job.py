"""The Spark session under measurement: `spark_job.py FOLDER ROWS ROUNDS SECONDS`.

Engines take turns in one session; the first round warms the JVM and is not counted. CPU is that of
this process, the JVM and all Python workers, those that ended included.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import json
import os
import shutil
import sys
import time
from pathlib import Path

from harness import tree_cpu_s

COUNTRIES = ("AT", "CH", "DE", "ES", "FR", "GB", "IT", "US")


def main():
    folder, rows, rounds, seconds = sys.argv[1:5]
    folder, rows, rounds = Path(folder), int(rows), int(rounds)
    ends = time.monotonic() + float(seconds)
    spark = _session(folder)
    told = {"cpu_s": {}, "failed": {}, "stopped": ""}
    try:
        source = _source(spark, folder, rows)
        for number in range(rounds + 1):
            if number > 1 and time.monotonic() + _last(told) > ends:
                told["stopped"] = f"{number - 1} rounds"
                break
            _round(spark, source, folder, rows, number, told)
    finally:
        spark.stop()
    print(json.dumps(told))


def _session(folder):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def _source(spark, folder, rows):
    """Lay the rows down as Parquet once, so that every write reads the same cheap source."""
    from pyspark.sql import functions as F  # noqa: N812

    path = str(folder / "source")
    number = F.col("id")
    (
        spark.range(0, rows, numPartitions=4)
        .select(
            F.timestamp_micros(1_704_067_200_000_000 + number * 500_000).alias("t"),
            number,
            (F.hash(number) % 1_000_000).cast("long").alias("user"),
            F.concat(F.lit("kind "), (number % 20).cast("string")).alias("kind"),
            F.element_at(F.array(*map(F.lit, COUNTRIES)), (number % len(COUNTRIES) + 1).cast("int"))
            .alias("country"),
            (F.xxhash64(number) / 1e18).alias("amount"),
            F.rand(7).alias("score"),
            (number % 1000).cast("int").alias("count"),
        )
        .write.parquet(path)
    )  # fmt: skip
    return spark.read.parquet(path)


def _round(spark, source, folder, rows, number, told):  # noqa: PLR0917 - one round's all
    own, plain = folder / f"eventlog-{number}", folder / f"parquet-{number}"

    def measure(question, engine, action):
        if engine in told["failed"]:
            return
        start, wall = tree_cpu_s(os.getpid()), time.monotonic()
        try:
            action()
        except Exception as error:
            told["failed"][engine] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return
        spent = tree_cpu_s(os.getpid()) - start
        told["wall_s"] = told.get("wall_s", 0) + time.monotonic() - wall
        if number:
            told["cpu_s"].setdefault(question, {}).setdefault(engine, []).append(spent)

    def write():
        writer = source.write.format("eventlog").mode("append")
        writer.option("timeColumn", "t").option("granularity", "day").save(str(own))

    measure("write", "parquet", lambda: source.write.parquet(str(plain)))
    measure("write", "arrow", write)
    for question in ("read all", "sum of 2 columns", "selective filter", "count"):
        for engine in ("parquet", "arrow", "jvm"):
            measure(question, engine, _ask(spark, own, plain, question, engine, rows))
    told["rounds"] = number + 1
    for folder_ in (own, plain):
        shutil.rmtree(folder_, ignore_errors=True)


def _last(told):
    """Return what a round takes, to decide whether another fits."""
    return told.get("wall_s", 0) / max(1, told.get("rounds", 1))


def _ask(spark, own, plain, question, engine, rows):  # noqa: PLR0917 - one question's all
    from pyspark.sql import functions as F  # noqa: N812

    below = rows // 100

    def frame(columns=None, where=None):
        if engine == "parquet":
            found = spark.read.parquet(str(plain))
            found = found.where(where) if where else found
            return found.select(*columns) if columns else found
        from eventlog.readers.spark import read

        return read(spark, str(own), columns=columns, where=where, engine=engine)

    def ask():
        if question == "read all":
            frame().write.format("noop").mode("overwrite").save()
        elif question == "sum of 2 columns":
            frame(["amount", "count"]).agg(F.sum("amount"), F.sum("count")).collect()
        elif question == "selective filter":
            found = frame(["id", "amount"], f"id < {below}").agg(F.count("*"), F.sum("amount"))
            (answer,) = found.collect()
            if answer[0] != below:
                raise AssertionError(f"{engine} found {answer[0]} rows, not {below}")
        else:
            counted = frame().count()
            if counted != rows:
                raise AssertionError(f"{engine} counted {counted} rows, not {rows}")

    return ask


if __name__ == "__main__":
    main()
