"""The runner: limits, black tasks, failures, progress, notes in the log."""

import threading

import pytest
from support.builders import Spy, create, events

import eventlog.compaction.spark
from eventlog import Table
from eventlog.compaction import Policy, plan, run, runner
from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.planner.assessing import record
from eventlog.compaction.policy import GIB
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.writers import append

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


def test_a_run_does_not_wait_until_its_notes_win_a_slot():
    """Beside a writer that commits without a pause a note would lose for minutes."""
    table = create()
    append(table, events(3, days=3))
    spy, others = Spy(table.store), []

    def first(key):
        if keys.parse_log_key(key) and len(others) < 50:
            others.append(append(table, events(1, first=100 + len(others))))

    spy.before_put = first
    report = run(Table(spy, table.clock), policy=SMALL)
    assert (report.planned, report.noted) == (0, None)
    assert 1 < len(others) < 20
    spy.before_put = lambda key: None
    report = run(Table(spy, table.clock), policy=SMALL)
    assert report.count("done") == 1
    assert report.noted is not None


def test_bad_arguments_are_refused(table):
    with pytest.raises(InvalidInput, match="local or spark"):
        run(table, driver="cluster")
    with pytest.raises(InvalidInput, match="target_bytes"):
        run(table, policy=Policy(target_bytes=1))


# ------------------------------------------------------------------------------ what goes wrong


def chunk_of(task):
    (name,) = task.chunks
    return name


def state_of(t, name):
    state = t.snapshot().meta.chunks.get(name)
    return None if state is None else (state.state, state.failures)


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_what_nobody_expected_of_a_task_stops_no_other(table, monkeypatch, kind):
    def raises(t, task, policy, **rest):
        if chunk_of(task) == "1970-01-02":
            raise kind("a" + 5000 * " very long" + " story: the cause")
        return perform(t, task, policy, **rest)

    monkeypatch.setattr(runner, "perform", raises)
    report = run(table, policy=SMALL)
    assert (report.count("done"), report.count("failed")) == (2, 1)
    (failed,) = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert failed.error.startswith(f"{kind.__name__}: a very long")
    assert failed.error.endswith("the cause")
    assert len(failed.error) <= 500
    assert report.noted == table.snapshot().version
    assert state_of(table, "1970-01-02") == ("unstable", 1)
    table.clock.advance(SMALL.backoff_ms(1) + 1)
    monkeypatch.undo()
    assert run(table, policy=SMALL).count("done") == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_is_interrupted_notes_what_ended(table, interrupt):
    """The first of three tasks fails; what interrupts the run comes right after it."""
    first = plan(table, SMALL).tasks[0]
    table.store.delete([keys.key_of(first.inputs[0])])
    one = Policy(target_bytes=4096, max_task_bytes=16_384, small_task_bytes=0, max_tasks=1)

    def progress(_what, done, _total):
        if done >= first.bytes:
            raise interrupt

    with pytest.raises(interrupt):
        run(table, policy=one, progress=progress)
    assert state_of(table, chunk_of(first)) == ("unstable", 1)
    assert sorted(c.segments for c in table.snapshot().chunks()) == [3, 3, 3]
    assert run(table, policy=one).count("done") == 2  # the first one rests


@pytest.mark.timeout(60)
def test_an_interruption_stops_the_tasks_that_run_without_a_mark_on_them(table, monkeypatch):
    """One task would go on for ever; another ends, and then the run is interrupted."""
    going, never = threading.Event(), threading.Event()

    def endless(t, task, policy, *, progress):
        if chunk_of(task) == "1970-01-02":
            while True:
                progress("rows", 1, 10)
                going.set()
                never.wait(0.01)
        going.wait(240)
        return perform(t, task, policy, progress=progress)

    def stop(*_):
        if "1970-01-01" in compacted(table):
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "perform", endless)
    with pytest.raises(KeyboardInterrupt):
        run(table, policy=SMALL, progress=stop)
    assert "1970-01-02" not in compacted(table)
    assert state_of(table, "1970-01-02") == ("unstable", 0)
    assert table.snapshot().meta.analysed is not None
    monkeypatch.undo()
    assert run(table, policy=SMALL).count("failed") == 0
    assert len(compacted(table)) == 3


