"""What cuts of the log leave, and who deletes it: late key frames, leaves, stems, spills, packs."""

from contextlib import suppress
from datetime import timedelta
from unittest import mock

import pytest
from integration.test_cut_logs import (
    ALL,
    DAY,
    HOUR,
    check_cut,
    entry_at,
    go_on,
    grown,
    log_of,
    stubs,
)
from support.builders import CrashingStore, Spy, commit, create, events, reopen, row_names

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import log_vacuum, vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.model.actions import PropertyChange, SetProperties
from eventlog.recovery import log_cut
from eventlog.recovery.old_frames import old_frames
from eventlog.replication import follow
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.writers import append, overwrite

FULL = {**ALL, "full": True}
KEPT = {**ALL, "log_retention": timedelta(days=99)}
SMALL = {
    "INLINE_SEGMENTS": 1, "LEAF_TARGET": 2, "LEAF_SMALL": 1, "LEAF_MAX": 4, "ROOT_LEAVES": 1,
    "STEM_TARGET": 2, "STEM_SMALL": 1,
}  # fmt: skip


def bodies(store):
    return {row.key: store.get(row.key) for row in store.list("")}


def put_again(store, before, prefix):
    """Store what a vacuum deleted, as a writer who slept does."""
    late = {key: body for key, body in before.items() if key.startswith(prefix)}
    return [key for key, body in late.items() if store.put_if_absent(key, body)]


def pieces_of(before, version):
    """The keys of the leaves and stems of a key frame."""
    store = MemoryStore()
    put_again(store, before, "")
    reader = Log(store).key_frames
    return [keys.piece_key(piece) for piece in reader.new_in(reader.root(version), None)]


def later(table, hours=1):
    return Table(table.store, ManualClock(table.clock.now_ms() + hours * HOUR, 1234))


def spilled(commits=18, **properties):
    """A table whose key frames have leaves and stems, and whose commits have spills."""
    table = create(properties={"keyframe_commits": "4", **properties})
    for number in range(commits):
        if number % 3 == 2:
            overwrite(table, events(3, first=10 * number), **DAY)
        else:
            append(table, events(9, first=10 * number, days=9))
        table.clock.advance(HOUR)
    return table


def wide_appends(table, commits, first):
    """More versions, an hour each, with rows of nine days."""
    for number in range(commits):
        append(table, events(9, first=first + 10 * number, days=9))
        table.clock.advance(HOUR)


@pytest.fixture
def small_pieces():
    with mock.patch.multiple(keyframe, **SMALL), mock.patch.object(spills, "SPILL_BYTES", 1000):
        yield


@pytest.mark.hazard("W20")
def test_a_key_frame_that_comes_after_the_cut_goes_with_the_next_vacuum(small_pieces):
    table = spilled()
    before = bodies(table.store)
    vacuum(table, **ALL)
    rows = row_names(table)
    pieces = pieces_of(before, 7)
    late = put_again(table.store, {k: before[k] for k in pieces}, keys.FRAMES_PREFIX)
    assert late
    assert put_again(table.store, before, keys.keyframe_key(7))
    assert "below the cut" in str(fsck(reopen(table.store)).findings)
    vacuum(later(table), **KEPT)  # which cuts no further
    assert 7 not in log_of(table.store)[1]
    assert not {*late} & bodies(table.store).keys()
    check_cut(table.store, rows)


@pytest.mark.hazard("W20")
def test_a_full_vacuum_finds_what_no_key_frame_names(small_pieces):
    table = spilled()
    before = bodies(table.store)
    vacuum(table, **FULL)
    rows, kept = row_names(table), bodies(table.store)
    late = put_again(table.store, before, keys.FRAMES_PREFIX)
    assert {key.rpartition(".")[2] for key in late} == {"parquet", "zst"}
    vacuum(later(table), **KEPT)
    assert {*late} <= bodies(table.store).keys()
    report = vacuum(later(table, 2), **KEPT, full=True)
    assert report.log.sums["frames"][0] == len(late)
    assert kept.items() <= bodies(table.store).items()
    assert not {*late} & bodies(table.store).keys()
    check_cut(table.store, rows)


@pytest.mark.hazard("W20")
@pytest.mark.sample(2, verify=8)
@pytest.mark.parametrize("at", range(3, 240, 4))
def test_a_full_vacuum_finds_what_one_that_died_has_left(at, small_pieces):
    table = spilled(inline_bytes="8000")
    rows = row_names(table)
    with suppress(Crash):
        vacuum(Table(CrashingStore(table.store, at, "before"), table.clock), **ALL)
    vacuum(later(table), **FULL)
    check_cut(table.store, rows)
    audit = fsck(reopen(table.store))
    assert not [found for found in audit.findings if "below the cut" in found.message]
    whole = reopen(table.store).refresh().meta.cut.whole
    assert stubs(table.store) == whole
    log = Log(table.store)
    live = log.snapshot(whole)
    assert old_frames(log, live) == []


