"""Copies that something happens to: followers that died early, emptied copies, stale knowledge."""

import re
from datetime import timedelta
from threading import Lock

import pytest
from support.builders import START_MS, Crash, Spy, create, events, reopen, replace_object
from support.copies import POLICY, check_prefix, everything, grow, objects, small_objects, sweep
from support.crashes import MortalStore, fresh
from support.forked_histories import copied

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import run, vacuum
from eventlog.display import command
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.log.log import Log
from eventlog.log.starts import has_commit
from eventlog.readers import changes, scan
from eventlog.replication import Follower, backfill, break_replica, follow, merge, replicas
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite


def copy(table, store, **options):
    """One pass by another process: nothing cached, its own clock."""
    return follow(reopen(table.store), Table(store), clock=ManualClock(START_MS, 7), **options)


def vacuumed(table, seed):
    """A few more versions, of which the older ones are given up; return the horizon."""
    for n in range(2):
        grow(table, 100 * (n + 1))
    return sweep(table.store, seed)


class DiesAfter(MortalStore):
    """A store for a program that dies right after it created an object under a prefix."""

    def __init__(self, inner, prefix, count=1):
        super().__init__(inner)
        self._prefix, self._left = prefix, count

    def put_if_absent(self, key, body):
        created = super().put_if_absent(key, body)
        self._left -= key.startswith(self._prefix)
        if self._left <= 0:
            self.dead = True
            raise Crash("dies")
        return created


def test_a_copy_can_be_read_after_a_death_between_a_start_and_its_commit():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    had = Log(target).head().version
    horizon = vacuumed(source, 10)
    with pytest.raises(Crash):
        copy(source, DiesAfter(target, keys.STARTS_PREFIX))
    assert len(list(target.list(keys.STARTS_PREFIX))) == 2
    assert Log(target).head().version == had < horizon
    assert copy(source, target).start == horizon


def follower(table, store, seed=7, name="us"):
    """A process that keeps following."""
    return Follower(reopen(table.store), store, ManualClock(START_MS, seed), name=name)


@pytest.mark.hazard("G5")
def test_g5_a_copy_that_is_emptied_under_its_follower_is_copied_from_the_start():
    source, target = everything(), MemoryStore()
    running = follower(source, target)
    running.step()
    first = source.refresh().meta.replicas["us"]
    target.delete([row.key for row in target.list("")])
    append(source, events(1))
    assert running.step().start == 0
    assert source.refresh().meta.replicas["us"].token > first.token
    check_prefix(source.store, target)
    target.delete([row.key for row in target.list("")])  # also where the source has no news
    assert running.step().start == 0
    running.step()
    assert objects(target) == objects(source.store)


def replaced_by(store, other):
    """Somebody puts another log in the place of one, under a handle to it."""
    store.delete([row.key for row in store.list("")])
    for row in other.list(""):
        store.put_if_absent(row.key, other.get(row.key))


@pytest.mark.parametrize("name", [None, "us"])
def test_a_copy_that_is_replaced_under_its_follower_is_looked_at_again(name):
    source, target, other = everything(), MemoryStore(), MemoryStore()
    running = follower(source, target, name=name)
    running.step()
    copy(source, other)
    append(reopen(other, 5), events(1, first=200))
    append(source, events(1, first=201))
    running.step()
    replaced_by(target, other)
    append(source, events(1, first=202))
    with pytest.raises(errors.CommitConflict, match="writes of its own"):
        running.step()


@pytest.mark.hazard("G2")
def test_g2_a_source_that_is_replaced_between_two_passes_is_noticed():
    source, target, other = everything(), MemoryStore(), MemoryStore()
    running = follower(source, target, name=None)
    running.step()
    copy(source, other)
    for n in range(3):
        append(reopen(other, 5 + n), events(1, first=200 + n))
    append(source, events(1, first=300))
    running.step()
    had = objects(target)
    replaced_by(source.store, other)
    with pytest.raises(errors.Corrupt):
        running.step()
    assert objects(target) == had


