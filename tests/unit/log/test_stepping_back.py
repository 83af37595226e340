"""A key frame that turns out to be unusable: who notices, who remembers, and what it costs."""

import logging

import pytest
from support.builders import add, commit, create, drop_of, live, reopen, replace_object

from eventlog.format import keys
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

DAYS = [f"2013-01-{day:02d}" for day in range(1, 9)]


STEMS = {"ROOT_LEAVES": 2, "STEM_TARGET": 2, "STEM_SMALL": 0}


@pytest.fixture(params=[{}, STEMS], ids=["leaves", "stems"])
def store(monkeypatch, request):
    """Ten versions; key frames with leaves at versions 3 and 7, a leaf for each day."""
    small = {"INLINE_SEGMENTS": 2, "LEAF_TARGET": 1, "LEAF_SMALL": 0} | request.param
    for name, value in small.items():
        monkeypatch.setattr(keyframe, name, value)
    table = create(MemoryStore(), properties={"keyframe_commits": "4"})
    for day in (*DAYS, DAYS[0]):
        commit(table, add(table, day))
    assert table.session.head().base.version == 7
    return table.store


def lose_leaf(store):
    """Lose the leaf of the second day; return its key and bytes."""
    head = reopen(store).session.head()
    (leaf,) = (leaf for leaf in head.leaves() if leaf.first.startswith(DAYS[1]))
    key = keys.frame_key(leaf.sha256)
    body = store.get(key)
    store.delete([key])
    return key, body


def test_the_head_to_go_on_with_is_over_the_older_key_frame(store):
    wanted = live(reopen(store).session.head())
    lose_leaf(store)
    table = reopen(store)
    head = table.session.head()
    lost = table.transaction("test", [drop_of(segment) for segment in wanted])
    moved, view = table.session.log.load_view(head, [lost])
    assert (head.base.version, moved.version) == (7, head.version)
    assert moved.base is None or moved.base.version < 7
    assert len(view.live(lost.actions)) == len(wanted)
    assert live(head) == live(moved) == wanted


def test_it_is_stepped_over_once_by_who_asks_again(store, caplog):
    lose_leaf(store)
    counting = CountingStore(store)
    head = reopen(counting).session.head()
    with caplog.at_level(logging.WARNING):
        head.entries()
        with counting.measure() as again:
            head.entries()
            head.segments(chunks=[DAYS[1]])
            assert head.are_true(head.entries())
    assert again.total == 0
    assert caplog.text.count("key frame 7 is unusable") == 1


def test_what_does_not_take_the_lost_leaf_stays_on_the_key_frame(store):
    lose_leaf(store)
    table = reopen(store)
    head = table.session.head()
    kept = head.segments(chunks=[DAYS[4]])
    moved, _ = table.session.log.load_view(head, [table.transaction("test", [drop_of(kept[0])])])
    assert moved is head


def test_a_repaired_one_is_used_by_who_reads_the_version_anew(store):
    key, body = lose_leaf(store)
    table = reopen(store)
    table.session.head().entries()
    assert table.session.log.usable(table.session.head().state).base != table.session.head().base
    assert store.put_if_absent(key, body)
    fresh = table.session.log.snapshot(table.session.head().version)
    fresh.entries()
    assert table.session.log.usable(fresh.state).base.version == 7


def test_a_commit_after_it_starts_from_the_older_one_and_writes_a_new_one(store):
    wanted = live(reopen(store).session.head())
    lose_leaf(store)
    table = reopen(store)
    (second,) = (s for s in wanted if s.chunk == DAYS[1])
    commit(table, drop_of(second), operation="delete")
    other = reopen(store)
    assert live(other.session.head()) == [s for s in wanted if s != second]
    assert other.session.log.header(table.session.head().version).keyframe != 7
    assert other.session.head().base.version == table.session.head().version


def test_a_damaged_leaf_is_noticed_as_a_missing_one_is(store):
    wanted = live(reopen(store).session.head())
    key, body = lose_leaf(store)
    store.put_if_absent(key, body)
    replace_object(store, key, body[:-9])
    table = reopen(store)
    assert live(table.session.head()) == wanted
    assert table.session.log.load_touched(table.session.head())[0].base != table.session.head().base
