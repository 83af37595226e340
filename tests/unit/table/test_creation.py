"""Tables as they are created: forms of schemas, tables that may be there, warnings."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from support.builders import create

from eventlog import Table, errors
from eventlog.model.schema_text import given_schema
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, upsert

UTC_US = pa.timestamp("us", "UTC")
COLUMNS = {"at": UTC_US, "id": pa.int64(), "name": pa.string()}
TEXT = "at timestamp, id bigint, name varchar"
ROWS = {"at": [0], "id": [1], "name": ["a"]}


def frame():
    return pd.DataFrame({"at": pd.to_datetime([0], utc=True), "id": [1], "name": ["a"]})


FORMS = {
    "text": lambda: TEXT,
    "text with colons": lambda: "at:timestamp,id: int64,\n name : string",
    "quoted names": lambda: '"at" timestamp, "id": bigint NULL, "name" text',
    "types as text": lambda: {"at": "timestamp", "id": "BIGINT", "name": "string"},
    "types": lambda: COLUMNS,
    "schema": lambda: pa.schema(COLUMNS),
    "table": lambda: pa.table(ROWS, schema=pa.schema(COLUMNS)),
    "reader": lambda: pa.table(ROWS, schema=pa.schema(COLUMNS)).to_reader(),
    "dataset": lambda: ds.dataset(pa.table(ROWS, schema=pa.schema(COLUMNS))),
    "pandas": frame,
    "Polars": lambda: pl.from_pandas(frame()),
    "lazy frame": lambda: pl.from_pandas(frame()).lazy(),
    "Polars's schema": lambda: pl.from_pandas(frame()).schema,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_has_many_forms(form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = Table.create("memory://x", FORMS[form](), time_column="at", store=MemoryStore())
    assert table.schema == pa.schema(COLUMNS)


def test_the_names_of_sql_and_the_stored_ones_mean_the_same():
    for text, kind in {
        "a boolean": pa.bool_(),
        "a tinyint": pa.int8(),
        "a integer": pa.int32(),
        "a real": pa.float32(),
        "a double precision": pa.float64(),
        "a numeric(10, 2)": pa.decimal128(10, 2),
        "a timestamp_ntz": pa.timestamp("us"),
        "a list<struct<x int8, y: map<varchar, date>>>": pa.list_(
            pa.struct([("x", pa.int8()), ("y", pa.map_(pa.string(), pa.date32()))])
        ),
    }.items():
        assert given_schema(text).field("a").type == kind
    assert not given_schema("a double NOT  NULL").field("a").nullable
    odd = given_schema('"a: b, <c""d" bigint not null, x(m):float64, s struct<"y<,":date>')
    assert odd.names == ['a: b, <c"d', "x(m)", "s"]
    assert odd.field("s").type == pa.struct([("y<,", pa.date32())])
    assert given_schema("my column:date").names == ["my column"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("at", "column 'at' is not of the form name type"),
        ("at flot", "column 'at' has type 'flot'; the types are bool, .*or as SQL calls them"),
        ("id bigint primary key", "column 'id' has type 'bigint primary key'"),
        ({"at": float}, "column 'at' has type type <class 'float'>, which is neither text nor"),
        ({"at": "list<" * 600}, "too many nested types"),
        ({1: "date"}, "the name of a column must be text, not 1"),
        ({"at": pa.time32("s")}, "column 'at' has type time32"),
        ([{"at": 1}], "a frame or a pyarrow table with the columns, not list"),
        (pd.DataFrame({"n": [1, "x"]}), "the columns of a DataFrame cannot be converted"),
        (pl.DataFrame({"n": [object()]}), "cannot be converted|which tables do not support"),
        ("", "the schema is empty"),
    ],
)
def test_a_schema_that_is_none_is_refused_before_anything_is_sent(given, why):
    store = MemoryStore()
    with pytest.raises(errors.InvalidInput, match=why):
        Table.create("memory://x", given, store=store)
    assert not [*store.list("")]


def test_a_table_that_is_there_and_fits_is_opened():
    store = MemoryStore()
    options = {"time_column": "at", "granularity": "hour", "checks": {"named": "id > 0"}}
    made = create(store, schema=TEXT, exist_ok=True, **options)
    append(made, [{"at": pd.Timestamp(0, tz="UTC"), "id": 1, "name": "a"}])
    again = create(store, schema=TEXT, exist_ok=True, **options)
    assert (again.id, again.session.head().version) == (made.id, 1)
    made.add_columns(pa.schema([("more", pa.string())]))
    made.relax_columns(["id"])
    plain = {"schema": TEXT, "time_column": "at", "exist_ok": True}
    assert create(store, properties={"user.a": "b"}, **plain).session.head().version >= 2
    with pytest.raises(errors.AlreadyExists, match="there is already a table here"):
        create(store, schema=TEXT)


DIFFERENT = {
    "it has no column 'other'; columns: at, id, name": {"schema": TEXT + " not null, other text"},
    "column 'id' has type int64 there, and int32 here": {"schema": TEXT.replace("big", "")},
    "column 'name' is `not null` there": {"schema": TEXT},
    "it has a column 'name', which is `not null`": {"schema": "at timestamp, id bigint"},
    "the time column is at there, and none here": {"time_column": None},
    "the granularity is month there, and day here": {"granularity": "day"},
    "the key is id there, and name here": {"key": "name"},
    "the key is id there, and none here": {"key": ()},
    "order_by is at there, and none here": {"order_by": None},
    "the number of buckets is 4 there, and 3 here": {"buckets": 3},
    "by another rule": {"properties": {"merge": "first"}},
    "it has no check 'low'": {"checks": {"low": "id < 9"}},
    "check 'high' is id > 0 there, and id > 1 here": {"checks": {"high": "id > 1"}},
}


@pytest.mark.parametrize("difference", DIFFERENT)
@pytest.mark.filterwarnings("ignore:a key is unique in its month")
def test_another_table_is_refused_with_the_difference(difference):
    store, required = MemoryStore(), TEXT + " not null"
    options = {"schema": required, "key": "id", "order_by": "at", "granularity": "month"}
    table = create(store, buckets=2, checks={"high": "id > 0"}, **options)
    table.set_buckets(4)
    assert create(store, buckets=2, exist_ok=True, **options).id == table.id
    wanted = {**options, **DIFFERENT[difference]}
    if not wanted["key"] or wanted.get("time_column", "at") is None:
        wanted |= {"granularity": None}
    with pytest.raises(errors.AlreadyExists, match=difference) as caught:
        create(store, exist_ok=True, **wanted)
    assert caught.value.table == store.uri


def test_two_that_create_it_at_once_both_get_it():
    store, start = MemoryStore(), Barrier(4)

    class Waiting(MemoryStore):
        """A store whose users have all seen that there is no table before one creates it."""

        def put_if_absent(self, key, body):
            if key.startswith("_probe/") and body.startswith(b"first"):
                start.wait()
            return store.put_if_absent(key, body)

        def get(self, key, **options):
            return store.get(key, **options)

        def list(self, prefix, **options):
            return store.list(prefix, **options)

    with ThreadPoolExecutor(4) as pool:
        made = pool.map(
            lambda n: create(Waiting(), seed=n, schema=TEXT, exist_ok=True).id, range(4)
        )
        assert len({*made}) == 1


@pytest.mark.parametrize("granularity", ["day", "month"])
def test_a_table_that_returns_a_key_twice_is_warned_of(granularity):
    options = {"schema": TEXT, "key": "id", "order_by": "at"}
    with pytest.warns(
        UserWarning, match=f"is returned twice, once from each {granularity}"
    ) as seen:
        table = create(granularity=granularity, **options)
    assert "granularity='all'" in str(seen[0].message)
    for day in (1, 40):
        upsert(table, [{"at": pd.Timestamp(day, unit="D", tz="UTC"), "id": 7, "name": str(day)}])
    assert scan(table).to_table().column("name").to_pylist() == ["1", "40"]


@pytest.mark.parametrize(
    "options",
    [
        {"granularity": "all", "order_by": "at"},
        {"granularity": "day", "order_by": "made"},
        {"granularity": "day", "order_by": None},
        {"granularity": "day", "order_by": "at", "key": ()},
    ],
)
def test_other_tables_are_not_warned_of(options):
    create(**{"schema": "at timestamp, id bigint, made timestamp", "key": "id", **options})
