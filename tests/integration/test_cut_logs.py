"""The cut of a log: what goes, what stays readable, and whom a stub stops."""

from contextlib import suppress
from datetime import timedelta

import pytest
from support.builders import CrashingStore, Spy, commit, create, events, reopen, row_names

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.log.log import Log
from eventlog.model.actions import SetPin
from eventlog.model.records import cut_of
from eventlog.readers import count, scan
from eventlog.replication import backfill, break_replica, follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}
ALL = {**NOW, "log": True, "log_retention": timedelta(0), "dry_run": False}
HOUR = 3_600_000


def grown(store=None, commits=20, **properties):
    """A table with key frames at every fourth version, of which each replaces the rows."""
    table = create(store, properties={"keyframe_commits": "4", **properties})
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
    for ask in (lambda: Log(table.store).snapshot(2), lambda: stale.snapshot(3)):
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
