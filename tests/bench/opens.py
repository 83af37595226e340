"""Opening the head and a version in the middle, after 10 to 10,000 commits, on S3.

Histories are written where that is fast (a store in memory, a directory) through each library's own
names, and their metadata is then laid into the server's buckets. PyIceberg writes absolute
addresses and is built on the server itself.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import statistics
import time
from pathlib import Path

import peers
import synthetic
from harness import alternate, medians
from peers import TIME, small_rows

from eventlog import Table
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.local_server import LocalServer

BUCKET = "bench"
LENGTHS = (10, 100, 1_000, 10_000)
ICEBERG_MOST = 100
# Halfway between two multiples of ten: no system has a checkpoint just there.
MIDDLE = 0.55


def run(bench):
    lengths = [n for n in LENGTHS if n <= bench.size(10_000, 100)]
    with LocalServer() as server:
        server.create_bucket(BUCKET)
        histories = _Histories(bench, server)
        flat = {}
        for length in lengths:
            systems = histories.grown(length)
            flat[length] = _measure(bench, server, systems, length)
        histories.in_memory(bench, lengths)


class _Histories:
    """One growing history of each system."""

    def __init__(self, bench, server):
        self.bench, self.server = bench, server
        self.store = MemoryStore()
        self.own = Table.create("", synthetic.COLUMNS, time_column=TIME, store=self.store)
        self.laid = set()
        self.local = peers.open_all(bench.folder / "open", names=("deltalake", "pylance"))
        self.iceberg = peers.open_all(
            f"s3://{BUCKET}/open", server.storage_options(), names=("pyiceberg",)
        )
        self.done = dict.fromkeys(("eventlog", "deltalake", "pylance", "pyiceberg"), 0)

    def grown(self, length):
        """Grow each history to `length` appends, as far as time allows; return the systems."""
        options = self.server.storage_options()
        found = {}
        self._grow("eventlog", length, self._add)
        for name, table in (*self.local.items(), *self.iceberg.items()):
            most = ICEBERG_MOST if name == "pyiceberg" else 1_000
            if length <= most and not isinstance(table, Exception):
                self._grow(name, length, table.append)
        self._lay()
        for name, system in peers.present().items():
            if self.done[name] == length:
                found[name] = system(f"s3://{BUCKET}/open/{name}", options)
        return found

    def _add(self, _):
        """Commit one made-up segment of a day to come: who opens a version reads no rows."""
        number = self.done["eventlog"]
        synthetic.append_one(self.own, number, number * synthetic.DAYS // max(LENGTHS))

    def in_memory(self, bench, lengths):
        """Measure the CPU of opening without a server: versions of the one history."""
        found = {}
        for length in lengths:
            if self.done["eventlog"] < length:
                continue
            versions = [max(1, length - i * length // 20) for i in range(10)]
            times = []
            for version in versions * 3:
                start = time.perf_counter()
                Table(self.store).snapshot(version)
                times.append(time.perf_counter() - start)
            found[length] = statistics.median(times) * 1000
        first, last = found[min(found)], found[max(found)]
        text = ", ".join(f"{n:,}: {ms:.2f}" for n, ms in found.items())
        bench.emit(
            "open a version, memory: ms by commits before it",
            {"eventlog": text},
            "ms",
            note=f"x{last / first:.2f}; cost follows the delta, at most 64 commits",
        )

    def _grow(self, name, length, add):
        rows = small_rows()
        while self.done[name] < length:
            spare = 0.1 if name == "eventlog" else 0.45
            if self.bench.left_s < self.bench.limit_s * spare:
                self.bench.stopped(f"history of {name}", f"{self.done[name]} appends", length)
                return
            add(rows)
            self.done[name] += 1

    def _lay(self):
        """Put new metadata objects into the server's bucket, past HTTP, which would take long."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

        def put(key, body):
            if key not in self.laid:
                backend.put_object(BUCKET, key, body)
                # The newest-version hint of a peer is the one object that is replaced.
                if not key.endswith(("_last_checkpoint", "hint.json")):
                    self.laid.add(key)

        for found in self.store.list("_"):
            put(f"open/eventlog/{found.key}", self.store.get(found.key))
        for name, folders in (
            ("deltalake", ("_delta_log",)),
            ("pylance", ("_versions", "_transactions")),
        ):
            root = Path(self.bench.folder / "open" / name)
            for folder in folders:
                for path in sorted((root / folder).rglob("*")):
                    if path.is_file():
                        put(f"open/{name}/{path.relative_to(root)}", path.read_bytes())


def _measure(bench, server, systems, length):
    middle = int(length * MIDDLE)
    share_s = bench.limit_s * 0.04
    questions = {
        "open head": ({n: s.open_head for n, s in systems.items()}, 3),
        "open an old version": (
            {n: lambda s=s: s.open_version(middle) for n, s in systems.items()},
            2,
        ),
        "open head and list all files": (
            {n: lambda s=s: s.list_files(s.open_head()) for n, s in systems.items()},
            None,
        ),
    }
    for question, (actions, most) in questions.items():
        work = f"{question}, {length:,} commits, S3"
        found = alternate(
            bench, actions, bench.size(5, 3), work=work, count=server.measure, share_s=share_s
        )
        requests = {n: statistics.median(s.requests) for n, s in found.items() if s.requests}
        own = requests.get("eventlog")
        goal = f"≤ {most}" if most else ""
        if most and own is None:
            goal += ": not measured"
        bench.emit(
            work,
            requests,
            "requests",
            goal=goal,
            met=None if most is None or own is None else own <= most,
        )
        if length <= 1_000:
            bench.emit(work, medians(found), "ms")
