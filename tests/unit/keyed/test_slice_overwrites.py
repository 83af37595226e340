"""What an overwrite of a keyed table may leave behind, when slices were merged meanwhile."""

import pyarrow as pa
import pytest
from support.builders import add, commit, create, drop_of, live, replaced

from eventlog.errors import CommitConflict
from eventlog.model.actions import Merge
from eventlog.model.entries import Slice

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def put(table, place):
    return replaced(add(table, "all"), slice=place)


@pytest.fixture
def table():
    """Three logs of four buckets each, of the versions 1 to 3."""
    made = create(schema=SCHEMA, key="id", buckets=4, granularity="all")
    for _ in range(3):
        commit(made, put(made, Slice("log", 0, 3, None, None, 0)))
    return made


def merge_first_bucket(table, low, high):
    """Make a base, or above one a log, of the rows of bucket 0 between two versions."""
    inputs = sorted(
        s.id for s in live(table.session.head()) if low <= s.slice.low and s.slice.high <= high
    )
    kind = "base" if low == 1 else "log"
    merge = Merge(table.session.head().version, "all", 0, 0, low, high, tuple(inputs), 2, 1)
    return commit(table, put(table, Slice(kind, 0, 0, low, high, 1)), merge, operation="compact")


def overwrite(table, seen, read_version):
    drops = [drop_of(s) for s in seen]
    fresh = put(table, Slice("log", 0, 3, None, None, 0))
    return commit(table, *drops, fresh, operation="overwrite", read_version=read_version)


def test_all_that_was_there_goes(table):
    assert overwrite(table, live(table.session.head()), 3) == 4
    assert [s.slice.low for s in live(table.session.head())] == [4]


def test_what_came_since_stays(table):
    seen = [s for s in live(table.session.head()) if s.version < 3]
    assert overwrite(table, seen, 2) == 4
    assert sorted(s.slice.low for s in live(table.session.head())) == [3, 4]


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 3), (2, 3)])
@pytest.mark.hazard("K1")
def test_rows_that_were_merged_meanwhile_do_not_stay(table, low, high):
    seen = [s for s in live(table.session.head()) if s.version < 3]
    merge_first_bucket(table, low, high)
    with pytest.raises(CommitConflict, match="a part of chunk all only"):
        overwrite(table, seen, 2)
