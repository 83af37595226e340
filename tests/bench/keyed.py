"""Keyed tables: upserts, look-ups, and what merging on read costs beside a table without a key."""

import random
import statistics
import time
from contextlib import ExitStack

import merges
import pyarrow as pa
import pyarrow.compute as pc
import together
import upserter
from harness import Server, child

from eventlog import Table
from eventlog.compaction import run as compact
from eventlog.readers import scan
from eventlog.readers.keyed import applied
from eventlog.store.testing.local_server import LocalServer
from eventlog.writers import append, upsert

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("updated", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        *[(f"x{n}", pa.int64()) for n in range(4)],
        ("y", pa.float64()),
    ]
)
START_US = 1_704_067_200_000_000
DAY_US = 86_400_000_000
MIB = 2**20


def run(bench):
    _requests(bench)
    merges.run(bench)
    _costs(bench)
    _lookup(bench)
    _memory(bench)
    _crowd(bench)


def rows_of(ids, day):
    """Rows of these ids, as they were updated on a day."""
    times = pa.repeat(pa.scalar(START_US + day * DAY_US, pa.int64()), len(ids))
    values = [pc.multiply(ids, n + day) for n in range(4)]
    columns = [ids, times, pc.cast(ids, pa.string()), *values, pc.cast(ids, pa.float64())]
    return pa.table([c.cast(f.type) for c, f in zip(columns, COLUMNS, strict=True)], schema=COLUMNS)


def _sample(count, of, seed):
    return pa.array(sorted(random.Random(seed).sample(range(of), count)), pa.int64())


def _keyed(root, buckets=16, options=None):
    return Table.create(
        root, COLUMNS, time_column="updated", key="id", buckets=buckets, order_by="updated",
        storage_options=options,
    )  # fmt: skip


def _requests(bench):
    with LocalServer() as server:
        server.create_bucket("bench")
        for buckets in (16, 256):
            t = _keyed(f"s3://bench/{buckets}", buckets, server.storage_options())
            upsert(t, rows_of(pa.array(range(10_000), pa.int64()), 0))
            counts = []
            for day in range(1, bench.size(30, 3)):
                rows = rows_of(_sample(100, 10_000, day), day)
                with server.measure() as counted:
                    upsert(t, rows)
                counts.append(counted.total)
            median = statistics.median(counts)
            work = f"warm upsert of 100 keys into {buckets} buckets, S3"
            bench.emit(work, {"eventlog": median}, "requests", goal="2", met=median == 2)


