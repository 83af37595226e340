"""One of many writers of one keyed table: `upserter.py ROOT SECONDS NUMBER`; number 0 compacts.

Says `ready`, waits for a line, works until the time is over, and prints what it committed. A batch
is a function of writer and number, so that the parent can make it again.
"""

import json
import random
import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import together

from eventlog import Table
from eventlog.compaction import run as compact
from eventlog.errors import EventLogError
from eventlog.writers import upsert

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("writer", pa.int64()),
        ("n", pa.int64()),
    ]
)
KEYS = 500
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def rows(writer, number):
    """The batch of a writer: some of the keys, at times that overlap those of other writers."""
    chance = random.Random(writer * 1_000_003 + number)
    keys = chance.sample(range(KEYS), 50)
    made = [
        {
            "id": k,
            "at": FIRST + timedelta(seconds=chance.randrange(5000)),
            "writer": writer,
            "n": number,
        }
        for k in keys
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def expected(journals):
    """The rows that must be there: of each key the one of the greatest (time, version).

    Args:
        journals: for each process, lists of (version, writer, number).
    """
    best = {row["id"]: ((row["at"], 1), row) for row in rows(0, 0).to_pylist()}
    for journal in journals:
        for version, writer, number in journal:
            for row in rows(writer, number).to_pylist():
                rank = (row["at"], version, writer)
                if row["id"] not in best or rank[:2] > best[row["id"]][0][:2]:
                    best[row["id"]] = rank, row
                elif rank[:2] == best[row["id"]][0][:2]:
                    # One commit of several writers: their order in it is not told here.
                    best[row["id"]] = rank, None
    return {key: row for key, (_, row) in best.items() if row is not None}


def main():
    root, seconds, number = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    table = Table.open(root, storage_options=together.options())
    together.wait_for_go()
    committed, failed, merges, count = [], 0, 0, 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        count += 1
        try:
            if number:
                committed.append((upsert(table, rows(number, count)), number, count))
            else:
                outcomes = compact(table).outcomes
                merges += sum(one.status == "done" for one in outcomes)
                failed += sum(one.status == "failed" for one in outcomes)
        except EventLogError:
            failed += 1
    print(json.dumps({"committed": committed, "failed": failed, "merges": merges}), flush=True)


if __name__ == "__main__":
    main()
