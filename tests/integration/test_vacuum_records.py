"""What vacuum deletes and records where the log is short, idle, or pinned."""

import re
from datetime import timedelta

import pytest
from support.builders import (
    Spy,
    commit,
    create,
    drop_of,
    events,
    reopen,
    replace_object,
    replaced,
    row_names,
    sorted_names,
)
from support.damage import Damaged
from support.forked_histories import copied
from support.parted_logs import take_over
from support.vacuumed import DAY, NOW, pinned_and_vacuumed

from eventlog import Table, errors
from eventlog.compaction import Policy, vacuum
from eventlog.compaction import run as compact
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.actions import Fence, Horizon, Swept
from eventlog.model.entries import Spill, Sweep
from eventlog.readers import scan
from eventlog.recovery import garbage
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

LONG = {"retention": timedelta(days=3000), "staging": timedelta(0)}


def test_nothing_is_deleted_by_a_log_that_lost_its_end():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.store.delete([keys.commit_key(2)])
    table.clock.advance(10**9)
    with pytest.raises(errors.Corrupt, match="commits were removed"):
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert len(list(table.store.list("data/"))) == 2


def test_vacuums_of_an_idle_table_come_to_rest():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    for _ in range(3):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    rest = table.refresh().version
    for _ in range(5):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    assert table.refresh().version == rest
    assert row_names(table) == ["row 1"]


def test_a_record_that_lacks_what_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    head = table.session.head()
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, head.version)))
    report = fsck(Table(table.store))
    assert not report.ok
    assert "record lacks this segment" in report.findings[0].message
    table.clock.advance(10**9)
    vacuum(reopen(table.store), dry_run=False, **NOW)
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("full", [False, True])
def test_an_audit_finds_that_a_record_lacks_what_only_the_retention_keeps(full):
    table = create(properties={"keyframe_commits": "3"})
    append(table, events(2))
    append(table, events(1, first=2, day=3))
    overwrite(table, events(1, first=5), **DAY)
    head = table.refresh()
    [old] = table.snapshot(1).segments()
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, head.version)))
    [found] = fsck(Table(table.store)).findings
    assert found.key == keys.key_of(old)
    assert "which version 3 dropped" in found.message
    table.clock.advance(10**9)
    vacuum(reopen(table.store), dry_run=False, full=full, **LONG)
    assert scan(reopen(table.store), version=2).to_table().num_rows == 3
    assert fsck(Table(table.store)).findings == ()


def test_a_damaged_record_is_stored_again_once_it_is_removed():
    table = pinned_and_vacuumed()
    key = keys.frame_key(table.refresh().meta.swept.pending.sha256)
    body = table.store.get(key)
    replace_object(table.store, key, body[:-1] + bytes([body[-1] ^ 1]))
    vacuum(table, dry_run=False, **NOW)  # its record has the same name
    [found] = fsck(Table(table.store)).findings
    assert found.key == key
    assert "Remove this object by hand" in found.message
    table.store.delete([key])
    vacuum(table, dry_run=False, **NOW)
    assert fsck(Table(table.store)).findings == ()


@pytest.mark.hazard("V2")
def test_an_audit_misses_nothing_in_a_record_of_what_is_live_again():
    table = create()
    append(table, events(2))
    overwrite(table, events(1, first=5), **DAY)
    head = table.refresh()
    [old] = table.snapshot(1).segments()
    table.restore(1)
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, table.refresh().version)))
    assert keys.key_of(old) not in [f.key for f in fsck(Table(table.store)).findings]


def on_day(n):
    return {"start": f"1970-01-0{n + 1}", "end": f"1970-01-0{n + 2}"}


