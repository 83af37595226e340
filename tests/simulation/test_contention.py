"""Many writers of one table in simulated time: none starves, and together they are faster."""

import pytest
from simulation.contention import contend

LATENCY = 0.05
SECONDS = 6  # simulated; during the first half a leader emerges


@pytest.fixture(scope="module")
def alone():
    return contend(1, LATENCY, seconds=SECONDS).rate


@pytest.mark.parametrize(
    ("writers", "times", "requests"),
    [(2, 1.0, 5), (4, 1.3, 6), (8, 2.5, 7), pytest.param(32, 8.0, 9, marks=pytest.mark.long)],
)
def test_many_writers_append_faster_than_one_and_none_of_them_waits_for_long(
    writers, times, requests, alone
):
    seen = contend(writers, LATENCY, seconds=SECONDS)
    assert seen.rate >= times * alone
    assert seen.each <= requests
    assert seen.slowest() <= 18 * LATENCY
    assert seen.at(0.5) <= 8 * LATENCY


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
    assert seen.at(0.9) <= 12 * LATENCY


def test_one_alone_needs_two_requests_an_append(alone):
    seen = contend(1, LATENCY, seconds=SECONDS)
    assert seen.each < 2.1
    assert alone == pytest.approx(1 / (2 * LATENCY), rel=0.05)


def test_without_publishing_writers_are_no_faster_than_one_and_some_starve(alone):
    """The tests above would fail without combining."""
    seen = contend(8, LATENCY, seconds=SECONDS, combine_after=0)
    assert seen.rate < 1.8 * alone
    assert seen.slowest() > 18 * LATENCY


def test_one_seed_is_one_run():
    first, again, other = (contend(4, LATENCY, seconds=1, seed=s).latencies for s in (3, 3, 4))
    assert first == again
    assert first != other
