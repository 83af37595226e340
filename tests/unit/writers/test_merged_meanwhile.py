"""Changes and compactions of rows that a merge of another log moves or deletes meanwhile.

Each history is a table and a copy that parted. While one of them changes rows, what the other one
did to the same segments is merged into it.
"""

import pytest
from support.builders import check_sound, reopen
from support.forked_histories import copied
from unit.writers.test_changes_meanwhile import (
    compact,
    crossed,
    drop,
    held,
    one,
    raise_,
    table_of,
    values,
    where,
)

from eventlog.errors import CommitConflict
from eventlog.replication import merge
from eventlog.writers import append, delete, overwrite
from eventlog.writers import merge as merge_rows

CHANGES = {
    "delete": (drop(1, 4), {}),
    "update": (raise_(10, 1, 4), values(1, 4, plus=10)),
    "overwrite": (lambda t: overwrite(t, one(1, 7.0), where=where(1, 4)), {1: 7.0}),
    "merge": (
        lambda t: merge_rows(t, one(1, 7.0), "name", when_matched={"value": "source.value"}),
        {1: 7.0, 4: 2.0},
    ),
}


def parted(*acts):
    """A table, and a copy that did some acts of its own."""
    table = table_of()
    store = copied(table.store)
    for number, act in enumerate(acts):
        act(reopen(store, 70 + number))
    return table, reopen(store, 80)


def brought(other, *before, **choice):
    """Do something on a table, then merge the copy into it."""

    def act(t):
        for number, each in enumerate(before):
            each(reopen(t.store, 60 + number))
        t.refresh()
        merge(other, t, **choice)

    return act


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_a_merged_compaction_moved_are_found_there(name):
    act, wanted = CHANGES[name]
    table, other = parted(compact)
    crossed(table, act, brought(other))
    assert held(check_sound(table.store)) == values(0, 2, 3, 5) | wanted


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_a_merge_deleted_are_gone(name):
    act, wanted = CHANGES[name]
    table, other = parted(drop(0, 3))
    crossed(table, act, brought(other))
    assert held(check_sound(table.store)) == values(2, 5) | wanted


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(
    "theirs",
    [(raise_(100, 1), compact), (drop(0), compact), (compact, raise_(100, 1)), (raise_(100, 1),)],
    ids=["update, compaction", "delete, compaction", "compaction, update", "update"],
)
@pytest.mark.parametrize("ours", [(), (drop(5),)], ids=["alone", "beside a delete"])
@pytest.mark.sample(6, verify=10)
def test_what_both_logs_changed_is_exact_or_a_conflict_that_leads_on(name, theirs, ours):
    act, _ = CHANGES[name]
    table, other = parted(*theirs)
    choice = {"take": "source"} if ours else {}
    try:
        crossed(table, act, brought(other, *ours, **choice))
    except CommitConflict as conflict:
        assert "again" in str(conflict)  # noqa: PT017 - it need not be raised
        act(reopen(table.store, 90))
    # As if the merge had come first.
    wanted, other = parted(*theirs)
    brought(other, *ours, **choice)(reopen(wanted.store, 85))
    act(reopen(wanted.store, 90))
    assert held(check_sound(table.store)) == held(reopen(wanted.store))


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_a_restore_brings_back_elsewhere_are_exact_or_a_conflict(name):
    act, wanted = CHANGES[name]
    table = table_of()
    before = table.session.head().version
    compact(table)

    def restore(t):
        t.restore(before)

    try:
        crossed(table, act, restore)
    except CommitConflict as conflict:
        assert "again" in str(conflict)  # noqa: PT017
        act(reopen(table.store, 90))
    assert held(check_sound(table.store)) == values(0, 2, 3, 5) | wanted


def test_a_compaction_moves_the_deletes_that_a_merge_brings():
    table, other = parted(drop(1, 4))
    _, store = crossed(table, compact, brought(other))
    assert store.tries == 2
    assert held(check_sound(table.store)) == values(0, 2, 3, 5)


def test_logs_of_which_one_deleted_and_one_compacted_are_merged_right():
    table, other = parted(compact)
    delete(reopen(table.store, 95), where=where(1, 4))
    append(other, one(50, 1.0))
    for source, target in ((other, table), (table, other)):
        merge(source, target)
    for t in (table, other):
        assert held(check_sound(t.store)) == values(0, 2, 3, 5) | {50: 1.0}
