"""How each engine is asked: what it takes, in its own words.

`WAYS` has the rows of the matrix. Each asks by a function of a place and a question that returns
the answer as an Arrow table, or raises what the engine raises.
"""

# ruff: noqa: PLC0415 - no environment has all engines
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
from apart import ROOT
from spark_sessions import DELTA, ICEBERG, release, session

MOMENT = "TIMESTAMPTZ '{:%Y-%m-%d %H:%M:%S}+00:00'"
CLICKHOUSE_MOMENT = "toDateTime64('{:%Y-%m-%d %H:%M:%S}', 6, 'UTC')"


@dataclass(frozen=True)
class Place:
    """A version of a table: its directory, and the columns that it has."""

    path: str
    version: int
    schema: pa.Schema

    @property
    def metadata(self):
        """The path of Iceberg's metadata of the version."""
        return f"{self.path}/metadata/v{self.version}.metadata.json"


def _number(count):
    return pa.table({"n": pa.array([count], pa.int64())})


# By eventlog itself.


def _scanned(place, question):
    from eventlog.readers import scan

    return scan(
        place.path, list(question.columns) or None, question.condition(), version=place.version
    )


def by_scan(place, question):
    """Rows that eventlog scans, as Arrow."""
    found = _scanned(place, question)
    return _number(found.count()) if question.count else found.to_table()


def by_pandas(place, question):
    """Rows that eventlog scans, as a data frame."""
    found = _scanned(place, question).to_pandas()
    if question.count:
        return _number(len(found))
    fields = [place.schema.field(name) for name in found.columns]
    return pa.Table.from_pandas(found, pa.schema(fields), preserve_index=False)


def by_polars_eager(place, question):
    """Rows that eventlog scans, as a frame of Polars."""
    found = _scanned(place, question).to_polars()
    return _number(found.height) if question.count else found.to_arrow()


def _dataset(place):
    from eventlog.readers import dataset

    return dataset(place.path, version=place.version)


def by_dataset(place, question):
    """A dataset, by Arrow."""
    return _of_dataset(_dataset(place), question)


def _of_dataset(rows, question):
    if question.count:
        return _number(rows.count_rows(filter=question.arrow()))
    return rows.to_table(columns=list(question.columns) or None, filter=question.arrow())


def by_polars_lazy(place, question):
    """A lazy frame of Polars."""
    from eventlog.readers import lazy

    return _of_polars(lazy(place.path, version=place.version), question)


def _of_polars(frame, question):
    import polars as pl

    if question.where is not None:
        frame = frame.filter(question.polars())
    if question.count:
        return frame.select(n=pl.len()).collect().to_arrow()
    return (frame.select(question.columns) if question.columns else frame).collect().to_arrow()


def by_duckdb_dataset(place, question):
    """A dataset, by DuckDB."""
    import duckdb

    connection = duckdb.connect()
    connection.register("t", _dataset(place))
    return _of_duckdb(connection, "t", question)


def _of_duckdb(connection, relation, question):
    return connection.sql(question.sql(relation, MOMENT)).to_arrow_table()


def by_datafusion_dataset(place, question):
    """A dataset, by DataFusion."""
    from datafusion import SessionContext

    context = SessionContext()
    context.register_dataset("t", _dataset(place))
    return context.sql(question.sql("t")).to_arrow_table()


def by_daft_source(place, question):
    """The source of examples/, by Daft."""
    sys.path.append(str(ROOT / "examples"))
    from daft_source import VersionSource

    from eventlog.readers import scan

    return _of_daft(VersionSource(scan(place.path, version=place.version)).read(), question)


def _of_daft(frame, question):
    import daft

    if question.where is not None:
        frame = frame.where(question.compared(daft.col, daft.lit))
    if question.count:
        return _number(frame.count_rows())
    return (frame.select(*question.columns) if question.columns else frame).to_arrow()


# As Delta.


def by_deltalake_query(place, question):
    """Published as Delta, by the queries of deltalake."""
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder().register("t", DeltaTable(place.path, version=place.version))
    return pa.table(builder.execute(question.sql("t")).read_all())