@pytest.mark.hazard("G5")
def test_g5_followers_of_one_pair_do_not_attach_it_anew_in_turns():
    source, target = everything(), MemoryStore()
    running = [follower(source, target, seed) for seed in (7, 8)]
    for one in running:
        one.step()
    first = source.refresh().meta.replicas["us"]
    for n in range(4):
        append(source, events(1, first=200 + n))
        before = source.refresh().version
        running[n % 2].step()
        assert source.refresh().version == before + 1  # the acknowledgement
    assert source.session.head().meta.replicas["us"].token == first.token


@pytest.mark.verify
@pytest.mark.hazard("G1")
def test_g1_a_backfill_of_a_copy_that_is_behind_a_vacuum_waits_for_the_follower():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    first = Log(target).head().version
    vacuumed(source, 20)
    with pytest.raises(errors.VersionVacuumed, match="and then the same with `--backfill`"):
        backfill(source, Table(target))
    with pytest.raises(errors.VersionNotReplicated):
        reopen(target).snapshot(first - 1)
    copy(source, target)
    backfill(source, Table(target))
    with pytest.raises(errors.VersionVacuumed):
        scan(reopen(target), version=first - 1)
    assert not fsck(Table(target), objects=True).errors


def behind(seed=30):
    """A table, and a copy that can only go on above versions that it will never have."""
    source, target = create(), MemoryStore()
    append(source, events(3))
    copy(source, target)
    had = source.refresh().version
    assert vacuumed(source, seed) > had + 1
    return source, target


def names(store):
    return scan(reopen(store)).to_table().column("name").to_pylist()


@pytest.mark.hazard("G1")
def test_g1_a_writer_that_knows_nothing_of_a_gap_does_not_write_into_it():
    source, target = behind()
    stale = reopen(target)
    copy(source, target)
    append(stale, events(1, first=900))
    assert names(target).count("row 900") == 1
    died, target = behind(40)
    stale = reopen(target)
    with pytest.raises(Crash):  # after the commit above the gap
        copy(died, DiesAfter(target, keys.LOG_PREFIX))
    copy(died, target)
    append(stale, events(1, first=900))
    assert names(target).count("row 900") == 1


@pytest.mark.verify
@pytest.mark.hazard("G1")
@pytest.mark.parametrize("call", [copy, lambda source, store: merge(source, Table(store))])
def test_g1_no_write_to_the_copy_is_lost_without_a_word_while_it_is_started_anew(call):
    source, begun = behind()
    told = []
    for pause in range(1, 40, 2):
        target, wrote = copied(begun), []
        write = lambda t=target, w=wrote: w.append(append(reopen(t, 9), events(1, first=900)))
        try:
            call(source, MortalStore(target, pause=pause, meanwhile=write))
        except errors.CommitConflict:
            told.append(pause)
        else:
            assert names(target).count("row 900") == len(wrote)
    assert bool(told) == (call is copy)


@pytest.mark.hazard("G1")
def test_g1_a_copy_is_not_started_anew_above_a_write_to_it():
    source, target = behind()

    once = Lock()  # segments are copied by several threads

    class Written(MortalStore):
        """The copy takes a write while segments are on their way."""

        def put_if_absent(self, key, body):
            if key.startswith(keys.SEGMENTS_PREFIX):
                with once:
                    if Log(target).head().version == 1:
                        append(reopen(target, 9), events(1, first=900))
            return super().put_if_absent(key, body)

    with pytest.raises(errors.CommitConflict, match="took writes of its own"):
        copy(source, Written(target))
    assert names(target) == ["row 0", "row 1", "row 2", "row 900"]


def test_a_start_that_a_dead_follower_left_explains_the_gap_of_the_next_one():
    source, target, other = everything(), MemoryStore(), MemoryStore()
    with pytest.raises(Crash):
        copy(source, DiesAfter(target, keys.LOG_PREFIX, 3))
    had = Log(target).head().version
    horizon = vacuumed(source, 50)
    with pytest.raises(Crash):  # it knew nothing of the versions that are there
        copy(source, DiesAfter(other, keys.STARTS_PREFIX))
    for row in other.list(keys.STARTS_PREFIX):
        target.put_if_absent(row.key, other.get(row.key))
    assert copy(source, target).start == horizon > had + 1
    backfill(source, Table(target))
    assert not fsck(Table(target), objects=True).errors


