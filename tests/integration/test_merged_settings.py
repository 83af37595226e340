"""Properties and granularity of copies and branches that are merged both ways become the same."""

import random

import pytest
from support.builders import START_MS, create, events

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.replication import follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.table.settings import move_granularity
from eventlog.writers import append

NAME = "staging_hours"


def pair(branch):
    """A table and its copy or branch, each with the same settings."""
    one = create(MemoryStore())
    one.set_granularity("day")
    append(one, events(1))
    if branch:
        return one, one.branch("b")
    store = MemoryStore()
    follow(one, Table(store))
    return one, Table(store, ManualClock(START_MS, 5))


def merged(one, two, *, turned):
    """Merge both ways, twice; return what the last two commit, and None after a conflict."""
    sides = [(two, one), (one, two)] if turned else [(one, two), (two, one)]
    try:
        for source, target in sides:
            merge(source, target)
        return [merge(source, target).commits for source, target in sides]
    except errors.CommitConflict:
        return None


def following(branch):
    """A table whose granularity follows its data, and its copy or branch."""
    one = create(MemoryStore())
    append(one, events(1))
    if branch:
        return one, one.branch("b")
    store = MemoryStore()
    follow(one, Table(store))
    return one, Table(store, ManualClock(START_MS, 5))


CASES = [
    (["hour", "day"], ["hour"], "day"),  # it went on from the other's value
    (["hour", "day"], ["month"], "month"),
    (["day", "hour"], ["hour"], "hour"),
    (["hour", "month"], ["hour"], "month"),
    (["hour"], ["month"], None),
    (["hour", "month"], ["month", "hour"], None),
]


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("branch", [False, True], ids=["copy", "branch"])
@pytest.mark.parametrize("turned", [False, True], ids=["there", "back"])
@pytest.mark.parametrize(("first", "second", "end"), CASES)
def test_a_setting_that_both_sides_change_ends_alike(branch, turned, first, second, end):
    one, two = pair(branch)
    for side, values in ((one, first), (two, second)):
        for value in values:
            side.set_granularity(value)
    left = merged(one, two, turned=turned)
    if end is None:
        assert left is None
        assert (one.refresh().layout.granularity, two.refresh().layout.granularity) == (
            first[-1],
            second[-1],
        )
    else:
        assert left == [0, 0]
        assert one.refresh().layout.granularity == two.refresh().layout.granularity == end


@pytest.mark.hazard("G3")
def test_a_property_that_one_side_tries_and_removes_is_what_the_other_side_sets():
    one, two = pair(branch=False)
    one.set_properties({NAME: "20"})
    one.set_properties({NAME: None})
    two.set_properties({NAME: "10"})
    assert merged(one, two, turned=False) == [0, 0]
    assert one.refresh().properties[NAME] == two.refresh().properties[NAME] == "10"


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("turned", [False, True], ids=["there", "back"])
def test_a_setting_that_a_side_changed_after_it_had_the_other_ones_counts(turned):
    one, two = pair(branch=False)
    two.set_properties({NAME: "10"})
    merge(two, one)
    two.set_properties({NAME: None})
    assert merged(one, two, turned=turned) == [0, 0]
    assert NAME not in one.refresh().properties
    assert NAME not in two.refresh().properties


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("seed", range(24))
def test_settings_of_random_histories_end_alike_or_in_a_conflict(seed):
    chance = random.Random(seed)
    sides = pair(branch=bool(seed % 2))
    changed = {}
    for _ in range(chance.randint(2, 8)):
        n = chance.randrange(2)
        if chance.random() < 0.6:
            changed[n] = chance.choice(["hour", "day", "month"])
            sides[n].set_granularity(changed[n])
        elif chance.random() < 0.4:
            append(sides[n], events(1))
        else:
            try:
                merge(sides[n], sides[1 - n])
            except errors.CommitConflict:
                return
    left = merged(*sides, turned=chance.random() < 0.5)
    if left is None:
        assert len(changed) == 2
        return
    assert left == [0, 0]
    ends = [side.refresh().layout.granularity for side in sides]
    assert ends[0] == ends[1]
    if len(changed) == 1:
        assert ends[0] in changed.values()


def to_the_end(pairs):
    """Merge all pairs until none of them has anything to commit."""
    while sum(merge(source, target).commits for source, target in pairs):
        pass


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("again", ["one", "two", "three"])
def test_w18_what_three_copies_chose_differently_is_named_and_set_once_more(again):
    stores = {"one": MemoryStore(), "two": MemoryStore(), "three": MemoryStore()}
    tables = {"one": create(stores["one"])}
    for seed, name in enumerate(("two", "three"), 2):
        follow(tables["one"], Table(stores[name]))
        tables[name] = Table(stores[name], ManualClock(START_MS, seed))
    one, two, three = tables.values()
    for table, value in ((three, "21"), (two, "22"), (one, "22")):
        table.set_properties({NAME: value})
    merge(three, two, take="source")
    merge(three, one, take="target")
    merge(two, three)
    merge(one, three)
    merge(two, one, take="source")
    merge(one, two)
    every = [(two, three), (three, two), (two, one), (one, two), (three, one), (one, three)]
    to_the_end(every)
    values = {name: table.refresh().properties[NAME] for name, table in tables.items()}
    assert len(set(values.values())) == 2
    named = [merge(source, target).differing for source, target in every]
    assert sum(bool(found) for found in named) == 4
    assert {name for found in named for name in found} == {f"property {NAME!r}"}
    tables[again].set_properties({NAME: "33"})
    to_the_end(every)
    assert {table.refresh().properties[NAME] for table in tables.values()} == {"33"}
    assert not any(merge(source, target).differing for source, target in every)


def test_a_value_that_the_other_direction_brings_is_not_named():
    one, two = pair(branch=False)
    append(one, events(1, first=5))
    one.set_properties({NAME: "20"})
    append(two, events(1, first=6))
    assert merge(two, one).commits == 1
    assert merge(two, one).differing == ()
    assert merge(one, two).commits == 2
    assert merge(one, two).differing == ()


def cut_of(side):
    """A side's granularity, and whether it follows the data."""
    head = side.refresh()
    return head.layout.granularity, "auto_granularity" in head.properties


@pytest.mark.parametrize("branch", [False, True], ids=["copy", "branch"])
@pytest.mark.parametrize("turned", [False, True], ids=["there", "back"])
def test_two_granularities_that_followed_the_data_are_no_conflict(branch, turned):
    one, two = following(branch)
    for side, better in ((one, "month"), (two, "year")):
        assert move_granularity(side.session, "day", better)
    assert merged(one, two, turned=turned) is not None
    assert cut_of(one) == cut_of(two) == ("year", True)


@pytest.mark.parametrize("branch", [False, True], ids=["copy", "branch"])
@pytest.mark.parametrize("turned", [False, True], ids=["there", "back"])
def test_a_granularity_that_was_set_counts_against_one_that_followed(branch, turned):
    one, two = following(branch)
    assert move_granularity(one.session, "day", "month")
    two.set_granularity("year")
    assert merged(one, two, turned=turned) is not None
    assert cut_of(one) == cut_of(two) == ("year", False)