def by_deltalake_arrow(place, question):
    """Published as Delta, by the dataset of deltalake."""
    from deltalake import DeltaTable

    rows = DeltaTable(place.path, version=place.version).to_pyarrow_dataset()
    return _of_dataset(rows, question)


def by_polars_delta(place, question):
    """Published as Delta, by Polars."""
    import polars as pl

    return _of_polars(pl.scan_delta(place.path, version=place.version), question)


def by_datafusion_delta(place, question):
    """Published as Delta, by the provider of deltalake in DataFusion."""
    from datafusion import SessionContext
    from deltalake import DeltaTable

    context = SessionContext()
    context.register_table("t", DeltaTable(place.path, version=place.version))
    return context.sql(question.sql("t")).to_arrow_table()


@cache
def duckdb_with_extensions():
    """Return a connection of this process that has the extensions for Delta and Iceberg."""
    return connected_with("avro", "iceberg", "delta")


def connected_with(*extensions):
    """Return a new connection to DuckDB that has these extensions."""
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in extensions:
        package = __import__(f"duckdb_extension_{name}")
        (library,) = Path(package.__path__[0]).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{library}'")
    return connection


def by_duckdb_delta(place, question):
    """Published as Delta, by DuckDB."""
    relation = f"delta_scan('{place.path}', version => {place.version})"
    return _of_duckdb(duckdb_with_extensions(), relation, question)


def _of_clickhouse(place, relation, question, settings=""):
    import chdb

    os.chdir(Path(place.path).parent)  # it reads nothing outside of the working directory
    body = chdb.query(question.sql(relation, CLICKHOUSE_MOMENT) + settings, "Arrow").bytes()
    return pa.ipc.open_file(body).read_all()


def by_clickhouse_delta(place, question):
    """Published as Delta, by ClickHouse."""
    settings = f" SETTINGS delta_lake_snapshot_version = {place.version}"
    return _of_clickhouse(place, f"deltaLakeLocal('{place.path}')", question, settings)


def by_daft_delta(place, question):
    """Published as Delta, by Daft."""
    import daft

    return _of_daft(daft.read_deltalake(place.path, version=place.version), question)


# To Iceberg.


def by_pyiceberg(place, question):
    """Published to Iceberg, by pyiceberg."""
    from pyiceberg.table import StaticTable

    condition = question.condition()
    rows = StaticTable.from_metadata(place.metadata).scan(
        **({} if condition is None else {"row_filter": condition}),
        selected_fields=question.columns or ("*",),
    )
    return _number(rows.count()) if question.count else rows.to_arrow()


def by_polars_iceberg(place, question):
    """Published to Iceberg, by Polars."""
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # its own planner is another package
    import polars as pl

    return _of_polars(pl.scan_iceberg(place.metadata), question)


def by_duckdb_iceberg(place, question):
    """Published to Iceberg, by DuckDB."""
    return _of_duckdb(duckdb_with_extensions(), f"iceberg_scan('{place.metadata}')", question)


def by_clickhouse_iceberg(place, question):
    """Published to Iceberg, by ClickHouse."""
    file = f"metadata/v{place.version}.metadata.json"
    relation = f"icebergLocal('{place.path}', SETTINGS iceberg_metadata_file_path = '{file}')"
    return _of_clickhouse(place, relation, question)


def by_daft_iceberg(place, question):
    """Published to Iceberg, by Daft."""
    import daft

    return _of_daft(daft.read_iceberg(place.metadata), question)


# By Spark.

SPARK_MOMENT = "TIMESTAMP '{:%Y-%m-%d %H:%M:%S}+00:00'"


def by_spark_delta(place, question):
    """Published as Delta, by delta-spark."""
    reader = session().read.format("delta").option("versionAsOf", place.version)
    return _of_spark(reader.load(place.path), question)


def by_spark_iceberg(place, question):
    """Published to Iceberg, by Iceberg's runtime for Spark."""
    return _of_spark(session().read.format("iceberg").load(place.metadata), question)


