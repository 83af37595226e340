"""What the first append of a new process costs: CPU and memory, on one core as in a small function.

Each system in turn, in a process of its own, to a table that is there already.
"""

import json
import statistics

import peers
import pyarrow as pa
from harness import Failed, child

from eventlog.store.testing.local_server import LocalServer

BUCKET = "bench"
GOAL_S = 1.0


def run(bench):
    path = bench.folder / "rows.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, peers.SMALL) as writer:
        writer.write_table(peers.small_rows())
    with LocalServer() as server:
        server.create_bucket(BUCKET)
        options = server.storage_options()
        _measure(bench, "S3", f"s3://{BUCKET}/cold", path, options)
    _measure(bench, "a directory", bench.folder / "cold", path, None)


def _measure(bench, words, folder, path, options):
    """Append once in each of several new processes, the systems in turn."""
    tables = {
        name: table
        for name, table in peers.open_all(folder, options).items()
        if not isinstance(table, Exception) and name != "pyiceberg"  # its catalog is its own
    }
    env = {"BENCH_OPTIONS": json.dumps(options)}
    told = {name: [] for name in tables}
    for _ in range(bench.size(7, 1)):
        for name, table in tables.items():
            try:
                told[name].append(
                    child("first_append.py", name, table.root, path, timeout_s=60, env=env)
                )
            except Failed as error:
                bench.emit(f"cold start, {words}: {name} failed", {name: "failed"}, note=str(error))
    _emit(bench, words, {name: found for name, found in told.items() if found})


def _emit(bench, words, told):
    def median(field, digits):
        return {
            name: round(statistics.median(one[field] for one in found), digits)
            for name, found in told.items()
        }

    cpu = median("cpu_s", 2)
    bench.emit(
        f"first append of a new process, {words}: CPU s since it began",
        cpu,
        "s",
        goal=f"< {GOAL_S:.0f}",
        met="eventlog" in cpu and cpu["eventlog"] < GOAL_S,
    )
    bench.emit(f"… of which the import of the library, {words}", median("import_s", 2), "s")
    bench.emit(f"… its peak memory, {words}: MB", median("rss_mb", 0), "MB")
