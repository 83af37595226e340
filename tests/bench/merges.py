"""Upserts by key, beside the merges of other table formats: requests, bytes written, CPU.

Their merges read the rows that they replace and rewrite them; an upsert here appends, and scans
merge. So the scans after it are measured, too. Every adapter uses its library's documented public
names with their defaults.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import random
import statistics
import time

import peers
import pyarrow as pa
import pyarrow.compute as pc
from harness import MEGABYTE, Server, short

KEY, UPDATED = "id", "updated"
COUNT = 336_776
COLUMNS = pa.schema(
    [
        (KEY, pa.int64()),
        (UPDATED, pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        *[(f"x{n}", pa.int64()) for n in range(4)],
        ("delay", pa.float64()),
    ]
)
START_US = 1_704_067_200_000_000
DAY_US = 86_400_000_000


def rows_of(ids, day):
    """Rows of these ids, as they were updated on a day; each value a function of both."""
    chance = [i * 2_654_435_761 % 2**32 for i in ids]
    times = [START_US + day * DAY_US + c % DAY_US for c in chance]
    columns = [
        ids,
        times,
        [f"carrier {c % 16}" for c in chance],
        [("EWR", "JFK", "LGA")[c % 3] for c in chance],
        *[[c % (100 * 10**n) + day for c in chance] for n in range(4)],
        [float(c % 600) - 60 + day for c in chance],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], COLUMNS)


class Eventlog(peers.Eventlog):
    def load(self, rows):
        from eventlog import Table
        from eventlog.compaction import run
        from eventlog.writers import upsert

        self.table = Table.create(
            self.root, COLUMNS, time_column=UPDATED, key=KEY, order_by=UPDATED,
            storage_options=self.options,
        )  # fmt: skip
        upsert(self.table, rows)
        run(self.table)

    def upsert(self, rows):
        from eventlog.writers import upsert

        upsert(self.table, rows)

    def read(self, columns):
        from eventlog.readers import scan

        return scan(self.table, columns).to_table()


class Delta(peers.Delta):
    def load(self, rows):
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(self.root, rows, storage_options=self.options)
        self.table = DeltaTable(self.root, storage_options=self.options)

    def upsert(self, rows):
        merge = self.table.merge(
            rows, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self, columns):
        return self.table.to_pyarrow_table(columns=columns)


class Lance(peers.Lance):
    def load(self, rows):
        import lance

        self.table = lance.write_dataset(rows, self.root, storage_options=self.options)

    def upsert(self, rows):
        merge = self.table.merge_insert(KEY)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def read(self, columns):
        return self.table.to_table(columns=columns)


SYSTEMS = {"eventlog": Eventlog, "deltalake": Delta, "pylance": Lance}


def run(bench):
    """Measure upserts of 100 keys and of 1 %, spread over all keys, and scans after the latter."""
    count = bench.size(COUNT, 5000)
    rounds = bench.size(5, 1)
    with Server() as server:
        options = server.storage_options()
        live = {}
        for name in peers.present(*SYSTEMS):
            system = SYSTEMS[name](f"s3://bench/merges/{name}", options)
            try:
                system.load(rows_of(range(count), 0))
            except Exception as error:
                bench.emit(f"{name} failed", {name: "failed"}, note=short(error))
            else:
                live[name] = system
        before = _scans(live, rounds)
        one_percent = count // 100
        _upserts(bench, server, live, (count, one_percent), rounds=1)
        _report_scans(bench, before, _scans(live, rounds), _answers(live))
        for keys, what in ((100, "100 keys"), (one_percent, "1 %")):
            found = _upserts(bench, server, live, (count, keys), rounds=rounds, first=1)
            _report_upserts(bench, f"upsert of {what} into {count:,} rows, S3", found, keys)


def _upserts(bench, server, live, sizes, *, rounds, first=0):
    """Return for each system the requests, the CPU seconds and the bytes of some upserts.

    Args:
        bench: for what fails.
        server: counts the requests.
        live: the systems by name; what fails is taken out.
        sizes: number of keys in the tables, and in an upsert.
        rounds: number of upserts, each of other keys.
        first: the number of the first one.
    """
    count, keys = sizes
    found = {name: [] for name in live}
    for number in range(first, first + rounds):
        ids = sorted(random.Random(keys * 1000 + number).sample(range(count), keys))
        rows = rows_of(ids, number + 1)
        for name, system in list(live.items()):
            server.counts()
            start = time.process_time()
            try:
                system.upsert(rows)
            except Exception as error:
                del live[name]
                bench.emit(f"upsert: {name} failed", {name: "failed"}, note=short(error))
                continue
            seconds = time.process_time() - start
            counts = server.counts()
            found[name].append((counts["total"], seconds, counts["bytes_written"] / MEGABYTE))
    return {name: values for name, values in found.items() if values}


def _report_upserts(bench, work, found, keys):
    requests, seconds, written = (
        {name: statistics.median(v[place] for v in values) for name, values in found.items()}
        for place in range(3)
    )
    most = 2 if keys == 100 else 10
    bench.emit(
        f"{work}: requests", requests, "requests",
        goal=f"≤ {most}", met=requests.get("eventlog", most + 1) <= most,
    )  # fmt: skip
    bench.emit(
        f"{work}: CPU", _rounded(seconds, 3), "s", goal="≤ 1.5",
        met=seconds.get("eventlog", 2) <= 1.5,
    )  # fmt: skip
    bench.emit(
        f"{work}: written", _rounded(written, 3), "MB", goal="≤ 0.2",
        met=written.get("eventlog", 1) <= 0.2,
    )  # fmt: skip


def _scans(live, rounds):
    """Return the median CPU seconds of scans of all columns and of two, for each system."""
    found = {}
    for columns in (None, ("x1", "x2")):
        seconds = {name: [] for name in live}
        for _ in range(rounds):
            for name, system in live.items():
                start = time.process_time()
                system.read(None if columns is None else list(columns))
                seconds[name].append(time.process_time() - start)
        found[columns] = {name: statistics.median(s) for name, s in seconds.items()}
    return found


def _report_scans(bench, before, after, same):
    for columns, found in after.items():
        what = "all columns" if columns is None else "two columns"
        times = {n: f"x{s / before[columns][n]:.2f} ({s:.3f} s)" for n, s in found.items()}
        own = found["eventlog"] / before[columns]["eventlog"]
        bench.emit(
            f"scan of {what} after an upsert of 1 %, against the scan before it: CPU", times,
            goal="≤ x1.3", met=own <= 1.3,
        )  # fmt: skip
    bench.emit("… rows that differ between the systems", {"eventlog": same}, goal="0", met=not same)


def _answers(live):
    """Return how many rows differ between eventlog and the others."""
    tables = [system.read(None).select(COLUMNS.names).cast(COLUMNS) for system in live.values()]
    first, *others = (t.take(pc.sort_indices(t.column(KEY))) for t in tables)
    return sum(other.num_rows != first.num_rows or not other.equals(first) for other in others)


def _rounded(values, digits):
    return {name: round(value, digits) for name, value in values.items()}
