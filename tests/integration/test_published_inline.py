"""Publishing tables whose small segments stand in commits: engines find objects at their keys."""

import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import START_MS, CrashingStore, create, events, fold_all
from support.inline_tables import SMALL, forget, small, stored
from support.published import compact_all, known_rows, readings

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction.vacuum import vacuum
from eventlog.errors import Corrupt, Unavailable
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.inline import inline_objects
from eventlog.publishing import publish, unpublish
from eventlog.publishing.following import published
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.store.testing.wrappers import CountingStore

FORMATS = ("delta", "iceberg")


def history(table):
    """Appends, a delete of rows, an overwrite, a compaction, a restore."""
    for number in range(4):
        table.append(events(3, first=3 * number))
    table.delete(where="value = 1")
    table.overwrite(events(2, first=100), where="value > 4")
    compact_all(table)
    table.append(events(2, first=50))
    table.restore(4)
    return table


def named(table):
    """The keys of all segments that any version has live."""
    return {
        keys.key_of(segment)
        for version in range(table.refresh().version + 1)
        for segment in table.snapshot(version).segments()
    }


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_version_that_is_published_has_its_objects(format_name):
    table = history(small())
    forget()
    publish(Table(table.store), format_name, version=2)
    made = {keys.key_of(s) for s in table.snapshot(7).segments() if s.inline is UNSET}
    here = {keys.key_of(s) for s in table.snapshot(2).segments()}
    assert set(stored(table, "data/")) - made == here
    publish(Table(table.store), format_name)
    assert named(table) <= set(stored(table, "data/"))
    assert fsck(Table(table.store), checksums=True).findings == ()


@pytest.mark.parametrize("first", [0, 3, 5, 9])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_publication_that_begins_late_has_what_its_versions_name(format_name, first):
    table = history(small())
    forget()
    publish(Table(table.store), format_name, first=first)
    wanted = {
        keys.key_of(segment)
        for version in range(first, table.refresh().version + 1)
        for segment in table.snapshot(version).segments()
    }
    assert wanted <= set(stored(table, "data/"))


def test_engines_read_what_a_scan_reads(tmp_path):
    table = history(
        Table.create(
            str(tmp_path),
            events().schema,
            time_column="at",
            properties=SMALL,
            clock=ManualClock(1_600_000_000_000, 1),
        )
    )
    publish(table, "delta")
    for version in (1, 4, table.refresh().version):
        for engine, found in readings(table, version).items():
            assert found == known_rows(table, version), (version, engine)


@pytest.mark.parametrize(("format_name", "most"), [("delta", 3), ("iceberg", 6)])
def test_one_append_is_one_put_more_and_an_idle_publisher_sends_none(format_name, most):
    counting = CountingStore(MemoryStore())
    table = small(counting)
    table.append(events(1))
    publish(table, format_name)
    table.append(events(1, first=1))
    with counting.measure() as counts:
        publish(table, format_name)
    assert counts.put <= most
    idle = []
    for properties in (SMALL, {"inline_bytes": "0", "keyframe_commits": "8"}):
        counting = CountingStore(MemoryStore())
        other = create(counting, properties=properties)
        other.append(events(1))
        publish(other, format_name)
        with counting.measure() as counts:
            publish(other, format_name)
        idle.append((counts.get, counts.put, counts.list))
    assert idle[0] == idle[1]


@pytest.mark.parametrize("how", ["before", "after", "lost", "refused"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_killed_publisher_names_nothing_that_is_not_there(format_name, how):
    table = small()
    for number in range(3):
        table.append(events(2, first=2 * number))
    at, died = 0, 0
    while True:
        at += 1
        unpublish(table, format_name, dry_run=False)
        table.store.delete(stored(table, "data/"))
        store = CrashingStore(table.store, at, how)
        try:
            publish(Table.open(table.uri, store=store), format_name)
        except (Crash, Unavailable):
            died += 1
        if store.calls < at:
            break
        last = _published(table, format_name)
        there = set(stored(table, "data/"))
        for version in last:
            assert {keys.key_of(s) for s in table.snapshot(version).segments()} <= there
        publish(Table.open(table.uri, store=table.store), format_name)
        assert len(stored(table, "data/")) == 3
    assert died > 5


def _published(table, format_name):
    """The versions that are published."""
    ends = published(table.session, format_name)
    return range(ends[0], ends[1] + 1) if ends else ()


def test_another_object_at_the_key_is_not_published():
    table = small()
    table.append(events(2))
    (one,) = table.snapshot().segments()
    table.store.put_if_absent(keys.key_of(one), b"PAR1")
    with pytest.raises(Corrupt, match="another object is at the key"):
        publish(table, "delta")


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_vacuum_deletes_the_objects_of_what_was_dropped(format_name):
    table = small()
    for number in range(4):
        table.append(events(2, first=2 * number))
    publish(table, format_name)
    compact_all(table)
    table.append(events(1, first=90))
    publish(table, format_name)
    table.clock.advance(30 * 86_400_000)
    table.append(events(1, first=91))
    publish(table, format_name)
    vacuum(table, dry_run=False)
    live = {keys.key_of(s) for s in table.snapshot().segments()}
    assert set(stored(table, "data/")) == live
    fold_all(table.store)


def test_a_branch_has_the_objects_of_its_parent_put_in_their_place(tmp_path):
    table = create(LocalStore(str(tmp_path)), properties=SMALL)
    table.append(events(4))
    branch = table.branch("audit")
    branch.append(events(4, day=2, first=10))
    publish(branch, "iceberg")
    (shared,) = table.snapshot().segments()
    assert table.store.get(keys.key_of(shared), length=4) == b"PAR1"
    for segment in branch.snapshot().segments():
        assert branch.store.get(keys.key_of(segment)) == inline_objects.get_object(
            branch.store, segment
        )


@pytest.mark.parametrize("format_name", FORMATS)
def test_logs_of_keyed_tables_that_are_published_are_at_their_keys(format_name):
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    tables = [
        Table.create(
            store.uri, schema, store=store, key="k", buckets=2, clock=ManualClock(START_MS, 3),
            properties={"inline_bytes": inline, "keyframe_commits": "8"},
        )
        for inline, store in (("16384", MemoryStore()), ("0", MemoryStore()))
    ]  # fmt: skip
    for table in tables:
        for number in range(12):
            table.upsert(pa.table({"k": [number, number + 1], "v": ["a", "b"]}))
        compact_all(table)
        table.upsert(pa.table({"k": [3, 50], "v": ["c", "d"]}))
        forget()
        publish(Table(table.store), format_name)
    first, second = tables
    assert len(stored(first, "data/")) == len(stored(second, "data/"))
    assert named(first) <= set(stored(first, "data/"))
    assert fsck(Table(first.store), checksums=True, keys=True).findings == ()
