"""Warm appends of 100 rows: requests each, time in a directory and at 50 ms a request, flatness."""

import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path

import peers
import synthetic
from harness import Server, alternate, medians
from peers import small_rows

from eventlog import Table
from eventlog.store.local import LocalStore
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.local_server import LocalServer
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

DELAY_MS = 50
IN_A_TURN = 5  # a handle that has rested for a second looks at the log once more
BUCKET = "bench"


def run(bench):
    _flat(bench)
    _requests(bench)
    _local(bench)
    _delayed(bench)


def _tables(bench, folder, options=None):
    made = peers.open_all(folder, options)
    for name, table in list(made.items()):
        if isinstance(table, Exception):
            bench.emit(f"{name} cannot be created", {name: "failed"}, note=str(table)[:160])
            del made[name]
    return made


def _requests(bench):
    rounds = bench.size(140, 5)
    rows = small_rows()
    with LocalServer() as server:
        server.create_bucket(BUCKET)
        tables = _tables(bench, f"s3://{BUCKET}/append", server.storage_options())
        actions = {name: lambda t=table: t.append(rows) for name, table in tables.items()}
        work = "warm append of 100 rows, S3"
        found = alternate(
            bench, actions, rounds, work=work, count=server.measure, share_s=bench.limit_s * 0.25
        )
    found = {name: sample for name, sample in found.items() if sample.requests}
    median = {name: statistics.median(s.requests) for name, s in found.items()}
    bench.emit(f"{work}: median", median, "requests", goal="1", met=median["eventlog"] == 1)
    usual = {name: statistics.mode(s.kinds) for name, s in found.items()}
    bench.emit(f"{work}: usual kinds", usual, goal="1 put", met=usual["eventlog"] == "1 put")
    appends = min(len(s.requests) for s in found.values())
    bench.emit(
        f"{work}: mean",
        {name: statistics.mean(s.requests) for name, s in found.items()},
        "requests",
        note=f"over {appends} appends each, key frames and checkpoints included",
    )
    bench.emit(
        f"{work}: greatest", {name: max(s.requests) for name, s in found.items()}, "requests"
    )


def _local(bench):
    """In a directory on disk, where fsync decides, and in one in memory, where the code does."""
    _directory(bench, bench.folder / "local", "directory on disk")
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=memory) as folder:
            _directory(bench, Path(folder), "directory in memory (tmpfs)")


def _directory(bench, folder, words):
    rows = small_rows()
    tables = _tables(bench, folder)
    actions = {name: lambda t=table: t.append(rows) for name, table in tables.items()}
    actions["reference"] = _floor(LocalStore(folder / "floor"))
    work = f"warm append of 100 rows, {words}"
    rounds, share_s = bench.size(30, 2), bench.limit_s * 0.1
    found = medians(alternate(bench, actions, rounds, work=work, share_s=share_s, each=IN_A_TURN))
    note = "reference: one file created durably (fsync of file and directory), nothing else"
    bench.emit(work, found, "ms", goal="< 2 ms", met=found["eventlog"] < 2, note=note)


def _delayed(bench):
    rows = small_rows()
    work = f"warm append of 100 rows, S3 with {DELAY_MS} ms a request"
    with Server(DELAY_MS) as server:
        options = server.storage_options()
        root = f"s3://{BUCKET}/delayed"
        tables = _tables(bench, root, options)
        actions = {name: lambda t=table: t.append(rows) for name, table in tables.items()}
        actions["reference"] = _floor(open_store(f"{root}/floor", options))
        rounds, share_s = bench.size(12, 3), bench.limit_s * 0.2
        samples = alternate(bench, actions, rounds, work=work, share_s=share_s, each=IN_A_TURN)
        found = medians(samples)
    note = "reference: one conditional PUT, nothing else"
    bench.emit(work, found, "ms", goal="≤ 60 ms", met=found["eventlog"] <= 60, note=note)


def _floor(store):
    """Return an append that stores what eventlog stores and thinks nothing."""
    numbers = itertools.count()
    commit = bytes(14_000)

    def put():
        store.put_if_absent(f"_log/{next(numbers)}.json", commit)

    return put


def _flat(bench):
    """Append one after the other to a store in memory: what grows shows, and nothing hides it.

    Once with all rows in one day, as events arrive, and once with made-up segments over 30 days, as
    late events do: then every key frame touches every leaf.
    """
    rows = small_rows()
    store = CountingStore(MemoryStore())
    table = Table.create("", peers.SMALL, time_column=peers.TIME, store=store)
    _grow(bench, "appends to one day", store, lambda _: append(table, rows), 0.75)
    spread_store = CountingStore(MemoryStore())
    spread = Table.create("", synthetic.COLUMNS, time_column=peers.TIME, store=spread_store)

    def scattered(number):
        synthetic.append_one(spread, number, number % 30)

    _grow(bench, "commits over 30 days", spread_store, scattered, 0.5)


def _grow(bench, words, store, add, spare):
    """Add again and again; compare the last tenth with the first by the mean.

    A median would not see the key frames, which fall due at one commit in 64.
    """
    commits = bench.size(10_000, 300)
    seconds, requests = [], []
    for number in range(commits):
        if bench.left_s < bench.limit_s * spare:
            bench.stopped(f"flatness, {words}", f"{len(seconds)} commits", commits)
            break
        store.reset()
        start = time.process_time()
        add(number)
        seconds.append(time.process_time() - start)
        requests.append(store.counts.total)
    tenth = max(1, len(seconds) // 10)
    ends = (slice(0, tenth), slice(-tenth, None))
    counts = [statistics.mean(requests[end]) for end in ends]
    times = [statistics.mean(seconds[end]) * 1000 for end in ends]
    flat = counts[1] / counts[0] <= 1.05 and times[1] / times[0] <= 1.25
    # Growth seen early is growth; only flatness needs the whole way.
    known = len(seconds) == commits or not flat
    bench.emit(
        f"{words}, memory: last tenth of {len(seconds):,} against the first",
        {"eventlog": f"requests x{counts[1] / counts[0]:.2f}, CPU x{times[1] / times[0]:.2f}"},
        goal="flat to 10,000: ≤ x1.05, CPU ≤ x1.25" + ("" if known else ": not measured"),
        met=flat if known else None,
        note=f"mean {counts[0]:.2f} then {counts[1]:.2f} requests (greatest {max(requests)}), "
        f"{times[0]:.2f} then {times[1]:.2f} ms of CPU (greatest {max(seconds) * 1000:.0f})",
    )
