"""Rows that lie an hour apart, each with a number."""

import datetime as dt

import pyarrow as pa

START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])


def rows(ids):
    """The rows with these numbers."""
    found = [{"id": n, "ts": START + dt.timedelta(hours=n), "n": n % 4} for n in ids]
    return pa.Table.from_pylist(found, schema=SCHEMA)