def test_a_start_that_does_not_explain_the_gap_is_not_taken():
    source, target = everything(), MemoryStore()
    with pytest.raises(Crash):
        copy(source, DiesAfter(target, keys.LOG_PREFIX, 3))
    vacuumed(source, 50)
    with pytest.raises(Crash):
        copy(source, DiesAfter(target, keys.STARTS_PREFIX))
    target.delete([row.key for row in target.list(keys.LOG_PREFIX)])
    with pytest.raises(errors.CommitConflict, match="other bytes"):
        copy(source, target)


def test_a_backfill_fills_a_hole_between_versions_that_are_there():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    backfill(source, Table(target))
    target.delete([keys.commit_key(version) for version in (2, 3)])
    (found,) = fsck(Table(target)).findings
    assert (found.severity, found.version) == ("error", 4)
    assert "lost the versions 2 to 3" in found.message
    assert backfill(source, Table(target)).objects == 2
    assert objects(target) == objects(source.store)
    assert fsck(Table(target)).findings == ()


@pytest.mark.parametrize("version", [8, 9, 2, 99])
def test_an_audit_names_a_damaged_start_and_not_what_follows_from_it(version):
    source, target = create(properties={"keyframe_commits": "3"}), MemoryStore()
    for n in range(9):
        append(source, events(1, first=n))
    assert copy(source, target, start="keyframe").start == 8
    if version == 8:
        target.delete([keys.start_key(version)])
    target.put_if_absent(keys.start_key(version), b"junk")
    found = {f.key: f for f in fsck(Table(target)).findings}
    own = found.pop(keys.start_key(version))
    assert own.severity == ("error" if version in (8, 9) else "warning")
    assert ("back from a copy" if version == 8 else "remove") in own.message
    assert found == {}
    if version in (8, 9):
        with pytest.raises(errors.Corrupt, match="not a start"):
            Table(target).session.head()
    if version == 9:
        target.delete([keys.start_key(version)])
        assert scan(Table(target)).to_table().num_rows == 9


def test_what_a_copy_left_out_is_no_loss():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    assert fsck(Table(target)).findings == ()


@pytest.mark.hazard("W18")
def test_w18_a_damaged_commit_of_a_copy_is_replaced_by_what_an_audit_says():
    source, target = everything(), MemoryStore()
    copy(source, target)
    replace_object(target, keys.commit_key(3), b"junk")
    (found,) = [f for f in fsck(Table(target)).findings if f.key == keys.commit_key(3)]
    again = command("replicate", "SOURCE", target.uri, "--backfill")
    assert f"once it is removed by hand below {target.uri}, {again} copies it" in found.message
    target.delete([found.key])
    backfill(source, Table(target))
    assert fsck(Table(target), objects=True).findings == ()


@pytest.mark.parametrize(("start", "begins"), [("oldest", 3), ("keyframe", 13)])
def test_a_new_copy_of_a_vacuumed_table_is_sound(start, begins):
    source, target = create(properties={"keyframe_commits": "2"}), MemoryStore()
    for n in range(5):
        append(source, events(1, first=n))
    source.pin("held", 3)
    run(source, policy=POLICY)
    assert sweep(source.store, 7) == 3
    for n in range(3):
        append(source, events(1, first=10 + n))
    assert source.refresh().meta.swept.pending is not None
    assert copy(source, target, start=start).start == begins
    assert fsck(Table(target), objects=True).findings == ()
    backfill(source, Table(target))
    assert fsck(Table(target), objects=True).findings == ()


@pytest.mark.hazard("W18")
def test_w18_a_copy_of_a_branch_that_lost_its_start_gets_it_again():
    parent, target = everything(), MemoryStore()
    branch = parent.branch("audit")
    append(branch, events(1, first=900))
    begins = copy(branch, target).start
    assert fsck(Table(target)).findings == ()
    target.delete([keys.start_key(begins)])
    again = command("replicate", "SOURCE", target.uri, "--backfill")
    with pytest.raises(errors.Corrupt, match=re.escape(again)):
        reopen(target)
    assert backfill(branch, Table(target)).versions == 0
    assert fsck(Table(target), objects=True).findings == ()


