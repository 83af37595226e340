"""The runner: limits, black tasks, failures, notes in the log."""

import pytest
from builders import create, events

from compaction import Policy, plan, run
from compaction.planner.assessing import record
from eventlog import keys
from eventlog.errors import InvalidInput
from eventlog.local import LocalStore
from readers import scan
from writers import append

SMALL = Policy(target_bytes=4096, max_task_bytes=16_384, small_task_bytes=0, max_tasks=2)


@pytest.fixture
def table(tmp_path):
    """Three days, three segments each, a row in each."""
    t = create(LocalStore(tmp_path))
    for number in range(3):
        append(t, events(3, days=3, first=3 * number))
    return t


def names(t):
    return sorted(scan(t, ["name"]).to_table()["name"].to_pylist())


def test_a_run_compacts_what_the_plan_says_and_nothing_is_left(table):
    before, seen = names(table), []
    report = run(table, policy=SMALL, progress=lambda *at: seen.append(at))
    assert (report.planned, report.count("done"), report.shed) == (3, 3, ())
    assert [chunk.segments for chunk in table.snapshot().chunks()] == [1, 1, 1]
    assert names(table) == before
    total = sum(outcome.bytes_in for outcome in report.outcomes)
    assert seen[0] == ("bytes", 0, total)
    assert seen[-1] == ("bytes", total, total)
    assert table.snapshot().meta.analysed is not None
    assert plan(table, SMALL).tasks == ()
    head = table.snapshot().version
    again = run(table, policy=SMALL)
    assert (again.planned, again.noted, table.snapshot().version) == (0, None, head)


def test_tasks_that_are_given_are_the_ones_that_run(table):
    tasks = plan(table, SMALL).tasks
    run(table, tasks[:1], policy=SMALL)
    assert sorted(c.segments for c in table.snapshot().chunks()) == [1, 3, 3]


def test_what_the_queue_has_no_room_for_is_deferred_and_comes_back(table):
    narrow = Policy(
        target_bytes=4096, max_task_bytes=16_384, small_task_bytes=0, max_tasks=1, max_queue=1
    )
    everything = plan(table, SMALL).tasks
    report = run(table, everything, policy=narrow)
    assert (report.count("done"), len(report.shed)) == (1, 2)
    states = table.snapshot().meta.chunks
    assert {state.state for state in states.values()} == {"deferred"}
    assert sorted(states) == sorted(name for task in report.shed for name in task.chunks)
    while run(table, policy=narrow).planned:
        pass
    assert [chunk.segments for chunk in table.snapshot().chunks()] == [1, 1, 1]
    assert table.snapshot().meta.chunks == {}


def test_a_task_that_fails_stops_no_other_and_rests(table):
    lost = table.snapshot().segments(chunks="1970-01-02")[0]
    table.store.delete([keys.key_of(lost)])
    report = run(table, policy=SMALL)
    assert (report.count("done"), report.count("failed")) == (2, 1)
    (failed,) = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert "lost" in failed.error
    state = table.snapshot().meta.chunks["1970-01-02"]
    assert (state.state, state.failures) == ("unstable", 1)
    assert state.until > table.clock.now_ms()
    head = table.snapshot().version
    assert run(table, policy=SMALL).planned == 0  # it rests
    table.clock.advance(SMALL.backoff_ms(1) + 1)
    assert run(table, policy=SMALL).count("failed") == 1
    again = table.snapshot().meta.chunks["1970-01-02"]
    assert again.failures == 2
    assert again.until - table.clock.now_ms() > SMALL.backoff_ms(1)
    assert table.snapshot().version > head


def test_black_tasks_run_after_those_that_they_wait_for(tmp_path):
    """Days are cut into hours, together with hours that are there already."""
    t = create(LocalStore(tmp_path))
    for number in range(12):
        append(t, events(4, first=4 * number))
    t.set_granularity("hour")
    append(t, events(4, first=100))
    append(t, events(4, first=200))
    before = names(t)
    policy = Policy(
        target_bytes=2048, max_task_bytes=8192, small_task_bytes=0, granularity="hour", max_tasks=2
    )
    tasks = plan(t, policy).tasks
    assert any(task.color == "black" for task in tasks), [task.reason for task in tasks]
    report = run(t, policy=policy)
    assert {outcome.status for outcome in report.outcomes} == {"done"}
    assert names(t) == before
    assert {chunk.chunk.granularity for chunk in t.snapshot().chunks()} == {"hour"}


def test_late_rows_stay_beside_what_a_run_makes(table):
    tasks = plan(table, SMALL).tasks
    append(table, events(1, first=50))
    report = run(table, tasks, policy=SMALL)
    assert report.count("done") == 3
    assert names(table) == sorted(f"row {n}" for n in [*range(9), 50])
    assert [chunk.segments for chunk in table.snapshot().chunks()] == [2, 1, 1]
    assert [task.chunks for task in plan(table, SMALL).tasks] == [("1970-01-01",)]


def test_notes_of_two_runners_do_not_mix(table):
    first = plan(table, SMALL)
    assert first.since is None
    assert record(table, SMALL) is not None
    assert record(table, SMALL) is None  # it says that already
    assert plan(table, SMALL).since == table.snapshot().meta.analysed.version


def test_bad_arguments_are_refused(table):
    with pytest.raises(InvalidInput, match="local or spark"):
        run(table, driver="cluster")
    with pytest.raises(InvalidInput, match="target_bytes"):
        run(table, policy=Policy(target_bytes=1))