def _of_spark(frame, question):
    frame.createOrReplaceTempView("t")
    answer = session().sql(question.sql("t", SPARK_MOMENT, "`"))
    if hasattr(answer, "toArrow"):
        return answer.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    # What `toArrow` does in Spark 4.
    batches = answer._collect_as_arrow()
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(answer.schema))


@dataclass(frozen=True)
class Way:
    """A row of the matrix: an engine, what it reads, and where it is installed."""

    engine: str
    reads: str  # `eventlog`, `delta` or `iceberg`
    home: str  # the directory of its environment
    package: str  # whose version the matrix shows
    ask: object
    by: str = ""  # which of the engine's ways
    nan_is_null: bool = False
    wrong: tuple[str, str] | None = None  # a question that it is known to answer wrongly, and why


# An error of this engine that nothing in a publication prevents. Once it is no longer seen, the run
# fails, so that it is removed here.
COUNT = (
    "count",
    "a `count()` of all rows has the deleted ones, too: set `optimize_trivial_count_query = 0`",
)
HERE, OTHERS = ".venv", "build/engines"
SPARKS = tuple(f".spark/{version}" for version in DELTA)
WAYS = (
    Way("eventlog", "eventlog", HERE, "pyarrow", by_scan, "`scan`, Arrow"),
    Way("pyarrow", "eventlog", HERE, "pyarrow", by_dataset, "`dataset`"),
    Way("pandas", "eventlog", HERE, "pandas", by_pandas, "`scan`", nan_is_null=True),
    Way("Polars", "eventlog", HERE, "polars", by_polars_eager, "`scan`"),
    Way("Polars", "eventlog", HERE, "polars", by_polars_lazy, "`lazy`"),
    Way("DuckDB", "eventlog", HERE, "duckdb", by_duckdb_dataset, "`dataset`"),
    Way("DuckDB", "eventlog", OTHERS, "duckdb", by_duckdb_dataset, "`dataset`"),
    Way("DataFusion", "eventlog", HERE, "datafusion", by_datafusion_dataset, "`dataset`"),
    Way("Daft", "eventlog", OTHERS, "daft", by_daft_source, "the example's source"),
    Way("deltalake", "delta", HERE, "deltalake", by_deltalake_query, "`QueryBuilder`"),
    Way("deltalake", "delta", HERE, "deltalake", by_deltalake_arrow, "Arrow"),
    Way("Polars", "delta", HERE, "polars", by_polars_delta, "`scan_delta`"),
    Way("DataFusion", "delta", HERE, "datafusion", by_datafusion_delta, "deltalake's provider"),
    Way("DuckDB", "delta", OTHERS, "duckdb", by_duckdb_delta, "`delta_scan`"),
    Way(
        "ClickHouse", "delta", OTHERS, "chdb", by_clickhouse_delta, "`deltaLakeLocal`", wrong=COUNT
    ),
    Way("Daft", "delta", OTHERS, "daft", by_daft_delta, "`read_deltalake`"),
    Way("pyiceberg", "iceberg", HERE, "pyiceberg", by_pyiceberg, "`StaticTable`"),
    Way("Polars", "iceberg", HERE, "polars", by_polars_iceberg, "`scan_iceberg`"),
    Way("DuckDB", "iceberg", OTHERS, "duckdb", by_duckdb_iceberg, "`iceberg_scan`"),
    Way("ClickHouse", "iceberg", OTHERS, "chdb", by_clickhouse_iceberg, "`icebergLocal`"),
    Way("Daft", "iceberg", OTHERS, "daft", by_daft_iceberg, "`read_iceberg`"),
    *(
        Way("Spark", "delta", home, "pyspark", by_spark_delta, f"delta-spark {release(jar)}")
        for home, jar in zip(SPARKS, DELTA.values(), strict=True)
    ),
    *(
        Way("Spark", "iceberg", home, "pyspark", by_spark_iceberg, f"Iceberg {release(jar)}")
        for home, jar in zip(SPARKS, ICEBERG.values(), strict=True)
    ),
)
