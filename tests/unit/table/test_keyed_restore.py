"""A restored version of a keyed table has the rows that it had."""

import datetime as dt

import pyarrow as pa
import pytest
from msgspec.structs import replace

from eventlog import Table
from eventlog.compaction import run
from eventlog.errors import InvalidInput
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.readers import scan
from eventlog.state.delta import add_of, drop_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import upsert
from eventlog.writers.batch import stage

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def rows(v):
    return pa.Table.from_pylist([{"id": 1, "at": AT, "v": v}], schema=SCHEMA)


def held(t, version=None):
    return scan(t, ["v"], version=version).to_table().column("v").to_pylist()


@pytest.mark.parametrize("spilled", [False, True])
def test_segments_of_one_commit_are_applied_in_their_order_after_a_restore(monkeypatch, spilled):
    """Their ids are random, so ten rows show an order by id all but once in millions."""
    if spilled:
        monkeypatch.setattr(spills, "SPILL_BYTES", 0)
    t = Table.create("", SCHEMA, time_column="at", key="id", buckets=1, store=MemoryStore())
    adds = [add for v in range(10) for add in stage(t, t.session.head(), rows(v), 2**20)]
    version = t.commit(t.transaction("upsert", adds))
    assert held(t) == [9]
    run(t)
    upsert(t, rows(20))
    assert held(t) == [20]
    restored = t.restore(version)
    assert held(t) == held(t, restored) == held(Table(t.store), restored) == [9]
    run(t)
    assert held(t) == [9]
    assert fsck(t).ok


def test_a_segment_whose_place_changed_is_not_restored_silently():
    """No command of ours changes it. A restore that kept the segment would show other rows."""
    t = Table.create(
        "", SCHEMA, time_column="at", key="id", buckets=1, store=MemoryStore(),
        properties={"inline_bytes": "0"},
    )  # fmt: skip
    version = upsert(t, rows(1))
    (segment,) = t.session.head().segments()
    drop = t.transaction("a test", [drop_of(segment)])
    t.commit(drop)
    place = replace(segment.slice, low=None, high=None, ordinal=None)
    t.commit(t.transaction("a test", [replace(add_of(segment), slice=place)]))
    with pytest.raises(InvalidInput, match="restore a version without it first"):
        t.restore(version)
    t.restore(version - 1)
    t.restore(version)
    assert held(t) == held(t, version) == [1]
