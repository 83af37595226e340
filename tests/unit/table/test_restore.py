"""restore: afterwards exactly the segments of the earlier version are live, and nothing is lost."""

import random

import pytest
from support import builders

from eventlog import Table, errors
from eventlog.errors import CommitConflict, VersionNotFound, VersionVacuumed
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.actions import Add, Drop, Fence, Horizon, Restore, SameSegments
from eventlog.state import fold
from eventlog.state.delta import drop_of
from eventlog.table.restoration import restoration

CHUNKS = [f"2013-01-{day:02d}" for day in range(1, 8)]


def stored(table, *arguments, **options):
    """An add whose object is there, whatever it holds."""
    made = builders.add(table, *arguments, **options)
    table.store.put_if_absent(keys.segment_key(made.epoch, made.chunk, made.id), b"x")
    return made


def objects(snapshot):
    """What the live segments are, whichever commit made them live."""
    return {s.id: builders.replaced(s, version=0, partition=0) for s in snapshot.segments()}


def live(table, version=None):
    return objects(table.snapshot(version))


def history(seed, steps=30):
    """A table with a random history of adds, replacements, drops and restores."""
    choose = random.Random(seed)
    table = builders.create(seed=seed, properties={"keyframe_commits": "4"})
    for _ in range(steps):
        head = table.session.head()
        there = head.segments()
        gone = choose.sample(there, min(len(there), choose.randrange(4)))
        fresh = [stored(table, choose.choice(CHUNKS)) for _ in range(choose.randrange(1, 4))]
        match choose.randrange(5):
            case 0 | 1:
                builders.commit(table, *fresh)
            case 2 if gone:
                builders.commit(table, *map(drop_of, gone), operation="delete")
            case 3 if head.version > 2:
                table.restore(choose.randrange(head.version))
            case _:
                builders.commit(table, *map(drop_of, gone), *fresh, operation="replace")
    return table


def once_replaced():
    """A table whose version 1 has two segments; version 2 replaces one, version 3 adds one."""
    table = builders.create()
    first, second = stored(table, CHUNKS[0]), stored(table, CHUNKS[1])
    builders.commit(table, first, second)
    (gone,) = [s for s in table.session.head().segments() if s.id == first.id]
    builders.commit(table, drop_of(gone), stored(table, CHUNKS[0]), operation="replace")
    builders.commit(table, stored(table, CHUNKS[2]))
    return table


@pytest.mark.verify
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_every_version_of_a_random_history_comes_back(seed):
    table = history(seed)
    top = table.session.head().version
    versions = list(range(top + 1))
    random.Random(seed).shuffle(versions)
    for version in versions:
        wanted = live(table, version)
        restored = table.restore(version)
        assert live(table) == wanted
        assert table.session.head().version == restored
    builders.check_sound(table.store)
    assert fsck(Table(table.store), objects=False).findings == ()


def test_old_versions_stay_as_they_were():
    table = once_replaced()
    before = [live(table, version) for version in range(4)]
    assert table.restore(1) == 4
    assert [live(table, version) for version in range(5)] == [*before, before[1]]
    entry = next(table.history())
    assert (entry.operation, entry.adds, entry.drops) == ("restore", 1, 2)


def test_restore_is_undone_by_a_restore():
    table = once_replaced()
    before = live(table)
    table.restore(1)
    table.restore(3)
    assert live(table) == before


def test_only_what_differs_is_dropped_and_added():
    table = once_replaced()
    actions = restoration(table.snapshot(), table.snapshot(1))
    kinds = [type(action) for action in actions]
    assert kinds.count(Drop) == 2
    assert kinds.count(Add) == 1
    assert Restore(1) in actions


@pytest.mark.parametrize("version", [3, 2])
def test_nothing_to_do_commits_nothing(version):
    table = once_replaced()
    table.restore(version)
    head = table.session.head().version
    assert table.restore(version) == head
    assert restoration(table.snapshot(), table.snapshot(version)) == []


def test_what_came_back_already_stays():
    """The same object under the entry of a later version is not dropped and added again."""
    table = once_replaced()
    table.restore(1)
    table.restore(2)
    assert restoration(table.snapshot(), table.snapshot(2)) == []


def test_fence_above_the_old_epochs_is_no_obstacle():
    table = once_replaced()
    builders.commit(table, Fence(3))
    (old,) = table.diff(3, 1).added
    assert old.epoch < table.session.head().meta.fence
    table.restore(1)
    assert live(table) == live(table, 1)


