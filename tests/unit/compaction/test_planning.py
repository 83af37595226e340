"""Tasks from chunks, what the log is told, how little a plan reads (scenarios S3.2 to S3.6)."""

import pytest
from support.builders import add, commit, create, reopen
from support.deleting import delete_rows
from support.planned_tables import TABLE, PlannedTable

from eventlog.compaction.planner.assessing import REFRESH, Result, noted, record
from eventlog.compaction.planner.candidates import MAX_INPUTS
from eventlog.compaction.planner.chunk_planning import known_of
from eventlog.compaction.planner.planning import explain, plan
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import decode_tasks, encode_tasks, task_id
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Analysed, ChunkState
from eventlog.state.delta import drop_of
from eventlog.state.small.assessment import MAX_STATES
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

T = 100_000
POLICY = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0)
DAY = "2013-01-07"


def tasks(made, policy=POLICY, **options):
    return made.plan(policy, **options).tasks


def days(count):
    return [f"2013-{month:02}-{day:02}" for month in (1, 3, 5) for day in range(1, 32)][:count]


# -------------------------------------------------------------------------------------- candidates


def test_a_task_names_its_inputs_in_order_and_its_id_follows_from_them():
    made = PlannedTable()
    first = made.add(DAY, 5, 7)
    second = made.add(DAY, 6)
    (task,) = tasks(made)
    assert task.inputs == (*first, *second)
    assert task.id == task_id(TABLE, "day", [(s.id, s.version) for s in task.inputs])
    # What came back in a restore is another input, and its rewrite another transaction.
    assert task.id != task_id(TABLE, "day", [(s.id, s.version + 1) for s in task.inputs])
    assert (task.version, task.granularity, task.chunks) == (2, "day", (DAY,))
    assert (task.bytes, task.rows, task.color) == (18, 3000, "red")
    assert decode_tasks(encode_tasks([task])) == [task]
    made.add("2013-01-08", 1, 1)
    assert task.id in {other.id for other in tasks(made)}


def test_text_that_is_no_task_is_refused():
    for body in (b"", b"{}", b'[{"id": 1}]', b"\xff"):
        with pytest.raises(InvalidInput, match="not tasks"):
            decode_tasks(body)


def test_stable_and_empty_chunks_give_no_task():
    made = PlannedTable()
    made.add("2013-01-01", T, T)
    made.add("2013-01-02", 10)
    made.add("2013-01-03", 10, 10, rows=0)
    assert tasks(made) == ()
    assert [verdict.act for verdict in made.plan(POLICY).verdicts] == ["stable", "stable", "empty"]


def test_small_neighbours_are_joined_until_they_are_no_longer_small():
    made = PlannedTable()
    for day in days(6):
        made.add(day, 1000, 1000)
    joined = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=4001)
    assert [task.chunks for task in tasks(made, joined)] == [
        tuple(days(6)[:3]), tuple(days(6)[3:]),
    ]  # fmt: skip
    assert len(tasks(made)) == 6
    assert "3 chunks (small 3): rewriting 6 segments into 3" in tasks(made, joined)[0].reason


def test_large_neighbours_are_not_joined():
    made = PlannedTable()
    for day in days(2):
        made.add(day, *[7000] * 10)
    joined = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=70_000)
    assert len(tasks(made, joined)) == 2


def test_a_chunk_above_the_limit_is_cut_into_runs_that_come_out_full():
    made = PlannedTable()
    for _ in range(100):
        made.add(DAY, *[1000] * 100)
    found = tasks(made)
    inputs = sorted((s for task in found for s in task.inputs), key=lambda s: s.id)
    assert inputs == list(made.live.values())
    assert len(found) == 10
    for task in found:
        assert task.color == "red"
        assert task.bytes == 10 * T
        positions = [(s.version, s.partition) for s in task.inputs]
        assert positions == sorted(positions)
    assert {task.reason.rsplit("; ", 2)[1] for task in found} >= {"part 1 of 10, 1,000 segments"}
    for task in found:
        made.finish(task, POLICY)
    assert [s.bytes for s in made.live.values()] == [T] * 100
    assert tasks(made) == ()


def test_a_run_ends_where_its_outputs_are_fullest():
    made = PlannedTable()
    made.add(DAY, *[60_000] * 40)  # 16 fit a task, but 15 make nine segments that are full
    found = tasks(made)
    assert sorted(len(task.inputs) for task in found) == [10, 15, 15]
    for task in found:
        made.finish(task, POLICY)
    assert {s.bytes for s in made.live.values()} == {T}
    assert tasks(made) == ()


