"""The queue: order, limits, dependants, shedding; and a day of overload (scenario S3.4)."""

import pytest
from bench.queue_load import Load, draw, main, simulate
from msgspec.structs import replace

from eventlog.compaction.planner.queueing import Queue
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.model.entries import Segment

POLICY = Policy(max_tasks=3, max_running_bytes=100, max_queue=5)


def task(name, priority=0.5, size=10, *, after=(), shares=None):
    segment = f"{shares or name:>032}".replace(" ", "0")
    inputs = (Segment(segment, "2013-01-07", 0, 1, 0, 1, size, "ab" * 32, 1),)
    return Task(name, 1, "day", ("2013-01-07",), inputs, priority, "by hand", after)


def names(tasks):
    return [task.id for task in tasks]


def queue(*tasks, **settings):
    made = Queue(replace(POLICY, **settings))
    assert made.offer(tasks) == []
    return made


def test_the_greatest_priority_goes_first_and_of_equals_the_first():
    made = queue(task("a", 0.1), task("b", 0.9), task("c", 0.5), task("d", 0.9), max_tasks=2)
    assert names(made.waiting) == ["b", "d", "c", "a"]
    assert names(made.launch()) == ["b", "d"]
    assert names(made.launch()) == []
    assert made.complete("d") == []
    assert names(made.launch()) == ["c"]
    assert names(made.running) == ["b", "c"]
    assert len(made) == 1


def test_the_limit_of_bytes_holds_and_completion_frees_it():
    made = queue(task("a", 0.9, 60), task("b", 0.8, 40), task("c", 0.7, 1))
    assert names(made.launch()) == ["a", "b"]
    assert made.running_bytes == 100
    made.complete("b")
    assert names(made.launch()) == ["c"]


def test_a_task_above_the_limit_runs_alone():
    made = queue(task("huge", 0.9, 1000), task("b", 0.8))
    assert names(made.launch()) == ["huge"]
    made.complete("huge")
    assert names(made.launch()) == ["b"]


def test_nothing_goes_before_a_task_that_waits_for_room():
    made = queue(task("a", 0.9, 60), task("huge", 0.8, 90), task("small", 0.7, 1))
    assert names(made.launch()) == ["a"]
    made.offer([task("late", 0.75, 1)])
    assert names(made.launch()) == []
    made.complete("a")
    assert names(made.launch()) == ["huge", "late", "small"]


def test_black_tasks_wait_for_all_that_they_name():
    made = queue(
        task("black", 0.9, after=("r1", "r2")), task("r1", 0.5), task("r2", 0.4), task("other", 0.1)
    )
    assert names(made.launch()) == ["r1", "r2", "other"]
    made.complete("r1")
    assert names(made.launch()) == []
    made.complete("r2")
    assert names(made.launch()) == ["black"]


def test_a_black_task_whose_reds_are_unknown_may_run():
    assert names(queue(task("black", after=("gone",))).launch()) == ["black"]


def test_what_waits_for_a_task_that_fails_is_cancelled():
    made = queue(task("a"), task("b", after=("a",)), task("c", after=("b",)), task("d"))
    made.launch()
    assert names(made.complete("a", ok=False)) == ["b", "c"]
    assert (len(made), names(made.running)) == (0, ["d"])
    assert made.complete("a", ok=False) == []  # completed twice
    assert made.complete("never there") == []


def test_above_its_length_the_lowest_priorities_are_shed():
    made = Queue(POLICY)
    shed = made.offer([task(f"t{n}", n / 10) for n in range(8)])
    assert sorted(names(shed)) == ["t0", "t1", "t2"]
    assert names(made.offer([task("low", 0.0)])) == ["low"]
    assert names(made.offer([task("high", 1.0)])) == ["t3"]
    assert len(made) == 5


def test_of_equals_the_latest_is_shed():
    made = queue(*(task(f"t{n}") for n in range(5)))
    assert names(made.offer([task("late")])) == ["late"]


