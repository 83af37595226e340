"""Selective queries that engines push into a version, beside a scan that has the question itself.

Counts requests and bytes of segments and of the log; the question has the columns and a filter.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import time
from datetime import UTC, datetime

import pyarrow as pa
import wide
from harness import MEGABYTE, short

from eventlog import Table
from eventlog.readers import dataset, lazy, scan
from eventlog.store.local import LocalStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

DAYS = 20
START, END = datetime(2024, 1, 9, 6, tzinfo=UTC), datetime(2024, 1, 9, 18, tzinfo=UTC)
QUESTIONS = {
    "12 of 480 hours": f"t >= '{START}' AND t < '{END}'",
    "one id": "id = 77777",
    "two countries of one day": f"country IN ('AT', 'CH') AND t >= '{START}' AND t < '{END}'",
}


def run(bench):
    rows = bench.size(2_000_000, 100_000)
    store = CountingStore(LocalStore(bench.folder / "table"))
    made = Table.create(store.uri, wide.SCHEMA, store=store, time_column=wide.TIME)
    stream = pa.RecordBatchReader.from_batches(wide.SCHEMA, wide.batches(rows, days=DAYS))
    append(made, stream)
    for name, where in QUESTIONS.items():
        expected = _asked(store, lambda t, where=where: _by_scan(t, where))
        for engine, ask in ENGINES.items():
            work = f"sum of a column, {name}, by {engine}"
            try:
                found = _asked(store, lambda t, ask=ask, where=where: ask(t, where))
            except Exception as error:
                bench.emit(work, {"eventlog": "failed"}, note=short(error))
                continue
            _emit(bench, work, found, expected)


def _emit(bench, work, found, expected):
    answer, requests, read, seconds = found
    wanted, few, little, quick = expected
    same = abs(answer - wanted) < 1e-6 * max(1, abs(wanted))
    near = requests <= few * 1.1 and read <= little * 1.1
    bench.emit(work, {"eventlog": requests, "reference": few}, "requests", met=near and same,
               goal="within 10 % of scan, and its answer")  # fmt: skip
    bench.emit("… bytes read", {"eventlog": read / MEGABYTE, "reference": little / MEGABYTE}, "MB")
    bench.emit("… time", {"eventlog": seconds, "reference": quick}, "s")


def _asked(store, ask):
    opened = Table.open(store.uri, store=store)
    with store.measure() as counts:
        began = time.perf_counter()
        answer = ask(opened)
        seconds = time.perf_counter() - began
    return answer, counts.total, counts.bytes_read, seconds


def _by_scan(t, where):
    import pyarrow.compute as pc

    return pc.sum(scan(t, ["amount"], where).to_table().column("amount")).as_py()


def _by_duckdb(t, where):
    import duckdb

    connection = duckdb.connect()
    connection.register("rows", dataset(t))
    return connection.sql(f"SELECT sum(amount) FROM rows WHERE {where}").fetchall()[0][0]


def _by_datafusion(t, where):
    import datafusion

    context = datafusion.SessionContext()
    context.register_dataset("rows", dataset(t))
    where = where.replace("+00:00'", "Z'")
    return context.sql(f"SELECT sum(amount) AS s FROM rows WHERE {where}").to_pylist()[0]["s"]


def _by_polars(t, where):
    import polars as pl

    wanted = {
        QUESTIONS["12 of 480 hours"]: pl.col("t").is_between(START, END, closed="left"),
        QUESTIONS["one id"]: pl.col("id") == 77777,
        QUESTIONS["two countries of one day"]: pl.col("country").is_in(["AT", "CH"])
        & pl.col("t").is_between(START, END, closed="left"),
    }[where]
    return lazy(t).filter(wanted).select(pl.col("amount").sum()).collect().item()


ENGINES = {
    "DuckDB": _by_duckdb,
    "DataFusion": _by_datafusion,
    "Polars": _by_polars,
}
