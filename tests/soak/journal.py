"""What the processes of a soak run write down, and the rows that they write into the table.

A journal is a file of JSON lines, each on disk before its writer goes on: the intent before an
attempt, the outcome after it. Times are those of the machine's monotonic clock, which all
processes share.
"""

import hashlib
import json
import os
import time
from pathlib import Path

import pyarrow as pa

DAY_US = 86_400_000_000
DAY_MS = 86_400_000
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("pad", pa.binary())])
N_COLUMN = 2  # the id of column `n`
TOKEN = "user.soak"  # the property that the maintenance sets
_MODULUS = 2**128

# A part is [day, first, count]: rows first, first + 1, … whose event times lie in one day.
Part = list[int]


class Journal:
    """One worker's journal, kept when the worker is killed and goes on as another process."""

    def __init__(self, path: Path) -> None:
        self.earlier = read_journal(path)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # the line in which the one before was killed

    def note(self, **fields) -> None:
        os.write(self._file, json.dumps(fields).encode() + b"\n")
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read_journal(path: Path) -> list[dict]:
    """Return the lines; one that was cut short by a kill says nothing."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def now_ns() -> int:
    return time.monotonic_ns()


def rows_of(parts: list[Part], pad_bytes: int = 0) -> pa.Table:
    """Return the rows of the parts."""
    at, numbers = [], []
    for day, first, count in parts:
        at += [day * DAY_US + k for k in range(count)]
        numbers += range(first, first + count)
    pad = [os.urandom(pad_bytes) if pad_bytes else None for _ in numbers]
    return pa.table([at, numbers, pad], schema=SCHEMA)


def row_hash(day: int, n: int) -> int:
    return int.from_bytes(hashlib.blake2b(b"%d %d" % (day, n), digest_size=16).digest())


def part_hash(day: int, first: int, count: int) -> int:
    return sum(row_hash(day, n) for n in range(first, first + count)) % _MODULUS


def add_hashes(*hashes: int) -> int:
    """Add up hashes of rows; the sum does not depend on the order, and two equal rows show."""
    return sum(hashes) % _MODULUS


def rows_in(table: pa.Table) -> list[tuple[int, int]]:
    """Return the rows that were read as (day, number)."""
    days = [at // DAY_US for at in table.column("at").cast(pa.int64()).to_pylist()]
    return list(zip(days, table.column("n").to_pylist(), strict=True))