def test_a_leaf_that_a_key_frame_of_a_kept_version_may_have_stays():
    old, new = entry_at(3), entry_at(9, "b")
    for live, entries in (({old.id: old}, [old]), ({}, [new]), ({old.id: old}, [old, new])):
        assert not log_cut.is_ended_leaf(entries, live, 5)
    for live in ({}, {old.id: entry_at(4)}):
        assert log_cut.is_ended_leaf([new, old], live, 5)


def test_a_spill_that_a_commit_of_a_kept_version_may_have_stays():
    def ended(*adds, drops=(), gone=True):
        spilled = [log_cut.SpilledAdd(*add) for add in adds]
        return log_cut.is_ended_spill(spilled, drops, {"known"}, range(5, 9), lambda key: gone)

    assert not ended()
    assert not ended(drops=["known"])
    assert ended(drops=["known", "dropped long ago"])
    assert not ended(("known", None, "k"), ("new", 6, "k"))
    assert ended(("old", 5, "k"))
    assert ended(("void", None, "k"))
    assert not ended(("staged", None, "k"), gone=False)
    assert not ended(("of the next commit", None, "k", 9))
    assert ended(("of a commit that lost", None, "k", 8))
    assert ended(("below the cut", None, "k", 4))
    assert not ended(("below the cut", None, "k", 4), gone=False)


@pytest.mark.hazard("W20")
def test_a_full_vacuum_leaves_the_spill_of_a_commit_that_is_under_way(small_pieces):
    table = spilled(inline_bytes="8000")
    vacuum(table, **FULL)
    spy, found = Spy(table.store), []

    def look(key):
        if keys.parse_log_key(key) and any(k.startswith(keys.FRAMES_PREFIX) for k, _ in spy.puts):
            log = Log(table.store)
            found.append(old_frames(log, log.snapshot(log.head().meta.cut.whole)))

    spy.before_put = look
    writer = Table(spy, table.clock)
    for number in range(3):
        append(writer, events(9, first=200 + 10 * number, days=9))
    assert len(found) >= 3
    assert not any(found)


def test_the_newest_commit_of_a_window_becomes_a_stub_last(monkeypatch):
    def backwards(work, items, **_options):  # threads may work in any order
        return [work(item) for item in reversed(items)][::-1]

    monkeypatch.setattr(log_vacuum, "each", backwards)
    table = grown(commits=14)
    spy = Spy(table.store)

    def die(key):
        if key == keys.commit_key(3) and codec.is_stub(spy.puts[-1][1]):
            raise Crash("before")

    spy.before_put = die
    with suppress(Crash):
        vacuum(Table(spy, table.clock), **ALL)
    assert not log_of(table.store)[0][3]
    assert not log_of(table.store)[0][13]
    vacuum(later(table), **KEPT)
    assert stubs(table.store) == 14
    check_cut(table.store)


def test_a_stem_is_stored_after_its_leaves(small_pieces):
    table = spilled()
    spy = Spy(table.store)
    session = Table(spy, table.clock).session
    for number in range(2):
        append(table, events(9, first=900 + 9 * number, days=9))
    session.write_keyframe()
    made = [key for key, _ in spy.puts]
    stems = [number for number, key in enumerate(made) if key.endswith(".zst")]
    leaves = [n for n, key in enumerate(made) if key.startswith("_frames/") and n not in stems]
    assert max(leaves) < min(stems)
    assert max(stems) < made.index(keys.keyframe_key(table.refresh().version))


def test_packs_that_are_left_once_no_row_stands_in_commits_go_with_a_full_vacuum():
    table = create(properties={"keyframe_commits": "2", "inline_bytes": "8000"})
    for number in range(8):
        append(table, events(2, day=number % 3, first=10 * number))
        table.clock.advance(HOUR)
    table.set_properties({"inline_bytes": None})
    overwrite(table, events(1, days=1), start="1970-01-01", end="1970-01-09")
    go_on(table, 4)
    vacuum(table, **ALL)
    assert [*table.store.list(keys.PACKS_PREFIX)]
    vacuum(later(table), **KEPT, full=True)
    assert not [*table.store.list(keys.PACKS_PREFIX)]


def cut_without_stubs(table):
    """Cut the log, and die once key frames below are gone."""
    spy = Spy(table.store)

    def die(key):
        if spy.puts and codec.is_stub(spy.puts[-1][1]):
            raise Crash("before")

    spy.before_put = die
    with suppress(Crash):
        vacuum(Table(spy, table.clock), **ALL)
    assert not any(log_of(table.store)[0].values())


