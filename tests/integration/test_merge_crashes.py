"""A merge and a publication that die at any call of a store: done again, all is there once."""

import contextlib

import pytest
from support.builders import START_MS, create, events
from support.crashes import ENDS, MortalStore, quick
from support.forked_histories import copied

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.writers import append, overwrite

STEP = 10  # between the calls at which the default run dies


def handle(store, seed):
    return Table.open("", store=store, clock=ManualClock(START_MS + seed * 10**6, seed))


def cut_off():
    one = create(properties={"keyframe_commits": "2"})
    append(one, events(4, days=2))
    two = handle(copied(one.store), 77)
    append(one, events(2, first=100))
    append(two, events(3, first=200, days=3), app_id="job", app_seq=1)
    overwrite(two, events(1, first=300, day=1), start="1970-01-02", end="1970-01-03")
    return one, two


def names(table):
    table.refresh()
    return sorted(scan(table).to_table().column("name").to_pylist())


def published():
    table = create(properties={"keyframe_commits": "2"})
    append(table, events(4, days=2))
    b = table.branch("audit")
    append(b, events(2, first=200))
    overwrite(b, events(1, first=300, day=1), start="1970-01-02", end="1970-01-03")
    append(table, events(1, first=100))
    return table


def deaths(step):
    return [
        pytest.param(offset, how, marks=[] if (offset, how) == (1, "lost") else pytest.mark.long)
        for offset in range(1, step + 1)
        for how in ("before", "after", "lost", "refused")
    ]


@pytest.mark.hazard("G3")
@pytest.mark.parametrize(("offset", "how"), deaths(STEP))
def test_a_merge_that_dies_at_any_call_is_done_again(offset, how):
    with quick():
        at, died = offset, True
        while died:
            one, two = cut_off()
            store = MortalStore(one.store, at, how)
            with contextlib.suppress(ENDS):
                merge(two, handle(store, 90))
            died = store.calls >= at
            merge(two, handle(one.store, 91))
            merge(one, handle(two.store, 92))
            assert names(one) == names(two)
            assert len(names(one)) == len(set(names(one))) == 7
            assert merge(two, one).commits == 0
            at += STEP
        assert at > 2 * STEP


@pytest.mark.hazard("G3")
@pytest.mark.parametrize(("offset", "how"), deaths(STEP))
def test_a_publication_that_dies_at_any_call_is_done_again(offset, how):
    with quick():
        at, died = offset, True
        while died:
            table = published()
            store = MortalStore(table.store, at, how)
            before = table.refresh().version
            with contextlib.suppress(ENDS):
                handle(store, 90).merge("audit")
            died = store.calls >= at
            handle(table.store, 91).merge("audit")
            assert table.refresh().version == before + 1  # one version, whoever made it
            assert len(names(table)) == len(set(names(table))) == 6
            at += STEP
        assert at > 2 * STEP
