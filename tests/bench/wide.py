"""The rows of the large writes: 8 columns, 365 days, as batches made on demand."""

import numpy as np
import pyarrow as pa

TIME = "t"
SCHEMA = pa.schema(
    [
        (TIME, pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("user", pa.int64()),
        ("kind", pa.string()),
        ("country", pa.string()),
        ("amount", pa.float64()),
        ("score", pa.float64()),
        ("count", pa.int32()),
    ]
)
BATCH_ROWS = 65_536
_START = 1_704_067_200_000_000  # 2024-01-01
_DAY = 86_400_000_000
_KINDS = pa.array([f"kind {i}" for i in range(20)])
_COUNTRIES = pa.array(["AT", "CH", "DE", "ES", "FR", "GB", "IT", "US"])


def batches(rows, days=30, batch_rows=BATCH_ROWS):
    """Yield batches in which every day occurs: the hardest order for whoever cuts by day."""
    noise = np.random.default_rng(7)
    for first in range(0, rows, batch_rows):
        count = min(batch_rows, rows - first)
        number = np.arange(first, first + count)
        times = _START + (number % days) * _DAY + noise.integers(0, _DAY, count)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(times).cast(SCHEMA.field(0).type),
                pa.array(number),
                pa.array(noise.integers(0, 10**6, count)),
                _KINDS.take(pa.array(noise.integers(0, len(_KINDS), count))),
                _COUNTRIES.take(pa.array(noise.integers(0, len(_COUNTRIES), count))),
                pa.array(noise.random(count)),
                pa.array(noise.random(count)),
                pa.array(noise.integers(0, 1000, count).astype("int32")),
            ],
            schema=SCHEMA,
        )


def reader(rows, days=30):
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, days))


def tables(rows, days, rows_each):
    """Yield tables of `rows_each` rows in the order of time, every day in each."""
    for batch in batches(rows, days, rows_each):
        yield pa.Table.from_batches([batch]).sort_by(TIME)
