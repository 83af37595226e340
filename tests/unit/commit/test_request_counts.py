"""What an operation costs in requests: exact, and the same at any length of the history."""

import threading

import pytest
from support.builders import (
    add,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
    unread,
)

from eventlog import Table
from eventlog.errors import CommitConflict
from eventlog.log.history import PAGE
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite

LENGTHS = [1, 100, 1000]


@pytest.fixture(scope="module")
def long_store():
    store = MemoryStore()
    table = create(store)
    for n in range(1000):
        table.clock.advance(10_000)
        commit(table, add(table, f"2013-{1 + n % 12:02d}"))
    return store


@pytest.fixture(scope="module", params=LENGTHS)
def history(request, long_store):
    """A store whose history is cut after so many commits."""
    if request.param == 1000:
        return long_store, 1000
    store = MemoryStore()
    table = create(store)
    for n in range(request.param):
        table.clock.advance(10_000)
        commit(table, add(table, f"2013-{1 + n % 12:02d}"))
    return store, request.param


def measured(store, seed=2000):
    counting = CountingStore(store)
    return counting, reopen(counting, seed)


def kinds(counts):
    return counts.get, counts.put, counts.list, counts.delete


def test_warm_append_is_two_requests(history):
    store, _ = history
    counting, table = measured(store)
    for n in range(4):  # the first may meet a key frame that is due, the fourth looks for others
        append(table, events(5, first=5 * n))
    with counting.measure() as counts:
        append(table, events(5, first=20))
    assert kinds(counts) == (0, 2, 0, 0)
    with counting.measure() as counts:
        append(table, events(6, first=25, days=3))
    assert kinds(counts) == (0, 4, 0, 0)


@pytest.mark.parametrize(("pause_ms", "looks"), [(900, 0), (1_100, 1), (-5_000, 1)])
def test_an_append_after_a_pause_looks_whether_the_table_is_the_same(pause_ms, looks):
    counting = CountingStore(MemoryStore())
    table = create(counting)
    append(table, events(1))
    table.clock.advance(pause_ms)
    for extra in (looks, 0):
        with counting.measure() as counts:
            append(table, events(1))
        assert kinds(counts) == (extra, 2, 0, 0)


def test_appends_with_key_frames_are_two_requests_and_one_key_frame_each_64():
    counting = CountingStore(MemoryStore())
    table = create(counting, properties={"keyframe_bytes": str(2**20)})
    with counting.measure() as counts:
        for n in range(200):
            append(table, events(1, first=n))
    roots = 200 // 64
    assert counts.list == 2 + (200 - 8) // 16  # looks for those who wait (FORMAT.md R11.4)
    assert counts.get == 0  # the leaves that are rewritten are its own
    assert 400 + roots <= counts.put <= 400 + 3 * roots


def test_appends_to_a_store_that_is_near_start_no_thread(monkeypatch):
    store = MemoryStore()
    table = create(store)
    seen, start, listing = [], threading.Thread.start, store.list

    def noting(thread):
        seen.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noting)
    monkeypatch.setattr(
        store, "list", lambda *given, **how: seen.append("list") or listing(*given, **how)
    )
    for n in range(40):
        append(table, events(1, first=n))
    assert {*seen} == {"list"}  # it looks for those who wait all the same (FORMAT.md R11.4)


def test_leaves_that_a_handle_has_written_are_not_read():
    counting = CountingStore(MemoryStore())
    table = create(counting, granularity="day", properties={"keyframe_bytes": "4096"})
    append(table, events(150, days=150))  # more than fit into the root of a key frame, also after
    with counting.measure() as counts:
        assert delete(table, where="at < '1970-02-10'").dropped == 40
    # a look for news; the commit, two leaves, the root
    assert kinds(counts) == (1, 4, 0, 0)
    assert {*live(table.session.head())} == {*live(check_sound(counting.inner).session.head())}


def test_open_head_is_three_requests(history):
    store, _ = history
    counting = CountingStore(store)
    with counting.measure() as counts:
        reopen(counting)
    assert counts.list == 1
    assert counts.total <= 3