@pytest.mark.hazard("G2")
def test_a_backfill_below_a_version_of_another_log_is_refused():
    """The source has the version below, and not what the copy's version dropped of it."""
    table, target = create(), MemoryStore()
    append(table, events(1))
    fork = reopen(copied(table.store), 50)
    overwrite(fork, events(1, first=1))
    append(table, events(1, first=2))
    append(table, events(1, first=3))
    branch = fork.branch("audit")
    assert copy(branch, target).start == 2
    had = objects(target)
    with pytest.raises(errors.CommitConflict, match="parted below version 2"):
        backfill(table, Table(target))
    assert objects(target) == had
    backfill(fork, Table(target))
    assert scan(reopen(target), version=1).to_table().num_rows == 1


@pytest.mark.hazard("W18")
def test_w18_an_audit_of_a_branch_names_the_table_that_lost_a_commit():
    parent, other = everything(), MemoryStore()
    branch = parent.branch("audit")
    append(branch, events(1, first=900))
    copy(parent, other)
    parent.store.delete([keys.commit_key(3)])
    again = command("replicate", "SOURCE", parent.uri, "--backfill")
    assert any(again in finding.message for finding in fsck(Table(branch.store)).findings)
    with pytest.raises(errors.Corrupt, match=re.escape(again)):
        reopen(branch.store)
    backfill(Table(other), Table(parent.store))
    assert fsck(reopen(branch.store), objects=True).findings == ()


@pytest.mark.verify
def test_a_copy_of_a_branch_starts_at_what_the_parent_keeps_for_it():
    parent, target = everything(), MemoryStore()
    grow(parent)
    branch = parent.branch("audit")
    append(branch, events(1, first=900))
    vacuumed(parent, 30)
    held = branch.store.forks[0].held
    assert follow(branch, Table(target), clock=ManualClock(START_MS, 7)).start == held
    table = reopen(target)
    for version in range(held, branch.refresh().version + 1):
        assert scan(table, version=version).to_table() == scan(branch, version=version).to_table()
    backfill(branch, Table(target))
    with pytest.raises(errors.VersionNotReplicated):
        table.snapshot(held - 1)
    assert not fsck(Table(target), objects=True).errors


def restores_what_the_branch_does_not_hold(table, old):
    other = MemoryStore()
    copy(table, other)
    reopen(other).restore(2)
    return reopen(other)


def gives_up_the_versions_below_such_a_restore(table, old):
    other = restores_what_the_branch_does_not_hold(table, old)
    other.break_pin("branch:audit")
    append(other, events(1, day=9))
    assert sweep(other.store, 20) > table.session.head().version + 1
    return reopen(other.store)


def appends_what_was_staged_before_the_fork(table, old):
    append(old, events(1, first=300))
    return table


@pytest.mark.hazard("V2")
@pytest.mark.parametrize(
    "goes_on",
    [
        restores_what_the_branch_does_not_hold,
        gives_up_the_versions_below_such_a_restore,
        appends_what_was_staged_before_the_fork,
    ],
)
def test_v2_a_branch_that_follows_shows_nothing_that_its_parent_may_delete(goes_on):
    table = create()
    old = reopen(table.store)
    old.session.head()
    append(table, events(2))
    append(table, events(2, first=10))
    overwrite(table, events(1, first=20), start="1970-01-01", end="1970-01-03")
    branch = table.branch("audit")
    source = goes_on(table, old)
    with pytest.raises(errors.InvalidInput, match=r"eventlog merge .*_branches/audit"):
        follow(source, branch)
    merge(source, branch)
    wanted = sorted(scan(source).to_table()["name"].to_pylist())
    grow(table, 500)
    sweep(table.store, 40)
    reread = Table(branch.store)
    assert sorted(scan(reread).to_table()["name"].to_pylist()) == wanted
    assert fsck(reread, objects=True).errors == 0


