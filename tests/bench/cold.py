"""One question to one table, asked by a fresh process: `cold.py SYSTEM ROOT QUESTION`.

Prints CPU seconds and wall time after the imports, and its own peak memory. Where the root is on S3
the environment variable BENCH_OPTIONS holds the storage options; the server counts the requests.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import json
import os
import sys
import time
from importlib import import_module

import peers
from harness import peak_rss_mb

DAY = "2024-06-01"
DAY_NUMBER = 152  # of `synthetic.FIRST_DAY`


def main():
    name, root, question = sys.argv[1:4]
    options = json.loads(os.environ.get("BENCH_OPTIONS", "null"))
    if name == "eventlog" and not options:
        told = _eventlog_local(root, question)
    else:
        told = _timed(lambda: _ask(name, root, options, question), _imports(name, options))
    print(json.dumps(told))


# What a program that uses the system has imported by the time it opens a table.
_MODULES = {
    "eventlog": (
        "eventlog", "eventlog.log.snapshot", "eventlog.store.local",
        "eventlog.store.testing.wrappers", "eventlog.readers.scanner", "pyarrow.parquet",
        "pyarrow.dataset",
    ),
    "deltalake": ("deltalake",),
    "pylance": ("lance",),
    "pyiceberg": ("pyiceberg.catalog.sql", "pyiceberg.table"),
}  # fmt: skip


def _imports(name, options):
    for module in (*_MODULES[name], *(("boto3", "eventlog.store.s3.adapter") if options else ())):
        import_module(module)
    return peak_rss_mb()


def _timed(ask, before_mb):
    known = set(sys.modules)
    cpu, wall = time.process_time(), time.perf_counter()
    found = ask()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "found": found,
        "cpu_s": cpu,
        "wall_s": wall,
        "rss_mb": peak_rss_mb(),
        "grown_mb": peak_rss_mb() - before_mb,
        "imported": sorted(set(sys.modules) - known),
    }


def _eventlog_local(root, question):
    before_mb = _imports("eventlog", None)
    from eventlog.store.local import LocalStore
    from eventlog.store.testing.wrappers import CountingStore

    store = CountingStore(LocalStore(root))
    told = _timed(lambda: _plan(store, question), before_mb)
    counts = store.counts
    return told | {"requests": counts.total, "bytes_read": counts.bytes_read}


def _plan(store, question):
    """Open the head; plan one day, by chunk or predicate, or the whole table in columns."""
    import pyarrow.compute as pc

    from eventlog import Table
    from eventlog.readers import scan
    from eventlog.store.location import open_store

    if isinstance(store, tuple):
        store = open_store(*store)
    table = Table.open("", store=store)
    if question == "all":
        return scan(table).plan.entries.num_rows
    snapshot = table.session.head()
    if question == "day":
        return len(snapshot.segments(chunks=[DAY]))
    if question == "where":
        from datetime import UTC, datetime, timedelta

        start = datetime.fromisoformat(DAY).replace(tzinfo=UTC)
        time_of = pc.field(peers.TIME)
        where = (time_of >= start) & (time_of < start + timedelta(days=1))
        return len(snapshot.segments(where=where))
    return len(snapshot.segments())


def _ask(name, root, options, question):
    if name == "eventlog":
        return _plan((root, options), question)
    system = peers.SYSTEMS[name](root, options)
    opened = system.open_head()
    if question != "day":
        return system.list_files(opened)
    if name == "deltalake":
        return len(opened.file_uris([("day", "=", DAY)]))
    if name == "pyiceberg":
        return len(list(opened.filter(f"day == '{DAY}'").plan_files()))
    return system.list_files(opened)  # Lance keeps no statistics of files to plan by


if __name__ == "__main__":
    main()
