"""Rows in forms without an Arrow stream: what people have in a notebook."""

import datetime as dt
import re
import sys
import types
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from support.builders import create, events

from eventlog import Table, errors
from eventlog.publishing import publish
from eventlog.readers import dataset, lazy, scan
from eventlog.writers import append

ROWS = events(4)
FORMS = {
    "a list of dicts": lambda _: ROWS.to_pylist(),
    "a tuple of dicts": lambda _: tuple(ROWS.to_pylist()),
    "a lazy frame": lambda _: pl.from_arrow(ROWS).lazy(),
    "a lazy query": lambda _: pl.from_arrow(ROWS).lazy().filter(pl.col("value") >= 0),
    "a dataset": lambda _: ds.dataset(ROWS),
    "a scanner": lambda _: ds.dataset(ROWS).scanner(columns=ROWS.schema.names),
    "a version as a dataset": lambda t: dataset(t, version=1),
    "a version as a lazy frame": lambda t: lazy(t, version=1),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_appended_in_the_form_that_they_have(form):
    table = create()
    append(table, ROWS)
    append(table, FORMS[form](table))
    assert scan(table).to_table().sort_by("name") == pa.concat_tables([ROWS] * 2).sort_by("name")


@pytest.mark.parametrize("module", ["pyarrow.dataset", "pandas"])
def test_rows_are_appended_while_another_thread_loads_a_library(module, monkeypatch):
    """Python puts a module into `sys.modules` before it has any of its names."""
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    table = create()
    append(table, ROWS)
    assert scan(table).to_table() == ROWS


def test_rows_of_a_delta_table_are_appended(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path, ROWS)
    source = deltalake.DeltaTable(tmp_path)
    table = create()
    append(table, source)
    assert scan(table).to_table() == ROWS


def test_a_list_of_nothing_has_no_rows():
    table = create()
    append(table, ROWS)
    assert append(table, []) == append(table, ROWS[:0]) == table.refresh().version == 1
    assert append(table, (), app_id="job", app_seq=0) == 2


def test_what_pyiceberg_returns_is_appended_by_the_call_that_the_message_names(tmp_path):
    tables = pytest.importorskip("pyiceberg.table")
    table = Table.create(tmp_path / "t", ROWS.schema, time_column="at")
    append(table, ROWS)
    done = publish(table, "iceberg")
    other = tables.StaticTable.from_metadata(f"{done.location}/metadata/v1.metadata.json")
    with pytest.raises(errors.InvalidInput, match=r"pass scan\(\).to_arrow_batch_reader\(\)"):
        append(table, other)
    with pytest.raises(errors.InvalidInput, match=r"pass its to_arrow_batch_reader\(\)"):
        append(table, other.scan())
    append(table, other.scan().to_arrow_batch_reader())
    assert scan(table).count() == 8


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 1),
        (pa.int16(), 1),
        (pa.int32(), 1),
        (pa.float32(), 0.5),
        (pa.bool_(), 1),
        (pa.string(), 1),
        (pa.date32(), "1970-01-02"),
        (pa.decimal128(5, 2), 1.5),
        (pa.timestamp("us"), "1970-01-02"),
        (pa.timestamp("us", "UTC"), "1970-01-02"),
        (pa.binary(), "a"),
    ],
    ids=str,
)
def test_the_cast_that_a_message_names_makes_the_rows_fit(kind, value):
    duckdb = pytest.importorskip("duckdb")
    table = create(schema=pa.schema([("at", pa.timestamp("us", "UTC")), ('a "b', kind)]))
    rows = pa.table({"at": [TIME], 'a "b': [value]})
    with pytest.raises(errors.InvalidInput, match="cast it first") as refused:
        append(table, rows)
    cast = re.search(r"CAST\(.* AS .*?\)(?=,)", str(refused.value))[0]
    append(table, duckdb.sql(f'SELECT "at", {cast} AS \'a "b\' FROM rows'))
    assert scan(table).to_table().num_rows == 1


TIME = dt.datetime(1970, 1, 1, 5, tzinfo=dt.UTC)
REFUSED = {
    "other keys": ([{"at": TIME, "name": "a"}, {"at": TIME}], "row 1 of the list has other keys"),
    "a number as a key": ([{"at": TIME, 1: "a"}], "1 is a key of the rows and no text"),
    "no row": ([{"at": TIME}, "a"], "row 1 of the list"),
    "mixed types": (
        [{"at": TIME, "name": "a"}, {"at": TIME, "name": 1}],
        "row 1 of the list has 1 in column 'name', which does not fit string",
    ),
    "text among times": (
        [{"at": TIME}, {"at": "1970-01-01"}],
        "row 1 of the list has '1970-01-01'",
    ),
    "a query that fails": (
        pl.LazyFrame({"at": ["x"]}).with_columns(pl.col("at").str.to_datetime("%Y")),
        "could not be read",
    ),
    "a query of no column": (pl.LazyFrame({"at": [TIME]}).select("nix"), "rows of a LazyFrame"),
    "a list of numbers": ([1, 2], "cannot read rows from a list of int: pass dicts"),
    "a list of tuples": ([(TIME, "a")], r"a list of tuple: .*dict\(zip\(names, row"),
    "a list of batches": (ROWS.to_batches(), r"pass pyarrow.Table.from_batches\("),
    "a list of tables": ([ROWS], r"pass pyarrow.concat_tables\("),
    "a dict": ({"at": [TIME]}, r"pyarrow.table\("),
    "a generator": (iter([{"at": TIME}]), r"pass list\("),
    "a path": ("rows.parquet", r"pyarrow.dataset.dataset\('rows.parquet'\)"),
    "a path as an object": (Path("rows.parquet"), r"`eventlog append URI PATH`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_would_change_or_cannot_be_read_are_refused(case):
    rows, why = REFUSED[case]
    table = create()
    with pytest.raises(errors.InvalidInput, match=why):
        append(table, rows)
    assert table.refresh().version == 0
