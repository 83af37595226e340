"""Copies, branches and merges of tables whose small appends stand in their commits."""

from datetime import timedelta

import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import create, events, reopen
from support.inline_tables import SMALL, forget, in_order, stored

from eventlog import Table, replication
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.errors import DataLoss
from eventlog.format import keys
from eventlog.inline import inline_objects
from eventlog.model.records import packs_of
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore


def source_of(appends, **properties):
    """A table with so many small appends."""
    table = create(properties=SMALL | properties)
    for number in range(appends):
        table.append(events(2, first=2 * number))
    return table


def follow(source, target, **options):
    """Copy to a store."""
    return replication.follow(source, Table(target), **options)


def rows_of(store, version=None):
    """The rows of a version, as a process reads them that has read nothing else."""
    return in_order(scan(reopen(store), version=version).to_table())


def test_following_a_small_append_is_one_get_and_one_put():
    source = source_of(3)
    counted, target = CountingStore(source.store), CountingStore(MemoryStore())
    handle = Table(counted, clock=ManualClock(seed=9))
    follow(handle, target)
    source.append(events(2, first=100))
    with counted.measure() as read, target.measure() as written:
        follow(handle, target)
    assert written.put == 1
    assert read.get <= 4  # of which one is of the commit, and the others look for news
    assert stored(Table(target.inner), "data/") == []
    assert rows_of(target.inner) == rows_of(source.store)


@pytest.mark.parametrize("appends", [5, 20, 41])
def test_a_copy_has_the_rows_and_the_packs(appends):
    source, target = source_of(appends), MemoryStore()
    follow(source, target)
    named = {pack.sha256 for pack in packs_of(source.snapshot().base)}
    assert named <= {key[-72:-8] for key in stored(Table(target), "_packs/")}
    forget()
    for version in (1, appends // 2, appends):
        assert rows_of(target, version) == in_order(events(2 * version))


def test_a_copy_that_begins_at_a_key_frame_has_the_objects_of_older_appends():
    source, target = source_of(20), MemoryStore()
    before = source.snapshot().version
    source.delete(where="value < 3")
    follow(source, target, start="keyframe")
    copy = reopen(target)
    assert stored(copy, "data/")  # of the appends whose commits it lacks
    forget()
    for key in stored(copy, "_packs/"):
        target.delete([key])
    assert rows_of(target) == rows_of(source.store)
    source.append(events(2, first=90))
    source.restore(before)
    follow(source, target)
    forget()
    assert rows_of(target) == in_order(events(40))
    replication.backfill(source, Table(target))
    forget()
    for version in range(1, source.snapshot().version + 1):
        assert rows_of(target, version) == rows_of(source.store, version)


def test_a_branch_reads_its_parents_commits_and_writes_its_own():
    table = source_of(12)
    branch = table.branch("audit")
    branch.append(events(2, first=50))
    branch.delete(where="value < 2")
    branch.write_keyframe()
    branch.append(events(2, first=60))
    forget()
    again = Table.open(branch.uri, store=branch.store, clock=ManualClock(seed=5))
    wanted = [*events(20, first=4).to_pylist(), *events(2, first=50).to_pylist()]
    wanted += events(2, first=60).to_pylist()
    key = lambda row: row["name"]
    assert in_order(scan(again).to_table()) == sorted(wanted, key=key)
    assert rows_of(table.store) == in_order(events(24))
    table.append(events(2, first=70))
    table.merge(branch)
    forget()
    wanted += events(2, first=70).to_pylist()
    assert rows_of(table.store) == sorted(wanted, key=key)
    assert stored(table, "data/") == [k for k in stored(table, "data/") if "vectors" in k]


def test_two_copies_that_took_writes_are_merged():
    source, target = source_of(10), MemoryStore()
    follow(source, target)
    copy = reopen(target, seed=4)
    source.append(events(3, first=100))
    for number in range(9):
        copy.append(events(2, first=200 + 2 * number))
    copy.delete(where="value = 1")
    replication.merge(copy, source)
    replication.merge(source, copy)
    forget()
    assert rows_of(source.store) == rows_of(target)
    assert len(rows_of(target)) == 20 + 3 + 18 - 1
    run(copy, policy=Policy(min_gain=0))
    replication.merge(copy, source)
    assert rows_of(source.store) == rows_of(target)


def test_a_copy_without_the_bytes_says_so():
    source, target = source_of(20), MemoryStore()
    follow(source, target, start="keyframe")
    target.delete(stored(Table(target), "_packs/"))
    target.delete(stored(Table(target), keys.SEGMENTS_PREFIX))
    forget()
    with pytest.raises(DataLoss, match="lost"):
        rows_of(target)


def test_a_vacuum_drops_the_packs_that_no_kept_version_needs():
    table = source_of(40)
    before = stored(table, "_packs/")
    kept = {pack.sha256 for pack in table.snapshot().base.packs}
    table.clock.advance(1000)
    report = vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    after = stored(table, "_packs/")
    assert report.gone["packs"].objects == len(before) - len(after) > 0
    assert kept <= {key[-72:-8] for key in after}
    forget()
    counted = CountingStore(table.store)
    with counted.measure() as counts:
        rows = in_order(scan(Table.open(table.uri, store=counted)).to_table())
    assert rows == in_order(events(80))
    assert counts.get <= 16
    assert rows_of(table.store, table.snapshot().version - 1) == rows


def test_a_vacuum_deletes_objects_that_were_put_at_their_keys():
    table = source_of(6)
    inline_objects.put_at_keys(table.store, table.snapshot().segments())
    assert len(stored(table, "data/")) == 6
    run(table, policy=Policy(min_gain=0))
    table.append(events(1, first=90))
    table.clock.advance(1000)
    vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    live = {keys.key_of(s) for s in table.snapshot().segments() if s.inline is UNSET}
    assert set(stored(table, "data/")) == live
    assert rows_of(table.store) == in_order(pa.concat_tables([events(12), events(1, first=90)]))