def test_a_task_names_a_bounded_number_of_inputs():
    made = PlannedTable()
    made.add(DAY, *[1] * (MAX_INPUTS + 500))
    assert sorted(len(task.inputs) for task in tasks(made)) == [500, MAX_INPUTS]


def test_a_segment_above_the_limit_is_a_task_of_its_own():
    made = PlannedTable()
    made.add(DAY, 35 * T, 10, 10, 20 * T)
    assert sorted((len(t.inputs), t.bytes) for t in tasks(made)) == [
        (1, 20 * T), (1, 35 * T), (2, 20),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- granularity

BY_DAY = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0, granularity="day")
BY_HOUR = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0, granularity="hour")


def test_hours_become_days():
    made = PlannedTable("hour")
    for hour in range(24):
        made.add(f"{DAY}T{hour:02}", 100)
    (task,) = tasks(made, BY_DAY)
    assert (task.granularity, task.chunks, len(task.inputs)) == ("day", (DAY,), 24)
    made.run(BY_DAY)
    assert {s.chunk for s in made.live.values()} == {DAY}
    assert tasks(made, BY_DAY) == ()
    assert tasks(made) == ()  # and without a granularity nothing is cut back into hours


def test_a_coarse_segment_takes_along_what_it_covers_and_leaves_good_ones():
    made = PlannedTable("hour")
    made.add(DAY, 600)
    small = made.add(f"{DAY}T05", 100)
    good = made.add(f"{DAY}T06", 80_000)
    (task,) = tasks(made, BY_HOUR)
    assert task.granularity == "hour"
    assert {s.id for s in task.inputs} == {s.id for s in made.live.values()} - {good[0].id}
    assert small[0] in task.inputs
    made.run(BY_HOUR)
    assert {parse_chunk(s.chunk).granularity for s in made.live.values()} == {"hour"}
    assert tasks(made, BY_HOUR) == ()


def test_above_the_limit_the_coarse_are_red_and_what_lies_below_is_black():
    made = PlannedTable("hour")
    made.add(DAY, 9 * T, 5 * T)
    made.add(f"{DAY}T00", *[9000] * 90)
    made.add(f"{DAY}T07", 10, 10)
    found = tasks(made, BY_HOUR)
    reds = {task.id for task in found if task.color == "red"}
    blacks = [task for task in found if task.color == "black"]
    assert len(reds) == 2
    assert {task.chunks for task in blacks} == {(f"{DAY}T00",), (f"{DAY}T07",)}
    assert all(set(task.after) == reds for task in blacks)


def test_a_black_task_takes_in_what_it_waited_for():
    made = PlannedTable("hour")
    made.add(DAY, 600)
    made.add(f"{DAY}T00", *[9000] * 90)
    made.add(f"{DAY}T07", *[9000] * 90)
    red, *blacks = tasks(made, BY_HOUR)
    assert [task.color for task in (red, *blacks)] == ["red", "black", "black"]
    made.finish(red, BY_HOUR)
    first = next(task for task in blacks if task.chunks == (f"{DAY}T00",))
    renewed = made.renewed(first, BY_HOUR)
    assert renewed.color == "red"
    assert set(first.inputs) < set(renewed.inputs)
    assert renewed.id != first.id
    made.finish(renewed, BY_HOUR)
    assert made.renewed(first, BY_HOUR) is None


def test_a_task_waits_only_for_those_that_reach_into_its_chunks():
    made = PlannedTable("hour")
    for day in ("2013-01-07", "2013-01-08"):
        made.add(day, 9 * T)
        made.add(f"{day}T03", *[9000] * 90)
    by_day = {task.chunks[0][:10]: task.id for task in tasks(made, BY_HOUR) if not task.after}
    for task in tasks(made, BY_HOUR):
        if task.after:
            assert task.after == (by_day[task.chunks[0][:10]],)


# ----------------------------------------------------------------------------------- order, queue


def test_newest_first_puts_the_latest_chunks_first_until_others_are_old():
    policy = Policy(
        target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0, order="newest",
        ageing_versions=50,
    )  # fmt: skip
    made = PlannedTable()
    for day in ("2013-01-03", "2013-01-01", "2013-01-02"):
        made.add(day, *[10] * (2 if day == "2013-01-03" else 50))
    now = parse_chunk("2013-01-04").start
    chunks = [task.chunks[0] for task in tasks(made, policy, now_ms=now)]
    assert chunks == ["2013-01-03", "2013-01-02", "2013-01-01"]
    made.version += 49
    oldest = tasks(made, policy, now_ms=now)[0]
    assert (oldest.chunks, oldest.priority) == (("2013-01-03",), 1.0)  # it changed first


