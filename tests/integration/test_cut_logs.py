"""The cut of a log: what goes, what stays readable, and whom a stub stops."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from support.builders import (
    CrashingStore,
    Spy,
    commit,
    create,
    drop_of,
    events,
    reopen,
    replace_object,
    row_names,
)

from eventlog import Snapshot, Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.inline.inline_objects import forget_objects
from eventlog.log.log import Log
from eventlog.model.actions import Add, Horizon, SetCut, SetPin, Unpin
from eventlog.model.records import cut_of
from eventlog.readers import count, scan
from eventlog.recovery import log_cut
from eventlog.replication import backfill, break_replica, follow, merge
from eventlog.replication.pipeline import Pipeline
from eventlog.state.delta import add_of
from eventlog.state.fold import segment_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash, Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}
ALL = {**NOW, "log": True, "log_retention": timedelta(0), "dry_run": False}
HOUR = 3_600_000


def grown(store=None, commits=20, seed=1, **properties):
    """A table with key frames at every fourth version, of which each replaces the rows."""
    table = create(store, seed=seed, properties={"keyframe_commits": "4", **properties})
    for number in range(commits):
        overwrite(table, events(2, first=10 * number), **DAY)
        table.clock.advance(HOUR)
    return table


def go_on(table, commits=16):
    """More versions, an hour each."""
    for number in range(commits):
        overwrite(table, events(2, first=10 * number), **DAY)
        table.clock.advance(HOUR)


def log_of(store):
    """For each version whether a stub is left of it; and the versions that have key frames."""
    stubs, frames = dict[int, bool](), list[int]()
    for row in store.list(keys.LOG_PREFIX):
        version, framed = keys.parse_log_key(row.key)
        if framed:
            frames.append(version)
        else:
            stubs[version] = codec.is_stub(store.get(row.key))
    return stubs, sorted(frames)


def stubs(store):
    found, _ = log_of(store)
    ended = [version for version, stub in found.items() if stub]
    assert sorted(ended) == [*range(len(ended))]  # without a gap
    return len(ended)


def check_cut(store, rows=None):
    """Open every version from the cut on, and audit the table; return the cut."""
    table = reopen(store)
    cut = cut_of(table.refresh().meta)
    for version in range(cut, table.refresh().version + 1):
        opened = Log(store).snapshot(version)
        opened.entries()
    for version in range(cut):
        with pytest.raises(errors.VersionCut):
            table.snapshot(version)
    assert [e.version for e in table.history()] == [*range(table.refresh().version, -1, -1)]
    audit = fsck(table)
    assert audit.ok, audit.findings
    assert rows is None or row_names(table) == rows
    return cut


def test_commits_below_the_cut_become_stubs_and_their_frames_go():
    table = grown()
    before = {v: codec.sha256(table.store.get(keys.commit_key(v))) for v in range(20)}
    headers = {v: table.session.log.header(v) for v in range(20)}
    rows = row_names(table)
    report = vacuum(table, **ALL)
    assert (report.log.cut, report.log.whole) == (20, 20)
    assert report.log.sums["commits"][0] == 20
    assert stubs(table.store) == 20
    assert log_of(table.store)[1][0] == 20
    for version, digest in before.items():
        stub = codec.decode_stub(table.store.get(keys.commit_key(version)), version)
        assert (stub.commit, stub.header) == (digest, headers[version])
    assert check_cut(table.store, rows) == 20
    audit = fsck(reopen(table.store))
    assert (audit.start, audit.findings) == (20, ())
    assert [left.kind for left in audit.leftovers] == ["probe"]
    append(reopen(table.store), events(1, first=900))
    vacuum(table, **ALL)
    check_cut(table.store)


def test_nothing_goes_by_itself_and_a_dry_run_changes_nothing():
    table = grown()
    before = {row.key: table.store.get(row.key) for row in table.store.list("")}
    with pytest.raises(errors.InvalidInput, match="log_retention_hours"):
        vacuum(table, log=True)
    dry = vacuum(table, **{**ALL, "dry_run": True}).log
    assert {row.key: table.store.get(row.key) for row in table.store.list("")} == before
    assert dry.cut == 0  # the horizon is not raised yet
    vacuum(table, **NOW, dry_run=False)
    assert stubs(table.store) == 0
    assert vacuum(table).log is None
    before = {row.key: table.store.get(row.key) for row in table.store.list("")}
    dry = vacuum(table, **{**ALL, "dry_run": True}).log
    assert {row.key: table.store.get(row.key) for row in table.store.list("")} == before
    assert 0 < dry.whole <= dry.cut
    assert dry.sums["commits"][0] == dry.whole


def test_the_property_says_how_long_the_log_is_kept():
    table = grown(commits=40, log_retention_hours="10", retention_hours="2")
    report = vacuum(table, log=True, dry_run=False).log
    assert (report.cut, report.kept) == (31, "retention of the log")
    assert 24 <= report.whole <= 31
    assert stubs(table.store) == report.whole
    check_cut(table.store)
    # It is cut again once that ends an eighth of what is kept.
    head = table.refresh().version
    assert vacuum(table, log=True, dry_run=False).log.cut == 31
    assert table.refresh().version <= head + 2
    quiet = table.refresh().version
    for _ in range(4):
        vacuum(table, log=True, dry_run=False)
    assert table.refresh().version <= quiet + 2  # an idle table comes to rest


def test_the_log_of_a_table_that_is_only_appended_to_is_cut():
    hours = {"retention_hours": "2", "log_retention_hours": "6"}
    table = create(seed=1, properties={"keyframe_commits": "4", **hours})
    for number in range(20):
        append(table, events(2, first=10 * number))
        table.clock.advance(HOUR)
    assert vacuum(table, dry_run=False).horizon == 0
    report = vacuum(table, log=True, dry_run=False)
    assert (report.horizon, report.log.cut) == (15, 15)
    assert check_cut(table.store) == 15
    assert count(table, version=15) == 30
    assert vacuum(table, log=True, dry_run=False).horizon == 15


@pytest.mark.parametrize("held", ["pin", "replica", "branch"])
def test_what_holds_a_version_holds_the_log(held):
    table = grown()
    if held == "pin":
        commit(table, SetPin("p", 7, "me"), operation="pin")
    elif held == "branch":
        table.branch("b", 7)
    else:
        target = MemoryStore()
        follow(table, Table(target), name="mirror", clock=ManualClock(1, 7))
        go_on(table, 6)
    acked = [replica.acked for replica in table.refresh().meta.replicas.values()]
    assert vacuum(table, **ALL).log.cut == min([7, *acked] if held != "replica" else acked)
    check_cut(table.store)
    if held == "branch":
        branch = Table.open(table.uri, store=table.store, branch="b", clock=table.clock)
        assert branch.refresh().version == 7
        assert count(branch) == 2
        append(branch, events(1, first=77))
        assert fsck(branch).ok


def recounted(store):
    return {row.key: store.get(row.key) for row in store.list("")}


def copied(bodies):
    store = MemoryStore()
    for key, body in bodies.items():
        store.put_if_absent(key, body)
    return store


@pytest.mark.hazard("W20")
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.sample(12, verify=100)
@pytest.mark.parametrize("at", range(1, 240, 2))
def test_a_vacuum_that_died_is_finished_by_the_next_one(at, how):
    table = grown(commits=14)
    rows = row_names(table)
    crashing = CrashingStore(table.store, at, how)
    mortal = Table(crashing, ManualClock(table.clock.now_ms(), 5))
    with suppress(Crash):
        vacuum(mortal, **ALL)
    check_cut(table.store, rows)
    append(reopen(table.store), events(1, first=900))
    vacuum(Table(table.store, ManualClock(table.clock.now_ms() + HOUR, 6)), **ALL)
    cut = check_cut(table.store)
    assert cut >= 14
    assert stubs(table.store) == cut
    assert log_of(table.store)[1][0] == cut


def stalled_append(table, when):
    """A writer that staged and is suspended before its PUT, until `when` was called."""
    spy = Spy(table.store)
    writer = Table(spy, ManualClock(table.clock.now_ms(), 77))
    head = writer.refresh().version
    done = []

    def before_put(key):
        if key == keys.commit_key(head + 1) and not done:
            done.append(key)
            when()

    spy.before_put = before_put
    return writer


@pytest.mark.hazard("C4")
@pytest.mark.hazard("W20")
def test_a_writer_that_slept_through_the_cut_does_not_fill_an_old_slot():
    table = grown(commits=4)

    def week():
        go_on(table)
        vacuum(table, **ALL)

    writer = stalled_append(table, week)
    rows = []
    with pytest.raises(errors.CommitUnknown, match="cannot be known any more"):
        append(writer, events(1, first=700))
    rows = row_names(reopen(table.store))
    assert len(rows) == 2
    check_cut(table.store, rows)
    append(writer, events(1, first=700))
    assert len(row_names(reopen(table.store))) == 3


@pytest.mark.hazard("C1")
@pytest.mark.hazard("W20")
def test_a_writer_whose_commit_became_a_stub_is_acknowledged():
    table = grown(commits=4)
    spy = FaultyStore(table.store)
    writer = Table(spy, ManualClock(table.clock.now_ms(), 77))
    version = writer.refresh().version + 1
    real = spy.inner

    class Late(Spy):
        def put_if_absent(self, key, body):
            created = super().put_if_absent(key, body)
            if key != keys.commit_key(version) or not created:
                return created
            go_on(table)
            vacuum(table, **ALL)
            raise errors.OutcomeUnknown("the answer was lost")

    writer = Table(Late(real), ManualClock(table.clock.now_ms(), 77))
    assert append(writer, events(1, first=700)) == version
    assert codec.is_stub(table.store.get(keys.commit_key(version)))
    check_cut(table.store)


@pytest.mark.hazard("W20")
def test_whether_a_published_transaction_took_effect_below_the_cut_is_unknown():
    table = grown(commits=4)
    writer = Table(table.store, ManualClock(table.clock.now_ms(), 77))
    writer.refresh()
    transaction = writer.transaction("append", ())
    go_on(table)
    vacuum(table, **ALL)
    with pytest.raises(errors.VersionCut):
        writer.find_transaction(transaction.id, start=3, until=6)


@pytest.mark.hazard("W20")
def test_a_stale_reader_is_told_that_its_version_is_gone():
    table = grown(commits=4)
    stale, old = reopen(table.store), reopen(table.store)
    stale.refresh()
    old.refresh()
    go_on(table)
    vacuum(table, **ALL)
    for ask in (
        lambda: Log(table.store).read(2),
        lambda: Log(table.store).snapshot(2),
        lambda: stale.snapshot(3),
    ):
        with pytest.raises(errors.VersionCut, match="cut off"):
            ask()
    assert old.refresh().version == table.refresh().version
    with pytest.raises(errors.VersionVacuumed):
        scan(stale, version=2).to_table()


@pytest.mark.hazard("W20")
def test_a_vacuum_that_slept_between_two_requests_replaces_nothing_above_its_cut():
    table = grown(commits=10)
    spy = Spy(table.store)
    sleeper = Table(spy, ManualClock(table.clock.now_ms(), 5))
    slept = []

    def before_put(key):
        if keys.parse_log_key(key) and keys.parse_log_key(key)[0] == 3 and not slept:
            slept.append(key)
            go_on(table)
            vacuum(table, **ALL)

    spy.before_put = before_put
    vacuum(sleeper, **ALL)
    assert slept
    assert stubs(table.store) == check_cut(table.store)


def test_versions_above_the_cut_survive_the_loss_of_a_key_frame():
    table = grown(commits=40, log_retention_hours="10", retention_hours="2")
    vacuum(table, log=True, dry_run=False)
    whole = log_of(table.store)[1][0]
    for version in log_of(table.store)[1]:
        if version > whole:
            table.store.delete([keys.keyframe_key(version)])
    cut = cut_of(table.refresh().meta)
    for version in range(cut, table.refresh().version + 1):
        Log(table.store).snapshot(version).entries()


def test_spills_and_intents_below_the_cut_go(monkeypatch):
    monkeypatch.setattr("eventlog.log.spills.SPILL_BYTES", 600)
    table = create(properties={"keyframe_commits": "4"})
    for number in range(16):
        overwrite(table, events(6, first=10 * number, days=6), start="1970-01-01", end="1970-01-09")
        table.clock.advance(HOUR)
    table.store.put_if_absent(keys.intent_key(3, "a" * 32), b"{}")
    table.store.put_if_absent(keys.intent_key(999, "b" * 32), b"{}")
    rows = row_names(table)
    before = len([*table.store.list(keys.FRAMES_PREFIX)])
    report = vacuum(table, **ALL).log
    after = [row.key for row in table.store.list(keys.FRAMES_PREFIX)]
    assert report.sums["frames"][0] > 10
    assert len(after) <= before - report.sums["frames"][0] + 2
    assert [r.key for r in table.store.list(keys.INTENTS_PREFIX)] == [
        keys.intent_key(999, "b" * 32)
    ]
    check_cut(table.store, rows)
    audit = fsck(reopen(table.store))
    assert {left.kind for left in audit.leftovers} <= {"probe", "foreign", "open"}


def test_a_cut_costs_open_and_append_no_request():
    def costs(table):
        store = CountingStore(table.store)
        with store.measure() as opened:
            fresh = Table.open(table.uri, store=store, clock=ManualClock(table.clock.now_ms(), 9))
            fresh.snapshot()
        with store.measure() as appended:
            append(fresh, events(1, first=800))
        return opened.total, appended.total

    plain = grown(commits=21)
    cut = grown(commits=21)
    vacuum(cut, **ALL)
    plain.session.write_keyframe()
    for _ in range(3):
        commit(plain, operation="note")
    assert costs(cut) == costs(plain)


@pytest.mark.hazard("W20")
def test_a_copy_behind_the_cut_goes_on_above_it():
    table = grown(commits=6)
    target = MemoryStore()
    follow(table, Table(target), clock=ManualClock(1, 7))
    go_on(table)
    vacuum(table, **ALL)
    follow(reopen(table.store), Table(target), clock=ManualClock(1, 8))
    assert row_names(reopen(target)) == row_names(table)
    assert fsck(reopen(target)).ok, fsck(reopen(target)).findings
    fresh = MemoryStore()
    follow(reopen(table.store), Table(fresh), clock=ManualClock(1, 9))
    assert row_names(reopen(fresh)) == row_names(table)
    for copy in (target, fresh):  # a backfill copies the stubs
        backfill(reopen(table.store), Table(copy), clock=ManualClock(1, 9))
        versions = [entry.version for entry in reopen(copy).history()]
        assert versions == [*range(table.refresh().version, -1, -1)]
        assert fsck(reopen(copy)).ok, fsck(reopen(copy)).findings


def test_a_copy_of_a_cut_table_cuts_its_own_log():
    table = grown(commits=6)
    target = MemoryStore()
    follow(table, Table(target), name="mirror", clock=ManualClock(1, 7))
    go_on(table)
    follow(table, Table(target), name="mirror", clock=ManualClock(1, 7))
    vacuum(table, **ALL)
    follow(table, Table(target), name="mirror", clock=ManualClock(1, 7))
    rows = row_names(table)
    assert stubs(target) == 0
    copy = reopen(target)
    break_replica(copy, "mirror")
    vacuum(copy, **ALL)
    assert stubs(target) > 5
    check_cut(target, rows)


@pytest.mark.hazard("W20")
def test_a_merge_whose_fork_is_below_the_cut_says_so():
    table = grown(commits=6)
    target = MemoryStore()
    follow(table, Table(target), clock=ManualClock(1, 7))
    other = reopen(target)
    append(other, events(1, first=600))
    go_on(table)
    vacuum(table, **ALL)
    with pytest.raises(errors.EventLogError) as told:
        merge(reopen(table.store), reopen(target), clock=ManualClock(1, 7))
    assert isinstance(told.value, errors.VersionCut | errors.VersionVacuumed), told.value


@pytest.mark.parametrize(
    "wrong",
    [
        lambda cut, horizon, head: SetCut(cut, cut, head),
        lambda cut, horizon, head: SetCut(horizon + 1, cut, head),
        lambda cut, horizon, head: SetCut(horizon, cut - 1, head),
        lambda cut, horizon, head: SetCut(horizon, horizon + 1, head),
        lambda cut, horizon, head: SetCut(horizon, cut, horizon - 1),
        lambda cut, horizon, head: SetCut(horizon, cut, head + 1),
    ],
)
def test_a_cut_that_is_void(wrong):
    table = grown(commits=8)
    vacuum(table, **ALL)
    go_on(table, 4)
    vacuum(table, **NOW, dry_run=False)
    table.write_keyframe()
    head = table.refresh()
    cut = wrong(head.meta.cut.version, head.meta.horizon, head.version)
    with pytest.raises(errors.CommitConflict):
        commit(table, cut, operation="vacuum")
    fine = SetCut(head.meta.horizon, head.meta.cut.whole, head.version)
    commit(table, fine, operation="vacuum")
    assert cut_of(table.refresh().meta) == head.meta.horizon


def test_a_cut_is_a_feature():
    table = grown(commits=8)
    assert table.refresh().header.features == ()
    vacuum(table, **ALL)
    assert table.refresh().header.features == ("cut",)


def test_a_branch_is_not_cut():
    table = grown(commits=8)
    table.branch("b")
    branch = Table.open(table.uri, store=table.store, branch="b", clock=table.clock)
    go_on(branch, 8)
    report = vacuum(branch, **ALL)
    assert (report.log.cut, report.log.kept) == (0, "this is a branch, whose log ends with it")
    assert cut_of(branch.refresh().meta) == 0


def test_a_branch_without_a_pin_holds_the_log():
    table = grown(commits=8)
    table.branch("b", 5)
    (pin,) = table.refresh().meta.pins
    held = table.refresh().meta.pins[pin]
    go_on(table, 8)
    # As in a table that followed a copy, which has no such pin, and which the horizon has passed.
    commit(table, Unpin(pin, held.owner, held.token), operation="unpin")
    commit(table, Horizon(table.refresh().version - 1), operation="vacuum")
    report = vacuum(table, **ALL)
    assert (report.log.cut, report.log.kept) == (5, "branch 'b'")
    branch = Table.open(table.uri, store=table.store, branch="b", clock=table.clock)
    assert branch.refresh().version == 5
    branch.refresh().entries()


def test_a_copy_that_lacks_versions_is_not_cut_there():
    table = grown(commits=6)
    target = MemoryStore()
    follow(table, Table(target), clock=ManualClock(1, 7))
    go_on(table, 16)
    vacuum(table, **NOW, dry_run=False)
    follow(reopen(table.store), Table(target), clock=ManualClock(1, 8))
    copy = reopen(target)
    assert [*target.list(keys.STARTS_PREFIX)]
    commit(copy, SetPin("p", copy.refresh().version - 1, "me"), operation="pin")
    report = vacuum(copy, **{**ALL, "log_retention": timedelta(hours=12)})
    assert "lacks versions" in report.log.kept
    assert report.log.cut == 0


def test_a_commit_beside_the_cut_keeps_its_key_frame():
    table = grown(commits=11, keyframe_commits="64")
    table.session.write_keyframe()
    go_on(table, 3)
    spy = Spy(table.store)
    done = []

    def before_put(key):
        """Before the cut, a writer commits over the key frame before the newest one."""
        log = Log(table.store)
        head = log.head_version()
        if done or key != keys.commit_key(head + 1) or b'"action":"cut"' not in spy.puts[-1][1]:
            return
        newest = log.snapshot(head)
        older = newest.state.over(log.snapshot(newest.base.version).state)
        session = reopen(table.store).session
        session.advance(Snapshot(older, session.log))
        session.commit(table.transaction("note", ()))
        done.append(log.header(head + 1).keyframe)
        another = reopen(table.store)
        another.session.write_keyframe()
        another.commit(another.transaction("note", ()))

    spy.before_put = before_put
    report = vacuum(Table(spy, ManualClock(table.clock.now_ms(), 5)), **ALL).log
    assert report.cut > report.whole == done[0] == 11
    check_cut(table.store)


def test_the_log_stays_whole_from_a_key_frame_that_serves():
    usable = {4: True, 8: True, 12: True}.__getitem__
    assert log_cut.whole_from(8, {8: 4, 9: 8, 10: 8}, usable) == 8
    assert log_cut.whole_from(8, {8: 4, 9: 4, 10: 8}, usable) == 4
    assert log_cut.whole_from(10, {10: 8, 11: 8, 12: 8}, usable) == 8
    assert log_cut.whole_from(10, {10: 8, 11: None}, usable) == 0
    assert log_cut.whole_from(10, {10: 8, 11: 8}, lambda version: False) == 0


def test_a_cut_is_worth_its_headers():
    assert log_cut.is_worth_cutting(0, 100, 900)
    assert not log_cut.is_worth_cutting(0, 100, 901)
    assert not log_cut.is_worth_cutting(100, 100, 100)


def test_the_log_of_a_table_that_came_in_its_place_is_left_alone():
    table = grown(commits=14)
    other = grown(commits=14, store=MemoryStore(), seed=9)
    bodies = recounted(other.store)

    class Swapped(Spy):
        """Once the last key frame that is to go was read, another table is there."""

        listed = False

        def get(self, key, *, start=0, length=None):
            body = super().get(key, start=start, length=length)
            if self.listed and key == keys.keyframe_key(3):
                self.inner.delete([row.key for row in self.inner.list("")])
                for name, content in bodies.items():
                    self.inner.put_if_absent(name, content)
            return body

        def list(self, prefix, *, after="", limit=None):
            self.listed |= prefix == keys.LOG_PREFIX and after != ""
            return super().list(prefix, after=after, limit=limit)

    store = Swapped(table.store)
    with pytest.raises(errors.EventLogError):
        vacuum(Table(store, ManualClock(table.clock.now_ms(), 5)), **ALL)
    assert store.listed
    assert recounted(table.store) == bodies


def entry_at(version, name="a"):
    add = Add(name * 32, "1970-01-01", 0, 1, 100, "ab" * 32, 1, (), None)
    return segment_of(add, version, 0)


def test_a_leaf_whose_entries_are_all_live_stays():
    one, two = entry_at(1), entry_at(2, "b")
    assert not log_cut.is_dead_leaf([one, two], {one.id: one, two.id: two})
    assert log_cut.is_dead_leaf([one, two], {one.id: one})
    assert log_cut.is_dead_leaf([one], {one.id: entry_at(3)})


def test_a_spill_of_segments_that_are_there_stays():
    one, two = entry_at(1), entry_at(2, "b")
    adds = [add_of(one), add_of(two)]
    assert not log_cut.is_dead_spill(adds, [], {one.id: one}, lambda add: False)
    assert log_cut.is_dead_spill(adds, [], {one.id: one}, lambda add: add.id == two.id)
    assert not log_cut.is_dead_spill(adds, [], {}, lambda add: False)
    assert not log_cut.is_dead_spill([], [drop_of(one)], {one.id: one}, lambda add: True)
    assert log_cut.is_dead_spill([], [drop_of(one)], {}, lambda add: False)


def test_no_commit_starts_from_a_key_frame_below_the_cut():
    table = grown(commits=8)
    vacuum(table, **ALL)
    head = table.refresh()
    meta = msgspec.structs.replace(
        head.meta, cut=msgspec.structs.replace(head.meta.cut, version=head.base.version + 1)
    )
    state = replace(head.state, meta=meta)
    session = reopen(table.store).session
    session.advance(Snapshot(state, session.log))
    with pytest.raises(errors.CommitConflict, match="the log is cut at version"):
        session.commit(table.transaction("note", ()))


def test_an_audit_finds_a_commit_over_a_key_frame_below_the_cut(monkeypatch):
    table = grown(commits=8)
    vacuum(table, **NOW, dry_run=False)
    monkeypatch.setattr("eventlog.commit.proposal._check_base", lambda base, meta: None)
    head = table.refresh()
    assert head.base.version < head.meta.horizon
    commit(table, SetCut(head.meta.horizon, head.base.version, head.version), operation="vacuum")
    found = fsck(reopen(table.store)).findings
    assert any("the log is cut at version" in finding.message for finding in found)


def findings_with_anothers_stub(version):
    table, other = grown(commits=14), grown(commits=14, store=MemoryStore(), seed=9)
    for one in (table, other):
        vacuum(one, **ALL)
    replace_object(table.store, keys.commit_key(version), other.store.get(keys.commit_key(version)))
    return [found.message for found in fsck(reopen(table.store)).findings]


def test_an_audit_finds_a_stub_of_another_log():
    assert "it does not follow the version below" in findings_with_anothers_stub(6)


def test_an_audit_finds_another_stub_below_the_first_commit():
    assert "it does not follow the stub below" in findings_with_anothers_stub(13)


def test_a_version_whose_key_frame_went_before_its_commit_was_cut_off():
    table = grown(commits=14)
    bodies = recounted(table.store)
    vacuum(table, **ALL)
    replace_object(table.store, keys.commit_key(9), bodies[keys.commit_key(9)])
    replace_object(table.store, keys.commit_key(7), bodies[keys.commit_key(7)])
    with pytest.raises(errors.VersionCut):
        Log(table.store).snapshot(9)


def test_a_stub_does_not_settle_what_an_earlier_request_left_unclear():
    table = grown(commits=4)
    spy = Spy(table.store)
    unanswered = Fault("put", "not_applied_unknown", key="_log/", occurrence=0)
    faulty = FaultyStore(spy, [unanswered])
    writer = Table(faulty, ManualClock(table.clock.now_ms(), 77))
    with pytest.raises(errors.CommitUnknown):
        append(writer, events(1, first=700))
    faulty._plan.clear()
    slept = []

    def before_put(key):
        """The slot was empty still when it was looked at; then the writer sleeps for a week."""
        if keys.parse_log_key(key) and not slept:
            slept.append(key)
            go_on(table)
            vacuum(table, **ALL)

    spy.before_put = before_put
    with pytest.raises(errors.CommitUnknown, match="cannot be known any more"):
        writer.session.commit(writer.session.attempted)
    assert slept


def test_a_stub_is_the_commit_that_a_copy_has():
    table = grown(commits=14)
    target = MemoryStore()
    follow(table, Table(target), clock=ManualClock(1, 7))
    vacuum(table, **ALL)
    pipeline = Pipeline(table.store, target, ManualClock(1, 8))
    pipeline.put_slot(5, table.store.get(keys.commit_key(5)))
    assert not codec.is_stub(target.get(keys.commit_key(5)))
    other = grown(commits=14, store=MemoryStore(), seed=9)
    with pytest.raises(errors.CommitConflict):
        pipeline.put_slot(5, other.store.get(keys.commit_key(5)))


def test_what_only_a_commit_has_is_stored_before_its_stub(monkeypatch):
    table = grown(commits=14)
    seen = []

    def kept(commit, needed):
        assert not codec.is_stub(table.store.get(keys.commit_key(commit.header.version)))
        return {f"data/{commit.header.version}": b"its rows"}

    monkeypatch.setattr("eventlog.recovery.log_cut.kept_of", kept)
    vacuum(table, **ALL)
    seen = [row.key for row in table.store.list("data/") if "/" not in row.key[5:]]
    assert len(seen) == stubs(table.store)


def rows_of(table):
    return sorted(map(str, scan(table).to_table().to_pylist()))


@pytest.mark.hazard("W20")
def test_rows_in_commits_below_the_cut_are_at_their_keys():
    table = create(properties={"keyframe_commits": "4", "inline_bytes": "8000"})
    for number in range(12):
        append(table, events(2, day=number % 3, first=10 * number))
        table.clock.advance(HOUR)
    assert table.refresh().totals.inline
    branch = table.branch("b", 9)
    overwrite(table, events(1, first=500), **DAY)
    table.restore(8)
    table.clock.advance(HOUR)
    held, shown = rows_of(branch), rows_of(table)
    before = {row.key for row in table.store.list("data/")}
    forget_objects()
    report = vacuum(table, **ALL)
    assert (report.log.whole, report.log.cut) == (7, 9)
    put = {row.key for row in table.store.list("data/")} - before
    assert len(put) == 6
    forget_objects()
    assert rows_of(reopen(table.store)) == shown
    again = Table.open(table.uri, store=table.store, branch="b", clock=table.clock)
    assert rows_of(again) == held
    check_cut(table.store)
    assert fsck(reopen(table.store), checksums=True).ok


def test_rows_that_no_kept_version_has_go_with_their_commits():
    table = create(properties={"keyframe_commits": "4", "inline_bytes": "8000"})
    for number in range(12):
        overwrite(table, events(2, first=10 * number), **DAY)
        table.clock.advance(HOUR)
    vacuum(table, **ALL)
    forget_objects()
    assert len([*table.store.list("data/")]) <= 1
    check_cut(table.store)
    assert len(rows_of(reopen(table.store))) == 2


def test_a_branch_with_a_pin_below_the_cut_of_its_parent_is_vacuumed():
    table = grown(commits=6)
    table.pin("old", 3, owner="x")
    go_on(table, commits=8)
    branch = table.branch("audit")  # it has the pin, too
    table.unpin("old", owner="x")
    overwrite(branch, events(2, first=500), **DAY)
    rows = row_names(branch)
    table.clock.advance(HOUR)
    vacuum(table, **ALL)
    assert cut_of(table.refresh().meta) > 3
    again = Table.open("", store=branch.store, clock=ManualClock(table.clock.now_ms() + HOUR, 31))
    assert vacuum(again, dry_run=False, **NOW).horizon == 3
    assert row_names(again) == rows
