"""A segment id that is live cannot be added again."""

import msgspec
import pytest
from support import builders
from support.builders import (
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
    replaced,
)

from eventlog import Table, errors
from eventlog.fsck.check import fsck
from eventlog.state.delta import add_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append


def test_an_id_that_is_live_is_refused_in_a_later_epoch_too():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    append(table, events(1, first=5))
    table = reopen(table.store)
    first = live(table.session.head())[0]
    again = replaced(add_of(first), epoch=table.session.head().version)
    with pytest.raises(errors.CommitConflict, match="already live"):
        commit(table, again)
    assert fsck(Table(table.store)).ok


def test_an_append_of_fresh_ids_still_reads_no_leaf(monkeypatch):
    monkeypatch.setattr("eventlog.state.keyframe.INLINE_SEGMENTS", 2)
    counting = CountingStore(MemoryStore())
    table = create(counting, properties={"keyframe_commits": "4"})
    for n in range(9):
        append(table, events(1, first=n))
    counting.reset()
    append(table, events(1, first=50))
    assert (counting.counts.get, counting.counts.put) == (0, 2)


def test_an_id_that_is_live_cannot_be_added_under_another_key():
    table = create()
    append(table, events(1))
    (segment,) = table.snapshot().segments()
    twin = msgspec.structs.replace(
        builders.add(table), id=segment.id, chunk=segment.chunk, epoch=segment.epoch + 1
    )
    with pytest.raises(errors.CommitConflict, match="already live"):
        table.commit(table.transaction("append", [twin]))
    assert reopen(table.store).session.head().version == 1
    append(table, events(1))
    builders.check_sound(table.store)


@pytest.mark.parametrize("dropped", [False, True])
def test_an_id_of_ones_own_that_is_added_again_at_a_later_epoch_is_refused(dropped):
    """That a program made the id itself says nothing of another epoch: the segment may be live."""
    table = create(MemoryStore())
    append(table, events(2))
    table.write_keyframe()
    (segment,) = live(table.session.head())
    again = replaced(add_of(segment), epoch=table.session.head().version)
    actions = [drop_of(segment), again] if dropped else [again]
    with pytest.raises(errors.CommitConflict, match="is already live"):
        table.commit(table.transaction("again", actions))
    check_sound(table.store)


def test_an_id_that_is_live_in_another_chunk_is_refused(monkeypatch):
    """The rule asks for the id in the whole table, not in the leaves of the chunk alone (F6)."""
    monkeypatch.setattr("eventlog.state.keyframe.INLINE_SEGMENTS", 2)
    monkeypatch.setattr("eventlog.state.keyframe.LEAF_TARGET", 2)
    monkeypatch.setattr("eventlog.state.keyframe.LEAF_MAX", 4)
    table = create(MemoryStore())
    for day in range(1, 20):
        commit(table, builders.add(table, f"2013-01-{day:02d}"))
    table.write_keyframe()
    table = reopen(table.store)
    first = live(table.refresh())[0]
    other = "2013-01-19" if first.chunk < "2013-01-15" else "2013-01-01"
    again = replaced(add_of(first), chunk=other, epoch=table.session.head().version)
    with pytest.raises(errors.CommitConflict, match="already live"):
        commit(table, again)
    check_sound(table.store)
