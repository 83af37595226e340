"""Rows with ids that tell who appended them and when, and what became of those ids."""

import numpy as np
import pyarrow as pa

BLOCK = 100
DAYS = 10
SCHEMA = pa.schema(
    [
        ("t", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("value", pa.float64()),
        ("name", pa.string()),
    ]
)
_START = 1_717_200_000_000_000  # 2024-06-01
_DAY = 86_400_000_000
_WRITER = 10**9  # ids of each


def block(writer, number):
    """Return a writer's `number`-th rows: all of one day, the days in turn."""
    first = writer * _WRITER + number * BLOCK
    start = _START + (writer + number) % DAYS * _DAY + number % 10**6
    return pa.table(
        [
            pa.array(np.arange(start, start + BLOCK)).cast(SCHEMA.field(0).type),
            pa.array(np.arange(first, first + BLOCK)),
            pa.array(np.arange(BLOCK) / 7),
            pa.array([f"name {i % 10}" for i in range(BLOCK)]),
        ],
        schema=SCHEMA,
    )


def misplaced(found, appends):
    """Return how many rows were acknowledged but are missing, and how many are there too often.

    Args:
        found: the ids in the table, a numpy array.
        appends: for each writer, how many blocks it tried and the numbers of those that raised. Of
            the latter each may be there or not, but no row twice.
    """
    once, times = np.unique(found, return_counts=True)
    doubled = int((times - 1).sum())
    lost, known = 0, 0
    for writer, (tried, failed) in appends.items():
        first = writer * _WRITER
        seen = once[(once >= first) & (once < first + tried * BLOCK)]
        known += len(seen)
        missing = np.setdiff1d(np.arange(first, first + tried * BLOCK), seen) - first
        lost += int((~np.isin(missing // BLOCK, failed)).sum())
    strange = len(once) - known
    return lost, doubled + strange
