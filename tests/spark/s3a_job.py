"""Reads a table on S3 by both engines, with Hadoop's own S3 client: run by test_s3a.py.

    python s3a_job.py <uri> <JSON of storage options> <hadoop-aws version> <cache>

Prints as JSON whether the rows are equal, and what `auto` chose with the settings and without.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from support import predicates

from eventlog.errors import InvalidInput
from eventlog.readers.spark import choose_engine, read

QUESTIONS = ("i32 > 3", "f64 >= 0", "text LIKE 'a%'", "NOT (flag IS TRUE)", "id < 15")


def session(storage, version, cache):
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{version}",
        "spark.jars.ivy": cache,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.s3a.endpoint": storage["endpoint_url"],
        "spark.hadoop.fs.s3a.endpoint.region": storage["region"],
        "spark.hadoop.fs.s3a.access.key": storage["access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": storage["secret_access_key"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def table_of(frame):
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow as pa  # noqa: PLC0415 - Spark 3.5

    return pa.Table.from_batches(frame._collect_as_arrow())


def main():
    uri, storage, version, cache = sys.argv[1:]
    storage = json.loads(storage)
    spark = session(storage, version, cache)
    said = {"rows": {}, "ids": {}}
    for engine in ("jvm", "arrow"):
        ask = {"engine": engine, "storage_options": storage}
        whole = table_of(read(spark, uri, **ask)).sort_by("id")
        said["rows"][engine] = repr(predicates.bits(whole))
        for where in QUESTIONS:
            try:
                found = read(spark, uri, ["id"], where, **ask)
            except InvalidInput:  # not for the JVM
                continue
            said["ids"].setdefault(where, {})[engine] = sorted(row.id for row in found.collect())
    said["choice"] = choose_engine(spark, uri, storage_options=storage).engine
    spark.stop()
    sys.stdout.write(json.dumps(said) + os.linesep)


if __name__ == "__main__":
    main()
