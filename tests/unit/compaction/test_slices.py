"""Merging slices of keyed tables: what is planned, what it makes, and that no answer changes."""

import datetime as dt
import itertools
import random
import tempfile
from io import BytesIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.buckets import bucket_of
from support.builders import replaced

from eventlog import Table
from eventlog.clock import ManualClock, SystemClock
from eventlog.compaction import Policy, explain, perform, plan, run, vacuum
from eventlog.compaction.planner.slice_planning import merges, verdicts
from eventlog.compaction.tasks import Task
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.format.buckets import buckets_of
from eventlog.fsck.check import fsck
from eventlog.keyed.placement import slice_of
from eventlog.keyed.slices import runs
from eventlog.model.entries import Segment, Slice
from eventlog.readers import scan
from eventlog.rewriting import slice_merge as rewriting
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, upsert

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def create(**options):
    options = {"buckets": 4, "order_by": "at"} | options
    return Table.create("", SCHEMA, time_column="at", key="id", store=MemoryStore(), **options)


def rows(ids, hour=0, v="a"):
    at = START + dt.timedelta(hours=hour)
    return pa.Table.from_pylist([{"id": i, "at": at, "v": v} for i in ids], schema=SCHEMA)


def held(t, version=None):
    return {row["id"]: row["v"] for row in scan(t, version=version).to_table().to_pylist()}


def kinds(t):
    return sorted(slice_of(s).kind for s in t.refresh().segments())


def segment(number, kind, first, last, low, high, *, size=1000, level=0):  # noqa: PLR0917
    place = Slice(kind, first, last, low, high, level)
    return Segment(
        f"{number:032x}", "all", 0, high, 0, 10, size, "0" * 64, 1, slice=place
    )  # fmt: skip


def planned(segments, *, splits=0, **policy):
    return merges(
        runs(segments, splits), Policy(**policy), table="t", version=99, granularity="all"
    )


def test_what_lies_above_no_base_or_much_above_one_is_merged_into_it():
    log = segment(1, "log", 0, 3, 1, 1)
    (task,) = planned([log])
    assert (task.buckets.first, task.buckets.last) == (0, 3)
    base = segment(2, "base", 0, 3, 0, 0, size=3999, level=1)
    (task,) = planned([base, log])
    assert [s.id for s in task.inputs] == [base.id, log.id]
    assert (task.buckets.low, task.buckets.high) == (0, 1)
    assert planned([segment(2, "base", 0, 3, 0, 0, size=4001, level=1), log]) == []


def test_many_small_logs_above_a_large_base_become_one_log():
    base = segment(0, "base", 0, 3, 0, 0, size=10**9, level=1)
    logs = [segment(n, "log", 0, 3, n, n) for n in range(1, 9)]
    assert planned([base, *logs[:7]]) == []
    (task,) = planned([base, *logs])
    assert [s.id for s in task.inputs] == [s.id for s in logs]
    large = segment(1, "log", 0, 3, 1, 1, size=10**7)
    (task,) = planned([base, large, *(segment(n, "log", 0, 3, n, n) for n in range(2, 11))])
    assert large not in task.inputs


def test_slices_are_merged_apart_where_together_they_are_too_large():
    logs = [segment(b, "log", b, b, 1, 1, size=10**6) for b in range(8)]
    tasks = planned(logs, target_bytes=10**5, max_task_bytes=4 * 10**6)
    assert [len(task.inputs) for task in tasks] == [4, 4]
    assert [
        len(task.inputs) for task in planned(logs, target_bytes=10**5, max_task_bytes=4 * 10**6)
    ] == [4, 4]


def test_the_same_work_has_the_same_id_and_that_of_other_slices_another():
    log = segment(1, "log", 0, 3, 1, 1)
    assert planned([log])[0].id == planned([log])[0].id
    base = segment(2, "base", 2, 3, 1, 1, level=1)
    assert planned([log, base])[0].id != planned([log])[0].id