def test_no_stream_of_urgent_chunks_keeps_an_old_one_waiting():
    policy = Policy(
        target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0, ageing_versions=20, max_queue=1
    )
    made = PlannedTable()
    made.add("2013-01-01", 60_000, 30_000)  # little to gain
    runs = []
    for day in days(31)[1:]:
        made.add(day, *[1] * 50)
        runs += [result.task.chunks for result in made.run(policy)]
    assert ("2013-01-01",) in runs
    assert 5 < runs.index(("2013-01-01",)) < 25


def test_what_the_queue_cannot_take_is_shed_and_comes_back():
    policy = Policy(target_bytes=T, max_task_bytes=10 * T, small_task_bytes=0, max_queue=4)
    made = PlannedTable()
    for number, day in enumerate(days(10)):
        made.add(day, *[10] * (20 - number))
    planned = made.plan(policy)
    assert [task.chunks[0] for task in planned.tasks] == days(4)
    assert [(s.chunk, s.why) for s in planned.skipped] == [(d, "shed") for d in days(10)[4:]]
    made.note([], policy)
    states = made.meta.chunks
    assert {n for n, s in states.items() if s.state == "deferred"} == set(days(10)[4:])
    # While the queue is more than half full, what was deferred is not looked for a place again.
    again = made.plan(policy)
    assert [s.why for s in again.skipped] == ["deferred"] * 6
    for task in again.tasks:
        made.finish(task, policy)
    rest = made.plan(policy)
    assert [task.chunks[0] for task in rest.tasks] == days(10)[4:8]
    while made.run(policy):
        pass
    assert made.meta.chunks == {}
    assert made.plan(policy).verdicts[9].act == "stable"


@pytest.mark.hazard("K8")
def test_a_chunk_whose_task_fails_rests_longer_each_time_and_then_runs_alone():
    policy = Policy(target_bytes=T, max_task_bytes=10 * T, backoff_s=60, max_backoff_s=100)
    made = PlannedTable()
    made.add("2013-01-01", 10, 10)
    made.add("2013-01-02", 10, 10)
    (both,) = tasks(made, policy)
    made.note([Result(both, "failed")], policy, now_ms=1000)
    assert {s.until for s in made.meta.chunks.values()} == {61_000}
    resting = made.plan(policy, now_ms=60_999)
    assert (resting.tasks, {s.why for s in resting.skipped}) == ((), {"back-off"})
    made.add("2013-01-02", 10)  # a change does not end it
    assert made.plan(policy, now_ms=60_999).tasks == ()
    one, two = sorted(tasks(made, policy, now_ms=61_000), key=lambda task: task.chunks)
    assert (one.chunks, two.chunks) == (("2013-01-01",), ("2013-01-02",))
    made.note([Result(one, "failed"), made.finish(two, policy)], policy, now_ms=61_000)
    assert made.meta.chunks == {"2013-01-01": ChunkState("unstable", 1, 2, 2, 161_000)}
    made.note([made.finish(one, policy)], policy, now_ms=200_000)
    assert made.meta.chunks == {}


# ------------------------------------------------------------------------------------ fixed points