def test_a_branch_that_cannot_follow_is_not_attached():
    table = create()
    append(table, events(2))
    overwrite(table, events(1, first=20), start="1970-01-01", end="1970-01-03")
    branch = table.branch("audit")
    append(table, events(1, first=30))
    table.restore(1)
    head, had = table.refresh().version, len(objects(branch.store))
    with pytest.raises(errors.InvalidInput, match="eventlog merge") as refused:
        copy(table, branch.store, name="audit-eu")
    assert "--break" not in str(refused.value)
    assert (table.refresh().version, replicas(table)) == (head, {})
    assert len(objects(branch.store)) == had


def test_a_branch_that_can_follow_is_attached():
    table = create()
    append(table, events(2))
    branch = table.branch("audit")
    append(table, events(1, first=30))
    assert copy(table, branch.store, name="audit-eu").attached
    assert list(replicas(table)) == ["audit-eu"]
    assert scan(Table(branch.store)).count() == 3


@pytest.mark.hazard("W18")
def test_a_copy_that_is_refused_once_it_is_attached_names_the_command_that_removes_its_name():
    table, target = everything(), MemoryStore()
    copy(table, target)
    append(table, events(1, first=900))
    missing = objects(table.store).keys() - objects(target).keys()
    (key,) = (key for key in missing if key.startswith(keys.SEGMENTS_PREFIX))
    target.put_if_absent(key, b"other bytes")
    for _ in range(2):
        with pytest.raises(errors.CommitConflict, match="delete this object") as refused:
            copy(table, target, name="us")
        assert command("replicas", table.uri, "--break", "us") in str(refused.value)
    break_replica(table, "us")
    assert replicas(table) == {}


def test_a_branch_follows_a_restore_of_what_it_holds():
    table = create()
    append(table, events(2))
    branch = table.branch("audit")
    overwrite(table, events(1, first=20), start="1970-01-01", end="1970-01-03")
    table.restore(branch.session.head().version)
    follow(table, branch)
    sweep(table.store, 40)
    assert scan(Table(branch.store)).count() == 2
    assert fsck(Table(branch.store), objects=True).errors == 0


def test_what_reads_commits_across_a_gap_says_that_the_copy_lacks_them():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    table = reopen(target)
    with pytest.raises(errors.VersionNotReplicated, match="backfill"):
        changes(table, 1).to_table()
    with pytest.raises(errors.VersionNotReplicated, match="backfill"):
        table.find_transaction("00" * 16, 1)


def test_a_root_of_the_same_name_at_another_endpoint_is_another_table():
    source = everything()

    class Elsewhere(MemoryStore):
        uri = source.uri
        unproven = "http://elsewhere/bucket"

    target = Elsewhere()
    copy(source, target, name="us")
    assert objects(target) == objects(source.store)
    assert replicas(source)["us"].owner == f"{source.uri} at http://elsewhere"

    class Third(Elsewhere):
        unproven = "http://third/bucket"

    with pytest.raises(errors.CommitConflict, match="belongs to the replica"):
        copy(source, Third(), name="us")


def test_a_copy_of_a_copy_lacks_what_that_one_lacks():
    source, middle, target = everything(), MemoryStore(), MemoryStore()
    done = copy(source, middle, start="keyframe")
    assert done.start > 3
    assert copy(reopen(middle), target).version == done.version
    check_prefix(middle, target)
    with pytest.raises(errors.VersionNotReplicated, match="backfill"):
        reopen(target).snapshot(3)
    with pytest.raises(errors.VersionNotReplicated, match="backfill"):
        backfill(reopen(middle), Table(target))
    backfill(source, Table(target))
    assert objects(target) == objects(source.store)


