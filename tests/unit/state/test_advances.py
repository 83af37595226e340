"""Units of work that are done at once: a group goes on from where its writer believed the app."""

import pytest
from support.builders import add, check_sound, commit, create, events, row_names

from eventlog import Table, errors
from eventlog.model.actions import Advance
from eventlog.model.records import App
from eventlog.writers import append
from eventlog.writers.batch import stage


@pytest.fixture
def table():
    return create()


def refused(table, *actions):
    with pytest.raises(errors.CommitConflict) as caught:
        commit(table, *actions)
    return str(caught.value)


def grouped(table, *advances, first, count=1):
    """Commit rows with the advances."""
    adds = stage(table, table.session.head(), events(count, first=first), 2**24)
    return commit(table, *advances, *adds)


def marks(table):
    return {name: mark.seq for name, mark in table.refresh().meta.apps.items()}


@pytest.mark.hazard("I4")
def test_i4_of_two_that_go_on_from_one_sequence_one_is_void(table):
    commit(table, Advance("one", None, 4), add(table, "2013-01-07"))
    for old in (None, 3, 5):
        assert "app 'one' is at sequence 4 by now" in refused(table, Advance("one", old, 9))
    commit(table, Advance("one", 4, 6), Advance("two", None, 0), add(table, "2013-01-08"))
    assert "is at sequence 6 by now, and not 4" in refused(
        table, Advance("one", 4, 8), add(table, "2013-01-09")
    )
    assert marks(table) == {"one": 6, "two": 0}
    assert table.session.head().totals.segments == 2
    check_sound(table.store)


@pytest.mark.parametrize("new", [4, 3])
def test_an_app_is_advanced_forward_only(table, new):
    commit(table, Advance("one", None, 4))
    assert f"sequence {new} of app 'one' does not come after 4" in refused(
        table, Advance("one", 4, new)
    )


def test_an_app_id_has_characters(table):
    with pytest.raises(errors.InvalidInput, match="an app id"):
        commit(table, Advance("", None, 4))


def test_advances_and_single_units_continue_each_other(table):
    commit(table, Advance("one", None, 4))
    assert table.commit(table.transaction("append", [], app=App("one", 4))) == 1  # it is done
    table.commit(table.transaction("append", [], app=App("one", 5)))
    commit(table, Advance("one", 5, 6))
    assert marks(table) == {"one": 6}
    assert [entry.version for entry in table.history(app="one")] == [3, 2, 1]


def test_an_append_that_advances_is_published_as_other_appends_are():
    one = create(properties={"combine_after": "1"})
    two = Table.open(one.uri, store=one.store, clock=one.clock)
    for n in range(12):  # each finds the other's commit in its slot
        for table, app in ((one, "one"), (two, "two")):
            old = None if n == 0 else n - 1
            commit(table, Advance(app, old, n), add(table, "2013-01-07"))
    assert marks(one) == {"one": 11, "two": 11}
    assert [*one.store.list("_intents/")]


def test_units_of_a_group_are_merged_with_their_rows():
    table = create()
    commit(table, Advance("one", None, 4))
    branch = table.branch("later")
    append(branch, events(2), app_id="other", app_seq=0)
    grouped(branch, Advance("one", 4, 6), first=2)
    table.merge("later")
    assert marks(table) == {"one": 6, "other": 0}
    assert row_names(table) == ["row 0", "row 1", "row 2"]
    grouped(table, Advance("one", 6, 9), first=3)
    assert row_names(table) == ["row 0", "row 1", "row 2", "row 3"]


@pytest.mark.parametrize("ahead", ["branch", "table"])
def test_of_groups_that_share_units_no_row_is_lost_or_there_twice(ahead):
    """Who is ahead did all units of the other one, cut into other groups."""
    table = create()
    commit(table, Advance("one", None, 4))
    branch = table.branch("later")
    other, first = (table, branch) if ahead == "branch" else (branch, table)
    grouped(first, Advance("one", 4, 6), first=5, count=2)
    grouped(first, Advance("one", 6, 7), first=7)
    grouped(other, Advance("one", 4, 5), first=5)
    table.merge("later")
    assert marks(table) == {"one": 7}
    assert row_names(table) == ["row 5", "row 6", "row 7"]
