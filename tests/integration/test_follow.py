"""A copy follows a table: the same bytes at every moment, whatever dies and whoever else copies."""

import itertools
import threading

import pyarrow as pa
import pytest
from support import own_threads
from support.builders import START_MS, Crash, create, events, reopen, replaced, sorted_names
from support.copies import check_prefix, everything, grow, laid, objects, small_objects, sweep
from support.crashes import MortalStore, fresh
from support.damage import Damaged

from eventlog import Table, errors, limits
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.records import Start
from eventlog.readers import scan
from eventlog.replication import backfill, break_replica, detach, follow, merge, replicas
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.s3.adapter import S3Store
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

MOST = 400
LATER = itertools.count(10)  # seeds of other processes, each later than the one before


def copy(table, store, **options):
    """One pass by another process: nothing cached, its own clock."""
    return follow(reopen(table.store), Table(store), clock=ManualClock(START_MS, 7), **options)


@pytest.fixture(scope="module")
def source():
    """A table that no test changes."""
    return everything()


def deaths(source, side, how, calls):
    """Let a follower die at each of these calls; return the heads that the copies had then."""
    heads = set()
    for at in calls:
        target = MemoryStore()
        mortal = MortalStore(source.store if side == "source" else target, at, how)
        theirs = mortal if side == "source" else source.store
        mine = mortal if side == "target" else target
        try:
            clock = ManualClock(START_MS, 7)
            follow(Table(theirs, clock), Table(mine), clock=clock)
        except (Crash, errors.Unavailable):
            pass
        heads.add(check_prefix(source.store, target))
        copy(source, target)
        assert objects(target) == objects(source.store)
        if mortal.calls < at:
            return heads
    return heads


SIDES = [
    ("target", "before"),
    # The same as before the next call.
    pytest.param("target", "after", marks=pytest.mark.long),
    ("target", "lost"),
    ("source", "before"),
]


@pytest.mark.sample(0, verify=2)
@pytest.mark.hazard("G1")
@pytest.mark.parametrize(("side", "how"), SIDES)
def test_g1_a_follower_that_dies_leaves_a_prefix_and_the_next_one_completes_it(source, side, how):
    heads = deaths(source, side, how, range(2, MOST, 11))
    assert len(heads) > 1