def test_a_merge_makes_a_base_and_keeps_what_later_rows_may_need():
    t = create(properties={"bucket_bytes": str(2**23)})
    upsert(t, rows([1, 2, 3], hour=5))
    late = pa.table(
        {"id": [2], "at": pa.array([START + dt.timedelta(hours=9)], SCHEMA.field("at").type)}
    )
    delete(t, keys=late)
    before = t.session.head().version
    report = run(t)
    assert [o.status for o in report.outcomes] == ["done"]
    assert kinds(t) == ["base", "late"]
    assert held(t) == held(t, before) == {1: "a", 3: "a"}
    assert scan(t).count() == 2
    upsert(t, rows([2, 3], hour=8, v="b"))  # of 2 the delete is later
    assert held(t) == {1: "a", 3: "b"}
    upsert(t, rows([2], hour=10, v="c"))
    run(t)
    assert kinds(t) == ["base"]
    assert held(t) == {1: "a", 2: "c", 3: "b"}
    assert fsck(t).ok


def test_a_shared_log_stays_until_every_slice_has_taken_it_in():
    t = create(properties={"bucket_bytes": "1024"})
    upsert(t, rows(range(260)))  # a segment a bucket
    upsert(t, rows(range(4), hour=1, v="b"))  # one for all
    shared = next(s.id for s in t.session.head().segments() if slice_of(s).first < slice_of(s).last)
    policy = Policy(target_bytes=1024, max_task_bytes=4096)
    tasks = plan(t, policy).tasks
    assert len(tasks) > 1
    wanted = held(t)
    for number, task in enumerate(tasks):
        assert perform(t, task, policy).status == "done"
        live = {s.id for s in t.refresh().segments()}
        assert (shared in live) is (number < len(tasks) - 1)
        assert held(t) == wanted
    assert plan(t, policy).tasks == ()


@pytest.mark.parametrize("merge", ["last", "aggregate"])
def test_what_a_merge_writes_is_in_the_order_of_bucket_and_key(merge):
    """Arrow groups by key in an order of its own."""
    t = create(properties={"merge": merge})
    upsert(t, rows(range(5000)))
    upsert(t, rows(range(0, 5000, 7), hour=3))
    run(t)
    for segment in t.refresh().segments():
        found = pq.read_table(BytesIO(t.store.get(keys.key_of(segment))))
        order = list(
            zip(buckets_of(found, ["id"], 4).to_pylist(), found["id"].to_pylist(), strict=True)
        )
        assert order == sorted(order), slice_of(segment).kind


def test_a_task_that_comes_twice_has_one_effect_and_one_planned_before_gives_way():
    t = create()
    upsert(t, rows([1]))
    (task,) = plan(t).tasks
    other = Table(t.store)
    first = perform(t, task, Policy())
    again = perform(other, task, Policy())
    assert (first.status, again.status, again.version) == ("done", "done", first.version)
    upsert(t, rows([1], v="b"))
    (stale,) = plan(t).tasks
    upsert(t, rows([1], v="c"))
    (fresh,) = plan(t).tasks
    assert perform(t, fresh, Policy()).status == "done"
    assert perform(t, stale, Policy()).status == "superseded"
    assert held(t) == {1: "c"}


@pytest.mark.hazard("K5")
@pytest.mark.parametrize("below", [0, 1])
def test_k5_a_task_that_would_lie_below_a_base_is_superseded(below):
    """Nobody could read what a merge has put below a base, even if it has no rows there."""
    t = create(buckets=2, order_by=None)
    key = [next(i for i in range(99) if bucket_of([pa.scalar(i)], 2) == b) for b in (0, 1)]
    for hour in range(1 + below):
        upsert(t, rows([key[0]], hour=hour))
    upsert(t, rows([key[1]]))
    high = t.session.head().version

    def merged(first, last, version):
        inputs = tuple(s for s in t.refresh().segments() if s.version == version)
        task = Task(
            t.clock.random_id(), t.refresh().version, "all", ("all",), inputs, 0.5, "by hand",
            buckets=rewriting.Buckets(first, last, version, version),
        )  # fmt: skip
        return perform(t, task, Policy())

    assert merged(1, 1, high).status == "done"
    outcome = merged(0, 1, high - 1)
    assert (outcome.status, t.refresh().version) == ("superseded", high + 1)
    assert "a base has nothing below it" in outcome.error
    assert set(held(t)) == set(key)
    run(t, policy=Policy(min_gain=0.0))
    assert set(held(t)) == set(key)
    assert fsck(t).ok


