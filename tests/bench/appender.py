"""One of many writers of one table: `appender.py ROOT SECONDS NUMBER`.

Appends one row, says `ready`, waits for a line, appends one row after the other until the time is
over, and prints how long each append took.
"""

import json
import sys
import time
from datetime import UTC, datetime

import pyarrow as pa
import together

from eventlog import Table
from eventlog.writers import append


def main():
    root, seconds, number = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    table = Table.open(root, storage_options=together.options())
    schema = table.session.head().schema
    rows = pa.table({"at": [datetime(2013, 1, 7, tzinfo=UTC)], "writer": [number]}, schema=schema)
    append(table, rows)
    together.wait_for_go()
    latencies = []
    started_cpu = time.process_time()
    started = last = time.monotonic()
    while last - started < seconds:
        append(table, rows)
        now = time.monotonic()
        latencies.append(now - last)
        last = now
    told = {"latencies": latencies, "seconds": last - started}
    print(json.dumps({**told, "cpu_s": time.process_time() - started_cpu}), flush=True)


if __name__ == "__main__":
    main()
