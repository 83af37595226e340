"""Changes of rows that others overtake again and again: what they do again, and what they keep."""

from collections import Counter
from datetime import timedelta

import pytest
from support.builders import check_sound, reopen
from support.crashes import fence_now
from support.forked_histories import copied
from support.in_process_spark import update_by_tasks
from support.parted_logs import take_over
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

from eventlog.compaction import vacuum
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.writers import append, merge, overwrite, update

ROUNDS = 12
CHANGES = {
    "update": (raise_(10, 1, 4), values(1, 4, plus=10)),
    "update from Spark": (
        lambda t: update_by_tasks(t, {"value": "value + 10"}, where(1, 4)),
        values(1, 4, plus=10),
    ),
    "overwrite": (lambda t: overwrite(t, one(1, 7.0), where=where(1, 4)), {1: 7.0}),
    "merge": (
        lambda t: merge(t, one(1, 7.0), "name", when_matched={"value": "source.value"}),
        {1: 7.0, 4: 2.0},
    ),
}


def uploads(store):
    """The keys of the segments that a writer stored, beside its commits."""
    return [key for key, _ in store.puts if keys.parse_segment_key(key)]


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_a_compaction_moved_are_not_stored_again(name):
    act, wanted = CHANGES[name]
    table = table_of()
    _, store = crossed(table, act, compact)
    assert store.tries == 2
    assert len(uploads(store)) == 1
    assert held(check_sound(table.store)) == values(0, 2, 3, 5) | wanted


@pytest.mark.parametrize("name", ["update", "merge"])
def test_rows_that_others_changed_are_stored_again(name):
    act, _ = CHANGES[name]
    if name == "merge":
        act = lambda t: merge(
            t, one(1, 10.0), "name", when_matched={"value": "value + source.value"}
        )
    table = table_of()
    _, store = crossed(table, act, raise_(100, 1))
    assert len(uploads(store)) == 2
    assert held(check_sound(table.store))[1] == 0.5 + 100 + 10


def test_a_row_that_was_deleted_and_moved_does_not_come_back():
    table = table_of()
    _, store = crossed(table, raise_(10, 1, 4), lambda t: (drop(4)(t), compact(t)))
    assert len(uploads(store)) == 2
    assert held(check_sound(table.store)) == values(0, 2, 3, 5) | values(1, plus=10)


def test_all_rows_are_stored_again_where_they_are_not_kept():
    table = table_of()
    _, store = crossed(table, lambda t: update(t, {"value": "value + 10"}), compact)
    assert len(uploads(store)) == 2
    assert held(check_sound(table.store)) == values(*range(6), plus=10)


def rival(number):
    """Delete a row that nobody else changes, of the segments that all change."""
    return drop(10 + number)


@pytest.mark.parametrize("name", CHANGES)
def test_no_commit_is_read_more_often_the_longer_a_change_is_overtaken(name):
    act, wanted = CHANGES[name]
    read = []
    for rounds in (3, ROUNDS):
        table = table_of(first=30)
        others = [rival(n) for n in range(rounds)]
        _, store = crossed(table, act, *others)
        assert store.tries == rounds + 1
        commits = Counter(key for key in store.read if key.startswith(keys.LOG_PREFIX))
        read.append(max(commits.values()))
        left = set(range(33)) - {1, 4} - set(range(10, 10 + rounds))
        assert held(check_sound(table.store)) == {n: n / 2 for n in left} | wanted
    assert read[0] == read[1]


@pytest.mark.sample(2, verify=2)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_may_outlast_the_time_that_uploads_have(name):
    act, wanted = CHANGES[name]
    table = table_of(first=30)
    append(table, one(50, 1.0))
    now_ms = table.clock.now_ms()

    def pass_by(number):
        def act(t):
            t.clock.advance(now_ms + 10_000 * (number + 1) - t.clock.now_ms())
            rival(number)(t)
            sweep = {"staging": timedelta(seconds=35), "retention": timedelta(days=1)}
            vacuum(t, dry_run=False, **sweep)

        return act

    _, store = crossed(table, act, *(pass_by(n) for n in range(ROUNDS)))
    assert 1 < len(uploads(store)) <= ROUNDS / 2
    left = set(range(33)) - {1, 4} - set(range(10, 10 + ROUNDS))
    assert held(check_sound(table.store)) == {n: n / 2 for n in left} | wanted | {50: 1.0}


def test_a_copy_that_lost_its_race_is_not_made_again():
    act, wanted = CHANGES["overwrite"]
    table = table_of(first=30)

    def fence_and_pass(t):
        fence_now(t.store)
        rival(1)(reopen(t.store))

    _, store = crossed(table, act, rival(0), fence_and_pass)
    assert len(uploads(store)) == 2
    left = set(range(33)) - {1, 4, 10, 11}
    assert held(check_sound(table.store)) == {n: n / 2 for n in left} | wanted


def test_rows_are_not_followed_into_another_log():
    table = table_of(first=30)
    other = copied(table.store)

    def swap(t):
        for store, first in ((t.store, 0), (other, 10)):
            for n in range(4):  # the session itself looks at the first two and the last
                rival(first + n)(reopen(store))
        take_over(t.store, other, [reopen(t.store).session.head().version - 1])

    with pytest.raises(Corrupt, match="follow"):
        crossed(table, CHANGES["update"][0], swap)


def test_nothing_is_copied_in_a_table_without_a_fence():
    act, _ = CHANGES["overwrite"]
    _, store = crossed(table_of(first=30), act, *(rival(n) for n in range(ROUNDS)))
    assert len(uploads(store)) == 1