def test_rows_that_arrive_meanwhile_lie_above_whatever_merges():
    t = create()
    upsert(t, rows([1, 2]))
    (task,) = plan(t).tasks
    upsert(t, rows([2, 3], v="late"))
    assert perform(t, task, Policy()).status == "done"
    assert held(t) == {1: "a", 2: "late", 3: "late"}
    assert kinds(t) == ["base", "log"]


def test_buckets_without_rows_are_merged_too():
    t = create(buckets=64)
    upsert(t, rows([1]))
    delete(t, keys=pa.table({"id": [1]}))
    assert run(t).count("done") == 1
    assert held(t) == {}
    assert kinds(t) == ["base"]


@pytest.mark.verify
@pytest.mark.parametrize("merge", ["last", "first", "partial"])
def test_merging_on_disk_gives_what_merging_in_memory_gives(merge):
    t = create(properties={"merge": merge, "bucket_bytes": "1024"})
    chance = random.Random(7)
    for hour in range(6):
        upsert(t, rows(chance.sample(range(9000), 3000), hour=chance.randrange(6), v=str(hour)))
    wanted = held(t)
    report = run(t, policy=Policy(target_bytes=4096, max_task_bytes=2**20, memory_bytes=2**20))
    assert report.count("done") == len(report.outcomes) > 0
    assert held(t) == wanted
    assert fsck(t).ok
    bases = [s for s in t.refresh().segments() if slice_of(s).kind == "base"]
    assert len(bases) > 4  # cut at the target size


def test_a_merge_out_of_time_leaves_all_as_it_was():
    class Fast(SystemClock):
        ticks = itertools.count()

        def elapsed_s(self):
            return next(self.ticks)

    t = Table(create().store, clock=Fast())
    upsert(t, rows([1]))
    (task,) = plan(t).tasks
    assert perform(t, task, Policy(), deadline_s=2).status == "out of time"
    assert kinds(t) == ["log"]


def test_a_vacuum_deletes_what_was_merged_and_nothing_else():
    t = create()
    for hour in range(3):
        upsert(t, rows([hour, hour + 1], hour=hour, v=str(hour)))
    run(t)
    wanted = held(t)
    vacuum(t, dry_run=False, retention=dt.timedelta(0))
    assert held(t) == wanted
    assert fsck(t).ok


def test_explain_is_for_chunks():
    with pytest.raises(InvalidInput, match="slices"):
        explain(create(), "all")