@pytest.mark.hazard("G1")
@pytest.mark.long
@pytest.mark.parametrize("how", ["before", "after", "lost", "refused"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_g1_a_follower_may_die_at_any_call(source, side, how):
    assert len(deaths(source, side, how, range(1, MOST))) > 1


def test_a_copy_is_the_same_table_at_every_version(source):
    target = MemoryStore()
    done = copy(source, target)
    table = reopen(target)
    assert (done.start, done.version, done.versions) == (
        0,
        source.session.head().version,
        done.version + 1,
    )
    assert objects(target) == objects(source.store)
    assert table.id == source.id
    for version in range(done.version + 1):
        assert sorted_names(table, version) == sorted_names(source, version)
    again = copy(source, target)
    assert (again.start, again.versions, again.objects) == (None, 0, 0)


@pytest.mark.hazard("G1")
def test_g1_nothing_is_visible_before_what_it_needs(source):
    order = []

    class Noting(MemoryStore):
        def put_if_absent(self, key, body):
            order.append(key)
            return super().put_if_absent(key, body)

    copy(source, Noting())
    at = {key: place for place, key in enumerate(order)}
    commits = sorted(
        (k for k in order if keys.parse_log_key(k) and "keyframe" not in k), key=at.get
    )
    assert commits == sorted(commits, reverse=True)  # ascending versions
    for commit_key in commits:
        version = keys.parse_log_key(commit_key)[0]
        for segment in source.snapshot(version).segments():
            assert at[keys.key_of(segment)] < at[commit_key]
        root = keys.keyframe_key(version)
        if root in at:
            leaves = source.session.log.key_frames.root(version).leaves
            assert at[commit_key] < at[root]
            assert all(at[keys.frame_key(leaf.sha256)] < at[root] for leaf in leaves)


@pytest.mark.hazard("G2")
def test_g2_a_copy_that_took_a_write_of_its_own_is_not_followed_further():
    source, target = everything(), MemoryStore()
    copy(source, target)
    append(reopen(target, 5), events(1, first=200))
    before = objects(target)
    for _ in range(2):
        with pytest.raises(
            errors.CommitConflict, match=r"writes of its own after version \d+|ahead"
        ):
            copy(source, target)
        assert objects(target) == before
        append(source, events(1, first=201))  # first the copy is ahead, then both have diverged
    other = create(seed=3)
    with pytest.raises(errors.InvalidInput, match=r"different tables.*needs an empty one"):
        copy(other, target)
    with pytest.raises(errors.InvalidInput, match="itself"):
        copy(source, source.store)


def test_a_root_that_is_no_place_for_a_copy_is_refused_with_the_reason():
    source = create(MemoryStore("memory://no-place/table"))
    for place in ("copy", "_branches", "copy/_branches/x"):
        below = f"{source.uri}/{place}"
        with pytest.raises(errors.InvalidInput, match=f"{below} lies in the table's root"):
            follow(source, below)
    with pytest.raises(errors.InvalidInput, match="a root that it does not lie in"):
        follow(source, "memory://no-place")
    for place in (source.uri, "memory://no-place-2"):
        with pytest.raises(
            errors.InvalidInput, match="branch that does not exist: a copy is a separate"
        ):
            follow(source, f"{place}/_branches/x")
    for same in (source, source.uri, f"{source.uri}/"):
        with pytest.raises(errors.InvalidInput, match="cannot be merged into itself"):
            merge(source, same)
    branch = source.branch("x")
    append(source, events(1))
    assert merge(source, branch).version == branch.refresh().version


def test_a_write_to_the_copy_in_the_middle_of_a_pass_is_not_overwritten():
    source, target = everything(), MemoryStore()
    copy(source, target)
    grow(source)
    calls = MortalStore(target, pause=6, meanwhile=lambda: append(
        reopen(target, 5), events(1, first=200)))  # fmt: skip
    with pytest.raises(errors.CommitConflict, match="other bytes"):
        copy(source, calls)
    assert "row 200" in sorted_names(reopen(target))
    assert not fsck(Table(target)).errors


@pytest.mark.verify
@pytest.mark.scenario("S5.2")
def test_a_copy_starts_at_a_key_frame_and_is_filled_backwards(source):
    target, head = MemoryStore(), source.session.head().version
    with small_objects():
        done = copy(source, target, start="keyframe")
    table = reopen(target)
    assert 0 < done.start == source.session.head().base.version <= head
    assert sorted_names(table) == sorted_names(source)
    assert [entry.version for entry in table.history()] == [*range(head, done.start - 1, -1)]
    for version in range(1, done.start):  # the first is there: nobody can create another table
        with pytest.raises(errors.VersionNotReplicated, match="backfill"):
            table.snapshot(version)
    with pytest.raises(errors.VersionNotFound):
        table.snapshot(head + 1)
    with pytest.raises(errors.VersionNotReplicated):
        table.snapshot(timestamp=source.snapshot(1).timestamp)
    assert table.snapshot(timestamp=source.snapshot(head).timestamp).version == head
    check_prefix(source.store, target)

    for at in (*range(1, 40, 5), MOST):  # it dies
        mortal = MortalStore(target, at)
        try:
            backfill(reopen(source.store), Table(mortal), clock=ManualClock(START_MS, 7))
        except Crash:
            check_prefix(source.store, target)
    assert objects(target) == objects(source.store)
    assert [sorted_names(table, v) for v in range(head)] == [
        sorted_names(source, v) for v in range(head)
    ]
    assert backfill(source, Table(target)).versions == 0


@pytest.mark.hazard("I1")
@pytest.mark.parametrize("count", [1, 2])
def test_a_unit_of_work_is_skipped_where_the_copy_begins_after_it(count):
    source, target = create(), MemoryStore()
    done = append(source, events(1, first=7), app_id="job", app_seq=7)
    append(source, events(1, first=8))
    source.write_keyframe()
    copy(source, target, start="keyframe")
    table = reopen(target)
    assert append(table, events(count, first=7), app_id="job", app_seq=7) == done
    assert sorted_names(table) == sorted_names(source)


@pytest.mark.verify
@pytest.mark.scenario("S5.2")
def test_a_copy_that_is_behind_the_horizon_goes_on_at_the_horizon():
    source, target = everything(), MemoryStore()
    copy(source, target)
    had, stale = source.session.head().version, reopen(target)
    for n in range(3):
        grow(source, 100 * (n + 1))
    horizon = sweep(source.store, next(LATER))
    assert horizon > had + 1
    done = copy(source, target)
    assert done.start == horizon
    table = reopen(target)
    assert sorted_names(table) == sorted_names(source)
    assert table.snapshot(had).version == had
    # The commits between came last, so that an open handle goes on to the newest version.
    assert not fsck(Table(target), objects=True).errors
    assert stale.refresh().version == table.session.head().version
    assert backfill(source, Table(target)).versions == 0
    assert [e.version for e in table.history()] == [*range(source.session.head().version, -1, -1)]
    with pytest.raises(errors.VersionVacuumed):
        scan(table, version=horizon - 1)
    assert not fsck(Table(target), objects=True).errors


@pytest.mark.hazard("G5")
def test_g5_a_vacuum_waits_for_a_replica_and_an_emptied_one_never_counts_as_full():
    source, target = everything(), MemoryStore()
    copy(source, target, name="us")
    acked = source.refresh().meta.replicas["us"].acked
    grow(source)
    assert sweep(source.store, next(LATER)) <= acked
    assert copy(source, target, name="us").attached

    first = source.refresh().meta.replicas["us"]
    target.delete([row.key for row in target.list("")])  # all is lost
    half = MortalStore(target, 20)
    with pytest.raises(Crash):
        copy(source, half, name="us")
    again = source.refresh().meta.replicas["us"]
    assert again.token > first.token
    assert again.acked <= source.session.head().meta.horizon
    grow(source, 300)
    kept = sweep(source.store, next(LATER))
    assert kept <= again.acked
    for version in range(kept, source.session.head().version):  # nothing that it needs was deleted
        sorted_names(source, version)
    copy(source, target, name="us")
    check_prefix(source.store, target)
    assert source.refresh().meta.replicas["us"].acked > again.acked

    other = MemoryStore()
    with pytest.raises(errors.CommitConflict, match="belongs to the replica"):
        copy(source, other, name="us")
    grow(source, 500)
    break_replica(source, "us")
    assert sweep(source.store, next(LATER)) > kept
    assert not replicas(source)
    with pytest.raises(errors.InvalidInput, match="no replica 'us'"):
        detach(source, "us")


@pytest.mark.verify
@pytest.mark.hazard("G5")
def test_a_vacuum_beside_the_first_attachment_ends_no_pass():
    horizons = set()
    for pause in (1, 6, 8):
        store, target = everything().store, MemoryStore()
        watched = MortalStore(store, pause=pause, meanwhile=lambda s=store: sweep(s, next(LATER)))
        assert copy(Table(watched, ManualClock(START_MS, 9)), target, name="us").attached
        assert sorted_names(Table(target)) == sorted_names(Table(store))
        head = reopen(store).refresh()
        assert head.meta.replicas["us"].acked >= head.meta.horizon
        horizons.add(head.meta.horizon)
    assert len(horizons) > 1


@pytest.mark.hazard("G5")
def test_an_acknowledgement_of_an_earlier_attachment_does_not_count():
    source, target = everything(), MemoryStore()

    def emptied():
        """While a pass copies, its copy is lost, and another pass attaches it anew."""
        target.delete([row.key for row in target.list("")])
        with pytest.raises(Crash):
            copy(source, MortalStore(target, 10), name="us")

    late = MortalStore(target, pause=40, meanwhile=emptied)
    done = copy(source, late, name="us")
    assert done.attached is False
    replica = source.refresh().meta.replicas["us"]
    assert replica.acked == 0


@pytest.mark.hazard("G2")
@pytest.mark.parametrize("new", [1, 2])
def test_a_source_that_is_replaced_in_the_middle_of_a_pass_is_noticed(new):
    source, target, other = everything(), MemoryStore(), MemoryStore()
    copy(source, other)
    for n in range(9):
        append(fresh(other, next(LATER)), events(1, first=300 + n))
    append(source, events(1, first=400))
    copy(source, target)
    for n in range(new):
        append(source, events(1, first=401 + n))
    had = objects(target)
    theirs = source.store

    def replace():
        """Somebody puts another copy, that took other writes, in the place of the source."""
        theirs.delete([row.key for row in theirs.list("")])
        for row in other.list(""):
            theirs.put_if_absent(row.key, other.get(row.key))

    first, last = (keys.commit_key(source.session.head().version - n) for n in (new - 1, 0))
    opened, replaced = threading.Event(), threading.Event()

    class Reading(MortalStore):
        """Replaced when the first commit to copy is about to be read."""

        def get(self, key, **options):
            whole = options.get("length", 0) > limits.HEADER_BYTES
            if whole and key == first and opened.is_set():
                replace()
                replaced.set()
            if whole and key == last:
                assert not opened.is_set() or replaced.wait(600)
                opened.set()
            return super().get(key, **options)

    clock = ManualClock(START_MS, 7)
    with pytest.raises(errors.Corrupt, match="does not follow"):
        follow(Table(Reading(theirs), clock), Table(target), clock=clock)
    logged = lambda objects: {key for key in objects if "_log/" in key}
    assert logged(objects(target)) == logged(had)


@pytest.mark.hazard("G2")
def test_a_backfill_from_another_fork_is_refused():
    source, fork, target = everything(), MemoryStore(), MemoryStore()
    copy(source, fork)
    for store, first in ((source.store, 100), (fork, 200)):
        grow(fresh(store, next(LATER)), first)
        grow(fresh(store, next(LATER)), first + 50)
    copy(source, target, start="keyframe")
    before = objects(target)
    with pytest.raises(errors.CommitConflict, match="have parted below"):
        backfill(reopen(fork), Table(target))
    assert objects(target) == before


def test_a_backfill_from_a_copy_that_lacks_versions_copies_what_that_has(source):
    late, later = MemoryStore(), MemoryStore()
    begins = copy(source, late, start="keyframe").start
    with small_objects():
        append(source, events(1, first=200))
        source.write_keyframe()
        append(source, events(1, first=201))
    copy(source, late)
    assert copy(source, later, start="keyframe").start > begins
    with pytest.raises(errors.VersionNotReplicated, match="backfill"):
        backfill(reopen(late), Table(later))
    assert [sorted_names(reopen(later), v) for v in range(begins, begins + 2)] == [
        sorted_names(reopen(source.store), v) for v in range(begins, begins + 2)
    ]
    assert fsck(Table(later), checksums=True).errors == 0


class Dying(MortalStore):
    """Its process dies when it has written a start, or a key frame: before the commit of these."""

    last = keys.STARTS_PREFIX

    def put_if_absent(self, key, body):
        created = super().put_if_absent(key, body)
        self.dead = self.dead or self.last in key
        return created


class DyingLater(Dying):
    last = ".keyframe."


@pytest.mark.verify
def test_a_new_start_that_never_came_to_its_commit_is_to_be_run_again():
    source, target = everything(), MemoryStore()
    copy(source, target)
    had, before = reopen(target).session.head().version, sorted_names(reopen(target))
    for n in range(3):
        grow(source, 100 * (n + 1))
        source.write_keyframe()
    assert sweep(source.store, next(LATER)) > had + 1
    with pytest.raises(Crash):
        copy(source, DyingLater(target))
    table = Table.open("", store=target, clock=ManualClock(START_MS, 70))
    assert (table.session.head().version, sorted_names(table)) == (had, before)
    with pytest.raises(errors.Corrupt, match="`eventlog replicate` to this root was interrupted"):
        vacuum(table)
    [found] = [f for f in fsck(Table(target)).findings if f.severity == "error"]
    assert "`eventlog replicate` to this root was interrupted" in found.message
    copy(source, target)
    assert not fsck(Table(target)).errors
    vacuum(table)


def test_a_start_whose_first_commit_never_came_does_no_harm(source):
    target = MemoryStore()
    head = source.session.head().version

    with pytest.raises(Crash):
        copy(source, Dying(target), start="keyframe")
    grown = everything()
    grow(grown)
    grown.write_keyframe()
    copy(source, target)
    assert objects(target) == objects(source.store)
    assert reopen(target).session.head().version == head
    assert not fsck(Table(target)).errors

    other = MemoryStore()
    with pytest.raises(Crash):
        copy(grown, Dying(other), start="keyframe")
    grow(grown, 300)
    grown.write_keyframe()
    copy(grown, other, start="keyframe")  # a later start
    assert sorted_names(reopen(other)) == sorted_names(grown)
    assert not fsck(Table(other)).errors


def test_acknowledging_ends(source):
    source, target = everything(), MemoryStore()
    for _ in range(4):
        copy(source, target, name="us")
    head = source.refresh()
    assert head.version - head.meta.replicas["us"].acked <= 2
    assert objects(target) == objects(source.store)
    grow(source)
    before = source.refresh().version
    copy(source, MortalStore(target), name="us")
    copy(source, target, name="us")
    assert source.refresh().version == before + 1


@pytest.mark.scenario("S5.7")
@pytest.mark.parametrize("seed", range(2))
def test_an_overloaded_target_is_tried_again_more_slowly(source, seed):
    target = MemoryStore()
    faults = [
        Fault("put", effect, prefix, occurrence=at + seed)
        for prefix in ("data/", keys.LOG_PREFIX, keys.FRAMES_PREFIX)
        for at in (1, 2, 3, 9)
        for effect in ("unavailable", "lost_response")
    ]
    clock = ManualClock(START_MS, 7)
    before_s = clock.elapsed_s()
    follow(reopen(source.store), Table(FaultyStore(target, faults)), clock=clock)
    assert clock.elapsed_s() > before_s
    assert objects(target) == objects(source.store)


@pytest.mark.verify
@pytest.mark.scenario("S5.7")
def test_two_followers_at_once_do_no_harm():
    source = everything()
    for n in range(8):
        grow(source, 100 * (n + 1))
    target = MemoryStore()
    failed = []

    def run(seed):
        try:
            follow(reopen(source.store), Table(target), clock=ManualClock(START_MS, seed))
        except Exception as error:  # noqa: BLE001 - told by the assertion
            failed.append(error)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in (7, 8, 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
    assert objects(target) == objects(source.store)


@pytest.mark.scenario("S5.7")
def test_a_target_that_refuses_half_way_is_done_later(source):
    target = MemoryStore()

    class Refusing(MortalStore):
        def put_if_absent(self, key, body):
            if self.calls > 25:
                raise errors.InvalidInput("access denied to create an object")
            return super().put_if_absent(key, body)

    with own_threads.none_left(), pytest.raises(errors.InvalidInput, match="denied") as refused:
        copy(source, Refusing(target))
    assert refused.tb  # whoever keeps the error keeps no threads by it
    check_prefix(source.store, target)
    copy(source, target)
    assert objects(target) == objects(source.store)


def test_a_damaged_or_missing_segment_is_not_replicated():
    for damage in (True, False):
        source = everything()
        victim = source.session.head().segments()[0]
        key = keys.key_of(victim)
        body = source.store.get(key)
        source.store.delete([key])
        if damage:
            source.store.put_if_absent(key, b"x" * len(body))
        target = MemoryStore()
        with pytest.raises(errors.DataLoss, match="fsck") as caught:
            copy(source, target)
        assert caught.value.key == key
        head = reopen(target).session.head().version
        assert head == caught.value.version - 1
        assert key not in objects(target)


@pytest.mark.parametrize("spilled", [False, True])
def test_the_delta_tells_which_segments_a_version_made_live(spilled):
    source, target = create(properties={"keyframe_commits": "1000"}), MemoryStore()
    with small_objects():
        append(source, events(9 if spilled else 1, days=9 if spilled else 1))
        changed = Damaged.of(source.store)
        changed.forge_commit(1, lambda c: replaced(c, header=_with_changes(c.header, adds=0)))
        commit, _ = Table(source.store).session.log.read(1)
        assert (commit.delta.spill is not None) == spilled
        append(reopen(source.store), events(2, first=20))
    copy(source, target)
    assert sorted_names(reopen(target)) == sorted_names(reopen(source.store))


def _with_changes(header, **changes):
    return replaced(header, changes=replaced(header.changes, **changes))


@pytest.mark.verify
@pytest.mark.scenario("S5.1")
def test_a_source_that_is_compacted_vacuumed_and_appended_to_all_the_while():
    source, target = everything(), MemoryStore()
    made = iter(range(1, 100))

    def meanwhile():
        grow(fresh(source.store, next(LATER)), 100 * next(made))
        sweep(source.store, next(LATER))

    for pause in (3, 9, 17, 30, 44):
        try:
            copy(source, MortalStore(target, pause=pause, meanwhile=meanwhile))
        except errors.VersionVacuumed:
            copy(source, target)
        assert not fsck(Table(target), objects=True).errors
    copy(source, target)
    assert sorted_names(reopen(target)) == sorted_names(reopen(source.store))
    versions = reopen(source.store).refresh()
    for version in range(versions.meta.horizon, versions.version + 1):
        assert sorted_names(reopen(target), version) == sorted_names(reopen(source.store), version)


def test_requests_and_bytes_are_those_of_what_is_new():
    source = create(properties={"keyframe_commits": "1000"})
    target = MemoryStore()
    costs = []
    for _ in range(2):
        for n in range(20):
            append(source, events(1, first=n, days=1))
        copy(source, target)
        append(source, events(1))
        theirs, mine = CountingStore(source.store), CountingStore(target)
        done = follow(Table(theirs), Table(mine), clock=ManualClock(START_MS, 7))
        assert done.versions == 1
        costs.append((theirs.counts.total, mine.counts.total, done.objects))
    assert costs[0] == costs[1]


def test_a_copy_of_a_table_with_any_schema_is_read_by_pyarrow(tmp_path, source):
    target = tmp_path / "copy"
    follow(source, target)
    table = Table.open(target)
    assert scan(table).to_table().schema.equals(scan(source).to_table().schema)
    assert isinstance(scan(table).to_table(), pa.Table)


@pytest.fixture
def buckets(s3, bucket):
    """The roots of a table and of its copy, in two buckets of one server."""
    s3.create_bucket(f"{bucket}-far")
    return f"s3://{bucket}/table", f"s3://{bucket}-far/copy"


@pytest.mark.verify
def test_segments_are_copied_within_the_store(s3, buckets):
    here, far = buckets
    source = laid(open_store(here))
    segments = sum(row.size for row in source.store.list(keys.SEGMENTS_PREFIX))
    with s3.measure() as counts:
        done = follow(here, far)
    # Those of the log alone pass through the follower, and of a probe.
    assert 0 <= counts.bytes_written - (done.bytes - segments) < 200
    assert objects(open_store(far)) == objects(source.store)
    # What is there already, and what others copy at the same time, is compared.
    append(source, events(3, first=200, days=3))
    log = {row.key for row in open_store(far).list(keys.LOG_PREFIX)}
    follow(here, far)
    open_store(far).delete(
        row.key for row in open_store(far).list(keys.LOG_PREFIX) if row.key not in log
    )
    follow(here, far)
    assert objects(open_store(far)) == objects(source.store)


@pytest.mark.long
def test_a_damaged_segment_is_not_copied_within_the_store(buckets):
    here, far = buckets
    source = laid(open_store(here))
    key = keys.key_of(source.session.head().segments()[0])
    versions = range(source.session.head().version + 1)
    live = [{s.id for s in source.snapshot(v).segments()} for v in versions]
    first = next(v for v, ids in enumerate(live) if any(i in key for i in ids))
    body = source.store.get(key)
    source.store.delete([key])
    source.store.put_if_absent(key, b"x" * len(body))
    with pytest.raises(errors.DataLoss, match="fsck") as caught:
        follow(here, far)
    assert caught.value.key == key
    assert Table.open(far).session.head().version == caught.value.version - 1 == first - 1

    # The source is repaired: what the store has copied is in the way, and the error says so.
    source.store.delete([key])
    source.store.put_if_absent(key, body)
    with pytest.raises(errors.CommitConflict, match="delete this object at the target") as caught:
        follow(here, far)
    open_store(far).delete([caught.value.key])
    follow(here, far)
    assert objects(open_store(far)) == objects(source.store)


@pytest.mark.verify
@pytest.mark.parametrize("restored", [False, pytest.param(True, marks=pytest.mark.long)])
def test_damage_that_the_store_has_copied_is_not_taken_for_a_copy(buckets, restored):
    """A start, or a restore, finds it at the copy, with the right size."""
    here, far = buckets
    source = laid(open_store(here))
    had = set()
    if restored:
        kept = source.session.head().version
        grow(source)
        follow(here, far)
        had = {s.id for s in source.refresh().segments()}
        source.restore(kept)
    key = next(keys.key_of(s) for s in source.refresh().segments() if s.id not in had)
    body = source.store.get(key)
    open_store(far).delete([key])
    source.store.delete([key])
    source.store.put_if_absent(key, b"x" * len(body))
    assert S3Store(far).copy_if_absent(S3Store(here), key)
    source.store.delete([key])
    source.store.put_if_absent(key, body)
    with pytest.raises(errors.CommitConflict, match="delete this object at the target") as caught:
        follow(here, far, start="keyframe")
    assert caught.value.key == key
    open_store(far).delete([key])
    follow(here, far, start="keyframe")
    assert objects(open_store(far))[key] == body


@pytest.mark.parametrize("behind", [False, True])
def test_an_object_that_no_version_of_a_copy_names_is_compared_before_it_counts(behind):
    """A start finds it at the copy, with the right size."""
    source, target = everything(), MemoryStore()
    had = set()
    if behind:
        copy(source, target)
        had = {s.id for s in source.session.head().segments()}
        for n in range(3):
            grow(source, 100 * (n + 1))
        sweep(source.store, next(LATER))
    source = reopen(source.store)
    segment = next(s for s in source.session.head().segments() if s.id not in had)
    key, body = keys.key_of(segment), source.store.get(keys.key_of(segment))
    target.put_if_absent(key, bytes([body[0] ^ 1]) + body[1:])
    with pytest.raises(errors.CommitConflict, match="delete this object at the target") as caught:
        copy(source, target, start="keyframe")
    assert caught.value.key == key
    target.delete([key])
    assert copy(source, target, start="keyframe").start > 1
    assert sorted_names(reopen(target)) == sorted_names(source)


@pytest.mark.parametrize("passes", [1, 2])
def test_what_a_restore_brings_back_is_compared_where_a_copy_lacks_its_version(passes):
    source, target = create(properties={"keyframe_commits": "3"}), MemoryStore()
    append(source, events(2))
    key = keys.key_of(source.session.head().segments()[0])
    overwrite(source, events(2, first=10), start="1970-01-01", end="1970-01-02")
    append(source, events(2, first=20))
    if passes == 2:
        assert copy(source, target, start="keyframe").start == 2
    source.restore(1)
    body = source.store.get(key)
    target.put_if_absent(key, bytes([body[0] ^ 1]) + body[1:])
    with pytest.raises(errors.CommitConflict, match="delete this object at the target") as caught:
        copy(source, target, start="keyframe")
    assert caught.value.key == key
    target.delete([key])
    copy(source, target, start="keyframe")
    assert sorted_names(reopen(target)) == sorted_names(source)


@pytest.mark.long
def test_where_the_store_cannot_copy_bytes_pass_through(buckets, monkeypatch):
    here, far = buckets
    source = laid(open_store(here))
    monkeypatch.setattr(S3Store, "copy_if_absent", lambda *_: None)
    follow(here, far)
    assert objects(open_store(far)) == objects(source.store)


@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_damaged_start_whose_version_is_not_there_means_nothing(source, body):
    plain, started = MemoryStore(), MemoryStore()
    follow(source, Table(plain))
    follow(source, Table(started), start="keyframe")
    for store in (plain, started):
        store.put_if_absent(keys.start_key(999), body)
        assert keys.start_key(999) in [f.key for f in fsck(Table(store)).findings]
        vacuum(Table.open("", store=store, clock=ManualClock(START_MS, 70)), dry_run=True)
        backfill(source, Table(store))
        assert sorted_names(Table(store), 1) == sorted_names(source, 1)


STRAY = [(999_999_999_999, -1), (999_999_999_999, 2), (100_000, 50_000), (69, 29)]


@pytest.mark.sample(1, verify=2)
@pytest.mark.parametrize(("version", "after"), STRAY)
def test_a_start_whose_version_is_not_there_means_nothing(source, version, after):
    plain, started = MemoryStore(), MemoryStore()
    follow(source, Table(plain))
    follow(source, Table(started), start="keyframe")
    stray = Start("eventlog", 1, (), source.session.head().header.table, version, after)
    for store in (plain, started):
        store.put_if_absent(keys.start_key(version), codec.encode_start(stray))
        [found] = [f for f in fsck(Table(store)).findings if "_starts/" in f.key] or [None]
        # One above a version that is there may be of a follower that died.
        assert (found is None) == (after == 2 and store is plain)
        vacuum(Table.open("", store=store, clock=ManualClock(START_MS, 70)), dry_run=True)
        again = MemoryStore()
        done = follow(Table(store), Table(again))
        assert (done.version, sorted_names(Table(again))) == (
            source.session.head().version,
            sorted_names(source),
        )
        backfill(source, Table(store))
        assert sorted_names(Table(store), 1) == sorted_names(source, 1)
        assert follow(source, Table(store)).versions == 0


def test_starts_within_a_gap_whose_versions_are_absent_mean_nothing(source):
    store, again = MemoryStore(), MemoryStore()
    follow(source, Table(store), start="keyframe")
    for version in (3, 4):
        stray = Start("eventlog", 1, (), source.session.head().header.table, version, version - 2)
        store.put_if_absent(keys.start_key(version), codec.encode_start(stray))
    assert follow(source, Table(store)).versions == 0
    assert follow(Table(store), Table(again)).version == source.session.head().version
    assert sorted_names(Table(again)) == sorted_names(source)
    backfill(source, Table(store))
    assert sorted_names(Table(store), 1) == sorted_names(source, 1)
