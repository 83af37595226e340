"""Merges of slices as tasks: what is done already, and what is not."""

import pyarrow as pa
import pytest
from support.builders import check_sound, create, events, live, reopen

from eventlog import compaction
from eventlog.compaction import Policy, perform, plan
from eventlog.keyed import slices
from eventlog.readers import scan
from eventlog.writers import delete, overwrite, upsert

POLICY = Policy(target_bytes=4096, claim_bytes=2**30)


@pytest.fixture
def table():
    """Six keys, each written twice; one is deleted."""
    table = create(key="name", buckets=4, granularity="all")
    upsert(table, events(6))
    upsert(table, events(6))
    delete(table, keys=pa.table({"name": ["row 3"]}))
    return table


def names(table, version=None):
    return sorted(scan(table, version=version).to_table().column("name").to_pylist())


def test_after_all_merges_a_slice_is_its_base_and_nothing_is_left_to_do(table):
    before = names(table)
    assert all(outcome.ok for outcome in compaction.run(table, policy=POLICY).outcomes)
    found = slices.runs(live(table.refresh()))
    assert all(run.base and not run.logs for run in found)
    assert not slices.ineffective(live(table.session.head()))
    assert names(table) == before == [f"row {n}" for n in (0, 1, 2, 4, 5)]
    assert names(table, 3) == before
    assert plan(table, POLICY).tasks == ()
    check_sound(table.store)


def test_a_task_that_is_delivered_twice_takes_effect_once(table):
    (task,) = plan(table, POLICY).tasks
    first, second = (perform(reopen(table.store, seed), task, POLICY) for seed in (5, 6))
    assert (first.status, second.status) == ("done", "done")
    assert first.version == second.version


def test_rows_that_arrive_while_a_merge_is_planned_lie_above_it(table):
    (task,) = plan(table, POLICY).tasks
    late = reopen(table.store)
    upsert(late, events(1, first=3))
    delete(late, keys=pa.table({"name": ["row 0"]}))
    assert perform(table, task, POLICY).ok
    assert names(table.refresh() and table) == [f"row {n}" for n in (1, 2, 3, 4, 5)]


def test_a_merge_of_slices_that_were_restored_meanwhile_is_superseded(table):
    (task,) = plan(table, POLICY).tasks
    overwrite(table, events(0))
    table.restore(3)
    outcome = perform(table, task, POLICY)
    assert outcome.status == "superseded"
    assert all(o.ok for o in compaction.run(table, policy=POLICY).outcomes)
    assert names(table) == [f"row {n}" for n in (0, 1, 2, 4, 5)]