@pytest.mark.parametrize("damage", [b"", b"x"])
def test_a_damaged_key_frame_of_a_copy_stops_no_follower(damage, caplog):
    table = create(properties={"keyframe_commits": "3"})
    for n in range(6):
        append(table, events(1, first=n))
    table.write_keyframe()
    store = MemoryStore()
    copy(table, store)
    key = keys.keyframe_key(table.refresh().version)
    replace_object(store, key, damage)
    append(table, events(1, first=9))
    assert copy(table, store).version == table.refresh().version
    assert scan(reopen(store)).to_table().num_rows == 7
    assert f"other bytes under {key}" in caplog.text


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("leaf", [False, True], ids=["root", "leaf"])
def test_the_lowest_version_of_a_copy_is_read_over_its_own_key_frame(leaf):
    table = create(properties={"keyframe_commits": "3"})
    store = MemoryStore()
    with small_objects():
        for n in range(8):
            append(table, events(6, first=10 * n, days=6))
        done = copy(table, store, start="keyframe")
    lowest, log = done.start, Log(store)
    base, own = log.header(lowest).keyframe, keys.keyframe_key(lowest)
    assert not has_commit(log.store, base)
    mine = {leaf.sha256 for leaf in log.key_frames.root(lowest).leaves}
    unshared = [at.sha256 for at in log.key_frames.root(base).leaves if at.sha256 not in mine]
    damaged = keys.frame_key(unshared[0]) if leaf else keys.keyframe_key(base)
    body = store.get(damaged)
    replace_object(store, damaged, body[:-5])
    assert scan(reopen(store), version=lowest).to_table().num_rows == (lowest * 6)
    assert [f.key for f in fsck(reopen(store)).findings if f.severity == "error"] == [damaged]
    own_body = store.get(own)
    store.delete([own])
    with pytest.raises(errors.Corrupt, match=r"replicate SOURCE .* --backfill") as refused:
        scan(reopen(store), version=lowest).to_table()
    assert refused.value.key == damaged
    found = fsck(Table(store)).findings
    assert {f.key for f in found if f.severity == "error"} == {damaged}
    store.put_if_absent(own, own_body)
    backfill(reopen(table.store), Table(store))
    assert scan(reopen(store), version=base).to_table().num_rows == base * 6


def parted(store, at):
    """A copy of a table that took writes of its own after a version, as many as the table has."""
    head, other = Log(store).head_version(), MemoryStore()
    for row in store.list(""):
        parsed = keys.parse_log_key(row.key)
        if parsed is None or parsed[0] <= at:
            other.put_if_absent(row.key, store.get(row.key))
    table = reopen(other, 5)
    with small_objects():
        for n in range(at, head):
            append(table, events(3, first=500 + 10 * n, days=3))
    return other


def framed(versions=9, horizon=False):
    """A table with key frames of leaves at versions 3 and 7; return it, and its horizon."""
    table = create(properties={"keyframe_commits": "4"})
    with small_objects():
        for n in range(versions):
            append(table, events(3, first=10 * n, days=3))
        return table, sweep(table.store, 2) if horizon else 0


def check_read(source, store, versions):
    for version in versions:
        same = reopen(source.store).snapshot(version).segments()
        assert reopen(store).snapshot(version).segments() == same


@pytest.mark.verify
@pytest.mark.hazard("P1")
@pytest.mark.parametrize("how", ["all", "late", "backfill"])
def test_a_key_frame_of_another_log_is_not_copied(how, caplog):
    source, _ = framed(7 if how == "late" else 9)
    key, store = keys.keyframe_key(7), MemoryStore()
    own = source.store.get(key)
    if how == "late":  # it was written after the pass that copied its commit
        source.store.delete([key])
        copy(source, store)
        source.store.put_if_absent(key, own)
    if how == "backfill":
        with small_objects():
            for n in range(9, 15):
                append(source, events(3, first=10 * n, days=3))
        assert copy(source, store, start="keyframe").start == 15
    replace_object(source.store, key, parted(source.store, 5).get(key))
    if how == "late":
        append(source, events(1, first=80))
    if how == "backfill":
        backfill(reopen(source.store), Table(store))
    else:
        copy(source, store)
    assert key not in objects(store)
    assert f"key frame 7 of {source.uri} is not copied" in caplog.text
    check_read(source, store, range(1, Log(store).head_version() + 1))
    with small_objects():
        assert not fsck(Table(store), repair=True).errors
    assert store.get(key) == own


def no_more(store, key):
    store.delete([key])


def cut(store, key):
    replace_object(store, key, store.get(key)[:-5])


def foreign(store, key):
    replace_object(store, key, parted(store, 5).get(key))


