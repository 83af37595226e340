"""Every rule of the score, at its boundaries (scenario S3.1)."""

import pytest
from msgspec import structs
from support.planned_tables import PlannedTable

from eventlog.compaction.planner.candidates import expected_outputs
from eventlog.compaction.planner.scoring import FILE_COST, aged, score, worth
from eventlog.compaction.planner.spans import (
    Span,
    Sums,
    TargetChunk,
    empty_between,
    spans,
    target_chunks,
)
from eventlog.compaction.policy import MIB, Policy
from eventlog.errors import InvalidInput
from eventlog.model.chunks import TimeChunk, parse_chunk
from eventlog.model.entries import ChunkState

T = 100_000
POLICY = Policy(target_bytes=T, small_ratio=0.75, max_task_bytes=10 * T)
LITERAL = Policy(target_bytes=T, small_ratio=1.0, min_gain=0.0, max_task_bytes=10 * T)
DAY = "2013-01-07"


def verdicts(made, policy=POLICY):
    return {verdict.chunk: verdict for verdict in made.plan(policy).verdicts}


def verdict(*sizes, policy=POLICY, rows=1000):
    made = PlannedTable()
    made.add(DAY, *sizes, rows=rows)
    return verdicts(made, policy)[DAY]


@pytest.mark.parametrize(
    ("sizes", "act", "rule"),
    [
        ([1], "stable", "one"),
        ([T - 1], "stable", "one"),
        ([T], "stable", "one"),
        ([T + 1], "compact", "oversize"),
        ([T, T + 1], "compact", "oversize"),
        ([1, T + 1], "compact", "oversize"),
        ([T, T], "stable", "exact"),
        ([T // 2, T // 2], "compact", "small"),
        ([T // 2, T // 2 + 1], "stable", "exact"),  # ceil(T + 1 over T) = 2
        ([T, 1], "stable", "exact"),
        ([T - 1, 1], "stable", "good"),  # one would do, but T - 1 is good
        ([75_000, 25_000], "stable", "good"),
        ([74_999, 25_000], "compact", "small"),  # just below what is good
        ([T - 1, 1, 1], "compact", "small"),  # the two small ones become one
        ([T, T, T, 1, 1], "compact", "small"),
        ([74_000] * 4, "stable", "gain"),  # one fewer for 296,000 bytes: less than half a target
        ([66_000] * 3, "compact", "small"),  # one fewer for 198,000: a little more than half
        ([67_000] * 3, "stable", "exact"),
        ([1] * 50, "compact", "small"),
        ([50_000, 1], "stable", "uneven"),  # one late segment does not cost the larger one anew
        ([50_000, 6249], "stable", "uneven"),
        ([50_000, 6250], "compact", "small"),  # an eighth of it
        ([12_499, 1], "compact", "small"),  # below an eighth of the target, all are merged
    ],
)
@pytest.mark.scenario("S3.1")
def test_sizes_decide(sizes, act, rule):
    found = verdict(*sizes)
    assert (found.act, found.rule) == (act, rule)
    assert (found.segments, found.bytes) == (len(sizes), sum(sizes))
    assert found.small + found.good + found.large == len(sizes)
    assert (found.priority > 0) == (act == "compact")


@pytest.mark.parametrize(
    ("sizes", "act"),
    [
        ([T - 1], "stable"),
        ([T - 1, 1], "compact"),
        ([T, 1], "stable"),
        ([T, T - 1, 1], "compact"),
        ([T, T, 1], "stable"),
        ([74_000] * 4, "compact"),
        ([75_001] * 4, "stable"),
    ],
)
@pytest.mark.scenario("S3.1")
def test_without_hysteresis_the_rules_are_those_of_the_document(sizes, act):
    """n segments, all at most the maximum, are stable exactly where n = ceil(total / maximum)."""
    assert verdict(*sizes, policy=LITERAL).act == act
    assert (len(sizes) == -(-sum(sizes) // T)) == (act == "stable")


def test_a_chunk_without_rows_is_empty():
    assert (verdict(10, 10, rows=0).act, verdict(10, 10, rows=0).rule) == ("empty", "empty")
    nothing = TargetChunk(parse_chunk(DAY), Sums(), Sums(), False, False, False)
    assert score(nothing, POLICY).act == "empty"


def test_one_row_cannot_be_divided():
    assert verdict(3 * T, rows=1).rule == "one"
    assert "single row" in verdict(3 * T, rows=1).sentence
    # Of two rows, two segments can be made, whatever the bytes.
    assert (verdict(3 * T, rows=2).rule, verdict(3 * T, rows=2).outputs) == ("oversize", 2)


def test_one_that_is_many_times_larger_is_left_out_of_a_merge():
    made = PlannedTable()
    (large,) = made.add(DAY, 50_000)
    late = [made.add(DAY, 1000)[0] for _ in range(3)]
    (task,) = made.plan(POLICY).tasks
    assert task.inputs == tuple(late)
    found = verdicts(made)[DAY]
    assert (found.left, found.inputs, found.outputs, found.saved) == (50_000, 3, 1, 2)
    made.finish(task, POLICY)
    assert large.id in made.live
    assert made.plan(POLICY).tasks == ()
    assert verdicts(made)[DAY].rule == "uneven"
    made.add(DAY, 4000)  # with what came before, more than an eighth of it
    (task,) = made.plan(POLICY).tasks
    assert large in task.inputs
    assert len(task.inputs) == 3


def test_a_trickle_of_late_segments_is_not_paid_for_with_the_square_of_its_size():
    made, rewritten = PlannedTable(), 0
    for _ in range(74):
        made.add(DAY, 1000)
        rewritten += sum(task.bytes for task in made.plan(POLICY).tasks)
        made.run(POLICY)
    assert len(made.live) <= 3
    assert rewritten < 14 * 74_000  # each time all of it would be 37 times as much


@pytest.mark.hazard("K8")
def test_only_small_and_large_ones_are_rewritten():
    found = verdict(T, 80_000, 10, 20, 2 * T)
    assert (found.small, found.good, found.large) == (2, 2, 1)
    assert (found.inputs, found.input_bytes, found.outputs) == (3, 2 * T + 30, 3)
    assert found.saved == 2  # one cut of the large one, and two small ones that cost no file more


def test_a_named_granularity_is_a_reason():
    made = PlannedTable("hour")
    made.add("2013-01-07T05", 10)
    made.add("2013-01-08", T)
    day = Policy(target_bytes=T, max_task_bytes=10 * T, granularity="day")
    assert {n: (v.act, v.rule, v.foreign) for n, v in verdicts(made, day).items()} == {
        "2013-01-07": ("compact", "granularity", 1),
        "2013-01-08": ("stable", "one", 0),
    }
    assert {n: (v.act, v.rule) for n, v in verdicts(made).items()} == {
        "2013-01-07T05": ("stable", "one"),
        "2013-01-08": ("stable", "one"),
    }


def test_late_segments_of_a_finer_granularity_count_in_the_chunk_that_holds_them():
    made = PlannedTable("day")
    made.add("2013-01-07", 10)
    made.add("2013-01-07T05", 10)
    found = verdicts(made)
    assert found.keys() == {"2013-01-07"}
    assert (found[DAY].act, found[DAY].rule, found[DAY].foreign) == ("compact", "small", 1)


@pytest.mark.parametrize(
    ("hour", "earlier", "later"),
    [("2013-01-07T00", False, True), ("2013-01-07T05", True, True), ("2013-01-07T23", True, False)],
)
def test_a_chunk_that_overlaps_has_no_opinion_while_its_sizes_are_stable(hour, earlier, later):
    made = PlannedTable("hour")
    made.add("2013-01-07", 50)
    made.add(hour, 10)
    found = verdicts(made)[hour]
    assert (found.act, found.rule) == ("no opinion", "overlap")
    assert (found.earlier, found.later) == (earlier, later)
    made.add(hour, 10, 10)
    found = verdicts(made)[hour]
    assert (found.act, found.rule, found.earlier, found.later) == (
        "compact", "small", earlier, later,
    )  # fmt: skip


def test_a_note_holds_a_chunk_stable_while_it_is_as_it_was():
    sums = Sums(
        segments=3, rows=30, bytes=300, newest=7, largest=100, small=3, odd_rows=30, odd_bytes=300
    )
    target = TargetChunk(parse_chunk(DAY), sums, Sums(), False, False, False)
    assert score(target, POLICY).act == "compact"
    assert score(target, POLICY, ChunkState("stable", 7, 3)).rule == "rewritten"
    for stale in (ChunkState("stable", 6, 3), ChunkState("stable", 7, 2)):
        assert score(target, POLICY, stale).act == "compact"
    assert score(target, POLICY, ChunkState("stable", 7, 3), trusted=False).act == "compact"
    assert score(target, POLICY, ChunkState("unstable", 7, 3)).act == "compact"


@pytest.mark.parametrize(
    ("ratio", "deleted", "rule"),
    [
        (0.2, 200, "one"),
        (0.2, 201, "deleted"),
        (0, 0, "one"),
        (0, 1, "deleted"),
        (1, 999, "one"),
    ],
)
def test_a_segment_is_rewritten_once_enough_rows_are_deleted(ratio, deleted, rule):
    made = PlannedTable()
    (segment,) = made.add(DAY, 90_000)
    if deleted:
        made.delete(segment, deleted)
    policy = structs.replace(POLICY, deleted_ratio=ratio)
    found = verdicts(made, policy)[DAY]
    assert (found.rule, found.act) == (rule, "compact" if rule == "deleted" else "stable")
    assert (found.segments, found.rows, found.deleted) == (1, 1000 - deleted, deleted)
    assert (found.small, found.good, found.large, found.sparse) == (0, *GOOD_OR_SPARSE[rule])
    if rule == "deleted":
        assert (found.inputs, found.outputs, found.saved) == (1, 1, 0)
        assert found.freed == 90 * deleted
        # What queries no longer read against what it costs.
        assert found.priority == found.freed / (found.freed + 90_000)


GOOD_OR_SPARSE = {"one": (1, 0, 0), "deleted": (0, 0, 1)}


def test_good_segments_beside_one_with_many_deleted_rows_stay():
    made = PlannedTable()
    good, sparse = made.add(DAY, 90_000, 95_000)
    sparse = made.delete(sparse, 300)
    made.delete(good, 200)
    (task,) = made.plan(POLICY).tasks
    assert task.inputs == (sparse,)
    assert task.rows == 700
    assert "1 with more than 20% of their rows deleted (500 in all)" in task.reason
    made.finish(task, POLICY)
    assert made.plan(POLICY).tasks == ()
    assert made.rows() == 1500


def test_deleted_rows_do_not_count_for_what_comes_out():
    made = PlannedTable()
    (large,) = made.add(DAY, 3 * T)
    assert verdicts(made)[DAY].outputs == 3
    made.delete(large, 700)
    found = verdicts(made)[DAY]
    assert (found.rule, found.outputs, found.large, found.saved) == ("deleted", 1, 0, 0)
    (task,) = made.plan(POLICY).tasks
    assert expected_outputs(task, POLICY) == (1, True)
    # Two that no longer fill one are merged.
    made = PlannedTable()
    for segment in made.add(DAY, 80_000, 80_000):
        made.delete(segment, 500)
    found = verdicts(made)[DAY]
    assert (found.outputs, found.saved) == (1, 1)


def test_a_sparse_segment_is_rewritten_without_one_that_is_many_times_larger():
    made = PlannedTable()
    (large,), (sparse,) = made.add(DAY, 50_000), made.add(DAY, 4_000)
    made.delete(sparse, 900)
    (task,) = made.plan(POLICY).tasks
    assert [s.id for s in task.inputs] == [sparse.id]
    made.finish(task, POLICY)
    assert large.id in made.live
    assert made.plan(POLICY).tasks == ()


def test_a_sparse_segment_that_is_left_over_from_a_cut_is_rewritten():
    policy = Policy(target_bytes=T, max_task_bytes=4 * T, small_ratio=0.75)
    made = PlannedTable()
    made.add(DAY, *[7 * T // 10] * 5)
    (sparse,) = made.add(DAY, 3 * T)
    made.delete(sparse, 500)
    tasks = made.plan(policy).tasks
    assert any(s.id == sparse.id for task in tasks for s in task.inputs)
    assert len(tasks) > 1


def test_priority_weighs_what_queries_save_against_what_it_costs():
    assert worth(1, FILE_COST) == 0.5
    assert worth(0, 100) == 0.0
    assert worth(1, 0) == 1.0
    assert worth(2, FILE_COST) > worth(1, FILE_COST) > worth(1, 2 * FILE_COST)
    # A hundred tiny files go before ten of the same bytes, and those before larger bytes.
    many, few, heavy = verdict(*[100] * 100), verdict(*[1000] * 10), verdict(*[5000] * 10)
    assert many.priority > few.priority > heavy.priority


def test_age_leads_to_the_front():
    policy = Policy(ageing_versions=100)
    assert aged(0.2, 0, policy) == 0.2
    assert aged(0.2, 50, policy) == pytest.approx(0.6)
    assert aged(0.2, 100, policy) == aged(0.9, 5000, policy) == 1.0
    assert aged(0.2, -5, policy) == 0.2


def test_sentences_say_the_numbers():
    text = verdict(*[10] * 50).sentence
    assert "50 segments of 500 B" in text
    assert "into 1 of at most 100 kB saves queries 49" in text
    assert "75 kB" in text


def test_spans_end_at_gaps():
    names = ["2013-01-01", "2013-01-02", "2013-01-02T05", "2013-01-04", "2013-02", "2013-02-03"]
    chunks = [parse_chunk(name) for name in names]
    found = spans(chunks)
    assert [span.chunks for span in found] == [3, 1, 2]
    assert found[0] == Span(chunks[0].start, chunks[1].end, 3)
    assert empty_between(found, "day") == 1 + 27
    assert empty_between(found, "hour") == 28 * 24


def test_gaps_of_a_century_are_counted_and_not_listed():
    made = PlannedTable()
    made.add("1913-01-01", 1)
    made.add("2013-01-01", 1)
    plan = made.plan(POLICY)
    assert (len(plan.verdicts), plan.spans) == (2, 2)
    assert plan.empty == 36_524
    for granularity, ends, number in (
        ("month", ("1913-01", "2013-01"), 1199),
        ("year", ("1913", "2013"), 99),
        ("hour", ("2013-01-01T23", "2013-01-02T00"), 0),
    ):
        assert empty_between(spans([parse_chunk(name) for name in ends]), granularity) == number


def test_marks_come_from_the_widest_that_covers():
    stored = [(parse_chunk(n), Sums(1)) for n in ("2013-01", "2013-01-01", "2013-01-01T03")]
    found = {t.chunk.name: t for t in target_chunks(stored, "hour")}
    assert (found["2013-01-01"].earlier, found["2013-01-01"].later) == (False, True)
    assert found["2013-01-01T03"].earlier
    assert not found["2013-01"].later
    assert isinstance(found["2013-01"].chunk, TimeChunk)


@pytest.mark.parametrize(
    "setting",
    [
        {"target_bytes": 1023}, {"target_bytes": 1024.0}, {"small_ratio": 0}, {"small_ratio": 1.01},
        {"small_ratio": float("nan")}, {"min_gain": -1}, {"min_gain": float("nan")},
        {"granularity": "week"}, {"order": "oldest"}, {"max_queue": 0}, {"max_tasks": True},
        {"max_task_bytes": 4 * 128 * MIB - 1}, {"memory_bytes": MIB - 1}, {"backoff_s": -1},
    ],
)  # fmt: skip
def test_settings_out_of_bounds_are_refused(setting):
    with pytest.raises(InvalidInput, match=next(iter(setting))):
        Policy(**setting).check()


def test_a_digest_tells_what_decides_stability():
    digest = Policy().digest("day")
    assert len(digest) == 64
    assert Policy(max_tasks=9, order="newest").digest("day") == digest
    others = [Policy(target_bytes=MIB), Policy(small_ratio=0.5), Policy(min_gain=1)]
    others.append(Policy(granularity="day"))
    digests = {policy.digest("day") for policy in others} | {digest, Policy().digest("hour")}
    assert len(digests) == len(others) + 2


def test_backoff_doubles_up_to_its_limit():
    policy = Policy(backoff_s=60, max_backoff_s=200)
    assert [policy.backoff_ms(n) for n in (1, 2, 3, 400)] == [60_000, 120_000, 200_000, 200_000]
