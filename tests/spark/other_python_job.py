"""A job whose Spark finds another Python than the driver's, one that lacks a package.

Run as a program: `other_python_job.py <table>`; prints what happened as JSON.
"""

import json
import os
import sys

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import eventlog.readers.spark
from eventlog.errors import InvalidInput
from eventlog.readers.spark.workers import has_data_sources
from eventlog.writers.spark import append


def main(uri):
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    host = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.master("local[1]").config(map={**quiet, **host}).getOrCreate()
    source = spark.read.format("eventlog") if has_data_sources() else None
    said = {}
    if source:
        try:
            source.load(uri)
        except AnalysisException as error:
            said["by itself"] = str(error)
    os.environ["PYSPARK_PYTHON"] = "set"  # somebody chose the Python that Spark started with
    for name, program in (("absent", f"{uri}/python3"), ("chosen", "python3")):
        spark.sparkContext.pythonExec = program
        try:
            eventlog.readers.spark.read(spark, uri, engine="arrow")
        except InvalidInput as error:
            said[name] = str(error)
    del os.environ["PYSPARK_PYTHON"]
    said["rows"] = eventlog.readers.spark.read(spark, uri, engine="arrow").count()
    rows = spark.range(3).selectExpr("id", "timestamp_seconds(id) ts")
    append(uri, rows)
    said["all rows"] = eventlog.readers.spark.read(spark, uri).count()
    if source:
        try:
            rows.write.format("eventlog").mode("append").save(uri)
            said["by the data source"] = source.load(uri).count()
        except AnalysisException as error:
            said["by the data source"] = str(error)
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