def _cpu_of(rounds, actions):
    """Return the median CPU seconds of each action, run in turn."""
    seconds = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.process_time()
            action()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def _costs(bench):
    count = bench.size(2_000_000, 50_000)
    ids = pa.array(range(count), pa.int64())
    plain = Table.create(bench.folder / "plain", COLUMNS, time_column="updated", granularity="all")
    append(plain, rows_of(ids, 0))
    t = _keyed(bench.folder / "keyed")
    upsert(t, rows_of(ids, 0))
    compact(t)
    versions = {"compacted": t.refresh().version}
    versions["1 %"] = upsert(t, rows_of(_sample(count // 100, count, 1), 1))
    versions["10 %"] = upsert(t, rows_of(_sample(count // 10, count, 2), 2))
    rounds = bench.size(5, 1)
    for what, columns in (("all columns", None), ("two columns", ["x1", "x2"])):

        def first(version, columns=columns):
            applied.forget()
            scan(t, columns, version=version).to_table()

        actions = {"plain": lambda c=columns: scan(plain, c).to_table()}
        for name, version in versions.items():
            actions[name] = lambda v=version, first=first: first(v)
            if name != "compacted":
                again = f"{name}, again"
                actions[again] = lambda v=version, c=columns: scan(t, c, version=v).to_table()
        found = _cpu_of(rounds, actions)
        limits = {
            "compacted": 1.2, "1 %": 1.3 if columns else None, "1 %, again": None,
            "10 %": 2 if columns else 2.5, "10 %, again": None,
        }  # fmt: skip
        for name, limit in limits.items():
            share, _, again = name.partition(", ")
            state = "after compaction" if name == "compacted" else f"with {share} in logs"
            state += ", the second of the process" if again else ""
            times = found[name] / found["plain"]
            bench.emit(
                f"scan of {what}, {count:,} keys, {state}, against a table without a key",
                {"eventlog": f"x{times:.2f}"},
                goal="" if limit is None else f"≤ x{limit} CPU",
                met=None if limit is None else times <= limit,
                note=f"{found[name]:.2f} and {found['plain']:.2f} s of CPU",
            )


def _lookup(bench):
    count, part = bench.size(10_000_000, 100_000), bench.size(1_000_000, 50_000)
    with LocalServer() as server:
        server.create_bucket("bench")
        options = server.storage_options()
        t = _keyed("s3://bench/look-up", 64, options)
        for first in range(0, count, part):
            upsert(t, rows_of(pa.array(range(first, first + part), pa.int64()), 0))
        compact(t)
        with server.measure() as counted:
            found = scan(
                "s3://bench/look-up", where=f"id = {count // 3}", storage_options=options
            ).to_table()
    assert found.num_rows == 1
    megabytes = counted.bytes_read / 10**6
    bench.emit(
        f"look-up of one key of {count:,}, 64 buckets, cold, S3",
        {"eventlog": f"{counted.total} requests, {megabytes:.2f} MB"},
        goal="≤ 3 + 2 requests, < 0.5 MB",
        met=counted.total <= 5 and megabytes < 0.5,
    )


def _memory(bench):
    """Merge one bucket of logs, with one input and with twice as much, under the same setting."""
    part = bench.size(500_000, 20_000)
    for what, size in (("scan", 16 * MIB), ("compact", 128 * MIB)):
        grown, arrow = [], []
        for parts in (4, 8):
            root = bench.folder / f"{what}-{parts}"
            t = _keyed(root, 1)
            for day in range(parts):
                upsert(t, rows_of(_sample(part, 4 * part, day), day))
            told = child("merge_once.py", what, root, size, timeout_s=max(30, bench.left_s))
            grown.append(told["grown_mb"])
            arrow.append(told["arrow_mb"])
        setting = f"{'ahead_bytes' if what == 'scan' else 'memory_bytes'}={size // MIB} MiB"
        bench.emit(
            f"{what} of one bucket, {4 * part:,} and {8 * part:,} rows of logs, {setting}: memory",
            {"eventlog": f"{grown[0]:.0f}, {grown[1]:.0f}"},
            "MB grown",
            goal="by the setting, not by the rows",
            met=arrow[1] <= 1.2 * arrow[0],
            note=f"of Arrow {arrow[0]:.0f} and {arrow[1]:.0f} MB",
        )


def _crowd(bench):
    """Eight processes upsert the same keys while a ninth merges slices all the time."""
    seconds, writers = bench.size(60, 3), bench.size(8, 2)
    with Server() as server:
        root = "s3://bench/crowd"
        t = Table.create(
            root, upserter.SCHEMA, time_column="at", key="id", buckets=8, order_by="at",
            storage_options=server.storage_options(),
        )  # fmt: skip
        upsert(t, upserter.rows(0, 0))
        limits = {"environment": together.environment_of(server), "timeout_s": seconds * 3 + 30}
        with ExitStack() as stack:
            running = [
                stack.enter_context(together.started("upserter.py", root, seconds, n, **limits))
                for n in range(writers + 1)  # the last one, number 0, compacts
            ]
            together.ready(running)
            together.go(running)
            told = together.answers(running)
        answered = [one for one in told if one is not None]
        seen = {row["id"]: row for row in scan(t).to_table().to_pylist()}
    expected = upserter.expected(one["committed"] for one in answered)
    wrong = sum(seen.get(i) != row for i, row in expected.items())
    failed = len(told) - len(answered) + sum(one["failed"] for one in answered)
    work = f"{writers} writers upserting the same keys for {seconds} s, compaction beside"
    commits = sum(len(one["committed"]) for one in answered)
    merges = sum(one["merges"] for one in answered)
    note = f"{commits} upserts, {merges} merges"
    bench.emit(f"{work}: failures", {"eventlog": failed}, goal="0", met=failed == 0, note=note)
    bench.emit(
        f"{work}: keys that differ from the model", {"eventlog": wrong}, goal="0", met=wrong == 0
    )
