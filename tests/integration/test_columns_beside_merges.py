"""Readers by name find the columns of segments that a merge or a restore brought, or are refused.

A list of files is read with pyarrow, a publication with Polars.
"""

import datetime as dt
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.log.snapshot import plan_scan
from eventlog.publishing import publish
from eventlog.readers import files, scan
from eventlog.readers.engines.file_list import is_renamed
from eventlog.writers import append

AT = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
COLUMNS = pa.schema([("at", pa.timestamp("us", "UTC")), ("a", pa.int64()), ("k", pa.int64())])


def rename(t):
    t.rename_column("a", "z")


def swap(t):
    t.rename_column("a", "x")
    t.rename_column("k", "a")
    t.rename_column("x", "k")


def replace(t):
    t.drop_columns(["a"])
    t.add_columns([pa.field("a", pa.int64())])


def add_with_a_default(t):
    t.add_columns([pa.field("d", pa.int64())], {"d": {"initial": 5}})


def add(t):
    t.add_columns([pa.field("e", pa.int64())])


def there_and_back(t):
    t.rename_column("a", "z")
    append(t, pa.table({"at": [AT], "z": [1], "k": [7]}))
    t.rename_column("z", "a")


CHANGES = [rename, swap, replace, add_with_a_default]


@pytest.fixture
def tables(tmp_path):
    """A table and a branch of it."""
    t = Table.create(str(tmp_path), COLUMNS, time_column="at", granularity="day")
    return t, t.branch("b")


def of_names(values):
    return sorted(tuple(sorted((k, v) for k, v in row.items() if v is not None)) for row in values)


def check(t, *, refused):
    """Compare what readers by name find with a scan; `refused`: they must not be let in."""
    wanted = scan(t).to_table()
    version = t.refresh().version
    assert is_renamed(plan_scan(t.snapshot())) or not refused
    if refused:
        with pytest.raises(InvalidInput, match="renamed, replaced"):
            publish(t, "delta", first=version)
        with pytest.raises(InvalidInput, match="a reader of the files alone"):
            files(t)
        return
    publish(t, "delta", first=version)
    found = pl.read_delta(t.uri, version=version).select(wanted.column_names)
    assert of_names(found.to_dicts()) == of_names(wanted.to_pylist())


@pytest.mark.parametrize("change", CHANGES)
def test_a_parent_s_columns_change_before_rows_of_a_branch_come(tables, change):
    t, b = tables
    append(b, pa.table({"at": [AT], "a": [1], "k": [7]}))
    change(t)
    t.merge(b)
    assert t.refresh().totals.rows == 1
    check(t, refused=True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_branch_s_columns_change_after_its_rows(tables, change):
    t, b = tables
    append(b, pa.table({"at": [AT], "a": [1], "k": [7]}))
    change(b)
    t.merge(b)
    check(t, refused=True)


@pytest.mark.parametrize("change", [rename, swap, replace, add_with_a_default, add])
def test_a_branch_s_columns_change_before_its_rows(tables, change):
    t, b = tables
    change(b)
    append(b, scan(b).to_table().schema.empty_table())
    names = b.schema.names
    append(b, pa.table({"at": [AT]} | {n: [i] for i, n in enumerate(names) if n != "at"}))
    t.merge(b)
    check(t, refused=False)
    ((file,), wanted) = files(t), scan(t).to_table()
    assert pq.read_table(urlsplit(file.uri).path).equals(wanted)


def test_a_parent_s_new_column_is_null_in_rows_of_a_branch(tables):
    t, b = tables
    append(b, pa.table({"at": [AT], "a": [1], "k": [7]}))
    add(t)
    t.merge(b)
    publish(t, "delta")
    assert pl.read_delta(t.uri)["e"].to_list() == [None]


def test_both_logs_have_other_columns_than_the_files_of_a_branch(tables):
    t, b = tables
    there_and_back(b)
    add(t)
    t.merge(b)
    assert scan(t).to_table().column("a").to_pylist() == [1]
    check(t, refused=True)


def test_rows_of_before_a_rename_come_back_after_a_check(tables):
    t, _ = tables
    first = append(t, pa.table({"at": [AT], "a": [1], "k": [7]}))
    t.delete(where="a = 1")
    t.rename_column("a", "z")
    t.add_check("some", "k > 0")
    t.restore(first)
    assert scan(t).to_table().column("z").to_pylist() == [1]
    check(t, refused=True)
