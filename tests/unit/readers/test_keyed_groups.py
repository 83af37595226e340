"""Runs of slices are read in parts of a bounded size, and each bucket in one of them."""

import pytest

from eventlog.model.records import Segment, Slice
from eventlog.readers.keyed.groups import parts
from eventlog.state.keyed.slices import Run


def segment(kind, first, last, size):
    place = Slice(kind, first, last, 1, 1, 0 if kind == "log" else 1)
    return Segment(kind, "all", 0, 1, 0, 1, size, "ab" * 32, 1, slice=place)


@pytest.mark.parametrize("most_bytes", [1, 10, 25, 1000])
@pytest.mark.parametrize("size", [0, 40])
def test_every_bucket_is_in_one_part(most_bytes, size):
    base, log = segment("base", 0, 7, 1000), segment("log", 1, 4, size)
    runs = [
        Run("all", 0, 0, (base,)),
        Run("all", 1, 4, (base, log)),
        Run("all", 5, 7, (base,)),
    ]
    found = parts(runs, most_bytes)
    buckets = [b for part in found for run in part for b in range(run.first, run.last + 1)]
    assert buckets == list(range(8))
    for part in found:  # a bucket has a fourth of the log
        above = [b for run in part if run.logs for b in range(run.first, run.last + 1)]
        assert len(above) * size / 4 <= max(most_bytes, size / 4)
