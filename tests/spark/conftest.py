"""What the tests with Spark share: rows, and ways to write and read them."""

from pathlib import Path

import pytest

from eventlog import Table, readers

START = 1_357_516_800  # 2013-01-07T00:00Z


def pytest_collection_modifyitems(items):
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("spark")


@pytest.fixture
def local_uri(tmp_path):
    """The root of a table to be, in a directory."""
    return (tmp_path / "table").as_uri()


@pytest.fixture
def events(spark):
    """A function: n rows (id, ts, name), `per_day` to a day, from the `first`-th on."""

    def make(n, *, first=0, per_day=10, partitions=2):
        step = 86_400 // per_day
        return spark.range(first, first + n, 1, partitions).selectExpr(
            "id",
            f"timestamp_seconds({START} + id * {step}) as ts",
            "concat('name-', id) as name",
        )

    return make


@pytest.fixture
def save():
    """A function: write a DataFrame to a table, by default in append mode."""

    def write(df, uri, mode="append", **options):
        options.setdefault("timeColumn", "ts")
        df.write.format("eventlog").mode(mode).options(**options).save(uri)

    return write


@pytest.fixture
def load(spark):
    """A function: the DataFrame of a table."""

    def read(uri, **options):
        return spark.read.format("eventlog").options(**options).load(uri)

    return read


@pytest.fixture
def rows_of():
    """A function: the table's rows at its newest version, read without Spark, in order of id."""

    def read(uri, version=None):
        found = readers.scan(Table.open(uri), version=version).to_table()
        return found.sort_by("id") if "id" in found.column_names else found

    return read


@pytest.fixture
def ids(rows_of):
    """A function: the sorted ids in the table, read without Spark."""

    def read(uri, version=None):
        return rows_of(uri, version).column("id").to_pylist()

    return read
