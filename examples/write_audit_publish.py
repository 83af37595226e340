"""Write, audit, publish: rows of a day are loaded into a branch, checked, and published at once.

    spark-submit examples/write_audit_publish.py --uri s3://bucket/flights --day 2013-01-07

Nobody sees the day before it was checked, and then all of it in one version. Readers of the table
go on reading meanwhile, and wait for nothing. A day that fails its audit stays in its branch, to be
looked at, and the program ends with 1. Run again after any failure, it goes on where it stopped.
To load such a day again, delete its branch first (`eventlog branch URI load-DAY --delete`): a
branch that has the rows of its app id takes no others.
"""

import argparse
import sys
from contextlib import suppress
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from eventlog import Table
from eventlog.errors import AlreadyExists
from eventlog.readers.spark import read
from eventlog.writers.spark import append


def flights_of(spark: SparkSession, day: date) -> DataFrame:
    """Return the flights of a day; here they are made up."""
    return spark.range(0, 24 * 60, 1, 4).select(
        (F.lit(f"{day} 00:00:00").cast("timestamp") + F.expr("make_dt_interval(0, 0, id)")).alias(
            "time_hour"
        ),
        F.element_at(
            F.array(*map(F.lit, ("JFK", "EWR", "LGA"))), (F.col("id") % 3 + 1).cast("int")
        ).alias("origin"),
        (F.col("id") % 90).cast("double").alias("dep_delay"),
    )


def problems(loaded: DataFrame) -> list[str]:
    """Return what is wrong with the rows of a day."""
    found = loaded.agg(
        F.count("*").alias("rows"),
        F.countDistinct("origin").alias("airports"),
        F.sum(F.when(F.col("dep_delay") < -120, 1).otherwise(0)).alias("early"),
    ).collect()[0]
    checks = {
        f"{found.rows} rows are too few": found.rows < 1000,
        f"{found.airports} airports instead of 3": found.airports != 3,
        f"{found.early} flights left two hours early": bool(found.early),
    }
    return [problem for problem, holds in checks.items() if holds]


def branch_of(day: date) -> str:
    """Return the name of the branch that a day is loaded into."""
    return f"load-{day}"


def refusal(uri: str, day: date, wrong: list[str]) -> str:
    """Return why a day was not published, and what to do next."""
    name = branch_of(day)
    return (
        f"not published: {'; '.join(wrong)}. The rows are in the branch: `eventlog scan {uri} "
        f"--branch {name}`. To load the day again, delete it, `eventlog branch {uri} {name} "
        "--delete`, and run this program again"
    )


def load(spark: SparkSession, uri: str, day: date, flights: DataFrame) -> int | list[str]:
    """Load a day; return the version that published it, or what is wrong with it."""
    table = Table.open(uri)
    name = branch_of(day)
    with suppress(AlreadyExists):  # a run that did not come to its end: nothing is written twice
        table.branch(name)
    append(uri, flights, branch=name, app_id=f"load-flights-{day}", app_seq=0)
    wrong = problems(read(spark, uri, branch=name, where=f"time_hour >= '{day}'"))
    if wrong:
        return wrong
    version = table.merge(Table.open(uri, branch=name)).head
    table.delete_branch(name)
    return version


def main() -> None:
    """Load the day that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--day", type=date.fromisoformat, required=True)
    options, _ = parser.parse_known_args()
    spark = SparkSession.builder.appName("write-audit-publish").getOrCreate()
    done = load(spark, options.uri, options.day, flights_of(spark, options.day))
    spark.stop()
    if isinstance(done, list):
        sys.exit(refusal(options.uri, options.day, done))
    sys.stdout.write(f"published in version {done}\n")


if __name__ == "__main__":
    main()
