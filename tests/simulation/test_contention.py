"""Many writers of one table in simulated time: none starves, and together they are faster."""

import pytest
from simulation.contention import contend

LATENCY = 0.05
SECONDS = 6  # simulated; during the first half a leader emerges


@pytest.fixture(scope="module")
def alone():
    return contend(1, LATENCY, seconds=SECONDS, staged=False, keyframes=64)


@pytest.mark.parametrize(
    ("writers", "times", "requests", "p99"),
    [
        (2, 1.05, 2.6, 0.5),
        (8, 2.0, 3.4, 0.5),
        pytest.param(4, 1.3, 3.0, 0.5, marks=pytest.mark.verify),
        pytest.param(32, 5.8, 4.0, 0.5, marks=pytest.mark.long),
    ],
)
def test_many_writers_append_faster_than_one_and_none_of_them_waits_for_long(
    writers, times, requests, p99, alone
):
    seen = contend(writers, LATENCY, seconds=SECONDS, staged=False)
    assert seen.rate >= times * alone.rate
    assert seen.each <= requests
    assert seen.at(0.99) <= p99
    assert seen.slowest() <= 14 * LATENCY


def test_one_alone_needs_one_request_an_append_and_waits_for_no_key_frame(alone):
    assert alone.each < 1.2  # with a look now and then, and key frames
    assert alone.rate == pytest.approx(1 / LATENCY, rel=0.05)
    assert alone.slowest() < 1.3 * LATENCY


@pytest.mark.parametrize("writers", [8, 32, pytest.param(100, marks=pytest.mark.verify)])
def test_many_that_start_together_for_one_append_each_race_once(writers):
    seen = contend(writers, LATENCY, seconds=20 * LATENCY, staged=False, appends=1)
    assert len(seen.latencies) == writers
    assert seen.slowest() <= (8 if writers < 64 else 15) * LATENCY
    assert seen.each <= (8 if writers < 64 else 12)


@pytest.mark.parametrize(
    ("writers", "times", "requests"),
    [(2, 1.1, 5), (8, 2.3, 6), pytest.param(32, 7.0, 7, marks=pytest.mark.long)],
)
def test_writers_that_stage_their_rows_first_are_faster_together_too(writers, times, requests):
    seen = contend(writers, LATENCY, seconds=SECONDS)
    assert seen.rate >= times / (2 * LATENCY)
    assert seen.each <= requests
    assert seen.slowest() <= 16 * LATENCY


def test_a_replacement_among_appends_waits_no_longer_than_they():
    seen = contend(8, LATENCY, seconds=SECONDS, replacing=2)
    assert len(seen.replaced) > 20
    assert seen.slowest() <= 18 * LATENCY


@pytest.mark.parametrize(
    ("writers", "pause", "requests"),
    [(2, 1, 6), (10, 10, 7.5), pytest.param(32, 10, 10, marks=pytest.mark.verify)],
)
def test_writers_that_rest_between_appends_pay_little_for_those_of_others(writers, pause, requests):
    seen = contend(writers, LATENCY, seconds=20 * pause, pause=pause)
    assert len(seen.latencies) > 15 * writers
    assert seen.each <= requests
    assert seen.at(0.9) <= 14 * LATENCY


def test_without_publishing_writers_are_no_faster_than_one_and_some_starve(alone):
    """The tests above would fail without combining."""
    seen = contend(8, LATENCY, seconds=SECONDS, combine_after=0, staged=False)
    assert seen.rate < 1.8 * alone.rate
    assert seen.slowest() > 18 * LATENCY


def test_one_seed_is_one_run():
    first, again, other = (contend(4, LATENCY, seconds=1, seed=s).latencies for s in (3, 3, 4))
    assert first == again
    assert first != other
