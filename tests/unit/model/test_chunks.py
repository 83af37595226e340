"""Time chunks: names, bounds, what is none."""

import pytest

from eventlog import errors
from eventlog.model import chunks
from eventlog.model.chunks import MAX_MS, MIN_MS, TimeChunk, chunk_of, parse_chunk


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("1970", 0, 31_536_000_000),
        ("1970-01", 0, 2_678_400_000),
        ("1970-01-01", 0, 86_400_000),
        ("1970-01-01T00", 0, 3_600_000),
        ("1969-12-31T23", -3_600_000, 0),
        ("2012-02-29", 1_330_473_600_000, 1_330_560_000_000),
        ("0001", MIN_MS, -62_104_060_800_000),
        ("9999-12-31T23", MAX_MS - 3_600_000, MAX_MS),
        ("all", MIN_MS, MAX_MS),
    ],
)
def test_chunks_have_these_names_and_bounds(name, start, end):
    assert parse_chunk(name) == TimeChunk(start, end)
    assert TimeChunk(start, end).name == name


@pytest.mark.parametrize(
    "name",
    [
        "", "ALL", "13", "20130107", "2013-1-7", "2013-01-07T5", "2013-01-07T24", "2013-02-29",
        "2013-00", "0000", "10000", "2013-01-07 ", " 2013", "2013-01-07T05:00", "\uff12013",
        "2013\n",
    ],
)  # fmt: skip
def test_other_text_names_no_chunk(name):
    with pytest.raises(errors.InvalidInput):
        parse_chunk(name)


@pytest.mark.parametrize("moment", [MIN_MS - 1, MAX_MS])
@pytest.mark.parametrize("granularity", chunks.GRANULARITIES)
def test_times_outside_the_years_have_no_chunk(moment, granularity):
    with pytest.raises(errors.InvalidInput):
        chunk_of(moment, granularity)
    assert chunk_of(max(MIN_MS, min(moment, MAX_MS - 1)), granularity)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 0), (5, 3_600_005), (0, 2 * 86_400_000)])
def test_intervals_that_no_granularity_cuts_have_no_name(start, end):
    with pytest.raises(errors.InvalidInput):
        _ = TimeChunk(start, end).name


@pytest.mark.parametrize("text", ["week", "", "Day", "days", None])
def test_unknown_granularities_are_refused(text):
    with pytest.raises(errors.InvalidInput):
        chunks.check_granularity(text)
