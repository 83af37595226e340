"""The Spark session under measurement: `spark_job.py FOLDER ROWS ROUNDS SECONDS`.

The systems take turns in one session, in another order each round; the first round warms the JVM
and is not counted. CPU is that of this process, the JVM and all Python workers, those that ended
included.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import json
import os
import shutil
import sys
import time
from pathlib import Path

from harness import split_cpu_s

COUNTRIES = ("AT", "CH", "DE", "ES", "FR", "GB", "IT", "US")
# Question, how often it is asked in a row: short ones twice, so that noise weighs less.
QUESTIONS = {"read all": 1, "sum of 2 columns": 2, "selective filter": 2, "count": 1}
# Spark writes with snappy unless it is told otherwise, eventlog with zstd at level 1.
AS_EVENTLOG = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
# Spark 4 measures a batch for Python at each of its rows, unless there is no bound on its bytes.
BYTE_BOUND, NO_BOUND = "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1)
SPARE = 1.25  # a round may take so much longer than the one before it


def main():
    folder, rows, rounds, seconds = sys.argv[1:5]
    folder, rows, rounds = Path(folder), int(rows), int(rounds)
    ends = time.monotonic() + float(seconds)
    spark = _session(folder)
    told = {"cpu_s": {}, "failed": {}, "stopped": "", "notes": {}}
    try:
        source = _source(spark, folder, rows)
        last_s = 0
        for number in range(rounds + 1):
            started = time.monotonic()
            if number > 1 and started + last_s * SPARE > ends:
                told["stopped"] = f"{number - 1} rounds"
                break
            _round(spark, source, folder, rows, number, told)
            last_s = time.monotonic() - started
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(told))


def _session(folder):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
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
    def measure(question, actions, times=1):
        """Measure the actions of the systems in turn; another one is the first each round."""
        names = list(actions)
        start = number % len(names)
        for name in names[start:] + names[:start]:
            if name not in told["failed"]:
                once(question, name, actions[name], times)

    def once(question, name, action, times):
        before = split_cpu_s(os.getpid())
        try:
            for _ in range(times):
                action()
        except Exception as error:
            told["failed"][name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return
        after = split_cpu_s(os.getpid())
        spent = [(now - then) / times for now, then in zip(after, before, strict=True)]
        if number:
            told["cpu_s"].setdefault(question, {}).setdefault(name, []).append(spent)

    places = folder / f"round-{number}"
    measure("write", _writes(spark, source, places))
    told["notes"]["write"] = _sizes(places, rows)
    for question, times in QUESTIONS.items():
        measure(question, _asks(spark, places, question, rows), times)
    shutil.rmtree(places, ignore_errors=True)


def _writes(spark, source, places):
    """Return the writes, by system; each lays its rows into a folder of its own."""
    from eventlog.readers.spark.workers import has_data_sources
    from eventlog.writers.spark import append

    def without_bound():
        default = spark.conf.get(BYTE_BOUND)
        spark.conf.set(BYTE_BOUND, NO_BOUND)
        try:
            append(str(places / "unbound"), source, time_column="t")
        finally:
            spark.conf.set(BYTE_BOUND, default)

    def by_source():
        writer = source.write.format("eventlog").mode("append").option("timeColumn", "t")
        writer.option("granularity", "day").save(str(places / "source"))

    writes = {
        "parquet": lambda: source.write.parquet(str(places / "parquet")),
        "parquet, zstd": lambda: source.write.options(**AS_EVENTLOG).parquet(str(places / "zstd")),
        "append()": lambda: append(str(places / "append"), source, time_column="t"),
    }
    if has_data_sources():  # Spark 4, which has the bound too
        writes |= {"append(), batches without a bound on bytes": without_bound}
        writes |= {"data source": by_source}
    return writes


def _sizes(places, rows):
    """Return the sizes of what was written, after a check that eventlog has all rows."""
    from eventlog import Table

    for name in ("append", "unbound", "source"):
        if (places / name).exists():
            found = Table.open(str(places / name)).snapshot().totals.rows
            if found != rows:
                raise AssertionError(f"{name} wrote {found} rows, not {rows}")
    names = {"append": "eventlog", "parquet": "snappy", "zstd": "zstd"}
    sizes = {name: _megabytes(places / place) for place, name in names.items()}
    return "MB " + ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())


def _megabytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 10**6


def _asks(spark, places, question, rows):
    """Return what asks a question, by system."""
    from eventlog.readers.spark import read
    from eventlog.readers.spark.workers import has_data_sources

    own = str(places / "append")

    def parquet(name):
        def frame(columns, where):
            found = spark.read.parquet(str(places / name))
            found = found.where(where) if where else found
            return found.select(*columns) if columns else found

        return frame

    def source(columns, where):
        reader = spark.read.format("eventlog")
        reader = reader.option("columns", ",".join(columns)) if columns else reader
        return (reader.option("where", where) if where else reader).load(own)

    systems = {
        "parquet": parquet("parquet"),
        "parquet, zstd": parquet("zstd"),
        "jvm": lambda columns, where: read(spark, own, columns, where, engine="jvm"),
        "arrow": lambda columns, where: read(spark, own, columns, where, engine="arrow"),
    }
    systems |= {"data source": source} if has_data_sources() else {}
    return {name: _ask(frame, name, question, rows) for name, frame in systems.items()}


def _ask(frame, name, question, rows):
    from pyspark.sql import functions as F  # noqa: N812

    below = rows // 100

    def ask():
        if question == "read all":
            frame(None, None).write.format("noop").mode("overwrite").save()
        elif question == "sum of 2 columns":
            frame(["amount", "count"], None).agg(F.sum("amount"), F.sum("count")).collect()
        elif question == "count":
            counted = frame(None, None).count()
            if counted != rows:
                raise AssertionError(f"{name} counted {counted} rows, not {rows}")
        else:
            found = frame(["id", "amount"], f"id < {below}").agg(F.count("*"), F.sum("amount"))
            (answer,) = found.collect()
            if answer[0] != below:
                raise AssertionError(f"{name} found {answer[0]} rows, not {below}")

    return ask


if __name__ == "__main__":
    main()
