"""Late writers: an upload that a fence passed by is staged again, or refused; never half of it."""

from datetime import timedelta

import pytest
from support.builders import (
    Spy,
    accepted_in,
    check_sound,
    commit,
    create,
    events,
    live,
    reopen,
    replace_object,
    row_names,
)

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.model.actions import Fence
from eventlog.readers import count
from eventlog.table.stage_again import commit_staged
from eventlog.writers import append, overwrite
from eventlog.writers.batch import stage

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}


def late(table, happens):
    """A handle of a writer to whom something happens between its upload and its commit."""
    spy = Spy(table.store)

    def meet(key):
        if key.startswith(keys.LOG_PREFIX):
            spy.before_put = lambda _: None
            happens()

    spy.before_put = meet
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    return mine, spy


def fence(table):
    other = reopen(table.store)
    commit(other, Fence(other.session.head().version + 1))


@pytest.fixture
def table():
    table = create()
    append(table, events(2, days=2))
    return table


def test_a_fenced_append_is_staged_again_and_lands_once(table):
    mine, spy = late(table, lambda: fence(table))
    version = append(mine, events(2, first=10, days=2))
    head = table.refresh()
    assert head.version == version
    assert all(s.epoch >= head.meta.fence for s in live(head) if s.version == version)
    assert sorted(row_names(table)) == ["row 0", "row 1", "row 10", "row 11"]
    assert spy.deletes == []  # what it staged first is vacuum's
    check_sound(table.store)


@pytest.mark.hazard("C8")
def test_the_second_form_keeps_the_id_of_the_transaction(table):
    mine, spy = late(table, lambda: fence(table))
    append(mine, events(2, first=10))
    sent = [b for k, b in spy.puts if k.startswith(keys.LOG_PREFIX) and b'"transactions"' in b]
    ids = {body.split(b'"transactions":[{"id":"')[1][:32].decode() for body in sent}
    assert len(sent) == 2
    assert len(ids) == 1
    assert len(accepted_in(table.store, ids.pop())) == 1


def test_a_fenced_overwrite_replaces_what_it_would_have(table):
    mine, _ = late(table, lambda: fence(table))
    overwrite(mine, events(1, first=10), **DAY)
    assert sorted(row_names(table)) == ["row 1", "row 10"]


def test_a_long_lived_handle_is_fenced_and_gets_in(table):
    warm = reopen(table.store)
    warm.session.head()
    table.clock.advance(40 * 3_600_000)
    append(table, events(1, first=20))
    vacuum(table, dry_run=False, **NOW)
    append(warm, events(1, first=30))
    assert "row 30" in row_names(table)


def test_an_upload_that_was_taken_is_refused_and_can_be_written_again(table):
    mine, _ = late(table, lambda: vacuum(reopen(table.store), dry_run=False, **NOW))
    table.clock.advance(40 * 3_600_000)
    append(table, events(1, first=20))
    behind = Table.open(mine.uri, store=mine.store, clock=table.clock)
    behind.session._head = table.snapshot(0)
    with pytest.raises(errors.CommitConflict, match="deleted it"):
        append(behind, events(1, first=10))
    before = sorted(row_names(table))
    assert before == ["row 0", "row 1", "row 20"]
    append(behind, events(1, first=10))
    assert sorted(row_names(table)) == sorted([*before, "row 10"])


def test_a_damaged_upload_is_not_copied(table):
    mine, spy = late(table, lambda: None)

    def spoil(key):
        if key.startswith(keys.LOG_PREFIX):
            spy.before_put = lambda _: None
            staged = next(k for k, _ in spy.puts if k.startswith(keys.SEGMENTS_PREFIX))
            replace_object(table.store, staged, b"other bytes")
            fence(table)

    spy.before_put = spoil
    with pytest.raises(errors.CommitConflict):
        append(mine, events(1, first=10))
    assert sorted(row_names(table)) == ["row 0", "row 1"]


def test_fences_that_keep_rising_end_in_a_conflict(table):
    spy = Spy(table.store)

    def always(key):
        if key.startswith(keys.LOG_PREFIX):
            spy.before_put = lambda _: None
            fence(table)
            spy.before_put = always

    spy.before_put = always
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    with pytest.raises(errors.CommitConflict, match="fence"):
        append(mine, events(1, first=10))
    assert sorted(row_names(table)) == ["row 0", "row 1"]


@pytest.mark.parametrize("since", ["nothing", "replaced"])
def test_what_landed_before_the_fence_is_not_staged_again(table, since):
    head = table.session.head()
    adds = stage(table, head, events(1, first=10), 2**29)
    twice = table.transaction("append", adds, read_version=head.version)
    first = commit_staged(table.session, twice)
    if since == "replaced":
        overwrite(table, events(1, first=20), **DAY)
    fence(table)
    before = sorted(row_names(table))
    assert commit_staged(reopen(table.store).session, twice) == first
    assert sorted(row_names(table)) == before
    assert accepted_in(table.store, twice.id) == [first]


@pytest.mark.hazard("C7")
def test_c7_a_writer_that_is_refused_deletes_nothing(table):
    mine, spy = late(table, lambda: overwrite(reopen(table.store), events(1, first=20), **DAY))
    with pytest.raises(errors.CommitConflict):
        overwrite(mine, events(1, first=10), **DAY)
    assert spy.deletes == []
    assert sorted(row_names(table)) == ["row 1", "row 20"]


def test_a_warm_handle_gets_in_after_a_fence():
    table = create()
    append(table, events(1))
    other = reopen(table.store, seed=3)
    other.commit(other.transaction("fence", [Fence(2)]))
    append(other, events(1))
    append(table, events(1))
    assert count(table) == 3
