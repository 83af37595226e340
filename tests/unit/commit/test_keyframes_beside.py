"""Key frames that are written beside commits: no append waits for one."""

import pytest
from support.builders import (
    START_MS,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    fold_all,
    live,
    reopen,
)

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore


class LaterClock(ManualClock):
    """A clock that does work beside when it is told to."""

    def __init__(self):
        super().__init__(START_MS, 7)
        self.left = []

    def beside(self, work, name):
        self.left.append(work)

    def finish(self):
        while self.left:
            self.left.pop(0)()


def far(store=None, **properties):
    """A table on a store whose requests take time, and a handle with a clock of that kind."""
    store = MemoryStore() if store is None else store
    chosen = {"keyframe_commits": "4", **{k: str(v) for k, v in properties.items()}}
    create(store, properties=chosen)
    table = Table(CountingStore(store), clock=LaterClock())
    table.session.head()
    return store, table


def frames(store):
    parsed = (keys.parse_log_key(o.key) for o in store.list(keys.LOG_PREFIX))
    return sorted(version for version, framed in (p for p in parsed if p) if framed)


def starts(store):
    return [state.header.keyframe for state, _ in fold_all(store)]


def test_commits_go_on_from_the_old_key_frame_until_the_new_one_is_there():
    store, table = far()
    for _ in range(5):
        commit(table, add(table))
    assert frames(store) == []
    assert len(table.clock.left) == 1  # one at a time, though version 4 had a key frame due, too
    table.clock.finish()
    assert frames(store) == [3]
    for _ in range(3):
        commit(table, add(table))
    assert starts(store) == [None] * 6 + [3, 3, 3]
    table.clock.finish()
    assert frames(store) == [3, 7]
    assert {*live(check_sound(store).session.head())} == {*live(table.session.head())}


def test_the_delta_after_a_key_frame_has_what_came_after_its_version_alone():
    store, table = far()
    for _ in range(3):
        commit(table, add(table))
    old = live(table.session.head())
    commit(table, drop_of(old[0]), add(table), operation="replace")  # after the key frame
    new = add(table)
    commit(table, new)
    table.clock.finish()
    commit(table, add(table))
    delta = table.session.head().delta
    assert [*delta.drops] == [old[0].id]
    assert new.id in delta.adds
    assert {old[1].id, old[2].id}.isdisjoint(delta.adds)
    check_sound(store)


def test_a_key_frame_that_cannot_be_written_is_tried_again_by_the_next_commit():
    store = MemoryStore()
    create(store, properties={"keyframe_commits": "4"})
    faulty = FaultyStore(store, [Fault("put", "unavailable", ".keyframe.", occurrence=0)])
    table = Table(faulty, clock=LaterClock())
    table.session.head()
    for _ in range(4):
        commit(table, add(table))
    table.clock.finish()
    assert frames(store) == []
    faulty._plan.clear()
    commit(table, add(table))
    table.clock.finish()
    assert frames(store) == [5]
    check_sound(store)


def test_a_single_commit_writes_its_key_frame_itself():
    """Its process may be frozen, or end, as soon as it has answered."""
    store, table = far()
    for n in range(3):
        commit(reopen(store, 20 + n), add(table))
    table.refresh()
    commit(table, add(table))
    assert table.clock.left == []
    assert frames(store) == [3]


@pytest.mark.parametrize("near", [True, False])
def test_where_reads_cost_no_requests_nothing_is_done_beside(near):
    store = MemoryStore()
    create(store, properties={"keyframe_commits": "4"})
    table = Table(store if near else CountingStore(store), clock=LaterClock())
    for _ in range(4):
        commit(table, add(table))
    assert bool(table.clock.left) is not near
    assert frames(store) == ([3] if near else [])
