"""Repeated units of work of keyed tables."""

import datetime as dt

import pyarrow as pa
import pytest

from eventlog import Table
from eventlog.readers import scan
from eventlog.writers import upsert

SCHEMA = pa.schema([("id", pa.int64()), ("updated", pa.timestamp("us", "UTC")), ("v", pa.string())])
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def rows(ids, hour, value):
    updated = START + dt.timedelta(hours=hour)
    return pa.Table.from_pylist([{"id": i, "updated": updated, "v": value} for i in ids], SCHEMA)


def keyed(memory_uri):
    return Table.create(
        memory_uri, SCHEMA, time_column="updated", key="id", order_by="updated", buckets=4
    )


@pytest.mark.verify
def test_a_repeated_upsert_of_one_key_twice_is_no_other_content(caplog):
    t = keyed("memory://repeated-upserts")
    twice = pa.concat_tables([rows([1], 1, "x"), rows([1], 1, "y")])
    first = upsert(t, twice, app_id="load", app_seq=1)
    assert upsert(t, twice, app_id="load", app_seq=1) == first
    assert not caplog.records
    assert scan(t).to_table().column("v").to_pylist() == ["y"]
