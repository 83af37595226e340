"""Engines that push their queries into a table give the answers that they give over copied rows."""

import datetime as dt
import math
import struct
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from eventlog import Table
from eventlog.readers import dataset, lazy, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, upsert

duckdb = pytest.importorskip("duckdb")

SIGNED_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
DAY = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("d", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("b", pa.bool_()),
        ("local", pa.timestamp("us")),
    ]
)
FLOATS = (1.5, math.nan, None, -0.0, math.inf, SIGNED_NAN, -2.0, 0.0, -math.inf, 10.0, 3.0)


def rows_of(first):
    """Rows from one id on, as different as can be in few rows."""
    ids = list(range(first, first + 11))
    times = [DAY + dt.timedelta(hours=7 * i) for i in ids]
    return pa.table(
        {
            "id": ids,
            "ts": times,
            "n": [None if i % 5 == 0 else i % 7 - 3 for i in ids],
            "f": [None if first == 22 else FLOATS[i % 11] for i in ids],
            "g": [float(i) if first == 11 else FLOATS[(i * 3) % 11] for i in ids],
            "s": [None if i % 6 == 0 else ("ab", "abc", "x%", "", "Ä", "b_1")[i % 6] for i in ids],
            "d": [None if i % 4 == 0 else Decimal(i - 9) / 4 for i in ids],
            "day": [t.date() if i % 3 else None for i, t in zip(ids, times, strict=True)],
            "b": [(True, False, None)[i % 3] for i in ids],
            "local": [t.replace(tzinfo=None) for t in times],
        },
        schema=SCHEMA,
    )


def plain():
    t = Table.create("", SCHEMA, store=MemoryStore(), time_column="ts")
    for first in range(0, 44, 11):
        append(t, rows_of(first))
    return t


def deleted_from():
    t = plain()
    delete(t, where="n = 2 OR id = 12")
    return t


def keyed():
    t = Table.create("", SCHEMA, store=MemoryStore(), time_column="ts", key=("id", "ts"), buckets=2)
    for first in (0, 11, 22, 5):
        upsert(t, rows_of(first))
    return t


TABLES = {"plain": plain, "deleted from": deleted_from, "keyed": keyed}
PREDICATES = (
    "n > 1",
    "n >= -1 AND n < 2",
    "n <> 2",
    "NOT (n > 1)",
    "n IS NULL",
    "n IS NOT NULL AND f > 1",
    "n IN (1, 2, 9)",
    "n NOT IN (1, 2)",
    "n IN (1, NULL)",
    "n BETWEEN -1 AND 1",
    "n NOT BETWEEN -1 AND 1",
    "n IS DISTINCT FROM 1",
    "n + 1 > 2",
    "f > 1",
    "f >= 1.5",
    "f < 1",
    "f <= 0",
    "f = 0",
    "f <> 1.5",
    "NOT (f > 1)",
    "NOT (f <= 1)",
    "f > g",
    "f <= g",
    "f = g",
    "f IS NULL OR g > 5",
    "f BETWEEN 0 AND 3",
    "f IN (1.5, 3)",
    "f NOT IN (1.5, 3)",
    "f = CAST('NaN' AS DOUBLE)",
    "f >= CAST('NaN' AS DOUBLE)",
    "f < CAST('Infinity' AS DOUBLE)",
    "g > 10",
    "g < 0 OR f > 2 AND n > 0",
    "s = 'ab'",
    "s LIKE 'ab%'",
    "s LIKE '%b%'",
    "s > 'ab'",
    "s IN ('ab', 'Ä', 'none')",
    "s NOT IN ('ab', 'x%')",
    "s IS NULL AND n > 0",
    "d > 1.25",
    "d <= CAST(2.5 AS DECIMAL(9, 2))",
    "d BETWEEN 0 AND 2",
    "day >= DATE '2013-01-09'",
    "ts < TIMESTAMP '2013-01-08 12:00:00+00'",
    "ts BETWEEN '2013-01-08T00:00:00+00:00' AND '2013-01-09T00:00:00+00:00'",
    "local > TIMESTAMP '2013-01-09 03:00:00'",
    "b",
    "NOT b",
    "b IS NOT TRUE",
    "id IN (0, 3, 12, 13, 27, 40) AND f IS NOT NULL",
    "(n > 1 OR s = 'x%') AND NOT (f > 2 OR d < 0)",
)


def in_duckdb(rows, predicates):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    if isinstance(rows, pa.Table):  # as a table of its own: it pushes filters into Arrow's, too
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    else:
        connection.register("t", rows)
    for predicate in predicates:
        found = connection.sql(f"SELECT id, n FROM t WHERE {predicate} ORDER BY id")
        yield predicate, lambda found=found: found.fetchall()


def in_datafusion(rows, predicates):
    context = pytest.importorskip("datafusion").SessionContext()
    if isinstance(rows, pa.Table):
        context.register_record_batches("t", [rows.to_batches()])
    else:
        context.register_dataset("t", rows)
    for predicate in predicates:
        sql = f"SELECT id, n FROM t WHERE {predicate} ORDER BY id"
        yield predicate, lambda sql=sql: context.sql(sql).to_pylist()


def in_polars(rows, predicates):
    if isinstance(rows, pa.Table):
        rows = pl.from_arrow(rows).lazy()
    for predicate in predicates:
        query = pl.SQLContext(t=rows)
        sql = f"SELECT id, n FROM t WHERE {predicate} ORDER BY id"
        yield predicate, lambda query=query, sql=sql: query.execute(sql).collect().rows()


def ordinary(rows):
    """Rows in which no NaN has a sign, by which DataFusion would order them."""
    floats = {"f": pl.col("f").fill_nan(math.nan), "g": pl.col("g").fill_nan(math.nan)}
    return pl.from_arrow(rows).with_columns(**floats).to_arrow().cast(rows.schema)


ENGINES = {
    "duckdb": (in_duckdb, dataset),
    "datafusion": (in_datafusion, dataset),
    "polars": (in_polars, lazy),
    "polars over a dataset": (in_polars, lambda t: pl.scan_pyarrow_dataset(dataset(t))),
}


def answers(engine, rows, predicates):
    """Answers by predicate; without those that the engine itself refuses."""
    found = {}
    for predicate, answer in engine(rows, predicates):
        try:
            found[predicate] = answer()
        except Exception as error:  # noqa: BLE001 - each engine has its own errors
            found[predicate] = str(error)
    return found


SOME, ALL = PREDICATES[::3], PREDICATES
CASES = [
    ("plain", ALL),
    *(pytest.param((name, SOME), marks=pytest.mark.verify) for name in ("deleted from", "keyed")),
    *(pytest.param((name, ALL), marks=pytest.mark.long) for name in ("deleted from", "keyed")),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{len(case[1])}")
def asked(request):
    """A table, and the predicates to ask it."""
    name, predicates = request.param
    return TABLES[name](), predicates


@pytest.mark.parametrize("name", ENGINES)
def test_a_pushed_filter_gives_the_engine_s_own_answer(asked, name):
    table, predicates = asked
    engine, opened = ENGINES[name]
    copied = answers(engine, ordinary(scan(table).to_table()), predicates)
    own = {p: rows for p, rows in copied.items() if not isinstance(rows, str)}
    pushed = answers(engine, opened(table), predicates)
    assert {p: pushed[p] for p in own} == own
    assert len(own) > 0.55 * len(predicates)
