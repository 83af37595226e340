"""Appends, deletes, updates, compaction and vacuum of the same chunks, by 8 processes on S3.

EVENTLOG_SOAK_MINUTES is how long.
"""

import os
import sys
from collections import Counter

import pytest
from soak.changed_rows import COMPACTORS, SCHEMA, WRITERS, work
from support import racers

from eventlog import Table
from eventlog.fsck.check import fsck
from eventlog.readers import count, scan

MINUTES = float(os.environ.get("EVENTLOG_SOAK_MINUTES", "1"))


@pytest.mark.soak
@pytest.mark.timeout(0)  # a run ends by itself
def test_changes_of_the_same_chunks_are_all_made_once(s3, bucket, capsys):
    uri, options = f"s3://{bucket}/table", s3.storage_options()
    table = Table.create(uri, SCHEMA, storage_options=options, time_column="at", granularity="day")
    seconds = MINUTES * 60
    found = racers.run(
        work, 8, uri, options, seconds, environment=s3.environment(), seconds=seconds + 280
    )
    counts = sum((counts for _, counts in found[:WRITERS]), Counter())
    compacted = sum(found[WRITERS : WRITERS + COMPACTORS], Counter())
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(counts)}, {dict(found[-1])}, compactions {dict(compacted)}\n")
    table.refresh()
    rows = scan(table, ["owner", "n", "v"]).to_table().to_pylist()
    there = {(row["owner"], row["n"]): row["v"] for row in rows}
    assert len(there) == len(rows) == count(table)
    wanted = {(o, n): v for o, (held, _) in enumerate(found[:WRITERS]) for n, v in held.items()}
    assert there == wanted
    assert fsck(table, checksums=True).errors == 0
    assert counts.keys() == {"append", "delete", "update", "merge", "overwrite"}
    assert compacted["done"]
    assert not compacted["failed"]
