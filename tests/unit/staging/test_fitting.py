"""Which granularity fits the bytes in the time chunks of a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.model.chunks import chunk_of, parse_chunk
from eventlog.model.entries import GRANULARITIES
from eventlog.staging.fitting import (
    LARGE_TIMES,
    MANY_CHUNKS,
    ROOM_TIMES,
    SMALL_PART,
    coarser_fit,
    fit_of,
    may_be_coarser,
    may_be_finer,
)

TARGET = 3200
SMALL = TARGET // SMALL_PART
DAY_MS = 86_400_000


def days(count, size, *, first=0, step=1):
    """Sizes of so many days of 1970 and later, all the same."""
    starts = ((first + number * step) * DAY_MS for number in range(count))
    return {chunk_of(start, "day"): size for start in starts}


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [
        (days(MANY_CHUNKS, 1), "day"),  # few, however small
        (days(MANY_CHUNKS + 1, 1), "month"),
        (days(365, 1), "month"),
        (days(365, SMALL), "day"),
        (days(365, SMALL - 1), "month"),
        (days(5 * 365, 1), "year"),
        (days(5 * 365, SMALL // 3), "month"),  # months are not small
        (days(400, 1, step=40), "all"),
        ({}, "day"),
    ],
)
def test_the_finest_granularity_with_few_chunks_or_some_that_are_not_small_fits(sizes, fits):
    assert coarser_fit(sizes, "day", TARGET) == fits


def test_most_chunks_must_be_small():
    mixed = days(100, 1) | days(30, SMALL, first=100)
    assert coarser_fit(mixed, "day", TARGET) == "month"
    assert coarser_fit(mixed | days(4, SMALL, first=130), "day", TARGET) == "day"


def test_small_chunks_beside_one_that_would_be_large_stay():
    tail, room = days(300, 1), ROOM_TIMES * TARGET
    assert coarser_fit(tail | days(1, room - 30, first=3), "day", TARGET) == "month"
    assert coarser_fit(tail | days(1, room + 1, first=3), "day", TARGET) == "day"


def test_a_bound_is_kept():
    sizes = days(400, 1, step=40)
    assert coarser_fit(sizes, "day", TARGET, coarsest="month") == "month"
    assert coarser_fit(sizes, "year", TARGET, coarsest="month") == "year"


def test_what_is_coarser_already_counts_as_it_is():
    sizes = days(40, 1) | {parse_chunk("2013"): 10, parse_chunk("2014"): 10}
    assert coarser_fit(sizes, "day", TARGET) == "month"
    assert coarser_fit({parse_chunk("all"): 10}, "day", TARGET) == "day"


def test_chunks_become_finer_where_large_ones_hold_most_of_the_rows():
    large = LARGE_TIMES * TARGET + 1
    assert fit_of({parse_chunk("2013"): large - 1}, "year", TARGET, moves=True) is None
    found = fit_of({parse_chunk("2013"): large}, "year", TARGET, moves=True)
    assert (found.better, found.chunks, found.bytes, found.wanted) == ("month", 1, large, 0)
    others = {parse_chunk(str(year)): large // 10 for year in range(1990, 2002)}
    assert fit_of({parse_chunk("2013"): large, **others}, "year", TARGET, moves=True) is None
    assert fit_of({parse_chunk("2013-01-01T05"): large}, "hour", TARGET, moves=True) is None
    day = {parse_chunk("2013-01-01"): large}
    assert fit_of(day, "day", TARGET, moves=True).better == "hour"
    assert fit_of(day, "day", TARGET, moves=True, finest="day") is None


def test_a_large_chunk_of_a_granularity_that_was_left_does_not_count():
    sizes = {parse_chunk("all"): 10**9, parse_chunk("2013"): 10}
    assert fit_of(sizes, "year", TARGET, moves=True) is None


def test_the_reason_has_its_numbers_and_a_remedy():
    found = fit_of(days(365, 50), "day", TARGET, moves=False)
    assert found.sentence == (
        "365 time chunks of granularity day hold 50 B each on average, and a query opens a segment "
        "or more in each: with granularity month there are 12"
    )
    assert found.remedy("s3://b/a table") == (
        "`eventlog compact 's3://b/a table' --granularity month --run` joins them, and "
        "`eventlog granularity 's3://b/a table' month`, or auto, cuts new rows so"
    )
    finer = fit_of({parse_chunk("all"): 10**6}, "all", TARGET, moves=False)
    assert finer.sentence == (
        "1 time chunk of granularity all holds 1 MB: with granularity year new rows lie in smaller "
        "ones, and old ones stay as they are"
    )
    assert finer.remedy("x") == "`eventlog granularity x year`, or auto, cuts new rows so"


GROWTH = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from([1, SMALL, TARGET, 20 * TARGET, 90 * TARGET])),
    min_size=1,
    max_size=60,
)


@given(GROWTH, st.sampled_from(GRANULARITIES), st.booleans())
def test_while_rows_are_added_no_granularity_is_taken_again_after_a_finer_one(
    growth, start, together
):
    """So a table changes its granularity a few times in its life, whatever the rows are."""
    now, sizes, moved = start, {}, []
    for number, (day, size) in enumerate(growth * 3):
        chunk = chunk_of((day + (0 if together else number)) * DAY_MS, now)
        sizes[chunk] = sizes.get(chunk, 0) + size
        while (found := fit_of(sizes, now, TARGET, moves=True)) is not None:
            moved.append((now, found.better))
            now = found.better
            assert len(moved) <= 2 * len(GRANULARITIES)
    ranks = [(GRANULARITIES.index(old), GRANULARITIES.index(new)) for old, new in moved]
    left = [old for old, new in ranks if new < old]
    for place, (old, new) in enumerate(ranks):
        if new > old:
            assert all(new < was for was, then in ranks[:place] if then < was)
    assert left == sorted(left, reverse=True)


@given(
    st.dictionaries(st.integers(0, 4000), st.integers(1, 300), max_size=80),
    st.sampled_from(GRANULARITIES),
)
def test_totals_that_leave_no_room_for_another_answer_are_enough(found, now):
    """With a segment in each chunk; with more of them their mean size is smaller still."""
    sizes = {}
    for day, size in found.items():
        chunk = chunk_of(day * DAY_MS, now)
        sizes[chunk] = sizes.get(chunk, 0) + size
    total = sum(sizes.values())
    if len(sizes) <= MANY_CHUNKS:
        assert not may_be_coarser(len(sizes), total, now, TARGET)
        assert coarser_fit(sizes, now, TARGET) == now
    if not may_be_finer(total, now, TARGET):
        fit = fit_of(sizes, now, TARGET, moves=True)
        assert fit is None or fit.wanted