@pytest.mark.timeout(60)
def test_what_an_interruption_cannot_stop_any_more_is_waited_for(table, monkeypatch):
    """One task is past its last row when the run is interrupted: it counts in the notes."""
    interrupted = threading.Event()

    def late(t, task, policy, *, progress):
        if chunk_of(task) != "1970-01-02":
            return perform(t, task, policy, progress=progress)
        assert interrupted.wait(240)
        return perform(t, task, policy)

    def stop(*_):
        if compacted(table):
            interrupted.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "perform", late)
    with pytest.raises(KeyboardInterrupt):
        run(table, policy=SMALL, progress=stop)
    assert "1970-01-02" in compacted(table)
    assert next(iter(table.history())).operation == "assess"


def compacted(t):
    return {c.chunk.name for c in t.refresh().chunks() if c.segments == 1}


def test_a_task_that_runs_moves_the_bar(table):
    """All chunks in one task: the bar moves while it runs, never back, in the caller's thread."""
    seen, threads = [], set()

    def progress(what, done, total):
        seen.append((what, done, total))
        threads.add(threading.get_ident())

    report = run(table, policy=Policy(), progress=progress)
    (outcome,) = report.outcomes
    total = outcome.bytes_in
    assert {(what, of) for what, _, of in seen} == {("bytes", total)}
    done = [at for _, at, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    assert any(0 < at < total for at in done), done
    assert threads == {threading.get_ident()}


# ------------------------------------------------------------------------------ driver spark


class Session:
    """What says nothing of itself, as a session of Spark Connect does."""


def on_spark(monkeypatch, performing):
    monkeypatch.setattr(
        eventlog.compaction.spark,
        "perform_on",
        lambda _, t, task, policy: performing(t, task, policy),
    )


def test_a_job_that_fails_is_a_failed_task_and_no_end_of_the_run(table, monkeypatch):
    trace = "\n".join(f"\tat org.apache.spark.Frame{n}(Frame.scala:{n})" for n in range(50))

    def fails(t, task, policy):
        if chunk_of(task) == "1970-01-03":
            raise RuntimeError(f"Job aborted\n: SparkException: executor lost\n{trace}")
        return perform(t, task, policy)

    on_spark(monkeypatch, fails)
    report = run(table, driver="spark", spark=Session(), policy=SMALL)
    assert (report.count("done"), report.count("failed")) == (2, 1)
    (failed,) = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert failed.error == "RuntimeError: Job aborted : SparkException: executor lost"
    assert failed.bytes_in > 0
    assert state_of(table, "1970-01-03") == ("unstable", 1)


@pytest.mark.timeout(60)
def test_a_job_starts_when_any_other_ends(table, monkeypatch):
    """Of two at once the first waits until the third has begun: they are no waves."""
    first, second, third = plan(table, SMALL).tasks
    begun = threading.Event()

    def waits(t, task, policy):
        if task == third:
            begun.set()
        if task == first and not begun.wait(240):
            raise AssertionError("the third did not begin before the first ended")
        return perform(t, task, policy)

    on_spark(monkeypatch, waits)
    report = run(table, driver="spark", spark=Session(), policy=SMALL)
    assert [outcome.error for outcome in report.outcomes] == [None] * 3
    assert report.outcomes[0].task == second.id


@pytest.mark.parametrize(("at_once", "expected"), [(2, 2), (3, 3)])
def test_no_more_jobs_run_at_once_than_the_policy_says(tmp_path, monkeypatch, at_once, expected):
    t = create(LocalStore(tmp_path))
    for number in range(2):
        append(t, events(6, days=6, first=6 * number))
    lock, running, most = threading.Lock(), set(), []
    meet = threading.Barrier(expected, timeout=240)

    def counts(_t, task, _policy):
        with lock:
            running.add(task.id)
            most.append(len(running))
        meet.wait()
        with lock:
            running.discard(task.id)
        return Outcome(task=task.id, status="superseded")

    on_spark(monkeypatch, counts)
    policy = Policy(small_task_bytes=0, max_tasks=at_once)
    assert run(t, driver="spark", spark=Session(), policy=policy).count("superseded") == 6
    assert max(most) == expected


def test_executors_take_as_many_at_once_as_the_session_says():
    usual = Policy()
    assert runner.limits_on(usual, None) == usual
    assert runner.limits_on(usual, 2) == usual
    wide = runner.limits_on(usual, 40)
    assert (wide.max_tasks, wide.max_running_bytes) == (40, 80 * GIB)
    assert runner.limits_on(usual, 10**6).check().max_tasks == 10_000
    # What somebody chose stays.
    for chosen in (Policy(max_tasks=2), Policy(max_tasks=50)):
        assert runner.limits_on(chosen, 40) == chosen
    bounded = runner.limits_on(Policy(max_running_bytes=GIB), 40)
    assert (bounded.max_tasks, bounded.max_running_bytes) == (40, GIB)
