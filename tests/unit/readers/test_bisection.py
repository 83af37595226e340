"""bisect: the first version at which a question is true, in few questions."""

import pytest
from support import builders

from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.readers import bisect, count
from eventlog.store.memory import MemoryStore
from eventlog.writers import append


@pytest.fixture
def table():
    made = builders.create(MemoryStore())
    for number in range(20):
        append(made, builders.events(1, first=number))
    return made


@pytest.mark.parametrize("turn", range(1, 21))
def test_the_first_version_is_found_in_few_questions(table, turn):
    found = bisect(table, lambda version: count(table, version=version) >= turn)
    assert (found.version, found.already) == (turn, False)
    assert len(found.answers) <= 2 + 5
    assert list(found.answers)[:2] == [0, 20]


def test_both_ends_are_asked_first(table):
    already = bisect(table, lambda version: True)
    assert (already.version, already.already, already.answers) == (0, True, {0: True})
    never = bisect(table, lambda version: False)
    assert (never.version, never.already, never.answers) == (None, False, {0: False, 20: False})
    table.tag("good", 4)
    part = bisect(table, lambda version: version >= 6, "good", 8)
    assert (part.version, list(part.answers)[:2]) == (6, [4, 8])
    assert bisect(table, lambda version: False, 3, 3).answers == {3: False}


def test_wrong_ranges_are_refused(table):
    with pytest.raises(InvalidInput, match="before"):
        bisect(table, lambda version: True, 5, 4)
    with pytest.raises(VersionNotFound):
        bisect(table, lambda version: True, "unknown")
