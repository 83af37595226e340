"""What the tests with Spark share: rows, and ways to write and read them.

They run on every Spark from 3.5 on (`make test-spark-matrix`). What a version lacks is skipped and
says so.
"""

from pathlib import Path

import pyspark
import pytest
from spark.matrix import PROPERTY, column_of
from spark.programs import dying_source

import eventlog.readers.spark
from eventlog import Table, readers
from eventlog.arguments import parse_names
from eventlog.readers.spark.workers import has_data_sources
from eventlog.writers.spark import append, overwrite

START = 1_357_516_800  # 2013-01-07T00:00Z
NO_SOURCE = "this Spark has no data sources in Python: they came with 4.0"


# What older PySparks warn of in their own code; a warning is an error otherwise.
OLD_WARNINGS = (
    "ignore:distutils Version classes are deprecated:DeprecationWarning",  # 3.5
    "ignore:unclosed:ResourceWarning",  # before 4.2
)


def pytest_configure(config):
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        for line in OLD_WARNINGS:
            config.addinivalue_line("filterwarnings", line)


class OfSources(pytest.Module):
    """A module that may import data sources, which makes it skipped where there are none."""

    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            if "No module named 'pyspark.sql.datasource'" not in str(error):
                raise
            return pytest.skip(NO_SOURCE, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return None if has_data_sources() else OfSources.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("spark")
            if not has_data_sources() and item.get_closest_marker("data_source"):
                item.add_marker(pytest.mark.skip(reason=NO_SOURCE))
            mark = item.get_closest_marker("shows")
            if column := column_of(item.path.name, mark and mark.args[0]):
                item.user_properties.append((PROPERTY, column))


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
def way(request):
    """How `save` and `load` go: by the data source, or by functions where Spark has none.

    A test that is to go one of the ways, or both, parametrizes this with `indirect`.
    """
    wanted = getattr(request, "param", "source" if has_data_sources() else "functions")
    if wanted == "source" and not has_data_sources():
        pytest.skip(NO_SOURCE)
    return wanted


@pytest.fixture
def save(way):
    """A function: write a DataFrame to a table, by default in append mode."""

    def write(df, uri, mode="append", **options):
        options.setdefault("timeColumn", "ts")
        if way == "functions":
            (append if mode == "append" else overwrite)(uri, df, **_arguments(options))
        else:
            df.write.format("eventlog").mode(mode).options(**options).save(uri)

    return write


@pytest.fixture
def load(spark, way):
    """A function: the DataFrame of a table."""

    def read(uri, **options):
        if way == "functions":
            given = _arguments(options)
            return eventlog.readers.spark.read(spark, uri, engine="arrow", **given)
        return spark.read.format("eventlog").options(**options).load(uri)

    return read


# The options of the data source that the functions call otherwise, and have as other types.
_ARGUMENTS = {
    "timeColumn": ("time_column", str),
    "granularity": ("granularity", str),
    "orderBy": ("order_by", lambda text: parse_names(text, "orderBy")),
    "columns": ("columns", lambda text: parse_names(text, "columns")),
    "replaceWhere": ("where", str),
    "readVersion": ("read_version", int),
    "version": ("version", int),
    "appId": ("app_id", str),
    "appSeq": ("app_seq", int),
}


def _arguments(options):
    """The same for the functions."""
    given = {"properties": {}}
    for option, value in options.items():
        if option.startswith("property."):
            given["properties"][option.removeprefix("property.")] = value
        else:
            name, kind = _ARGUMENTS.get(option, (option, lambda same: same))
            given[name] = kind(value)
    return given if given["properties"] else {k: v for k, v in given.items() if k != "properties"}


@pytest.fixture
def dying(spark):
    """The name of the data source whose committing process dies."""
    source = dying_source()
    spark.dataSource.register(source)
    return source.name()


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