def test_an_audit_of_a_branch_knows_that_its_parent_is_being_cut(small_pieces):
    table = spilled()
    table.branch("b")
    branch = Table.open(table.uri, store=table.store, branch="b", clock=table.clock)
    append(branch, events(1, first=900))
    go_on(table, 4)
    cut_without_stubs(table)
    audit = fsck(branch)
    assert audit.ok, audit.findings


def test_a_spill_stays_that_the_version_at_the_cut_has_too(small_pieces):
    table = spilled(16)
    for number in range(2):
        table.set_properties({"user.note": str(number)})
        table.clock.advance(HOUR)
    shared = Log(table.store).read(18)[0].delta.spill
    assert shared == Log(table.store).read(17)[0].delta.spill is not None
    report = vacuum(table, **ALL)
    assert report.log.whole == 18
    audit = fsck(reopen(table.store))
    assert audit.ok, audit.findings


class Suspended(Spy):
    """A store whose reader is suspended before it reads a certain kind of object, once."""

    def __init__(self, inner, suffix, meanwhile):
        super().__init__(inner)
        self.suffix, self.meanwhile, self.slept = suffix, meanwhile, False

    def get(self, key, *, start=0, length=None):
        if key.endswith(self.suffix) and not self.slept:
            self.slept = True
            self.meanwhile()
        return super().get(key, start=start, length=length)


@pytest.mark.hazard("W20")
@pytest.mark.parametrize("suffix", [".keyframe.json", "97.json"])
@pytest.mark.parametrize("known", [False, True])
def test_a_reader_of_the_newest_version_that_sleeps_through_the_cut_finds_a_newer_one(
    suffix, known
):
    table = grown(commits=1)

    def week():
        go_on(table)
        vacuum(table, **ALL)

    reader = Table(Suspended(table.store, suffix, week), ManualClock(table.clock.now_ms(), 77))
    reader.store.slept = known
    if known:
        reader.refresh()
        go_on(table, 5)
        reader.store.suffix, reader.store.slept = keys.commit_key(6)[-11:], False
    else:
        go_on(table, 1 if suffix == "97.json" else 5)
    reader.refresh()
    assert reader.store.slept
    check_cut(table.store)
    assert reader.refresh().version == table.refresh().version


@pytest.mark.hazard("W20")
def test_a_writer_that_sleeps_through_the_cut_before_it_reads_a_spill_commits(small_pieces):
    """It lost its slot to a commit that it had read, and of which a stub is left now."""
    table = spilled(15)

    def week():
        wide_appends(table, 14, 300)
        vacuum(table, **ALL)

    store = Suspended(table.store, ".parquet", week)
    store.slept = True
    writer = Table(store, ManualClock(table.clock.now_ms(), 77))
    known = writer.refresh().version
    append(table, events(9, first=200, days=9))
    assert Log(table.store).read(known + 1)[0].delta.spill is not None
    store.slept = False
    change = SetProperties((PropertyChange("user.note", None, "awake"),))
    version = commit(writer, change, operation="set-properties")
    assert store.slept
    assert stubs(table.store) > known + 1
    assert version == table.refresh().version
    assert table.refresh().properties["user.note"] == "awake"
    check_cut(table.store)


@pytest.mark.hazard("W20")
def test_a_follower_that_sleeps_through_the_cut_before_it_reads_a_spill_goes_on_above(small_pieces):
    table = spilled(10)
    target = MemoryStore()
    follow(table, Table(target), clock=ManualClock(1, 7))
    wide_appends(table, 4, 200)

    def week():
        wide_appends(table, 12, 300)
        vacuum(table, **ALL)

    store = Suspended(table.store, ".parquet", week)
    source = Table(store, ManualClock(table.clock.now_ms(), 77))
    spill = keys.frame_key(Log(table.store).read(11)[0].delta.spill.sha256)
    store.suffix = spill
    follow(source, Table(target), clock=ManualClock(1, 8))
    assert store.slept
    follow(source, Table(target), clock=ManualClock(1, 8))
    assert row_names(reopen(target)) == row_names(table)


@pytest.mark.timeout(20)
def test_a_version_whose_own_key_frame_lost_its_leaves_was_cut_off(small_pieces):
    table = spilled()
    before = bodies(table.store)
    cut_without_stubs(table)
    for version in (3, 7, 11):  # a vacuum that died had deleted their leaves, and not yet them
        assert put_again(table.store, before, keys.keyframe_key(version))
    for version in range(1, 15):
        with pytest.raises(errors.VersionCut):
            Log(table.store).snapshot(version).entries()
