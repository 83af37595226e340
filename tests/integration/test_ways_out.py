"""Copies of a table become one again, from any state, by the commands that messages name."""

import shlex

import pytest
from support.builders import START_MS, create, events

from eventlog import Table, errors, replication
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import append


def numbers(table):
    found = scan(table.refresh() and table).to_table().column("name").to_pylist()
    return sorted(int(name.removeprefix("row ")) for name in found)


def one_more(table, number):
    append(table, events(1, first=number))


def copy_of(source, seed, **options):
    store = MemoryStore()
    copy = Table(store, ManualClock(START_MS + seed * 10**6, seed))
    follow(source, copy, **options)
    return copy


def table_of(versions):
    t = create(properties={"keyframe_commits": "4"})
    for number in range(versions):
        one_more(t, number)
    return t


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("since", [1, 2, 3, 7, 8, 16, 20, 33])
def test_a_copy_that_began_late_is_merged_however_much_was_written_since(since):
    t = table_of(18)
    copy = copy_of(t, 2, start="keyframe")
    for number in range(since):
        one_more(t, 100 + number)
        one_more(copy, 200 + number)
    with pytest.raises(errors.CommitConflict, match="writes of its own after version 18"):
        follow(t, copy)
    assert merge(t, copy).commits == since
    assert merge(copy, t).commits == since
    assert (merge(t, copy).commits, merge(copy, t).commits) == (0, 0)
    assert numbers(t) == numbers(copy)
    assert len(numbers(t)) == 18 + 2 * since


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("since", [1, 8])
def test_a_copy_of_a_branch_that_began_above_what_it_shares_is_merged_by_way_of_the_branch(since):
    t = table_of(8)
    other = copy_of(t, 2)
    one_more(other, 100)
    for number in range(8, 12):
        one_more(t, number)
    branch = t.branch("audit")
    copy = copy_of(branch, 3)
    for number in range(since):
        one_more(copy, 200 + number)
    before = numbers(copy)
    for source, target in ((other, copy), (copy, other)):
        with pytest.raises(errors.InvalidInput) as refused:
            merge(source, target)
        assert f"`eventlog merge {shlex.quote(other.uri)} TABLE`" in str(refused.value)
        assert f"`eventlog merge TABLE {shlex.quote(copy.uri)}`" in str(refused.value)
    for source, target in ((other, branch), (branch, copy), (copy, branch), (branch, other)):
        merge(source, target)
    assert numbers(copy) == numbers(other) == sorted([*before, 100])


@pytest.mark.hazard("W18")
def test_a_copy_that_began_above_what_it_shares_is_filled_in_by_the_command_that_is_named():
    t = table_of(8)
    other = copy_of(t, 2)
    one_more(other, 100)
    for number in range(8, 16):
        one_more(t, number)
    copy = copy_of(t, 3, start="keyframe")
    one_more(copy, 200)
    with pytest.raises(errors.InvalidInput) as refused:
        merge(other, copy)
    assert f"eventlog replicate TABLE {shlex.quote(copy.uri)} --backfill" in str(refused.value)
    replication.backfill(t, copy)
    assert merge(other, copy).commits == 1
    merge(copy, other)
    assert numbers(copy) == numbers(other) == [*range(16), 100, 200]
