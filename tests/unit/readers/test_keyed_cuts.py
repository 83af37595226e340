"""Runs of slices are read in parts of a bounded size, and each bucket in one of them."""

import pytest
from msgspec.structs import replace

from eventlog.keyed.placement import place
from eventlog.keyed.slices import Run
from eventlog.model.entries import Segment, Slice
from eventlog.readers.keyed.cuts import in_parts
from eventlog.readers.keyed.segment_rows import alike


def segment(kind, first, last, size):
    entry = Slice(kind, first, last, 1, 1, 0 if kind == "log" else 1)
    return place(Segment(kind, "all", 0, 1, 0, 1, size, "ab" * 32, 1, slice=entry), 0)


def named(placed, name):
    return placed._replace(segment=replace(placed.segment, id=name))


@pytest.mark.parametrize("most_bytes", [1, 10, 25, 1000])
@pytest.mark.parametrize("size", [0, 40])
def test_every_bucket_is_in_one_part(most_bytes, size):
    base, log = segment("base", 0, 7, 1000), segment("log", 1, 4, size)
    runs = [
        Run("all", 0, 0, (base,)),
        Run("all", 1, 4, (base, log)),
        Run("all", 5, 7, (base,)),
    ]
    found = in_parts(runs, most_bytes)
    buckets = [b for part in found for run in part for b in range(run.first, run.last + 1)]
    assert buckets == list(range(8))
    for part in found:  # a bucket has a fourth of the log
        above = [b for run in part if run.logs for b in range(run.first, run.last + 1)]
        assert len(above) * size / 4 <= max(most_bytes, size / 4)


def test_the_buckets_in_which_one_segment_counts_say_nothing_of_others():
    """Of three logs one was taken in by a merge of bucket 1."""
    whole, cut, other = (segment("log", *reach, 10) for reach in ((0, 3), (0, 1), (2, 3)))
    whole, cut, other = (named(one, name) for one, name in ((whole, "w"), (cut, "c"), (other, "o")))
    runs = [Run("all", 0, 0, (whole, cut)), Run("all", 1, 1, (whole,)), Run("all", 2, 3, (whole,))]
    runs[2] = Run("all", 2, 3, (whole, other))
    found = {
        one.segment.id: where
        for where, few in alike([whole, cut, other], runs, mixed=True)
        for one in few
    }
    assert found == {"w": None, "c": frozenset([0]), "o": None}


def test_segments_that_count_wherever_the_runs_are_are_read_together():
    wide, narrow = (named(segment("log", 0, last, 10), str(last)) for last in (7, 1))
    runs = [Run("all", 0, 1, (wide, narrow))]
    groups = list(alike([wide, narrow], runs, mixed=True))
    assert groups == [(frozenset([0, 1]), [wide, narrow])]
    assert [where for where, _ in alike([wide, narrow], runs)] == [frozenset([0, 1]), None]
