"""Tasks of compaction whose inputs lose rows while they run: the outputs lose them, too."""

from itertools import pairwise
from unittest import mock

import pytest
from support.builders import Spy, check_sound, create, events, live, reopen, sorted_names
from support.compaction_tasks import SMALL, policy, task_of
from support.deleting import delete_rows
from support.replacements import replace

from eventlog.compaction import execute
from eventlog.compaction.execute import perform
from eventlog.format import keys
from eventlog.model.actions import Add, Replace
from eventlog.readers import scan
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite


@pytest.fixture
def table():
    """Rows 0 to 11 in four segments of a day."""
    table = create()
    for n in range(4):
        append(table, events(3, first=3 * n))
    return table


def meanwhile(*acts, before_commit=()):
    """Let others act when the outputs were made, and each time before they are committed."""
    made, commit = execute.rewrite, execute.commit_staged
    waiting = list(before_commit)

    def rewrite(*args, **options):
        result = made(*args, **options)
        for act in acts:
            act()
        return result

    def commit_staged(session, transaction):
        if waiting:
            waiting.pop(0)()
        return commit(session, transaction)

    return mock.patch.multiple(execute, rewrite=rewrite, commit_staged=commit_staged)


def without(*gone):
    return sorted(f"row {n}" for n in range(12) if n not in gone)


@pytest.mark.parametrize("settings", [SMALL, policy(sort_by=("name",))], ids=["", "sorted"])
def test_rows_that_are_deleted_while_it_runs_stay_deleted(table, settings):
    other = reopen(table.store)
    with meanwhile(lambda: delete(other, where="name IN ('row 1', 'row 7')")):
        outcome = perform(table, task_of(table), settings)
    assert outcome.status == "done"
    (segment,) = live(table.refresh())
    assert (segment.rows, segment.live_rows) == (12, 10)
    assert sorted_names(table) == without(1, 7)
    check_sound(table.store)


def test_deletes_before_each_try_of_the_commit_only_repeat_it(table):
    other, task = reopen(table.store), task_of(table)
    acts = [lambda n=n: delete(other, where=f"name = 'row {n}'") for n in (2, 4, 6)]
    with meanwhile(before_commit=acts):
        outcome = perform(table, task, SMALL)
    assert outcome.status == "done"
    assert sorted_names(table) == without(2, 4, 6)
    assert live(table.refresh())[0].live_rows == 9


def test_rows_that_were_deleted_before_are_not_in_the_outputs(table):
    other = reopen(table.store)
    first = next(s for s in live(table.refresh()) if s.version == 1)
    delete_rows(table, {first.id: [0]})
    with meanwhile(lambda: delete(other, where="name = 'row 2'")):
        assert perform(table, task_of(table), SMALL).status == "done"
    (segment,) = live(table.refresh())
    assert (segment.rows, segment.live_rows) == (11, 10)
    assert sorted_names(table) == without(0, 2)


@pytest.mark.parametrize("how", ["delete", "drop", "drop and come back"])
def test_an_input_that_is_deleted_whole_ends_no_task(table, how):
    other, expected = reopen(table.store), without(3, 4, 5)
    second = next(s for s in live(table.refresh()) if s.version == 2)
    task = task_of(table)
    if how == "delete":
        act = lambda: delete(other, where="name IN ('row 3', 'row 4', 'row 5')")
    elif how == "drop":
        act = lambda: other.drop_segments([second], reason="a test")
    else:
        expected = without()

        def act():
            other.drop_segments([second], reason="a test")
            other.restore(4)

    with meanwhile(act):
        outcome = perform(table, task, SMALL)
    assert outcome.status == "done"
    assert sorted_names(table) == expected
    (made,) = (s for s in live(table.refresh()) if s.id in outcome.made)
    assert (made.rows, made.live_rows) == (12, 9)
    assert outcome.bytes_out == made.bytes
    check_sound(table.store)


def test_beside_deletes_it_tries_again_at_once_and_sends_a_commit_for_each_try(table):
    """Nothing is published for others to include: they delete rows, and would void it."""
    other, spy, tried = reopen(table.store), Spy(table.store), []

    def overtaken(key):
        if keys.parse_log_key(key) and len(tried) < 3:
            tried.append(key)
            delete(other, where=f"name = 'row {len(tried)}'")

    spy.before_put = overtaken
    assert perform(reopen(spy), task_of(table), SMALL).status == "done"
    assert len(tried) == 3
    sent = [key for key, _ in spy.puts if keys.parse_segment_key(key) is None]
    assert sent == [keys.commit_key(version) for version in range(5, 9)]
    assert sorted_names(table) == without(1, 2, 3)


def test_commits_that_came_meanwhile_are_read_once(table):
    """A segment is dropped, so that all of them are looked through for rewrites of it."""
    other, task = reopen(table.store), task_of(table)
    counting, numbers = CountingStore(table.store), []

    def act(n):
        delete(other, where=f"name = 'row {n}'")
        numbers.append(counting.counts.get)

    acts = [lambda n=n: act(n) for n in (3, 6, 7, 9, 10)]
    drop = lambda: delete(other, where="name IN ('row 0', 'row 1', 'row 2')")
    with meanwhile(drop, before_commit=acts):
        outcome = perform(reopen(counting), task, SMALL)
    assert outcome.status == "done"
    first, *later = (b - a for a, b in pairwise(numbers))
    assert max(later) <= first
    assert sorted_names(table) == without(0, 1, 2, 3, 6, 7, 9, 10)


def test_nothing_is_committed_where_no_row_is_left(table):
    other, task = reopen(table.store), task_of(table)
    day = {"start": "1970-01-01", "end": "1970-01-02"}
    with meanwhile(lambda: overwrite(other, events(1, first=90), **day)):
        outcome = perform(table, task, SMALL)
    assert outcome.status == "superseded"
    assert sorted_names(table) == ["row 90"]


def test_an_input_that_another_rewrite_took_is_still_the_end_of_a_task(table):
    other, task = reopen(table.store), task_of(table)
    two = [s for s in live(other.refresh()) if s.version < 3]

    def act():
        replace(other, two)
        delete(other, where="name = 'row 8'")

    with meanwhile(act):
        outcome = perform(table, task, SMALL)
    assert outcome.status == "superseded"
    assert sorted_names(table) == without(8)
    assert len(live(table.refresh())) == 3


def test_outputs_of_which_all_rows_were_deleted_are_not_committed(table):
    other = reopen(table.store)
    for n in range(40):
        append(table, events(200, first=1000 + 200 * n))
    task = task_of(table)
    with meanwhile(lambda: delete(other, where="value >= 500 AND value < 2500")):
        outcome = perform(table, task, policy(target_bytes=4096))
    assert outcome.status == "done"
    there = live(table.refresh())
    assert {s.id for s in there} == set(outcome.made)
    assert sum(s.live_rows for s in there) == scan(table).to_table().num_rows == 12 + 4000
    assert outcome.bytes_out == sum(s.bytes for s in there)


def test_the_commit_balances_live_rows_and_says_so(table):
    other = reopen(table.store)
    with meanwhile(lambda: delete(other, where="name = 'row 1'")):
        perform(table, task_of(table), SMALL)
    commit = table.session.log.read(table.refresh().version)[0]
    (transaction,) = commit.transactions
    (said,) = (a for a in transaction.actions if isinstance(a, Replace))
    (add,) = (a for a in transaction.actions if isinstance(a, Add))
    assert said.deletes == 0
    assert (add.rows, add.live_rows) == (12, 11)
    assert commit.header.changes.rows == 0