OTHERS = {
    "it drops another segment": lambda t: overwrite(t, events(1, first=1, day=1), **on_day(1)),
    "it drops nothing": lambda t: t.pin("there"),
    "it has other totals": lambda t: append(t, events(2, first=40)),
}


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("above", [1, 4])
@pytest.mark.parametrize("other", OTHERS)
def test_a_vacuum_stops_where_a_commit_of_another_log_stands(other, above):
    """As after a log was put back in part from a copy that had parted from it."""
    table = create(properties={"keyframe_commits": "2", "staging_hours": "0"})
    for n in range(4):
        append(table, events(1, first=n, day=n))
    parted = reopen(copied(table.store))
    OTHERS[other](parted)
    overwrite(table, events(1, day=0), **on_day(0))
    for n in range(above):
        append(table, events(1, first=10 + n, day=5))
    own, key = table.store.get(keys.commit_key(5)), keys.commit_key(5)
    same = table.snapshot(5).totals == parted.snapshot(5).totals
    assert same == (other != "it has other totals")
    replace_object(table.store, key, parted.store.get(key))
    with pytest.raises(errors.Corrupt, match=r"version 6 .* version 5.* nothing more is deleted"):
        vacuum(reopen(table.store), dry_run=False, **LONG)
    replace_object(table.store, key, own)
    assert scan(reopen(table.store), version=4).to_table().num_rows == 4


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("retention", [None, timedelta(days=7)], ids=["own", "given"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_time_of_a_commit_of_another_log_gives_up_no_version(dry_run, retention):
    """It is older than the one whose place it takes, so that the version below seems aged."""
    table = create(properties={"staging_hours": "0"})
    append(table, events(1))
    parted = reopen(copied(table.store))
    overwrite(parted, events(1, first=1), **DAY)
    table.clock.advance(10 * 86_400_000)
    overwrite(table, events(1, first=1), **DAY)
    append(table, events(1, first=2, day=4))
    table.clock.advance(86_400_000)
    own, key = table.store.get(keys.commit_key(2)), keys.commit_key(2)
    replace_object(table.store, key, parted.store.get(key))
    with pytest.raises(errors.Corrupt, match=r"version 3 .* version 2.* nothing more is deleted"):
        vacuum(table, dry_run=dry_run, retention=retention)
    replace_object(table.store, key, own)
    assert vacuum(table, dry_run=dry_run, retention=timedelta(days=7)).horizon == 1
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("recorded", [False, True])
def test_neighbouring_commits_of_another_log_raise_no_horizon(recorded):
    """The older one seems aged, and the younger one names it: only those above show the fault."""
    table = create(properties={"staging_hours": "0"})
    append(table, events(1))
    parted = reopen(copied(table.store))
    overwrite(parted, events(1, first=1), **DAY)
    for clock in (table.clock, parted.clock):
        clock.advance(10 * 86_400_000)
    append(parted, events(1, first=2, day=4))
    overwrite(table, events(1, first=1), **DAY)
    for n in range(3):
        append(table, events(1, first=n + 2, day=4))
    if recorded:  # the vacuum looks at no drop of the versions up to here
        [old] = table.snapshot(1).segments()
        record(table, garbage.Dropped(keys.key_of(old), 2, old.bytes))
    table.clock.advance(86_400_000)
    own = take_over(table.store, parted.store, [2, 3])
    with pytest.raises(errors.Corrupt, match=r"version 4 .* version 3.* nothing more is deleted"):
        vacuum(reopen_at(table), dry_run=False)
    assert reopen(table.store).session.head().meta.horizon == 0
    for key, body in own.items():
        replace_object(table.store, key, body)
    raised = vacuum(reopen_at(table), dry_run=False, retention=timedelta(days=7))
    assert raised.horizon == 1
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_dropped_while_a_vacuum_commits_its_marks_stays_and_is_in_its_record(recorded):
    table = create(properties={"staging_hours": "0"})
    append(table, events(1))
    if recorded:
        record(table)
    table.clock.advance(8 * 86_400_000)
    append(table, events(1, first=1, day=4))
    table.clock.advance(86_400_000)
    spy = Spy(table.store)

    def once(key):
        spy.before_put = lambda _: None
        overwrite(reopen_at(table), events(1, first=1), **DAY)

    spy.before_put = once
    vacuum(Table.open("", store=spy, clock=table.clock), dry_run=False, **LONG)
    assert "overwrite" in [entry.operation for entry in reopen(table.store).history()]
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1
    assert fsck(Table(table.store)).findings == ()


def reopen_at(table):
    return Table.open("", store=table.store, clock=table.clock)


@pytest.mark.parametrize("held", [6, 7, 8])
def test_a_copy_takes_a_held_version_that_it_lacks_for_its_horizon(held):
    source, store = create(properties={"keyframe_commits": "3"}), MemoryStore()
    for n in range(held):
        append(source, events(1, first=n))
    source.pin("keep", held)
    while source.refresh().version < 9:
        append(source, events(1, first=20))
    assert follow(source, Table(store), start="keyframe").start == 8
    copy = reopen(store)
    append(copy, events(1, first=50))
    copy.clock.advance(10**9)
    assert vacuum(copy, dry_run=False, **NOW).horizon == held


@pytest.mark.hazard("V2")
def test_a_vacuum_stops_where_a_header_does_not_count_what_its_commit_drops():
    table = create(properties={"staging_hours": "0"})
    for n in range(2):
        append(table, events(1, first=n, day=n))
    overwrite(table, events(1, day=0), **on_day(0))

    def uncounted(commit):
        changes = replaced(commit.header.changes, drops=0)
        return replaced(commit, header=replaced(commit.header, changes=changes))

    Damaged.of(table.store).forge_commit(3, uncounted)
    append(reopen(table.store), events(1, first=9, day=4))
    with pytest.raises(errors.Corrupt, match=r"version 3 .* version 2.* nothing more is deleted"):
        vacuum(reopen(table.store), dry_run=False, **LONG)
    assert scan(reopen(table.store), version=2).to_table().num_rows == 2


@pytest.mark.hazard("V2")
def test_a_vacuum_checks_the_newest_version_that_a_record_covers_when_it_doubts_it():
    table = create(properties={"staging_hours": "0"})
    for n in range(2):
        append(table, events(1, first=n, day=n))
    parted = reopen(copied(table.store))
    parted.pin("there")
    overwrite(table, events(1, day=0), **on_day(0))
    record(table)  # it lacks what version 3 dropped
    own, key = table.store.get(keys.commit_key(3)), keys.commit_key(3)
    replace_object(table.store, key, parted.store.get(key))
    with pytest.raises(errors.Corrupt, match=r"version 4 .* version 3.* nothing more is deleted"):
        vacuum(reopen(table.store), dry_run=False, **LONG)
    replace_object(table.store, key, own)
    assert scan(reopen(table.store), version=2).to_table().num_rows == 2


@pytest.mark.hazard("V4")
@pytest.mark.parametrize("said", [-1, 0, 1, 2**63 - 1])
def test_a_record_that_names_a_wrong_version_deletes_nothing_that_a_pin_holds(said):
    table = pinned_and_vacuumed()
    last = table.session.head().meta.swept
    body = table.session.log.spill_bytes(last.pending)
    found = garbage.from_object(body, last.pending.drops, last.version)
    wrong = garbage.to_object([garbage.Dropped(d.key, said, d.bytes) for d in found.values()])
    pending = Spill(codec.sha256(wrong), len(wrong), 0, len(found))
    assert table.store.put_if_absent(keys.frame_key(pending.sha256), wrong)
    meta = table.session.head().meta
    commit(table, Swept(Sweep(meta.fence, meta.horizon, table.session.head().version, pending)))
    append(table, events(1, first=9, day=4))
    for _ in range(2):
        table.clock.advance(10**9)
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1


WRONG = {
    "live there": lambda key: garbage.Dropped(key, 1, 1),
    "of no version": lambda key: garbage.Dropped(key, -1, 1),
    "of a version to come": lambda key: garbage.Dropped(key, 2**62, 1),
    "outside": lambda _: garbage.Dropped("../precious", 1, 1),
}


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_record_that_is_wrong_deletes_nothing_that_a_pin_holds(wrong):
    table = pinned_and_vacuumed()
    [old] = table.snapshot(1).segments()
    head = table.session.head()
    body = garbage.to_object([WRONG[wrong](keys.key_of(old))])
    pending = Spill(codec.sha256(body), len(body), 0, 1)
    table.store.put_if_absent(keys.frame_key(pending.sha256), body)
    swept = Sweep(head.meta.fence, head.meta.horizon, head.version, pending)
    commit(table, Swept(swept))
    found = fsck(Table(table.store)).findings
    assert any("the last vacuum's record" in finding.message for finding in found)
    for full in (False, True):
        vacuum(table, dry_run=False, full=full, **NOW)
        assert scan(table, version=1).to_table().num_rows == 1
    assert fsck(Table(table.store), checksums=True).findings == ()


def test_a_record_of_what_was_restored_and_dropped_again_is_right():
    table = pinned_and_vacuumed()
    table.restore(1)
    again = table.pin("again")
    shown = scan(table, version=again).to_table().num_rows
    overwrite(table, events(1, first=5), **DAY)
    table.unpin("keep")
    table.clock.advance(10**9)
    vacuum(table, dry_run=False, **NOW)
    assert scan(table, version=again).to_table().num_rows == shown
    assert fsck(Table(table.store), checksums=True).findings == ()


def record(table, *dropped):
    """Commit a record of a vacuum that came up to the newest version."""
    body, head = garbage.to_object(dropped), table.refresh()
    pending = Spill(codec.sha256(body), len(body), 0, len(dropped))
    table.store.put_if_absent(keys.frame_key(pending.sha256), body)
    marks = head.meta.fence, head.meta.horizon
    commit(table, Swept(Sweep(*marks, head.version, pending)))


def history(*, horizon, **properties):
    """Segment A is live in versions 3 and 4, everything is fenced; return the table and A."""
    table = create(properties=properties)
    append(table, events(1))
    append(table, events(1, first=1, day=3))
    append(table, events(1, first=2, day=5))
    [old] = table.snapshot(3).segments(chunks=["1970-01-06"])
    append(table, events(1, first=3, day=3))
    commit(table, drop_of(old))
    append(table, events(1, first=4, day=3))
    commit(table, Fence(table.session.head().version), Horizon(horizon))
    return table, old


def rows_at(table, version):
    return scan(reopen(table.store), version=version).to_table().num_rows


@pytest.mark.sample(3)
@pytest.mark.hazard("V2")
@pytest.mark.parametrize("every", ["1", "256"])
@pytest.mark.parametrize(("said", "horizon"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4)])
def test_a_record_of_another_version_deletes_nothing_that_is_kept(said, horizon, every, caplog):
    table, old = history(horizon=horizon, keyframe_commits=every)
    record(table, garbage.Dropped(keys.key_of(old), said, old.bytes))
    [found] = fsck(Table(table.store)).findings
    assert (found.severity, found.key) == ("error" if said else "warning", keys.key_of(old))
    told = f"dropped in version {said}, but it was dropped in version 5.*`eventlog vacuum .* --run`"
    assert re.search(told if said else "does not name .* version 5 was missing", found.message)
    for _ in range(2):
        report = vacuum(table, dry_run=False, **LONG)
        assert (report.gone["dropped"].objects, [*report.kept]) == (0, ["retention"])
        assert rows_at(table, 4) == 4
        assert (
            len(re.findall("such as data/.*in version 5; they stay.*`eventlog fsck", caplog.text))
            == 1
        )
        assert fsck(Table(table.store)).findings == ()
    assert rows_at(table, 4) == 4
    again = vacuum(reopen(table.store), dry_run=False, **NOW)
    assert (again.gone["dropped"].objects, again.kept) == (1, {})


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_what_stays_by_its_id_alone_is_not_put_down_to_the_record(recorded, full, caplog):
    """A second object of a kept segment, under a key that no version names."""
    table = create()
    append(table, events(1))
    table.pin("keep")
    [old] = table.session.head().segments()
    overwrite(table, events(1, first=1), **DAY)
    if recorded:
        vacuum(table, dry_run=False, **NOW)
    key = keys.segment_key(table.session.head().version, "1970-01-04", old.id)
    assert table.store.put_if_absent(key, table.store.get(keys.key_of(old)))
    append(table, events(1, first=3, day=6))
    table.clock.advance(10**9)
    heads = []
    for _ in range(3):
        caplog.clear()
        vacuum(table, dry_run=False, full=full, **NOW)
        assert f"keeps 1 object that no version names, such as {key}:" in caplog.text
        assert "record" not in caplog.text
        heads.append(table.refresh().version)
    assert full or heads[1] == heads[2]
    assert table.store.get(key)
    assert fsck(Table(table.store)).findings == ()


@pytest.mark.parametrize("full", [False, True])
def test_what_is_live_again_in_another_object_waits_in_the_record(full):
    table = create(key="name", buckets=1)
    append(table, events(1))
    branch = table.branch("b")
    [old] = table.session.head().segments()
    compact(table, policy=Policy(min_gain=0))
    overwrite(branch, events(1, first=5), read_version=0)
    table.merge(branch)
    table.delete_branch("b")
    table.clock.advance(10**9)
    report = vacuum(table, dry_run=False, full=full, **NOW)
    assert fsck(Table(table.store)).findings == ()
    if report.gone["dropped"].objects == 0:
        assert table.store.get(keys.key_of(old))
    overwrite(table, events(1, first=7))
    for _ in range(2):
        table.clock.advance(10**9)
        append(table, events(1, first=8))
        vacuum(table, dry_run=False, **NOW)
        assert fsck(Table(table.store)).findings == ()
    with pytest.raises(errors.KeyNotFound):
        table.store.get(keys.key_of(old))
    assert sorted_names(table) == ["row 7", "row 8"]


class Reads(Spy):
    """A store that records every object that is read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reads = []

    def get(self, key, **options):
        self.reads.append(key)
        return super().get(key, **options)


@pytest.mark.parametrize("every", ["1", "3", "256"])
def test_each_version_that_dropped_what_waits_is_read_once(every):
    """Or, of what was added since its key frame, it is folded: two reads and a few leaves more."""
    table = create(properties={"keyframe_commits": every})
    for n in range(4):
        append(table, events(3, first=3 * n, day=n))
    table.pin("keep", 4)
    for n in range(4):
        day = {"start": f"1970-01-0{n + 1}", "end": f"1970-01-0{n + 2}"}
        overwrite(table, events(1, first=50 + n, day=n), **day)
        append(table, events(1, first=20 + n, day=9))
    table.clock.advance(10**9)
    append(table, events(1, first=90, day=9))
    vacuum(table, dry_run=False, **NOW)
    dropping = [keys.commit_key(v) for v in (6, 8, 10)]
    table.unpin("keep")
    table.clock.advance(10**9)
    append(table, events(1, first=91, day=9))
    store = Reads(table.store)
    report = vacuum(reopen(store), dry_run=False, **NOW)
    assert (report.gone["dropped"].objects, report.kept) == (4, {})
    assert sorted(key for key in store.reads if key in dropping) == sorted(dropping)


@pytest.mark.parametrize("said", [0, 4, 5])
def test_a_record_that_the_log_cannot_confirm_costs_time_and_leaves_nothing_behind(said, caplog):
    table, old = history(horizon=6)
    record(table, garbage.Dropped(keys.key_of(old), said, old.bytes))
    assert fsck(Table(table.store)).findings == ()
    if said == 5:
        replace_object(table.store, keys.commit_key(5), b"{}")
    done = vacuum(reopen(table.store), dry_run=False, **LONG)
    assert (done.gone["dropped"].objects, done.kept, caplog.text) == (1, {}, "")


def test_an_audit_finds_a_record_of_an_earlier_drop_than_the_last():
    table, old = history(horizon=2)
    table.restore(4)
    dropped = table.refresh().version + 1
    commit(table, *(drop_of(s) for s in table.session.head().segments(chunks=["1970-01-06"])))
    record(table, garbage.Dropped(keys.key_of(old), 5, old.bytes))
    [found] = [f for f in fsck(Table(table.store)).findings if "lacks" not in f.message]
    assert f"version 5, but it was dropped in version {dropped}" in found.message
    vacuum(table, dry_run=False, full=True, **LONG)
    assert fsck(Table(table.store)).findings == ()