@pytest.mark.sample(2)
@pytest.mark.hazard("P1")
@pytest.mark.parametrize("leaf", [False, True], ids=["root", "leaf"])
@pytest.mark.parametrize("damage", [no_more, cut, foreign])
def test_a_new_copy_begins_over_a_key_frame_that_is_unusable_at_the_source(damage, leaf):
    if leaf and damage is foreign:
        return
    source, horizon = framed(horizon=True)
    root = source.session.log.key_frames.root(7)
    assert (horizon, source.session.head().header.keyframe) == (9, 7)
    kept = objects(source.store)
    older = {leaf.sha256 for leaf in source.session.log.key_frames.root(3).leaves}
    unshared = next(leaf.sha256 for leaf in root.leaves if leaf.sha256 not in older)
    damage(source.store, keys.frame_key(unshared) if leaf else keys.keyframe_key(7))
    store = MemoryStore()
    with small_objects():
        assert copy(source, store, name="us").start == horizon
    check_read(source, store, range(horizon, source.refresh().version + 1))
    assert not fsck(Table(store), objects=True).errors
    assert all(kept[key] == body for key, body in objects(store).items() if key in kept)
    assert store.get(keys.keyframe_key(7)) == kept[keys.keyframe_key(7)]


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("damage", [no_more, cut])
def test_a_damaged_leaf_of_the_source_stops_no_follower(damage, caplog):
    source, _ = framed()
    older = {leaf.sha256 for leaf in source.session.log.key_frames.root(3).leaves}
    leaves = (leaf.sha256 for leaf in source.session.log.key_frames.root(7).leaves)
    key, store = keys.frame_key(next(one for one in leaves if one not in older)), MemoryStore()
    damage(source.store, key)
    assert copy(source, store).version == 9
    assert key in caplog.text
    check_read(source, store, range(1, 10))
    with small_objects():
        assert not fsck(Table(store), repair=True).errors


def with_old_rows():
    """A table whose newest key frame is above an overwrite of older rows, which are kept."""
    table = create(properties={"keyframe_commits": "100"})
    for n in range(4):
        append(table, events(1, first=n))
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-02")
    append(table, events(1, first=60, day=3))
    hours = timedelta(hours=1000)
    vacuum(fresh(table.store, 2), dry_run=False, staging=timedelta(0), retention=hours)
    table.refresh()
    table.write_keyframe()
    append(table, events(1, first=70, day=4))
    assert (table.session.head().meta.horizon, table.session.head().meta.fence) == (0, 6)
    return table


def counts(table):
    return [scan(table, version=v).to_table().num_rows for v in range(table.refresh().version)]


@pytest.mark.sample(2)
@pytest.mark.hazard("V2")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("at", ["objects", "commits"])
def test_v2_a_vacuum_of_a_copy_spares_what_a_backfill_beside_it_has_stored(at, full):
    table, store = with_old_rows(), MemoryStore()
    lowest = copy(table, store, start="keyframe").start
    if full:
        vacuum(fresh(store, 3), dry_run=False)
    ended = [keys.commit_key(v) for v in range(1, lowest)]
    spy, reports = Spy(store), []

    def sweeps(key):
        if not reports and key == ended[0 if at == "commits" else -1]:
            reports.append(vacuum(fresh(store, 3), dry_run=False, full=full))

    spy.before_put = sweeps
    backfill(reopen(table.store), Table(spy))
    assert [report.gone["unnamed"].objects for report in reports] == [0]
    mine = counts(reopen(store))
    assert mine[: lowest + 1] == counts(table)[: lowest + 1]
    # What nothing names is deleted where nothing is absent any more.
    store.put_if_absent(keys.segment_key(1, "1970-01-01", "ab" * 16), b"x")
    assert vacuum(fresh(store, 3), dry_run=False, full=True).gone["unnamed"].objects == 1
    assert counts(reopen(store))[: len(mine)] == mine
    assert fsck(reopen(store), objects=True).ok


def test_what_a_backfill_brings_after_a_vacuum_is_not_taken_for_missing_in_its_record():
    table, store = with_old_rows(), MemoryStore()
    table.pin("old", version=5)
    copy(table, store, start="keyframe")
    vacuum(fresh(store, 3), dry_run=False, staging=timedelta(0))
    backfill(reopen(table.store), Table(store), clock=ManualClock(START_MS, 8))
    report = fsck(reopen(store), objects=True)
    assert report.ok, report.findings
    assert {f.message.split(", and then")[0] for f in report.findings} == {
        "the last vacuum's record may be older than the backfill that brought this segment"
    }
    kept = counts(reopen(store))
    vacuum(fresh(store, 4), dry_run=False, full=True)
    assert counts(reopen(store))[: len(kept)] == kept
    assert not fsck(reopen(store), objects=True).findings