def test_what_waits_for_a_task_that_is_shed_goes_with_it():
    made = queue(task("red", 0.1), task("black", 0.1, after=("red",)), task("x", 0.9), task("y"))
    shed = made.offer([task("p", 0.8), task("q", 0.8)])
    assert names(shed) == ["black"]
    shed = made.offer([task("z", 0.7)])
    assert names(shed) == ["red"]
    made = queue(task("red", 0.1), task("black", 0.2, after=("red",)), task("x"), task("y"))
    assert names(made.offer([task("p"), task("q")])) == ["red", "black"]
    assert len(made) == 4


def test_offered_again_a_task_takes_its_new_priority_and_is_there_once():
    made = queue(task("a", 0.1), task("b", 0.5))
    made.offer([task("a", 0.9)])
    assert names(made.waiting) == ["a", "b"]


def test_a_task_over_segments_of_one_that_waits_takes_its_place():
    made = queue(task("old", shares="5"), task("b"))
    assert made.offer([task("new", shares="5")]) == []
    assert sorted(names(made.waiting)) == ["b", "new"]


def test_a_task_over_segments_of_one_that_runs_is_left_to_the_next_plan():
    made = queue(task("old", shares="5"))
    made.launch()
    assert made.offer([task("new", shares="5"), task("old", shares="5")]) == []
    assert len(made) == 0
    made.complete("old")
    made.offer([task("new", shares="5")])
    assert names(made.waiting) == ["new"]


# -------------------------------------------------------------------------------- a day of overload

LOAD = Load(hours=12, busy=(1, 4), last=9, chunks=120, uploads=(0.3, 2.5), every=10)
SMALL = Policy(max_tasks=3, max_queue=20, small_task_bytes=0, ageing_versions=20_000)


@pytest.fixture(scope="module")
def trace():
    return simulate(SMALL, LOAD)


@pytest.mark.verify
@pytest.mark.scenario("S3.4")
def test_s3_4_the_queue_is_bounded_under_overload(trace):
    busy = trace.waiting[2 * 60 : 4 * 60]
    assert max(trace.waiting) == SMALL.max_queue
    assert min(busy) > SMALL.max_queue / 2
    assert max(trace.running) == SMALL.max_tasks
    # More arrives than is compacted: else nothing was tested.
    assert trace.uploads[4 * 60] - trace.uploads[60] > 2 * (trace.ended[4 * 60] - trace.ended[60])


def test_s3_4_the_highest_priorities_are_served_and_the_lowest_deferred(trace):
    assert len(trace.shed) > 20
    assert all(priority <= least for _, priority, least in trace.shed)
    minutes = {minute for minute, *_ in trace.shed}
    served = [p for minute, p in trace.launched if min(minutes) <= minute <= max(minutes)]
    cancelled = [p for _, p, _ in trace.shed]
    assert sum(served) / len(served) > 1.3 * sum(cancelled) / len(cancelled)
    assert max(trace.deferred) > SMALL.max_queue


@pytest.mark.scenario("S3.4")
def test_s3_4_all_of_it_is_recovered_when_the_load_falls(trace):
    assert trace.deferred[-1] == trace.waiting[-1] == trace.running[-1] == trace.left == 0


def test_one_load_gives_one_day():
    short = Load(hours=2, busy=(0, 1), last=2, chunks=30, every=20)
    assert simulate(SMALL, short) == simulate(SMALL, short)
    assert simulate(SMALL, short) != simulate(SMALL, replace_seed(short))


def replace_seed(load):
    return Load(**{n: getattr(load, n) for n in load.__slots__ if n != "seed"}, seed=2)


@pytest.mark.verify
def test_s3_4_the_picture_is_drawn(trace, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "queue.png"
    draw(trace, SMALL, LOAD, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert 10_000 < path.stat().st_size < 100_000


def test_the_program_of_the_picture_has_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--out" in capsys.readouterr().out
