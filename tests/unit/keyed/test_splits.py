"""Splits of buckets: what was written before one counts after it, in the buckets it became."""

import msgspec
import pytest
from support.builders import HASH, commit, create, live, reopen, replaced

from eventlog import errors
from eventlog.format import codec
from eventlog.keyed import slices
from eventlog.keyed.rule import stored_rule
from eventlog.model.actions import Add, Merge, SetBuckets
from eventlog.model.entries import Keyed, Layout, Slice
from eventlog.model.records import Meta
from eventlog.state.small.rules import small_change

BUCKETS = 2


@pytest.fixture
def table():
    """Two upserts, of both buckets and of the second one, and a split: now there are 4."""
    table = create(key="name", buckets=BUCKETS, granularity="all")
    commit(table, log(table, 0, 1), operation="upsert")
    commit(table, log(table, 1, 1), operation="upsert")
    table.set_buckets(4)
    return table


def log(table, first, last, splits=msgspec.UNSET, *place, rows=10):
    low, high, level, kind = (*place, *(None, None, 0, "log")[len(place) :])
    where = Slice(kind, first, last, low, high, level, None, splits)
    return Add(table.clock.random_id(), "all", 0, rows, 100, HASH, 1, slice=where)


def merge(table, first, last, splits=msgspec.UNSET, *, rows=20, versions=(1, 2), read=2):
    inputs = tuple(sorted(s.id for s in live(table.refresh()) if s.version in versions))
    return Merge(read, "all", first, last, 1, 2, inputs, rows, rows - 10, splits)


def counted(table):
    found = slices.runs(live(table.refresh()), table.session.head().layout.keyed.splits)
    return {(r.first, r.last): [s.version for s in r.segments] for r in found}


def void(table, match, *actions):
    before = live(table.refresh())
    with pytest.raises(errors.CommitConflict, match=match):
        commit(table, *actions, operation="compact", read_version=2)
    return live(reopen(table.store).session.head()) == before


def test_a_segment_counts_in_the_buckets_that_its_own_became(table):
    assert counted(table) == {(0, 1): [1], (2, 3): [1, 2]}
    commit(table, log(table, 3, 3, 1), operation="upsert")
    assert counted(table) == {(0, 1): [1], (2, 2): [1, 2], (3, 3): [1, 2, 4]}
    table.set_buckets(16)
    assert counted(table) == {(0, 7): [1], (8, 11): [1, 2], (12, 15): [1, 2, 4]}


def test_adds_of_before_a_split_still_take_effect(table):
    old = log(table, 1, 1)
    table.set_buckets(8)
    commit(table, old, operation="upsert")
    newest = max(live(reopen(table.store).session.head()), key=lambda s: s.version)
    assert newest.slice == Slice("log", 1, 1, 5, 5, 0, 0)
    assert counted(table)[4, 7] == [1, 2, 5]


def test_an_add_lies_in_buckets_that_are_there(table):
    for first, last, splits in ((0, 2, msgspec.UNSET), (0, 4, 1), (0, 1, 2), (3, 2, 1)):
        assert void(table, "lies in no slice", log(table, first, last, splits))
    commit(table, log(table, 0, 3, 1), operation="upsert")


def test_a_merge_of_before_a_split_takes_effect_after_it(table):
    planned = merge(table, 1, 1)
    new = log(table, 1, 1, msgspec.UNSET, 1, 2, 1, "base")
    commit(table, log(table, 0, 3, 1), operation="upsert")
    commit(table, planned, new, operation="compact", read_version=2)
    assert counted(table) == {(0, 1): [1, 4], (2, 3): [5, 4]}


