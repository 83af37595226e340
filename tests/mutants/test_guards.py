"""Tests of guards that no other test covers: each fails with its mutant, and passes without."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import (
    HASH,
    Spy,
    add,
    commit,
    create,
    drop_of,
    events,
    fold_all,
    live,
    reopen,
    replace_object,
    replaced,
    resealed,
    row_names,
    view_of,
)

from eventlog import Table, errors
from eventlog.commit import proposal, rebase
from eventlog.compaction import Policy, plan, run, vacuum
from eventlog.format import codec, keys
from eventlog.model.actions import Fence, PropertyChange, SetProperties
from eventlog.model.records import App
from eventlog.state import fold
from eventlog.state.delta import add_of
from eventlog.store.testing.faults import Crash
from eventlog.writers import append, overwrite
from eventlog.writers.batch import stage

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}


class Watched(Spy):
    """A store that calls back before each delete."""

    before_delete = staticmethod(lambda keys: None)

    def delete(self, keys):
        batch = list(keys)
        self.before_delete(batch)
        super().delete(batch)
        self.inner.delete(batch)


def table_with_history():
    """Two appends that an overwrite replaced completely; a day has passed."""
    table = create()
    append(table, events(1))
    append(table, events(1, first=1))
    overwrite(table, events(1, first=2), **DAY)
    table.clock.advance(86_400_000)
    return table


@pytest.fixture
def table():
    return table_with_history()


def watched(table):
    store = Watched(table.store)
    return Table.open(store.uri, store=store, clock=table.clock)


def judged(table, *transactions):
    state = fold_all(table.store)[-1][0]
    return fold.judge(transactions, state, state.header.time + 1)


def meet(mine, happens):
    """Call something once, just before the next commit of `mine` arrives."""

    def once(key):
        if key.startswith(keys.LOG_PREFIX):
            mine.store.before_put = lambda key: None
            happens()

    mine.store.before_put = once


def check_objects(table, version=None):
    there = {found.key for found in table.store.list(keys.SEGMENTS_PREFIX)}
    wanted = live(table.refresh() if version is None else table.snapshot(version))
    assert {keys.key_of(segment) for segment in wanted} <= there


def test_f1_a_transaction_listed_twice_has_one_effect(table):
    change = SetProperties((PropertyChange("user.a", None, "1"),))
    once = table.transaction("properties", [change])
    nothing = replaced(once, actions=())
    assert judged(table, nothing, nothing).accepted == (once.id,)
    assert "twice" in judged(table, once, once).void[once.id]


def test_f1_a_void_transaction_does_not_lend_its_name_to_another_of_its_id(table):
    void = table.transaction("void", [SetProperties((PropertyChange("user.a", "0", "1"),))])
    taken = replaced(void, operation="properties", actions=())
    found = judged(table, void, taken)
    assert (found.accepted, found.taken) == ((void.id,), (taken,))
    assert fold.summarize_changes([void, taken], found).operation == "properties"
    assert fold.summarize_changes([void], judged(table, void)).operation == "void"


def test_f3_a_published_replace_is_void(table):
    (segment,) = live(table.session.head())
    plain = table.transaction("replace", [drop_of(segment), add(table)])
    published = replaced(plain, until=table.session.head().version + 4)
    assert "only appends" in judged(table, published).void[plain.id]
    assert judged(table, plain).accepted == (plain.id,)


def test_f2_a_unit_that_is_published_under_another_id_has_one_effect(table):
    first, second = (
        replaced(table.transaction("append", [add(table)], app=App("job", 1)), until=9)
        for _ in range(2)
    )
    assert judged(table, first, second).accepted == (first.id,)


def test_f3_a_published_append_that_was_dropped_does_not_come_back(table):
    """No other guard prevents it: its segment is no longer live."""
    append_ = table.transaction("append", [add(table)])
    published = replaced(append_, until=table.session.head().version + 8)
    state = fold_all(table.store)[-1][0]
    once = fold.judge([published], state, state.header.time + 1)
    mark = once.meta.published[append_.id]
    assert once.accepted == (append_.id,)
    dropped = replace(state, meta=replaced(state.meta, published={append_.id: mark}))
    again = fold.judge([published], dropped, state.header.time + 2)
    assert "already" in again.void[append_.id]


@pytest.mark.hazard("V1")
def test_v1_a_fence_never_falls(table):
    commit(table, Fence(3))
    with pytest.raises(errors.CommitConflict, match="must be above"):
        commit(table, Fence(2))
    assert table.refresh().meta.fence == 3


@pytest.mark.hazard("V1")
def test_v1_a_dropped_segment_whose_add_may_come_again_waits(table):
    vacuum(table, dry_run=False, **NOW)
    version = append(table, events(1, first=5, day=4))
    (young,) = [s for s in live(table.session.head()) if s.version == version]
    commit(table, drop_of(young))
    late = add_of(young)
    table.clock.advance(3_600_000)
    commit(table, add(table))
    table.clock.advance(3_600_000)
    vacuum(table, dry_run=False, retention=timedelta(hours=1), staging=timedelta(hours=24))
    assert (
        table.session.head().meta.horizon > version > young.epoch >= table.session.head().meta.fence
    )
    commit(table, late)
    assert table.store.get(keys.key_of(young))


@pytest.mark.hazard("V3")
def test_v3_what_is_added_between_the_look_and_the_marks_keeps_its_object():
    table = create()
    append(table, events(1))
    late = stage(table, table.snapshot(0), events(1, first=60), 2**29)
    table.clock.advance(86_400_000)
    mine = watched(table)
    meet(mine, lambda: commit(reopen(table.store), *late))
    vacuum(mine, dry_run=False, **NOW)
    check_objects(table)
    assert row_names(table) == ["row 0", "row 60"]


@pytest.mark.hazard("V2")
def test_v2_a_pin_that_comes_between_keeps_its_objects(table):
    mine = watched(table)
    meet(mine, lambda: reopen(table.store).pin("late", 2))
    vacuum(mine, dry_run=False, **NOW)
    assert table.refresh().meta.pins["late"].version == 2
    check_objects(table, 2)


@pytest.mark.hazard("V5")
def test_v5_not_even_where_the_marks_are_there_already(table):
    dying = watched(table)

    def die(batch):
        raise Crash

    dying.store.before_delete = die
    with pytest.raises(Crash):
        vacuum(dying, dry_run=False, **NOW)
    key = keys.commit_key(table.refresh().version)
    newer = table.store.get(key).replace(b'"min_writer":1', b'"min_writer":2')
    replace_object(table.store, key, resealed(newer))
    before = [found.key for found in table.store.list(keys.SEGMENTS_PREFIX)]
    day = {"retention": timedelta(hours=1), "staging": timedelta(hours=1)}
    with pytest.raises(errors.UnsupportedFormat):
        vacuum(reopen(table.store), dry_run=False, **day)
    assert [found.key for found in table.store.list(keys.SEGMENTS_PREFIX)] == before


@pytest.mark.hazard("P1")
def test_p1_a_root_that_tells_of_another_segment_is_stepped_over(table):
    append(table, events(1, first=7, day=3))
    version = table.write_keyframe()
    append(table, events(1, first=8, day=3))
    key = keys.keyframe_key(version)
    root = codec.decode_keyframe(table.store.get(key), version)
    first, *rest = root.segments
    other = replaced(root, segments=(replaced(first, checksum=HASH), *rest))
    replace_object(table.store, key, codec.encode_keyframe(other))
    assert live(reopen(table.store).session.head()) == live(table.session.head())
    assert reopen(table.store).session.head().base is None


@pytest.mark.hazard("P4")
def test_p4_marks_of_vacuum_and_windows_survive_key_frames(table):
    vacuum(table, dry_run=False, **NOW)
    published = replaced(
        table.transaction("append", [add(table)]), until=table.session.head().version + 8
    )
    state = table.session.head()
    verdict = rebase.rebase(published, view_of(table, published), state.header.time + 1)
    made = proposal.propose(
        state,
        verdict.transactions,
        verdict.effect,
        table_id=table.id,
        time_ms=state.header.time + 1,
        log=table.session.log,
    )
    table.store.put_if_absent(keys.commit_key(state.version + 1), made.body)
    before = table.refresh().meta
    assert before.fence
    assert before.horizon
    assert before.swept
    assert before.published
    table.write_keyframe()
    after = reopen(table.store)
    assert after.session.head().base.version == after.session.head().version
    assert after.session.head().meta == before
    commit(after, add(after))
    assert reopen(table.store).session.head().meta == before


@pytest.mark.hazard("K1")
def test_k1_what_waited_for_others_takes_in_what_they_made():
    """Otherwise the chunks of both would need another round."""
    table = create()
    for number in range(12):
        append(table, events(4, first=4 * number))
    table.set_granularity("hour")
    append(table, events(4, first=100))
    append(table, events(4, first=200))
    before = row_names(table)
    policy = Policy(
        target_bytes=2048, max_task_bytes=8192, small_task_bytes=0, granularity="hour", max_tasks=1
    )
    blacks = {task.id: task for task in plan(table, policy).tasks if task.after}
    report = run(table, policy=policy)
    assert blacks
    assert report.count("done") == report.planned == len(report.outcomes)
    assert not blacks.keys() & {outcome.task for outcome in report.outcomes}
    assert report.outcomes[-1].segments_in > min(len(task.inputs) for task in blacks.values())
    assert row_names(table) == before
