"""The bucket of a single key, for tests."""

from collections.abc import Sequence

import pyarrow as pa

from eventlog.format.buckets import buckets_of


def bucket_of(values: Sequence[pa.Scalar], buckets: int, splits: int = 0) -> int:
    """The bucket of the key with these values."""
    table = pa.table(
        [pa.repeat(value, 1) for value in values], [str(n) for n in range(len(values))]
    )
    return int(buckets_of(table, table.column_names, buckets, splits)[0].as_py())