def test_a_merge_may_take_half_of_what_was_a_bucket(table):
    half = merge(table, 3, 3, 1)
    commit(table, half, log(table, 3, 3, 1, 1, 2, 1, "base"), operation="compact", read_version=2)
    assert counted(table) == {(0, 1): [1], (2, 2): [1, 2], (3, 3): [4]}
    assert not slices.ineffective(live(table.session.head()), 1)
    rest = merge(table, 0, 2, 1)
    commit(table, rest, log(table, 0, 2, 1, 1, 2, 1, "base"), operation="compact", read_version=2)
    assert counted(table) == {(0, 2): [5], (3, 3): [4]}
    gone = slices.ineffective(live(table.session.head()), 1)
    assert sorted(s.version for s in gone) == [1, 2]


def test_a_merge_lies_in_buckets_that_are_there_and_so_do_its_outputs(table):
    half = merge(table, 3, 3, 1)
    base = lambda first, last, splits: log(table, first, last, splits, 1, 2, 1, "base")
    whole = base(1, 1, msgspec.UNSET)
    assert void(table, "does not have yet", replaced(half, first=6, last=7, splits=2), whole)
    assert void(table, "even without rows", half, whole)  # of both halves
    one = replaced(half, first=2, last=2)
    assert void(table, "even without rows", replaced(half, first=2), base(3, 3, 1))
    assert void(table, "meet", one, merge(table, 1, 1), base(2, 2, 1), whole)
    # What is in no other bucket is counted to the row, whatever its bucket was called.
    less = replaced(merge(table, 0, 3, 1), rows=19, superseded=9)
    assert void(table, "have 20 rows", less, base(0, 3, 1))


@pytest.mark.parametrize(
    ("keyed", "old", "new"),
    [
        (None, 2, 4),
        (Keyed((2,), 2), 4, 8),
        (Keyed((2,), 2), 2, 2),
        (Keyed((2,), 2), 2, 8),
        (Keyed((2,), 2), 2, 1),
        (Keyed((2,), 4096), 4096, 8192),
        (Keyed((2,), 0), 0, 0),
        (Keyed((2,), 2, 12), 2, 4),
    ],
)
def test_buckets_are_doubled_and_nothing_else(keyed, old, new):
    meta = Meta(
        layout=Layout(
            time_column=1, granularity="all", keyed=msgspec.UNSET if keyed is None else keyed
        )
    )
    assert isinstance(small_change(SetBuckets(old, new), meta, 5, 5), str)
    assert isinstance(small_change(SetBuckets(old, new), Meta(), 5, 5), str)


def test_each_split_is_counted():
    keyed = Keyed((2,), 2048)
    meta = small_change(
        SetBuckets(2048, 4096),
        Meta(layout=Layout(time_column=1, granularity="all", keyed=keyed)),
        5,
        5,
    )
    assert meta.layout.keyed == Keyed((2,), 4096, 1)


def test_the_feature_begins_with_the_split(table):
    assert [table.session.log.header(v).features for v in (0, 2, 3)] == [
        ("keyed",), ("keyed",), ("keyed", "split"),
    ]  # fmt: skip
    table.write_keyframe()
    assert table.session.log.key_frames.root(3).features == ("keyed", "split")


def test_a_release_that_does_not_know_splits_refuses_from_there_on(table, monkeypatch):
    monkeypatch.setattr(codec, "KNOWN_FEATURES", frozenset({"keyed"}))
    assert table.session.log.read(2)[0].header.version == 2
    with pytest.raises(errors.UnsupportedFormat, match="split"):
        reopen(table.store).session.head()


def test_splits_of_a_layout_divide_its_buckets(table):
    head = table.session.head()
    layout = head.state.stored_layout
    keyed = replaced(layout.keyed, buckets=6, splits=2)
    with pytest.raises(errors.Corrupt, match="cannot have been split 2 times"):
        stored_rule(replaced(layout, keyed=keyed), head.stored_schema)


def test_a_segment_of_buckets_to_come_cannot_be_read(table):
    first = live(table.session.head())[0]
    later = replaced(first, slice=replaced(first.slice, splits=2))
    with pytest.raises(errors.Corrupt, match="does not have"):
        slices.runs([later], 1)
