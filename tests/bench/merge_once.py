"""One merge of a keyed table in a process of its own: `merge_once.py WHAT ROOT BYTES`.

WHAT is `scan`, which merges while it reads, with so many bytes read ahead, or `compact`, with so
much memory. Prints how far memory grew above what was resident before (the high-water mark of the
process, and that of Arrow's allocations), CPU seconds, and rows.
"""

import json
import os
import sys
import time
from dataclasses import replace

import pyarrow as pa
from harness import MEGABYTE, peak_rss_mb, reset_peak, rss_mb

from eventlog import Table
from eventlog.compaction import Policy, run
from eventlog.readers import scan


def main():
    what, root, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    table = Table.open(root)
    for _ in scan(table, where="id = 0").to_batches():  # libraries are loaded
        pass
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    pa.default_memory_pool().release_unused()
    reset_peak()
    resident_mb, cpu = rss_mb(), time.process_time()
    rows = merged(table, size) if what == "scan" else compacted(table, size)
    told = {
        "rows": rows,
        "grown_mb": peak_rss_mb() - resident_mb,
        "arrow_mb": pool.max_memory() / MEGABYTE,
        "cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(told), flush=True)
    os._exit(0)  # what Arrow still holds from the pool must not outlive it


def merged(table, ahead_bytes):
    """Scan, without keeping the rows; return their number."""
    query = scan(table)
    query = replace(query, reading=replace(query.reading, ahead_bytes=ahead_bytes))
    return sum(batch.num_rows for batch in query.to_batches())


def compacted(table, memory_bytes):
    """Merge all slices; return the number of rows that went into it."""
    outcomes = run(table, policy=Policy(memory_bytes=memory_bytes)).outcomes
    assert {outcome.status for outcome in outcomes} == {"done"}, outcomes
    return sum(outcome.rows for outcome in outcomes)


if __name__ == "__main__":
    main()