def test_a_tombstone_hides_older_rows_for_its_time_and_is_then_forgotten():
    clock = ManualClock(now_ms=1_700_000_000_000)
    t = create(buckets=1, properties={"tombstone_hours": "2"}, clock=clock)

    def an_hour_later():
        clock.advance(3_600_000)
        upsert(t, rows([9], hour=clock.now_ms() // 3_600_000 % 100))
        run(t)

    upsert(t, rows([1], hour=3))
    delete(t, keys=rows([1], hour=5).select(["id", "at"]))
    an_hour_later()
    assert kinds(t) == ["base", "late"]
    upsert(t, rows([1], hour=4))  # older than the delete, and in time
    assert 1 not in held(t)
    for _ in range(5):
        assert "late" in kinds(t)
        an_hour_later()
    hidden = t.session.head().version
    assert kinds(t) == ["base"]
    assert 1 not in held(t)
    upsert(t, rows([1], hour=4, v="after its time"))
    assert held(t)[1] == "after its time"
    run(t)
    assert held(t)[1] == "after its time"
    assert 1 not in held(t, hidden)
    assert fsck(t).ok


def test_a_tombstone_stays_below_rows_that_its_merge_leaves_above():
    clock = ManualClock(now_ms=1_700_000_000_000)
    t = create(buckets=1, properties={"tombstone_hours": "0"}, clock=clock)
    upsert(t, rows([1, 2], hour=3))
    delete(t, keys=rows([1], hour=5).select(["id", "at"]))
    (task,) = plan(t).tasks  # planned here, and performed as of a later version
    upsert(t, rows([1], hour=4))
    clock.advance(1000)
    upsert(t, rows([2], hour=6))
    later = msgspec.structs.replace(task, version=t.session.head().version)
    assert perform(t, later, Policy()).status == "done"
    assert kinds(t) == ["base", "late", "log", "log"]
    assert set(held(t)) == {2}


def test_a_young_tombstone_is_not_forgotten_with_an_old_one_that_hides_more():
    clock = ManualClock(now_ms=1_700_000_000_000)
    t = create(buckets=1, properties={"tombstone_hours": "2"}, clock=clock)
    upsert(t, rows([1, 2], hour=3))
    delete(t, keys=rows([1], hour=9).select(["id", "at"]))
    for hour in (3, 4):
        clock.advance(3 * 3_600_000)
        upsert(t, rows([2], hour=hour))
    delete(t, keys=rows([1], hour=5).select(["id", "at"]))  # of lower order, and committed later
    clock.advance(1000)
    run(t)
    upsert(t, rows([1], hour=4))  # in time for the second
    assert set(held(t)) == {2}
    for hour in (5, 6):
        clock.advance(3 * 3_600_000)
        upsert(t, rows([2], hour=hour))
    run(t)
    assert kinds(t) == ["base"]


def merged_to_a_log(t, low, high):
    """Merge the slices from one version to another."""
    inputs = tuple(s for s in t.refresh().segments() if low <= slice_of(s).low <= high)
    (task,) = plan(t).tasks
    at = rewriting.Buckets(0, 0, low, high)
    task = msgspec.structs.replace(task, id=t.clock.random_id(), inputs=inputs, buckets=at)
    assert perform(t, task, Policy()).status == "done"


@pytest.mark.sample(2)
@pytest.mark.parametrize("rule", ["last", "partial"])
@pytest.mark.parametrize("how", ["one commit", "two commits", "a log", "a log of logs"])
def test_an_upsert_takes_no_young_tombstone_from_an_old_one_that_hides_both(how, rule):
    """The old one hides the upsert, and a merge that forgot it would forget the young one, too."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    properties = {"tombstone_hours": "2", "merge": rule}
    t = create(buckets=1, properties=properties, clock=clock)
    upsert(t, rows([1, 2], hour=3))
    delete(t, keys=rows([1], hour=9).select(["id", "at"]))
    for hour in (3, 4):
        clock.advance(3 * 3_600_000)
        upsert(t, rows([2], hour=hour))
    ops = pa.array(["d", "u"])
    both = pa.concat_tables([rows([1], hour=5), rows([1], hour=6)]).append_column("_op", ops)
    if how == "one commit":
        upsert(t, both)
    else:
        low = upsert(t, both.slice(0, 1))
        high = upsert(t, both.slice(1))
        if how != "two commits":
            merged_to_a_log(t, low, high)
        if how == "a log of logs":
            merged_to_a_log(t, low, upsert(t, rows([1], hour=7)))
    clock.advance(1000)
    run(t, policy=Policy(min_gain=0.0))
    assert kinds(t) == ["base", "late"]
    upsert(t, rows([1], hour=4))  # in time for the young one
    assert set(held(t)) == {2}
    for hour in (5, 6):
        clock.advance(3 * 3_600_000)
        upsert(t, rows([2], hour=hour))
    run(t, policy=Policy(min_gain=0.0))
    assert kinds(t) == ["base"]
    assert set(held(t)) == {2}


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_tombstone_of_exactly_its_hours_is_kept(first, second):
    """`tombstone_hours` must have passed twice, and none of the two may be a millisecond short."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    t = create(buckets=1, properties={"tombstone_hours": "2"}, clock=clock)
    delete(t, keys=rows([1], hour=5).select(["id", "at"]))
    for more, hour in ((first, 6), (second, 7)):
        before = t.session.head().header.time
        clock.advance(before + 2 * 3_600_000 + more - clock.now_ms())
        upsert(t, rows([2], hour=hour))
        assert t.session.head().header.time - before == 2 * 3_600_000 + more
    run(t)
    assert "late" in kinds(t)
    clock.advance(1)
    upsert(t, rows([2], hour=8))
    run(t)
    assert ("late" in kinds(t)) is (first == 0)


@pytest.mark.hazard("K7")
def test_k7_what_a_restore_brings_back_stays_hidden_from_a_merge_that_forgets():
    clock = ManualClock(now_ms=1_700_000_000_000)
    t = create(buckets=1, properties={"tombstone_hours": "2"}, clock=clock)
    upsert(t, rows([1, 2], hour=3))
    delete(t, keys=rows([1], hour=5).select(["id", "at"]))
    hidden = t.session.head().version
    upsert(t, rows([1], hour=4))  # older than the delete, and in time
    later = t.session.head().version
    t.restore(hidden)
    clock.advance(3 * 3_600_000)
    upsert(t, rows([2], hour=6))
    t.restore(hidden)
    (task,) = plan(t).tasks
    t.restore(later)
    assert set(held(t)) == {2}
    assert perform(t, task, Policy()).status == "superseded"
    assert set(held(t)) == {2}
    run(t)
    assert set(held(t)) == {2}
    assert fsck(t).ok


def test_a_merge_tells_its_progress_and_ends_where_that_raises():
    t = create()
    upsert(t, rows(range(50)))
    (task,) = plan(t).tasks
    told = []

    def stop(*given):
        told.append(given)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(t, task, Policy(), progress=stop)
    assert told == [("rows", 50, 50)]
    assert kinds(t) == ["log"]


def test_a_merge_that_is_interrupted_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []
    sort_on_disk = rewriting.sort_on_disk
    monkeypatch.setattr(
        rewriting, "sort_on_disk", lambda *a, **o: made.append(sort_on_disk(*a, **o)) or made[0]
    )
    t = create()
    upsert(t, rows(range(50)))
    (task,) = plan(t).tasks
    calls = itertools.count(1)

    def stop():
        if next(calls) == 2:  # the rows are sorted, and not yet written
            raise KeyboardInterrupt

    merge = rewriting.SliceMerge(task.version, task.chunks[0], task.inputs, task.buckets)
    with pytest.raises(KeyboardInterrupt):
        rewriting.merge_slices(t, merge, Policy().sizes, stop)
    assert made[0].gi_frame is None  # closed
    assert list(tmp_path.iterdir()) == []


def renumbered(entry):
    return replaced(entry, slice=replaced(entry.slice, splits=1))


def test_what_is_left_of_a_base_of_before_a_split_gets_one_of_its_own():
    old = segment(1, "base", 0, 1, 0, 3, size=10**8, level=1)
    assert planned([old], splits=1) == []
    first = renumbered(segment(2, "base", 0, 0, 0, 4, size=10**8, level=2))
    found = runs([old, first], 1)
    assert [(v.first, v.last, v.rule) for v in verdicts(found, Policy())] == [
        (0, 0, "no logs"), (1, 3, "split"),
    ]  # fmt: skip
    (task,) = planned([old, first], splits=1)
    assert [s.id for s in task.inputs] == [old.id]
    assert (task.buckets.first, task.buckets.last, task.buckets.splits) == (1, 3, 1)
    rest = renumbered(segment(3, "base", 1, 3, 0, 3, size=10**8, level=2))
    assert planned([old, first, rest], splits=1) == []


def test_both_halves_of_a_split_base_end_as_bases_of_the_new_buckets():
    t = create(buckets=1, properties={"bucket_bytes": "1024"})
    upsert(t, rows(range(60)))
    run(t)
    t.set_buckets(2)
    key = next(i for i in range(60) if bucket_of([pa.scalar(i)], 2, 1) == 0)
    upsert(t, rows([key], hour=1, v="b"))
    wanted = held(t)
    half = plan(t, Policy()).tasks[0]
    half = replaced(half, buckets=rewriting.Buckets(0, 0, 1, 4, 1))
    assert perform(t, half, Policy()).status == "done"
    assert {s.slice.splits for s in t.refresh().segments()} == {msgspec.UNSET, 1}
    assert held(t) == wanted
    run(t)
    assert {(s.slice.first, s.slice.splits) for s in t.refresh().segments()} == {(0, 1), (1, 1)}
    assert held(t) == wanted
    assert plan(t, Policy()).tasks == ()