def twice_replaced(framed):
    """A table whose version 6 drops what version 5 added, with a key frame of one version."""
    table = create(properties={"keyframe_commits": "100"})
    for n in range(4):
        append(table, events(1, first=n))
    for n in (5, 6):
        overwrite(table, events(1, first=10 * n), start="1970-01-01", end="1970-01-02")
    for n in (7, 8):
        if framed == n - 1:
            table.write_keyframe()
        append(table, events(1, first=10 * n, day=n))
    return table


def test_what_a_backfill_brings_that_the_first_version_dropped_is_no_error():
    table, store = twice_replaced(framed=6), MemoryStore()
    assert copy(table, store, start="keyframe").start == 6
    append(reopen(store, 5), events(1, first=90))
    vacuum(fresh(store, 3), dry_run=False, staging=timedelta(0))
    backfill(reopen(table.store), Table(store))
    assert not fsck(reopen(store), objects=True).errors


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("lost", [(5,), (5, 6), (2, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_v2_a_vacuum_spares_what_a_commit_that_a_filled_copy_lost_had_live(full, lost):
    table, store = twice_replaced(framed=7), MemoryStore()
    assert copy(table, store, start="keyframe").start == 7
    backfill(reopen(table.store), Table(store))
    append(reopen(store, 5), events(1, first=90))  # it takes over
    if full:
        vacuum(fresh(store, 3), dry_run=False, staging=timedelta(0))
    had = counts(reopen(store))
    bodies = {key: store.get(key) for key in map(keys.commit_key, lost)}
    store.delete([*bodies])
    report = vacuum(fresh(store, 4), dry_run=False, staging=timedelta(0), full=full)
    assert report.gone["unnamed"].objects == report.gone["dropped"].objects == 0
    for key, body in bodies.items():
        store.put_if_absent(key, body)
    assert counts(reopen(store))[: len(had)] == had
    assert fsck(reopen(store), objects=True).ok


@pytest.mark.hazard("V2")
def test_v2_a_vacuum_of_a_copy_spares_what_a_follower_has_stored_for_a_restore():
    table, store = with_old_rows(), MemoryStore()
    copy(table, store, start="keyframe")
    restored = table.restore(4)
    spy = Spy(store)

    def dies(key):
        if key == keys.commit_key(restored):
            raise Crash("dies")

    spy.before_put = dies
    with pytest.raises(Crash):
        copy(table, spy)
    report = vacuum(fresh(store, 3))
    assert report.gone["unnamed"].objects == 0
    assert report.kept["versions that this copy lacks"].objects == 4
    done = vacuum(fresh(store, 3), dry_run=False)
    assert done.gone["unnamed"].objects == 0
    # The next one finds them in the record of this one.
    assert vacuum(fresh(store, 3), dry_run=False).gone["dropped"].objects == 0
    assert len(list(store.list(keys.SEGMENTS_PREFIX))) == 4 + 3


class AnswersOtherwise(MortalStore):
    """A store that gives other bytes for a key the second time."""

    def __init__(self, inner, key, other):
        super().__init__(inner)
        self._key, self._other, self._asked = key, other, 0

    def get(self, key, **options):
        self._asked += key == self._key
        if key == self._key and self._asked > 1:
            return self._other
        return super().get(key, **options)


def test_a_key_frame_that_changes_between_two_reads_is_not_copied():
    table = create(properties={"keyframe_commits": "3"})
    for n in range(6):
        append(table, events(1, first=n))
    table.write_keyframe()
    key = keys.keyframe_key(table.refresh().version)
    store, lying = MemoryStore(), AnswersOtherwise(table.store, key, b"{}")
    follow(Table(lying), Table(store), clock=ManualClock(START_MS, 7))
    assert fsck(Table(store)).ok
