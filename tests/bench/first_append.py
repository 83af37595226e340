"""The first append of a new process on one core: `first_append.py SYSTEM ROOT ROWS`.

ROWS is a file of Arrow's IPC format, which is read without pandas. Prints CPU seconds since the
process began, those of the import of the library alone, and the peak memory.
"""

# ruff: noqa: PLC0415 - what is measured is imported where it is used
import json
import os
import sys
import time
from importlib import import_module

_LIBRARIES = {"eventlog": "eventlog", "deltalake": "deltalake", "pylance": "lance"}


def main():
    name, root, path = sys.argv[1:4]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    options = json.loads(os.environ.get("BENCH_OPTIONS", "null"))
    import pyarrow as pa

    before = time.process_time()
    import_module(_LIBRARIES.get(name, "pyiceberg.catalog.sql"))
    imported = time.process_time() - before
    import peers
    from harness import peak_rss_mb

    with pa.memory_map(path) as source:
        rows = pa.ipc.open_file(source).read_all()
    system = peers.SYSTEMS[name](root, options)
    system.attach()
    system.append(rows)
    told = {"import_s": imported, "cpu_s": time.process_time(), "rss_mb": peak_rss_mb()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
