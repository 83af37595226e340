"""A Spark job that loads one day into a table, once: run again for that day, it does nothing.

    spark-submit examples/spark_job.py --uri s3://bucket/flights --day 2013-01-07

Prints the version that has the day, and the number of rows in it.
"""

import argparse
import sys
from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from eventlog.readers.spark import read
from eventlog.writers.spark import append


def load(spark: SparkSession, uri: str, day: date) -> int:
    """Load a day, unless the table has it already, and return a version that has it."""
    flights = spark.range(0, 24 * 60, 1, 4).select(
        (F.lit(f"{day} 00:00:00").cast("timestamp") + F.expr("make_dt_interval(0, 0, id)")).alias(
            "time_hour"
        ),
        F.element_at(
            F.array(*map(F.lit, ("JFK", "EWR", "LGA"))), (F.col("id") % 3 + 1).cast("int")
        ).alias("origin"),
        (F.col("id") % 90).cast("double").alias("dep_delay"),
    )
    # One app id a day, so that days may be loaded in any order. With one id for all of them, and
    # the day as the sequence, a day before the last one loaded would count as done.
    return append(uri, flights, time_column="time_hour", app_id=f"load-flights-{day}", app_seq=0)


def main() -> None:
    """Load the day that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--day", type=date.fromisoformat, required=True)
    # Platforms add arguments of their own, as Glue does with --JOB_NAME.
    options, _ = parser.parse_known_args()
    spark = SparkSession.builder.appName("load-flights").getOrCreate()
    version = load(spark, options.uri, options.day)
    rows = read(spark, options.uri, columns=["origin"], version=version).count()
    sys.stdout.write(f"version {version}, {rows} rows\n")
    spark.stop()


if __name__ == "__main__":
    main()
