"""Branches and copies: what it costs to make them, to append to a branch and to publish it.

Beside Lance, which has branches and deep clones, and Iceberg, whose branches share one table.
What a system has no documented call for is left out of its row.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import time

import peers
from harness import kinds, short
from peers import small_rows

from eventlog.store.testing.local_server import LocalServer

BUCKET, OTHER = "bench", "elsewhere"
BRANCH = "audit"
ROWS = 100


class Eventlog(peers.Eventlog):
    def branch(self):
        self.made = self.table.branch(BRANCH)

    def append_to_branch(self, rows):
        from eventlog.writers import append

        append(self.made, rows)

    def branch_rows(self):
        from eventlog import Table
        from eventlog.readers import scan

        made = Table.open(self.root, self.options, branch=BRANCH)
        return scan(made).to_table().num_rows

    def publish(self):
        self.table.merge(self.made)

    def copy(self):
        from eventlog.replication import follow

        follow(self.root, self._other, source_options=self.options, target_options=self.options)

    def copied_rows(self):
        from eventlog.readers import scan

        return scan(self._other, storage_options=self.options).to_table().num_rows

    @property
    def _other(self):
        return self.root.replace(BUCKET, OTHER, 1)


class Lance(peers.Lance):
    def branch(self):
        self.made = self.table.create_branch(BRANCH, storage_options=self.options)

    def append_to_branch(self, rows):
        self.made.insert(rows, storage_options=self.options)

    def branch_rows(self):
        made = self.open_head().checkout_version((BRANCH, None))
        return made.to_table().num_rows

    def copy(self):
        to, version = self.root.replace(BUCKET, OTHER, 1), self.open_head().version
        self.cloned = self.table.deep_clone(to, version, storage_options=self.options)

    def copied_rows(self):
        return self.cloned.to_table().num_rows


class Iceberg(peers.Iceberg):
    def branch(self):
        head = self.table.current_snapshot().snapshot_id
        self.table.manage_snapshots().create_branch(head, BRANCH).commit()

    def append_to_branch(self, rows):
        self.table.append(rows, branch=BRANCH)

    def branch_rows(self):
        table = self._catalog().load_table("n.t")
        return table.scan().use_ref(BRANCH).to_arrow().num_rows


SYSTEMS = {"eventlog": Eventlog, "pylance": Lance, "pyiceberg": Iceberg}


def run(bench):
    appends = bench.size(200, 5)
    with LocalServer() as server:
        for bucket in (BUCKET, OTHER):
            server.create_bucket(bucket)
        made = {}
        for name, system in SYSTEMS.items():
            if name in peers.present():
                made[name] = system(f"s3://{BUCKET}/{name}", server.storage_options())
                made[name].create(peers.SMALL)
        for table in made.values():
            for number in range(appends):
                table.append(small_rows(ROWS, number * ROWS))
        known = appends * ROWS
        steps = _Steps(bench, server, made)
        steps.take(f"branch of a table of {appends} appends", "branch", goal=7)
        for round_ in range(3):
            rows = small_rows(ROWS, known + round_ * ROWS)
            steps.take(
                f"append {round_ + 1} of {ROWS} rows to the branch",
                "append_to_branch", rows, goal=3 if round_ else None,
            )  # fmt: skip
        steps.check("branch_rows", known + 3 * ROWS)
        for table in made.values():
            table.append(small_rows(ROWS, known + 10 * ROWS))  # it has moved meanwhile
        steps.take("publish three appends to a table that has moved", "publish")
        steps.check("rows", known + 4 * ROWS, only="publish")
        steps.check("rows", known + ROWS, without="publish")
        steps.take("copy of the whole table to another bucket", "copy", size=True)
        steps.check("copied_rows", known + 4 * ROWS, only="publish")


class _Steps:
    def __init__(self, bench, server, tables):
        self._bench, self._server, self._tables = bench, server, tables

    def take(self, work, call, *arguments, goal=None, size=False):
        """Have every table that can do it do it once."""
        requests, sizes, told = {}, {}, []
        for name, table in list(self._tables.items()):
            if not hasattr(table, call):
                continue
            started = time.perf_counter()
            try:
                with self._server.measure() as counts:
                    getattr(table, call)(*arguments)
            except Exception as error:
                self._bench.emit(f"{work}: {name} failed", {name: "failed"}, note=short(error))
                del self._tables[name]
                continue
            told.append(f"{name} {kinds(counts)}, {time.perf_counter() - started:.2f} s")
            requests[name], sizes[name] = counts.total, counts.bytes_written
        met = None if goal is None else requests.get("eventlog", goal + 1) <= goal
        self._bench.emit(
            f"{work}: requests", requests, goal="" if goal is None else f"≤ {goal}", met=met,
            note="; ".join(told),
        )  # fmt: skip
        if size:
            self._bench.emit(f"{work}: bytes written", sizes, unit="B")

    def check(self, call, wanted, *, only=None, without=None):
        """Fail if a table does not have that many rows."""
        for name, table in self._tables.items():
            if (only and not hasattr(table, only)) or (without and hasattr(table, without)):
                continue
            if hasattr(table, call):
                found = getattr(table, call)()
                assert found == wanted, f"{name}: {found:,} rows and not {wanted:,}"