def test_opening_sends_nothing_and_a_scan_reads_only_its_version(history):
    store, length = history
    counting = CountingStore(store)
    for version in (None, length // 2):
        with counting.measure() as counts:
            table = Table.open("", store=counting)
        assert counts.total == 0
        with counting.measure() as counts:
            planned = scan(table, version=version)
        base, newest = planned.snapshot.base, version is None
        assert counts.list == newest
        assert counts.total <= 2 + newest + (len(base.leaves) if base else 0)


def test_open_any_old_version_is_two_requests(history):
    store, length = history
    counting, table = measured(store)
    for version in {0, 1, length // 3, length // 2, length - 1}:
        fresh = unread(counting)
        with counting.measure() as counts:
            assert fresh.snapshot(version).version == version
        assert counts.list == 0
        assert counts.get <= 2
    assert table.session.head().version >= length


def test_refresh_without_news_is_one_request(history):
    store, _ = history
    counting, table = measured(store)
    with counting.measure() as counts:
        table.refresh()
    assert kinds(counts) == (1, 0, 0, 0)
    with counting.measure() as counts:
        table.session.head()
        table.session.head().totals  # noqa: B018 - no request may come of it
    assert counts.total == 0


def test_a_timestamp_is_found_by_bisection(history):
    store, length = history
    counting, table = measured(store)
    moment = table.snapshot(length // 2).timestamp
    with counting.measure() as counts:
        assert table.snapshot(timestamp=moment).version == length // 2
    # A look for news, the bisection, the version itself and the next one, and what names that.
    assert counts.get <= 1 + (length + 20).bit_length() + 3
    assert counts.list == 0


def test_a_page_of_history_is_one_ranged_get_a_version(long_store):
    counting, table = measured(long_store)
    for limit in (1, 10, PAGE, PAGE + 5):
        with counting.measure() as counts:
            assert len(list(table.history(limit=limit))) == limit
        assert kinds(counts) == (limit + 1, 0, 0, 0)
        assert counts.bytes_read <= (limit + 4) * 2048 + 2048 * PAGE
    with counting.measure() as counts:
        assert [e.version for e in table.history(start=500, limit=3)] == [500, 499, 498]
    assert kinds(counts) == (3, 0, 0, 0)


def test_find_transaction_is_one_request_a_version(long_store):
    counting, table = measured(long_store)
    head = table.session.head().version
    with counting.measure() as counts:
        assert table.find_transaction("0" * 32, start=head - 4) is None
    assert kinds(counts) == (1 + 5, 0, 0, 0)


def test_lost_race_costs_a_fixed_number_of_requests():
    store = MemoryStore()
    create(store, properties={"combine_after": "0"})
    counting, table = measured(store)
    other = reopen(store, seed=7)
    commit(other, add(other))
    with counting.measure() as counts:
        commit(table, add(table))
    # refused, read what stands there, look for more, put
    assert counts.put == 2
    assert counts.total <= 5


def test_what_others_committed_during_a_rest_is_no_contest():
    store = MemoryStore()
    other = create(store)
    counting, table = measured(store)
    append(table, events(1))

    def after_rest(commits):
        for number in range(commits):
            append(other, events(1, first=number))
        table.clock.advance(5_000)
        with counting.measure() as counts:
            append(table, events(1))
        return kinds(counts)

    assert after_rest(0) == (1, 2, 0, 0)  # whether the table is still there
    assert after_rest(9) == (
        4,
        3,
        1,
        0,
    )  # an attempt is lost, then the newest version is looked for
    assert after_rest(9) == (3, 2, 1, 0)  # which is looked for first, now that others are known
    assert after_rest(0) == (2, 2, 0, 0)
    assert after_rest(0) == (1, 2, 0, 0)


def test_a_conflict_leaves_the_handle_at_the_version_that_it_read():
    store = MemoryStore()
    table = create(store)
    commit(table, add(table))
    counting, loser = measured(store)
    (segment,) = live(table.session.head())
    for _ in range(3):
        commit(table, add(table))
    commit(table, drop_of(segment))
    with counting.measure() as counts, pytest.raises(CommitConflict):
        commit(loser, drop_of(segment))
    # refused; the two versions after the known one, the newest one of a listing, and none after it
    assert kinds(counts) == (4, 1, 1, 0)
    assert loser.session.head().version == table.session.head().version


def test_overwrite_is_its_segments_and_a_commit():
    counting = CountingStore(MemoryStore())
    table = create(counting)
    append(table, events(4, days=2))
    with counting.measure() as counts:
        overwrite(table, events(1), start="1970-01-01", end="1970-01-02")
    # a look for news; the segment, the commit
    assert kinds(counts) == (1, 2, 0, 0)
