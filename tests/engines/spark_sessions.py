"""Sessions of Spark with Delta Lake and Iceberg, by their coordinates in Maven.

The jars are fetched once, 60 MB a version of Spark, into the folder that EVENTLOG_IVY names, or
Ivy's own. An environment of each version is made by `.ci/spark-matrix --install VERSION`.
"""

# ruff: noqa: PLC0415 - only the environments of Spark have it
import fcntl
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

# The newest of each that is made for the version of Spark.
DELTA = {
    "3.5": "io.delta:delta-spark_2.12:3.3.3",
    "4.0": "io.delta:delta-spark_2.13:4.0.1",
}
ICEBERG = {
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
}
SQLITE = "org.xerial:sqlite-jdbc:3.53.2.0"  # for Iceberg's JDBC catalog
MEMORY = "2g"


def release(coordinates):
    """Return the version that coordinates name."""
    return coordinates.rpartition(":")[2]


@cache
def session():
    """Return the session of this process.

    Iceberg's catalog `files` is one of directories: those in TABLES_FOLDER. `theirs` is in a
    database.
    """
    import pyspark
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = _settings(folder, pyspark.__version__[:3]) | _catalogs(
        folder, os.environ.get("TABLES_FOLDER", folder)
    )
    builder = SparkSession.builder.master("local[2]").appName("engines")
    for name, value in conf.items():
        builder = builder.config(name, value)
    ivy = Path(conf["spark.jars.ivy"])
    ivy.mkdir(parents=True, exist_ok=True)
    with (ivy / "fetching").open("w") as alone:  # two sessions that fetch one jar lose it
        fcntl.flock(alone, fcntl.LOCK_EX)
        return builder.getOrCreate()


def _settings(folder, spark):
    return {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Each plan runs once: to compile it well costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": MEMORY,
        "spark.jars.ivy": os.environ.get("EVENTLOG_IVY", str(Path.home() / ".ivy2")),
        "spark.jars.packages": ",".join((DELTA[spark], ICEBERG[spark], SQLITE)),
        "spark.local.dir": f"{folder}/local",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Answers are written as Parquet, which all versions can.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _catalogs(folder, tables):
    theirs = "org.apache.iceberg.spark.SparkCatalog"
    return {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.files": theirs,
        "spark.sql.catalog.files.type": "hadoop",
        "spark.sql.catalog.files.warehouse": tables,
        "spark.sql.catalog.theirs": theirs,
        "spark.sql.catalog.theirs.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.theirs.jdbc.schema-version": "V1",
        "spark.sql.catalog.theirs.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "spark.sql.catalog.theirs.warehouse": f"{folder}/iceberg",
    }
