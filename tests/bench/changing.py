"""Deletes and updates of few rows that are spread over many files, and a scan afterwards.

Every system has one file for each hour, written at once; the rows to change are a thousandth, some
in each file, so that no statistics help to find them. What a system has no documented call for is
left out of its row.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import datetime as dt
import time

import peers
import pyarrow as pa
from harness import kinds, short

from eventlog.store.testing.local_server import LocalServer

BUCKET = "bench"
FILE_ROWS = 5000
START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        (peers.TIME, pa.timestamp("us", tz="UTC")),
        ("hour", pa.int32()),
        ("id", pa.int64()),
        ("mark", pa.int32()),
        ("value", pa.float64()),
        ("name", pa.string()),
    ]
)


def rows_of(files):
    """The rows of so many hours; `mark` is 1 and 2 for a thousandth each, and 0 for the others."""
    ids = range(files * FILE_ROWS)
    return pa.table(
        {
            peers.TIME: pa.array(
                [START + dt.timedelta(seconds=0.72 * i) for i in ids], SCHEMA.field(0).type
            ),
            "hour": pa.array([i // FILE_ROWS for i in ids], pa.int32()),
            "id": pa.array(ids, pa.int64()),
            "mark": pa.array([{500: 1, 700: 2}.get(i % 1000, 0) for i in ids], pa.int32()),
            "value": [i * 0.5 for i in ids],
            "name": [f"name {i % 50}" for i in ids],
        },
        schema=SCHEMA,
    )


class Eventlog(peers.Eventlog):
    def fill(self, rows):
        from eventlog import Table

        self.table = Table.create(
            self.root, SCHEMA, time_column=peers.TIME, granularity="hour",
            storage_options=self.options,
        )  # fmt: skip
        self.append(rows)

    def delete(self, where):
        from eventlog.writers import delete

        delete(self.table, where=where)

    def update(self):
        from eventlog.writers import update

        update(self.table, {"value": "value + 1"}, "mark = 2")

    def read(self):
        from eventlog.readers import scan

        return scan(self.root, storage_options=self.options).to_table()


class Delta(peers.Delta):
    def fill(self, rows):
        from deltalake import write_deltalake

        write_deltalake(self.root, rows, partition_by=["hour"], storage_options=self.options)
        self.table = self.open_head()

    def delete(self, where):
        self.table.delete(where)

    def update(self):
        self.table.update(updates={"value": "value + 1"}, predicate="mark = 2")

    def read(self):
        return self.open_head().to_pyarrow_table()


class Lance(peers.Lance):
    def fill(self, rows):
        import lance

        self.table = lance.write_dataset(
            rows, self.root, max_rows_per_file=FILE_ROWS, storage_options=self.options
        )

    def delete(self, where):
        self.table.delete(where)

    def update(self):
        self.table.update({"value": "value + 1"}, where="mark = 2")

    def read(self):
        return self.open_head().to_table()


class Iceberg(peers.Iceberg):
    def fill(self, rows):
        self.create(SCHEMA, "hour")
        self.append(rows)

    def delete(self, where):
        self.table.delete(where.replace("mark", '"mark"').replace("hour", '"hour"'))

    def read(self):
        return self.open_head().to_arrow()


SYSTEMS = {"eventlog": Eventlog, "deltalake": Delta, "pylance": Lance, "pyiceberg": Iceberg}


def run(bench):
    files = bench.size(1000, 20)
    with LocalServer() as server:
        server.create_bucket(BUCKET)
        made, rows = {}, rows_of(files)
        for name in peers.present():
            table = SYSTEMS[name](f"s3://{BUCKET}/{name}", server.storage_options())
            try:
                table.fill(rows)
            except Exception as error:
                bench.emit(f"{files} files: {name} failed", {name: "failed"}, note=short(error))
            else:
                made[name] = table
        steps = _Steps(bench, server, made)
        before = steps.cpu_of_read(files * FILE_ROWS)
        few = FILE_ROWS // 1000
        some = f"of {files * few} rows, {few} in each of {files} files"
        # One read of each segment, the vectors and the commit.
        steps.take(f"delete {some}", "delete", "mark = 1", goal=files + 2)
        after = steps.cpu_of_read(files * (FILE_ROWS - few))
        ratios = {name: after[name] / before[name] for name in after if before.get(name)}
        bench.emit(
            "CPU of a scan after that delete, beside before", ratios, unit="times",
            goal="≤ 1.1", met=ratios.get("eventlog", 9) <= 1.1,
        )  # fmt: skip
        steps.take(f"update {some}", "update")
        half = files // 2
        steps.take(f"delete of {half} whole files by their statistics", "delete", f"hour < {half}")
        steps.check((files - half) * (FILE_ROWS - few))


class _Steps:
    def __init__(self, bench, server, tables):
        self._bench, self._server, self._tables = bench, server, tables

    def take(self, work, call, *arguments, goal=None):
        """Have every table that can do it do it once; emit requests, bytes and CPU time."""
        requests, sizes, cpu, told = {}, {}, {}, []
        for name, table in list(self._tables.items()):
            if not hasattr(table, call):
                continue
            started = time.process_time()
            try:
                with self._server.measure() as counts:
                    getattr(table, call)(*arguments)
            except Exception as error:
                self._bench.emit(f"{work}: {name} failed", {name: "failed"}, note=short(error))
                del self._tables[name]
                continue
            cpu[name] = time.process_time() - started
            told.append(f"{name} {kinds(counts)}")
            requests[name], sizes[name] = counts.total, counts.bytes_written
        met = None if goal is None else requests.get("eventlog", goal + 1) <= goal
        self._bench.emit(
            f"{work}: requests", requests, goal="" if goal is None else f"≤ {goal}", met=met,
            note="; ".join(told),
        )  # fmt: skip
        share = sizes.get("eventlog", 0) / sizes["deltalake"] if sizes.get("deltalake") else None
        self._bench.emit(
            f"{work}: bytes written", sizes, unit="B",
            goal="≤ 1 % of deltalake" if goal else "",
            met=share is not None and share <= 0.01 if goal else None,
        )  # fmt: skip
        self._bench.emit(f"{work}: CPU time, one run", cpu, unit="s")

    def cpu_of_read(self, wanted):
        """Return the CPU seconds of reading each table, the least of three times."""
        seconds = {}
        for name, table in self._tables.items():
            runs = []
            for _ in range(3):
                started = time.process_time()
                found = table.read().num_rows
                runs.append(time.process_time() - started)
                assert found == wanted, f"{name}: {found:,} rows and not {wanted:,}"
            seconds[name] = min(runs)
        return seconds

    def check(self, wanted):
        """Fail if a table does not have that many rows."""
        for name, table in self._tables.items():
            found = table.read().num_rows
            assert found == wanted, f"{name}: {found:,} rows and not {wanted:,}"
