"""Table.history with filters: by operation, writer, app, chunk and time."""

from datetime import timedelta

import pytest
from support import builders
from tidy.definitions import TESTS

from eventlog import Table
from eventlog.errors import InvalidInput, VersionNotReplicated
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite


def versions(table, *arguments, **chosen):
    return [entry.version for entry in table.history(*arguments, **chosen)]


@pytest.fixture
def table():
    """Versions an hour apart: two appends of two apps, an overwrite of a day, a delete, a pin."""
    made = builders.create(MemoryStore())
    steps = (
        lambda: append(made, builders.events(2), app_id="a", app_seq=1),
        lambda: append(made, builders.events(2, day=40, first=2), app_id="b", app_seq=1),
        lambda: overwrite(made, builders.events(1, day=1), start="1970-01-02", end="1970-01-03"),
        lambda: delete(made, where="name = 'row 0' AND value < 1"),
        lambda: made.pin("audit"),
    )
    for step in steps:
        made.clock.sleep(3600)
        step()
    return made


def test_versions_are_chosen_by_what_they_did(table):
    assert versions(table) == [5, 4, 3, 2, 1, 0]
    assert versions(table, operation="append") == [2, 1]
    assert versions(table, app="b") == [2]
    assert versions(table, app="c") == []
    assert versions(table, chunk="1970-01-02") == [4, 3]
    assert versions(table, chunk="1970-02") == [2]
    assert versions(table, chunk="1970-02", operation="pin") == []
    assert versions(table, limit=1, operation="append") == [2]
    assert versions(table, 1, operation="append") == [1]
    (newest,) = table.history(limit=1)
    assert versions(table, writer=newest.writer[:3]) == [5, 4, 3, 2, 1, 0]
    assert versions(table, writer="nobody") == []


def test_versions_above_one_that_is_known_are_listed_alone(table):
    assert versions(table, after=3) == [5, 4]
    assert versions(table, 1, after=3) == []
    assert versions(table, limit=1, after=2) == [5]
    assert versions(table, after=1, operation="append") == [2]
    assert versions(table, after=2, operation="append") == []
    table.tag("loaded", 4)
    assert versions(table, after="loaded") == [6, 5]


def test_versions_are_chosen_by_time(table):
    times = {entry.version: entry.time for entry in table.history()}
    assert versions(table, since=times[3]) == [5, 4, 3]
    assert versions(table, until=times[3]) == [3, 2, 1, 0]
    assert versions(table, until=times[3] - timedelta(milliseconds=1)) == [2, 1, 0]
    assert versions(table, since=times[2], until=times[3], operation="append") == [2]
    assert versions(table, 2, until=times[3]) == [2, 1, 0]
    assert versions(table, until=times[0] - timedelta(hours=1)) == []
    assert versions(table, since=times[5] + timedelta(hours=1)) == []


def test_a_date_as_the_end_is_the_whole_day(table):
    day = next(table.history()).time.date()
    assert versions(table, since=day, until=day) == versions(table)
    assert versions(table, until=str(day)) == versions(table)
    assert versions(table, until=f"{day}T00:00") == []
    assert versions(table, until=day - timedelta(days=1)) == []
    with pytest.raises(InvalidInput):
        versions(table, until=True)


def test_wrong_filters_are_refused(table):
    for wrong in ({"chunk": "yesterday"}, {"since": "2013"}, {"until": 7}):
        with pytest.raises(InvalidInput):
            table.history(**wrong)


def test_each_transaction_of_a_combined_commit_chooses_it_unless_it_is_void():
    table = Table.open(TESTS / "golden" / "tables" / "deletion_vectors")
    combined = next(entry for entry in table.history() if entry.version == 12)
    assert (combined.operation, combined.transactions) == ("append", 4)
    for operation, listed in (
        ("append", True),
        ("update", True),
        ("delete", True),
        ("void", False),
    ):
        assert (12 in versions(table, operation=operation)) is listed
    shown = table.inspect.transactions(12, 1).to_pylist()
    assert sum(row["void"] is None for row in shown) == 4 < len(shown)
    assert {row["operation"] for row in shown if row["void"] is not None} == {"void"}


def test_the_transactions_of_a_copy_end_where_it_starts():
    table = Table.open(TESTS / "golden" / "tables" / "copied")
    shown = table.inspect.transactions().column("version").to_pylist()
    assert sorted(set(shown), reverse=True) == versions(table)
    with pytest.raises(VersionNotReplicated):
        table.inspect.transactions(versions(table)[-1] - 1)