def test_schema_and_properties_stay():
    table = once_replaced()
    wider = builders.SCHEMA.append(
        builders.schema.to_arrow(table.session.head().stored_schema).field(1)
    )
    wider = wider.set(3, wider.field(3).with_name("more"))
    table.add_columns(wider)
    table.set_properties({"user.note": "kept"})
    table.restore(1)
    assert table.session.head().schema.names[-1] == "more"
    assert table.session.head().properties["user.note"] == "kept"


def test_rows_that_others_add_meanwhile_are_a_conflict():
    table = once_replaced()
    other = builders.reopen(table.store)
    actions = restoration(table.snapshot(), table.snapshot(1))
    transaction = table.transaction("restore", actions)
    builders.commit(other, stored(other, CHUNKS[6]))
    with pytest.raises(CommitConflict, match="added or dropped meanwhile"):
        table.commit(transaction)
    assert live(table) == live(other)


def test_drop_of_the_same_segment_meanwhile_is_a_conflict():
    table = once_replaced()
    other = builders.reopen(table.store)
    transaction = table.transaction("restore", restoration(table.snapshot(), table.snapshot(1)))
    newest = [s for s in table.session.head().segments() if s.chunk == CHUNKS[2]]
    builders.commit(other, *map(drop_of, newest), operation="delete")
    with pytest.raises(CommitConflict, match="no longer live"):
        table.commit(transaction)


def test_what_touches_no_segment_meanwhile_is_no_conflict():
    table = once_replaced()
    other = builders.reopen(table.store)
    transaction = table.transaction("restore", restoration(table.snapshot(), table.snapshot(1)))
    other.set_properties({"user.note": "hello"})
    assert table.commit(transaction) == 5
    assert live(table) == live(table, 1)


def test_horizon_that_rises_meanwhile_is_a_conflict():
    table = once_replaced()
    other = builders.reopen(table.store)
    transaction = table.transaction("restore", restoration(table.snapshot(), table.snapshot(1)))
    builders.commit(other, Horizon(2), operation="vacuum")
    with pytest.raises(CommitConflict, match="horizon"):
        table.commit(transaction)


def test_vacuumed_target_is_refused_with_what_to_do():
    table = once_replaced()
    builders.commit(table, Horizon(2), operation="vacuum")
    with pytest.raises(VersionVacuumed, match=r"version 1 .* from 2 on") as caught:
        table.restore(1)
    assert "pin" in caught.value.message
    assert table.restore(2) == 5


def test_version_that_is_not_there():
    with pytest.raises(VersionNotFound):
        once_replaced().restore(99)


def test_restore_of_more_than_fits_into_a_commit():
    table = builders.create()
    builders.commit(table, *(stored(table, CHUNKS[n % 7]) for n in range(1500)))
    before = live(table)
    head = table.session.head()
    builders.commit(table, *map(drop_of, head.segments()), operation="delete")
    assert live(table) == {}
    version = table.restore(1)
    assert live(table) == before
    found, _ = table.session.log.read(version)
    assert found.transactions[0].spill is not None
    assert fsck(Table(table.store), objects=False).ok


@pytest.mark.parametrize("drops", [True, False])
def test_a_segment_that_others_drop_meanwhile_is_a_conflict(drops):
    table = builders.create()
    for _ in range(3):
        builders.commit(table, stored(table))
    actions = restoration(table.snapshot(), table.snapshot(2))
    other = builders.reopen(table.store)
    mine = table.transaction("restore", actions)
    kept = builders.live(table.snapshot(1))[0]  # live in the head and in the target
    if drops:
        builders.commit(other, builders.drop_of(kept))
        with pytest.raises(errors.CommitConflict, match="added or dropped meanwhile"):
            table.commit(mine)
    else:
        other.pin("no matter")
        table.commit(mine)
        assert live(table) == live(table, 2)


def test_what_earlier_transactions_of_a_commit_do_is_seen():
    table = builders.create()
    builders.commit(table, stored(table))
    wanted = SameSegments(table.session.head().hash_sum())
    first, second = (table.transaction("test", [wanted, stored(table)]) for _ in range(2))
    effect = fold.judge([first, second], builders.view_of(table, first, second), 2**40)
    assert list(effect.void) == [second.id]


def test_a_dry_run_says_what_a_restore_does_and_commits_nothing():
    table = history(5)
    head = table.session.head()
    plan = table.restore(3, dry_run=True)
    assert table.refresh().version == head.version
    assert (plan.head.version, plan.target.version) == (head.version, 3)
    assert plan.commit() == head.version + 1
    assert live(table) == live(table, 3)
