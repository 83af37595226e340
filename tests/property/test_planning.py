"""The planner over random tables: deterministic, disjoint, and at rest after one round."""

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st
from support.planned_tables import PlannedTable

from eventlog.compaction.policy import Policy
from eventlog.model.chunks import parse_chunk

TARGET = 1024
POLICY = Policy(target_bytes=TARGET, max_task_bytes=8 * TARGET, small_task_bytes=TARGET // 2)

DAYS = [f"2013-01-{day:02}" for day in range(1, 6)] + ["2013-01-31", "2014-06-01"]
HOURS = [f"2013-01-0{day}T{hour:02}" for day in (1, 2, 3) for hour in (0, 1, 5, 23)]
MIXED = [*DAYS, *HOURS, "2013-01", "2013"]
SIZES = st.one_of(st.integers(1, 100), st.integers(1, 1100), st.integers(700, 9000))
COMMITS = st.lists(
    st.tuples(st.integers(0, 1000), st.lists(SIZES, min_size=1, max_size=12)), max_size=25
)
POLICIES = st.builds(
    Policy,
    target_bytes=st.just(TARGET),
    max_task_bytes=st.sampled_from([4 * TARGET, 8 * TARGET, 1000 * TARGET]),
    small_task_bytes=st.sampled_from([0, TARGET // 2, 3 * TARGET]),
    small_ratio=st.sampled_from([0.5, 0.75, 1.0]),
    min_gain=st.sampled_from([0.0, 0.5, 2.0]),
    granularity=st.sampled_from([None, None, "hour", "day", "month"]),
    order=st.sampled_from(["priority", "newest"]),
)


def table(commits, names, granularity="day", **options):
    made = PlannedTable(granularity, **options)
    for number, sizes in commits:
        made.add(names[number % len(names)], *sizes)
    return made


@given(COMMITS, POLICIES, st.integers(0, 2**40))
def test_a_plan_is_a_function_of_the_version(commits, policy, now_ms):
    made = table(commits, MIXED)
    first = made.plan(policy, now_ms)
    made.live = dict(sorted(made.live.items(), key=lambda item: item[0][::-1]))
    assert made.plan(policy, now_ms) == first


@given(COMMITS, POLICIES)
def test_tasks_share_no_segment_and_wait_only_for_those_before_them(commits, policy):
    plan = table(commits, MIXED).plan(policy)
    inputs = Counter(segment.id for task in plan.tasks for segment in task.inputs)
    assert not inputs or max(inputs.values()) == 1
    known = set()
    for task in plan.tasks:
        assert set(task.after) <= known
        known.add(task.id)
        assert 0 <= task.priority <= 1
        keys = [
            (parse_chunk(s.chunk).start, parse_chunk(s.chunk).end, s.version, s.partition)
            for s in task.inputs
        ]
        assert keys == sorted(keys)
    assert [t.priority for t in plan.tasks] == sorted(
        (t.priority for t in plan.tasks), reverse=True
    )


@given(COMMITS, POLICIES)
def test_tasks_keep_to_the_limit_and_leave_good_segments_alone(commits, policy):
    plan = table(commits, MIXED).plan(policy)
    for task in plan.tasks:
        assert task.bytes <= policy.max_task_bytes or len(task.inputs) == 1
        for segment in task.inputs:
            good = policy.good_bytes <= segment.bytes <= policy.target_bytes
            foreign = parse_chunk(segment.chunk).granularity != plan.granularity
            assert not good or (foreign and policy.granularity)


@given(COMMITS, POLICIES)
def test_two_tasks_of_one_time_without_order_are_parts_of_one_chunk(commits, policy):
    plan = table(commits, MIXED).plan(policy)
    reds = [task for task in plan.tasks if task.color == "red"]
    for index, a in enumerate(reds):
        for b in reds[index + 1 :]:
            if "; part" not in a.reason and policy.granularity is not None:
                assert not any(
                    parse_chunk(x).overlaps(parse_chunk(y).start, parse_chunk(y).end)
                    for x in a.chunks
                    for y in b.chunks
                )


@given(COMMITS, POLICIES, st.sampled_from([0.5, 0.97, 1.0, 1.1]))
def test_after_one_round_nothing_is_left_to_do(commits, policy, shrink):
    made = table(commits, MIXED, shrink=shrink)
    rows = made.rows()
    plan = made.plan(policy)
    # What was cut into several tasks leaves pieces, and may need other rounds to join them.
    rounds = 12 if any("; part" in task.reason for task in plan.tasks) else 1
    for _ in range(rounds):
        results = made.run(policy)
        assert all(result.end == "done" for result in results)
        if not made.plan(policy).tasks:
            break
    assert made.rows() == rows
    assert made.plan(policy).tasks == ()
    assert made.plan(policy).skipped == ()


@given(COMMITS)
def test_without_a_granularity_parts_of_a_chunk_are_at_rest_after_one_round(commits):
    made = table(commits, DAYS)
    assume(made.plan(POLICY).tasks)
    made.run(POLICY)
    assert made.plan(POLICY).tasks == ()


@given(COMMITS, POLICIES, st.data())
def test_after_a_crash_only_what_was_not_done_is_planned(commits, policy, data):
    made = table(commits, MIXED)
    plan = made.plan(policy)
    assume(len(plan.tasks) > 1)
    reds = [task for task in plan.tasks if task.color == "red"]
    done = data.draw(st.lists(st.sampled_from(reds), unique_by=lambda task: task.id))
    for task in done:
        assert made.finish(task, policy).end == "done"
    again = made.plan(policy)
    fresh = {task.id for task in again.tasks}
    assert fresh.isdisjoint(task.id for task in done)
    # What is planned of other chunks is what was planned before, segment by segment.
    touched = {name for task in done for name in task.chunks}
    before = {s.id for t in plan.tasks if touched.isdisjoint(t.chunks) for s in t.inputs}
    after = {s.id for t in again.tasks if touched.isdisjoint(t.chunks) for s in t.inputs}
    if not policy.granularity:
        assert {i for i in before if i in made.live} >= after - {
            s.id for t in plan.tasks for s in t.inputs
        }
        assert after <= {s.id for t in plan.tasks for s in t.inputs}


@given(COMMITS, st.integers(0, 1000), st.integers(1, 700))
def test_a_late_segment_makes_exactly_its_chunk_unstable(commits, number, size):
    made = table(commits, DAYS)
    made.run(POLICY)
    chunk = DAYS[number % len(DAYS)]
    before = {v.chunk: v for v in made.plan(POLICY).verdicts}
    made.add(chunk, size, size)
    after = {v.chunk: v for v in made.plan(POLICY).verdicts}
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {chunk}
    assert after[chunk].act == ("compact" if after[chunk].saved else "stable")
    assert {v.chunk for v in after.values() if v.act == "compact"} <= {chunk}