@pytest.mark.hazard("K8")
def test_a_chunk_noted_as_stable_is_due_once_many_of_its_rows_are_deleted():
    made = PlannedTable(shrink=0.55)
    made.add(DAY, *[30_000] * 40)
    cut = Policy(target_bytes=T, max_task_bytes=20 * T)
    (result,) = made.run(cut)
    noted = made.meta.chunks[DAY]
    segment = made.live[result.made[0]]
    made.delete(segment, segment.rows // 10)  # few: it was not worth a rewrite before, either
    assert made.plan(cut).verdicts[0].rule == "rewritten"
    made.delete(segment, segment.rows // 2)
    assert made.plan(cut).verdicts[0].rule == "deleted"
    assert made.meta.chunks[DAY] == noted
    (again,) = made.run(cut)
    assert segment.id in {s.id for s in again.task.inputs}
    assert not any(s.live_rows < s.rows for s in made.live.values())
    assert made.plan(cut).tasks == ()


@pytest.mark.hazard("K8")
def test_what_a_task_made_is_not_stable_if_many_rows_were_deleted_meanwhile():
    made = PlannedTable()
    made.add(DAY, *[30_000] * 4)
    policy = Policy(target_bytes=T, max_task_bytes=20 * T)
    (task,) = tasks(made, policy)
    result = made.finish(task, policy)
    for name in result.made:
        made.delete(made.live[name], made.live[name].rows // 2)
    made.note([result], policy)
    assert made.meta.chunks[DAY].state == "unstable"
    assert len(tasks(made, policy)) == 1


@pytest.mark.hazard("K8")
def test_what_a_task_left_is_stable_whatever_its_sizes():
    made = PlannedTable(shrink=0.55)
    made.add(DAY, *[30_000] * 40)
    made.add("2013-01-08", 10)
    cut = Policy(target_bytes=T, max_task_bytes=20 * T)
    (result,) = made.run(cut)
    assert len(made.live) == 13
    assert made.meta.chunks[DAY] == ChunkState("stable", made.live[result.made[0]].version, 12)
    held = made.plan(cut)
    assert held.tasks == ()
    assert [verdict.rule for verdict in held.verdicts] == ["rewritten", "one"]
    made.add(DAY, 10)
    assert len(tasks(made, cut)) == 1
    other = Policy(target_bytes=T, max_task_bytes=20 * T, small_ratio=0.8)
    made.live.popitem()
    assert len(tasks(made, other)) == 1  # under another policy the note counts for nothing


def test_what_arrived_meanwhile_is_not_taken_for_rewritten():
    made = PlannedTable(shrink=0.55)
    made.add(DAY, *[30_000] * 20)
    (task,) = tasks(made)
    late = made.add(DAY, 10)
    made.note([made.finish(task, POLICY)], POLICY)
    assert made.meta.chunks[DAY].state == "unstable"
    assert late[0] in tasks(made)[0].inputs


def test_after_a_crash_only_what_was_not_done_is_planned():
    made = PlannedTable()
    for day in days(20):
        made.add(day, *[10] * 5)
    before = tasks(made)
    for task in before[:7]:
        made.finish(task, POLICY)
    assert {task.id for task in tasks(made)} == {task.id for task in before[7:]}
    assert made.finish(before[0], POLICY).end == "superseded"


def test_states_that_do_not_fit_are_not_taken_for_stable():
    made = PlannedTable()
    for number in range(MAX_STATES + 20):
        made.add(f"{1000 + number}-01-01", *[10] * (3 if number % 2 else 9))
    made.note([], POLICY)
    assert len(made.meta.chunks) == MAX_STATES
    assert made.meta.analysed == Analysed(0, POLICY.digest("day"))
    kept = [
        number for number in range(MAX_STATES + 20) if f"{1000 + number}-01-01" in made.meta.chunks
    ]
    assert sum(number % 2 for number in kept) == MAX_STATES // 2 - 10  # the urgent ones are kept
    assert made.plan(POLICY).skipped == ()
    assert len(made.plan(POLICY).tasks) == MAX_STATES + 20


def test_nothing_new_is_noted_once():
    made = PlannedTable()
    made.add(DAY, 10)
    made.note([], POLICY)
    version = made.version
    assert made.meta.analysed == Analysed(1, POLICY.digest("day"))
    made.note([], POLICY)
    assert made.version == version
    made.version += REFRESH
    made.note([], POLICY)
    assert made.meta.analysed == Analysed(version + REFRESH, POLICY.digest("day"))


def test_a_note_is_taken_back_when_its_chunk_is_gone():
    made = PlannedTable()
    made.add(DAY, 10, 10)
    made.note([], POLICY)
    assert made.meta.chunks.keys() == {DAY}
    made.live.clear()
    made.version += 1
    action = noted(made.plan(POLICY), made.known())
    assert [(c.chunk, c.state) for c in action.chunks] == [(DAY, None)]


# ------------------------------------------------------------------------------------ over the log


def test_a_plan_at_a_past_version_never_changes():
    table = create(MemoryStore("memory://past"))
    for number in range(6):
        commit(table, add(table, "2013-01-07"), add(table, f"2013-01-0{number % 3 + 1}"))
    first = [plan(table, version=v) for v in range(table.session.head().version + 1)]
    record(table, Policy())
    commit(table, add(table, "2013-01-09"))
    again = reopen(table.store)
    assert [plan(again, version=v) for v in range(7)] == first[:7]
    with pytest.raises(VersionNotFound):
        plan(table, version=99)


def test_only_what_changed_is_read_again():
    properties = {"keyframe_commits": "1000"}
    table = create(MemoryStore("memory://changed"), granularity="day", properties=properties)
    names = [f"{year}-{month:02}-{day:02}" for year in range(1990, 2000) for month in range(1, 13)
             for day in range(1, 29)]  # fmt: skip
    commit(table, *(add(table, name, rows=10**4) for name in names))
    table.write_keyframe()
    commit(table, add(table, names[0]))
    assert record(table, Policy()) is not None
    late = "1994-05-05"
    commit(table, add(table, late))
    store = CountingStore(table.store)
    fresh = reopen(store)
    with store.measure() as counts:
        found = plan(fresh, Policy())
    assert found.since == 2
    assert [verdict.chunk for verdict in found.verdicts] == [names[0], late]
    # News, the commit that was analysed, and the two leaves that changed.
    assert counts.get == 4
    assert counts.list == counts.head == 0
    leaves = len(table.session.head().base.leaves)
    assert leaves > 5
    # Another policy, and all is looked at.
    assert len(plan(fresh, Policy(target_bytes=2**20)).verdicts) == len(names)


def test_a_late_segment_makes_exactly_its_chunk_unstable():
    table = create(MemoryStore("memory://late"))
    commit(table, *(add(table, f"2013-01-{day:02}") for day in range(1, 29)))
    record(table, Policy())
    assert plan(table).tasks == ()
    commit(table, add(table, "2013-01-14"))
    found = plan(table)
    assert [task.chunks for task in found.tasks] == [("2013-01-14",)]
    assert [verdict.chunk for verdict in found.verdicts] == ["2013-01-14"]


def test_deletes_alone_are_looked_at():
    table = create(MemoryStore("memory://deletes"))
    commit(table, *(add(table, f"2013-01-{day:02}", rows=10) for day in range(1, 29)))
    record(table, Policy())
    assert plan(table).tasks == ()
    few, many = (
        s for s in table.session.head().segments() if s.chunk in ("2013-01-14", "2013-01-20")
    )
    delete_rows(table, {few.id: [3, 9], many.id: [0, 1, 2]})
    found = plan(table)
    assert [(v.chunk, v.rule, v.rows) for v in found.verdicts] == [
        ("2013-01-14", "one", 8),
        ("2013-01-20", "deleted", 7),
    ]
    assert [[s.id for s in task.inputs] for task in found.tasks] == [[many.id]]


def test_a_drop_alone_is_looked_at():
    table = create(MemoryStore("memory://drop"))
    commit(table, add(table, DAY), add(table, DAY), add(table, "2013-01-08"))
    record(table, Policy())
    gone = [s for s in table.session.head().segments() if s.chunk == DAY][:1]
    commit(table, *map(drop_of, gone), operation="delete")
    found = plan(table)
    assert [(v.chunk, v.rule, v.segments) for v in found.verdicts] == [(DAY, "one", 1)]
    record(table, Policy())
    assert table.refresh().meta.chunks == {}


def test_an_analysis_that_came_first_stands():
    table = create(MemoryStore("memory://first"))
    commit(table, add(table), add(table))
    other = reopen(table.store)
    planned = plan(other)
    action = noted(planned, known_of(other.session.head()))
    assert record(table, Policy()) is not None
    assert action.old is None
    head = other.refresh()
    assert head.meta.analysed.version == 1
    assert record(other, Policy()) is None


def test_explain_says_why_of_any_chunk_at_any_version():
    table = create(MemoryStore("memory://explain"))
    for _ in range(3):
        commit(table, add(table, DAY))
    commit(table, add(table, "2013-01-08"))
    rules = [explain(table, DAY, version=v).rule for v in range(5)]
    assert rules == ["empty", "one", "small", "small", "small"]
    assert [explain(table, DAY, version=v).segments for v in range(5)] == [0, 1, 2, 3, 3]
    assert explain(table, f"{DAY}T05").chunk == DAY
    assert explain(table, "2013").rule == "empty"
    record(table, Policy())
    assert explain(table, DAY).state == ChunkState("unstable", 3, 3)
    for chunk in (DAY, "2013-01-08", "1999-01-01"):
        for version in range(5):
            verdict = explain(table, chunk, version=version)
            assert verdict.sentence
            listed = {v.chunk: v for v in plan(table, version=version).verdicts}
            assert listed.get(chunk, verdict) == verdict
    with pytest.raises(InvalidInput):
        explain(table, "yesterday")


def test_explain_says_where_the_rows_of_a_chunk_without_segments_are():
    table = create(MemoryStore("memory://elsewhere"))
    for chunk in (DAY, "2013-01-08", "2013-02"):
        commit(table, add(table, chunk))
    asked = ("2013-01-09", "2013-02-07", "2013")
    assert [explain(table, chunk).sentence for chunk in asked] == [
        "no live rows",
        "no segments of this chunk: those of its time are in 2013-02",
        f"no segments of this chunk: those of its time are in {DAY} and 2 more",
    ]


def test_a_table_without_rows_has_nothing_to_compact():
    found = plan(create(MemoryStore("memory://rows")))
    assert (found.verdicts, found.tasks, found.spans, found.empty) == ((), (), 0, 0)
