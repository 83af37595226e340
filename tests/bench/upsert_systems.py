"""The systems that `upserts.py` measures, each by its documented ways in Spark, on S3.

`days` in a name is a table partitioned by the day of the flight, as are those of the others'
figures in docs/figures.md; the rest have one partition. Jars by their coordinates in Maven.
"""

# ruff: noqa: PLC0415 - what is measured is imported where it is used
import os
from pathlib import Path

BUCKET = "bench"
KEY = ("time_hour", "carrier", "flight", "origin", "sched_dep_time")
SUMMED = ("dep_delay", "distance")
BUCKETS = 16
HADOOP = "org.apache.hadoop:hadoop-aws:3.3.4"  # of Spark 3.5
DELTA = "io.delta:delta-spark_2.12:3.3.3"
ICEBERG = (
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.2.0",
)
HUDI = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"


def _jars(*coordinates):
    cache = os.environ.get("EVENTLOG_IVY", str(Path.home() / ".ivy2"))
    return {"spark.jars.packages": ",".join(coordinates), "spark.jars.ivy": cache}


def _s3a():
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def _merge(into, extra=()):
    on = " AND ".join(f"t.{name} = s.{name}" for name in (*KEY, *extra))
    return (
        f"MERGE INTO {into} t USING changes s ON {on} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


class Eventlog:
    """A keyed table: 16 buckets, compacted before the upserts."""

    def __init__(self, folder):
        self.folder = folder

    def conf(self):
        return {}

    def root(self, name):
        return f"s3://{BUCKET}/eventlog/{name}"

    def create(self, spark, rows, name):
        from eventlog import Table
        from eventlog.compaction import run
        from eventlog.writers.spark import upsert

        upsert(self.root(name), rows, time_column=KEY[0], key=KEY, buckets=BUCKETS)
        run(Table.open(self.root(name)))

    def upsert(self, spark, rows, name):
        from eventlog.writers.spark import upsert

        upsert(self.root(name), rows)

    def read(self, spark, name, columns):
        from eventlog.readers.spark import read

        return read(spark, self.root(name), list(columns))


class Delta:
    """Rows with deletion vectors; MERGE."""

    days = False

    def __init__(self, folder):
        self.folder = folder

    def conf(self):
        return {
            **_jars(HADOOP, DELTA),
            **_s3a(),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        }

    def root(self, name):
        return f"s3a://{BUCKET}/delta/{name}"

    def _rows(self, rows):
        return rows.selectExpr("*", f"to_date({KEY[0]}) as day") if self.days else rows

    def create(self, spark, rows, name):
        rows = self._rows(rows)
        rows = rows.repartition("day") if self.days else rows
        writer = rows.write.format("delta")
        (writer.partitionBy("day") if self.days else writer).save(self.root(name))

    def upsert(self, spark, rows, name):
        self._rows(rows).createOrReplaceTempView("changes")
        spark.sql(_merge(f"delta.`{self.root(name)}`", ("day",) if self.days else ()))

    def read(self, spark, name, columns):
        return spark.read.format("delta").load(self.root(name)).select(*columns)


class DeltaDays(Delta):
    """The same by days."""

    days = True


class Iceberg:
    """Format 3, merge on read; a JDBC catalog, whose requests are not counted."""

    days = False

    def __init__(self, folder):
        self.folder = folder

    def conf(self):
        catalog = "spark.sql.catalog.ice"
        return {
            **_jars(*ICEBERG),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.uri": f"jdbc:sqlite:{self.folder}/catalog.db",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": f"s3://{BUCKET}/iceberg",
            f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{catalog}.s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            f"{catalog}.s3.path-style-access": "true",
            f"{catalog}.s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            f"{catalog}.s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            f"{catalog}.client.region": os.environ["AWS_REGION"],
        }

    def create(self, spark, rows, name):
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
        rows.createOrReplaceTempView("first_rows")
        by = f"PARTITIONED BY (days({KEY[0]}))" if self.days else ""
        spark.sql(
            f"CREATE TABLE ice.db.{name} USING iceberg {by} TBLPROPERTIES ('format-version'='3', "
            "'write.merge.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
            "'write.delete.mode'='merge-on-read') AS SELECT * FROM first_rows"
        )

    def upsert(self, spark, rows, name):
        rows.createOrReplaceTempView("changes")
        spark.sql(_merge(f"ice.db.{name}"))

    def read(self, spark, name, columns):
        return spark.table(f"ice.db.{name}").select(*columns)


class IcebergDays(Iceberg):
    """The same by days."""

    days = True


class Hudi:
    """Merge on read with an index of 16 buckets and one partition."""

    def __init__(self, folder):
        self.folder = folder

    def conf(self):
        return {
            **_jars(HADOOP, HUDI),
            **_s3a(),
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def root(self, name):
        return f"s3a://{BUCKET}/hudi/{name}"

    def _write(self, rows, name, mode, operation):
        rows.selectExpr("*", "current_timestamp() as changed").write.format("hudi").options(
            **{
                "hoodie.table.name": name,
                "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                "hoodie.datasource.write.operation": operation,
                "hoodie.datasource.write.recordkey.field": ",".join(KEY),
                "hoodie.datasource.write.precombine.field": "changed",
                "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen."
                "NonpartitionedKeyGenerator",
                # Otherwise a bulk insert and an upsert give one key two names.
                "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true",
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": str(BUCKETS),
                "hoodie.upsert.shuffle.parallelism": "2",
                "hoodie.bulkinsert.shuffle.parallelism": "2",
            }
        ).mode(mode).save(self.root(name))

    def create(self, spark, rows, name):
        self._write(rows, name, "overwrite", "bulk_insert")

    def upsert(self, spark, rows, name):
        self._write(rows, name, "append", "upsert")

    def read(self, spark, name, columns):
        return spark.read.format("hudi").load(self.root(name)).select(*columns)


SYSTEMS = {
    "eventlog": Eventlog,
    "Delta Lake": Delta,
    "Delta Lake, days": DeltaDays,
    "Iceberg": Iceberg,
    "Iceberg, days": IcebergDays,
    "Hudi": Hudi,
}
