"""Write the golden table `large`: one segment of more than 1 MiB, which ends with a tail.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_large.py

Like the other tables it is written once a format. Its text is one letter, and is not compressed, so
that the object is large and a copy of the repository is not.
"""

import hashlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from golden import make
from support.field_ids import with_ids

from eventlog.clock import ManualClock
from eventlog.format import keys, parts
from eventlog.model.actions import Add
from eventlog.model.entries import ColumnStats

NAME = "large"
SCHEMA = make.PLAIN.append(pa.field("text", pa.string()))
ROWS = 12


def make_large(clock: ManualClock) -> None:
    """A segment of two row groups, of three columns."""
    t = make.open_at(NAME, SCHEMA, clock, properties={"stats_columns": "at"})
    numbers = range(ROWS)
    rows = pa.table([numbers, numbers, ["x" * 100_000] * ROWS], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(
        with_ids(rows, t.snapshot().stored_schema), sink, compression="none", use_dictionary=False,
        write_statistics=False, store_schema=False, row_group_size=ROWS // 2,
    )  # fmt: skip
    parquet = sink.getvalue()
    cut, tail = parts.make_tail(memoryview(parquet))
    body = bytes(parquet[:cut]) + tail
    stats = (ColumnStats(1, 0, ROWS - 1, 0),)
    checksum = hashlib.sha256(body).hexdigest()
    add = Add(clock.random_id(), "1970-01-01", 0, ROWS, len(body), checksum, 1, stats)
    add = Add(*(getattr(add, f) for f in add.__struct_fields__[:8]), tail=parts.describe(tail))
    t.store.put_if_absent(keys.key_of(add), body)
    t.commit(t.transaction("append", [add]))


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_large(ManualClock(make.START_MS, seed=2027))
    return 0


if __name__ == "__main__":
    sys.exit(main())
