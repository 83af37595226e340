"""Tables whose key frames have stems: copies, audits, repairs and engines."""

from unittest import mock

import pytest
from support.builders import create, events, reopen, row_names
from support.copies import objects
from support.crashes import SMALL_STEMS
from support.damage import Damaged

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.records import Stem, pieces_in
from eventlog.replication import follow
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete


@pytest.fixture(autouse=True)
def small():
    with mock.patch.multiple(keyframe, **SMALL_STEMS):
        yield


@pytest.fixture
def table():
    """A table of forty days and a few deleted rows; key frames with stems at every version."""
    made = create(MemoryStore(), granularity="day", properties={"keyframe_commits": "1"})
    append(made, events(40, days=40))
    append(made, events(2, first=100, day=7))
    delete(made, where="name = 'row 100'")
    append(made, events(1, first=200, day=30))
    assert len(stems_of(made, made.session.head().version)) > 5
    return made


def stems_of(table, version):
    root = table.session.log.key_frames.root(version)
    return [piece for piece in pieces_in(root) if isinstance(piece, Stem)]


def new_stem(table):
    """A stem that the head's key frame does not share with the one before."""
    head = table.session.head().version
    before = stems_of(table, head - 1)
    return next(stem for stem in stems_of(table, head) if stem not in before)


def test_a_copy_has_the_stems_and_reads_none_twice(table):
    target, counting = MemoryStore(), CountingStore(table.store)
    follow(reopen(counting), Table(target))
    assert objects(target) == objects(table.store)
    again = counting.counts.get
    append(table, events(1, first=300, day=7))
    follow(reopen(counting), Table(target))
    assert objects(target) == objects(table.store)
    assert counting.counts.get - again < again / 2
    assert not fsck(Table(target), objects=True).findings
    assert row_names(reopen(target)) == row_names(reopen(table.store))


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_copy_begins_over_a_key_frame_whose_stem_is_damaged_at_the_source(table, damage):
    for n in range(3):
        append(table, events(1, first=400 + n, day=20))
    key = keys.stem_key(new_stem(table).sha256)
    body = table.store.get(key)
    vacuum(table, dry_run=False)
    table.store.delete([key])
    if damage == "cut":
        table.store.put_if_absent(key, body[:-2])
    target = MemoryStore()
    follow(reopen(table.store), Table(target), start="keyframe")
    assert row_names(reopen(target)) == row_names(reopen(table.store))
    assert not fsck(Table(target)).errors


def test_an_audit_reads_stems_and_finds_none_unnamed(table):
    report = fsck(Table(table.store), objects=True)
    assert report.ok
    assert {found.place for found in report.leftovers} == {"_probe/"}
    stray = keys.stem_key("0" * 64)
    table.store.put_if_absent(stray, b"x")
    (found, _) = fsck(Table(table.store), objects=True).leftovers
    assert (found.kind, found.example) == ("unnamed", stray)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_an_audit_names_a_stem_that_readers_step_over(table, damage):
    key = keys.stem_key(new_stem(table).sha256)
    body = table.store.get(key)
    table.store.delete([key])
    if damage == "cut":
        table.store.put_if_absent(key, body[:-2])
    report = fsck(Table(table.store))
    assert {(f.severity, f.key) for f in report.findings} == {("error", key)}
    assert row_names(reopen(table.store)) == row_names(table)
    report = fsck(Table(table.store), repair=True)
    assert report.ok is (damage == "missing")
    if damage == "missing":
        assert table.store.get(key) == body
        assert fsck(Table(table.store)).findings == ()


def test_stems_leaves_and_roots_are_put_again(table):
    kept = objects(table.store)
    planted = Damaged.of(table.store, table.clock)
    for gone in (
        [key for key in kept if key.endswith(".json.zst")],
        [key for key in kept if key.startswith("_frames/")],
        [key for key in kept if key.startswith("_frames/") or "keyframe" in key],
    ):
        planted.store.delete(gone)
        report = planted.fsck(repair=True)
        assert report.ok, report
        assert objects(table.store) == kept
        assert planted.fsck().findings == ()
