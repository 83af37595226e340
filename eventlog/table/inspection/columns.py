"""The columns of what `Table.inspect` returns: names and types that do not change.

Times are in UTC. Spark's functions `eventlog_history` and `eventlog_segments` have the same
columns.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("ms", "UTC")


def _numbers(*names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.int64()) for name in names]


HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("time", TIME),
        ("operation", pa.string()),
        ("writer", pa.string()),
        *_numbers("adds", "drops", "rows", "bytes", "transactions", "deletes"),
    ]
)
TRANSACTIONS = pa.schema(
    [
        ("version", pa.int64()),
        ("time", TIME),
        ("id", pa.string()),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("read_version", pa.int64()),
        ("app_id", pa.string()),
        ("app_seq", pa.int64()),
        ("void", pa.string()),
        ("info", pa.map_(pa.string(), pa.string())),
    ]
)
# The attributes of `Segment` that have one value, then others that follow from them.
PLAIN = (
    ("id", pa.string()),
    ("chunk", pa.string()),
    *_numbers("epoch", "version", "partition", "rows", "bytes"),
    ("checksum", pa.string()),
    ("schema", pa.int64()),
)
SLICE = pa.struct(
    [("kind", pa.string()), *_numbers("first", "last", "low", "high", "level", "ordinal", "splits")]
)
SEGMENTS = pa.schema(
    [
        *PLAIN,
        ("live_rows", pa.int64()),
        ("slice", SLICE),
        ("uri", pa.string()),
        ("inline", pa.int64()),
    ]
)
CHUNKS = pa.schema(
    [
        ("chunk", pa.string()),
        ("start", TIME),
        ("end", TIME),
        *_numbers("segments", "rows", "live_rows", "bytes", "version"),
    ]
)
CLAIMS = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("start", TIME),
        ("end", TIME),
        ("segments", pa.list_(pa.string())),
        ("priority", pa.int64()),
        ("group", pa.string()),
        ("owner", pa.string()),
        *_numbers("token", "renewed"),
    ]
)
PINS = pa.schema(
    [
        ("name", pa.string()),
        ("version", pa.int64()),
        ("owner", pa.string()),
        ("time", TIME),
        ("token", pa.int64()),
    ]
)
TAGS = pa.schema([("name", pa.string()), ("version", pa.int64()), ("time", TIME)])
REPLICAS = pa.schema(
    [("name", pa.string()), ("acked", pa.int64()), ("owner", pa.string()), ("token", pa.int64())]
)
BRANCHES = pa.schema(
    [
        ("name", pa.string()),
        *_numbers("fork", "head"),
        ("held", pa.bool_()),
        ("pin_only", pa.bool_()),
        ("damage", pa.string()),
    ]
)
