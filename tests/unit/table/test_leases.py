"""Claims as their holders have them, and granularity, through the public face of a table."""

import pytest
from support.builders import HASH, START_MS, add, check_sound, commit, create, drop_of, live, reopen

from eventlog import Ms, Table, errors
from eventlog.clock import ManualClock
from eventlog.model.actions import Add, Release, Replace
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.store.memory import MemoryStore
from eventlog.table.leases import ABANDONED_S, SILENT_S

DAY = "2013-01-07"
YEARS_MS = 10 * 365 * 86_400_000


class Watching(ManualClock):
    """The clock of a program that sleeps: `meanwhile` happens once, after so many seconds."""

    def __init__(self, now_ms=START_MS, *, after_s=0.0, meanwhile=lambda: None):
        super().__init__(now_ms, 77)
        self.slept_s = 0.0
        self._after_s, self._meanwhile = after_s, meanwhile

    def sleep(self, seconds):
        super().sleep(seconds)
        self.slept_s += seconds
        if self._meanwhile is not None and self.slept_s >= self._after_s:
            happens, self._meanwhile = self._meanwhile, None
            happens()


@pytest.fixture
def table():
    table = create()
    commit(table, add(table, rows=3), add(table, "2013-01-08"))
    return table


def watcher(table, **options):
    return Table(table.store, Watching(**options))


def rewrite(table, lease, version=None):
    """Return the transaction that puts one segment in the place of all of the day's, under it."""
    chunk, head = parse_chunk(DAY), table.refresh()
    inputs = live(head, chunk.start, chunk.end)
    output = Add(
        table.clock.random_id(), DAY, head.version, sum(s.rows for s in inputs), 9, HASH, 1
    )
    actions = [Replace(version or head.version, 0), *map(drop_of, inputs), output]
    return table.transaction("compact", actions, claim=lease.token)


def test_a_claim_is_taken_worked_under_and_given_up(table):
    other = reopen(table.store)
    with table.claim("2013-01-07", "2013-01-08", owner="me") as lease:
        standing = other.claims()[lease.id]
        chunk = parse_chunk(DAY)
        assert (standing.start, standing.end, standing.owner) == (chunk.start, chunk.end, "me")
        assert lease.token.token == standing.token == table.session.head().version
        with pytest.raises(errors.CommitConflict, match=f"claim {lease.id} of me"):
            other.claim("2013-01-07T05", "2013-01-09")
        commit(other, add(other, DAY))  # appends need no claim, and heed none
        table.commit(rewrite(table, lease))
        assert lease.held()
    assert not other.claims()
    assert [s.rows for s in live(table.refresh()) if s.chunk == DAY] == [4]
    check_sound(table.store)


def test_the_range_of_a_claim(table):
    first, second = live(table.session.head())
    with table.claim() as lease:
        assert (lease.claim.start, lease.claim.end) == (MIN_MS, MAX_MS)
        assert lease.claim.segments == ()
    with table.claim(segments=[second, first]) as lease:
        assert lease.claim.segments == tuple(sorted((first.id, second.id)))
        assert lease.claim.start == parse_chunk(DAY).start
        assert lease.claim.end == parse_chunk("2013-01-08").end
        with table.claim(segments=live(table.session.head())[:0], start="2014-01-01") as later:
            assert later.claim.end == MAX_MS
    assert not table.claims()


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "2013-01-08", "end": "2013-01-08"},
        {"start": "1970-01-01", "end": Ms(MAX_MS + 1)},
        {"group": ""},
        {"owner": "x" * 256},
    ],
)
def test_a_claim_that_cannot_be_is_not_even_asked_for(table, wrong):
    version = table.session.head().version
    with pytest.raises(errors.InvalidInput):
        table.claim(**wrong)
    assert table.refresh().version == version


def test_one_work_asking_again_has_the_claim_that_it_has(table):
    """As where its message is delivered twice, or its program was started again."""
    lease = table.claim(Ms(0), Ms(10), group="task 1")
    version = table.session.head().version
    again = reopen(table.store).claim(Ms(0), Ms(10), group="task 1")
    assert (again.id, again.token) == (lease.id, lease.token)
    assert table.refresh().version == version
    with pytest.raises(errors.CommitConflict):
        table.claim(Ms(0), Ms(10), group="task 2")


def test_who_joined_a_claim_does_not_end_it_for_who_took_it(table):
    lease = table.claim(Ms(0), Ms(10), group="task 1")
    with reopen(table.store).claim(Ms(0), Ms(10), group="task 1") as joined:
        assert (lease.joined, joined.joined) == (False, True)
    assert lease.held()
    with pytest.raises(errors.DataLoss), reopen(table.store).claim(Ms(0), Ms(10), group="task 1"):
        raise errors.DataLoss("the second delivery fails")
    assert lease.held()
    table.commit(rewrite(table, lease))
    lease.release()
    assert not table.claims()


def test_a_lease_is_released_once(table):
    lease = table.claim(Ms(0), Ms(10))
    lease.release()
    version = table.session.head().version
    lease.release()
    assert table.refresh().version == version
    kept = table.claim(Ms(0), Ms(10))
    table.commit(table.transaction("work", [Release(kept.id, kept.claim.token)], claim=kept.token))
    kept.forget()
    kept.release()
    assert table.refresh().version == version + 2


def test_a_renewal_is_seen_by_others(table):
    lease = table.claim(Ms(0), Ms(10))
    commit(table, add(table))
    lease.renew()
    seen = reopen(table.store).claims()[lease.id]
    assert seen == lease.claim
    assert seen.renewed == table.session.head().version > seen.token


@pytest.mark.hazard("K2")
def test_k2_a_challenger_of_greater_priority_revokes_and_the_loser_has_no_effect(table):
    lease = table.claim("2013-01-07", "2013-01-08")
    work = rewrite(table, lease)
    other = reopen(table.store)
    with pytest.raises(errors.CommitConflict, match="is in the way"):
        other.claim("2013-01-07", "2013-01-10")
    mine = other.claim("2013-01-07", "2013-01-10", priority=1)
    before = live(other.session.head())
    for attempt in (lambda: table.commit(work), lease.renew, lease.release):
        with pytest.raises(errors.ClaimLost):
            attempt()
    assert not lease.held()
    assert live(table.refresh()) == before
    with pytest.raises(errors.CommitConflict, match="priority 1"):
        table.claim("2013-01-07", "2013-01-08", priority=1)
    other.commit(rewrite(other, mine))
    mine.release()
    check_sound(table.store)


def test_a_block_whose_claim_was_lost_ends_without_noise(table):
    other = reopen(table.store)
    with table.claim(Ms(0), Ms(10)) as lease:
        other.break_claim(lease.id)
    assert not table.claims()


@pytest.mark.hazard("K3")
def test_k3_a_silent_holder_is_waited_for_and_then_broken(table):
    lease = table.claim(Ms(0), Ms(10))
    other = watcher(table)
    other.break_claim(lease.id, silent_s=7.5)
    assert other.clock.slept_s == pytest.approx(7.5)
    assert not table.claims()
    with pytest.raises(errors.ClaimLost):
        table.commit(rewrite(table, lease))


@pytest.mark.hazard("K3")
@pytest.mark.parametrize("off_ms", [-YEARS_MS // 20, 0, YEARS_MS // 20])
def test_k3_no_clock_ends_the_claim_of_a_holder_that_renews(table, off_ms):
    lease = table.claim(Ms(0), Ms(10))
    other = watcher(table, now_ms=START_MS + off_ms, after_s=6, meanwhile=lease.renew)
    with pytest.raises(errors.CommitConflict, match="its holder is alive"):
        other.break_claim(lease.id, silent_s=7.5)
    assert other.clock.slept_s < 7.5  # it stops to wait as soon as it sees
    assert lease.held()
    table.commit(rewrite(table, lease))


@pytest.mark.hazard("K3")
def test_k3_a_renewal_that_comes_last_of_all_is_seen_by_the_fold(table):
    """Between the last look and the break nobody looks: the break names what it saw."""
    lease = table.claim(Ms(0), Ms(10))
    other = reopen(table.store)
    found, asked = other.session.commit, []

    def late(transaction):
        if not asked:
            asked.append(transaction)
            lease.renew()
        return found(transaction)

    other.session.commit = late
    with pytest.raises(errors.CommitConflict, match="renewed in version"):
        other.break_claim(lease.id)
    assert lease.held()


@pytest.mark.hazard("K3")
def test_k3_a_renewal_after_the_last_look_is_seen(table):
    """A break is of the claim as it was when the watch began, however late it is formed."""
    lease = table.claim(Ms(0), Ms(10))
    other = reopen(table.store)
    look = other.session.refresh

    def once():
        seen = look()
        if lease.claim.renewed == lease.claim.token:
            lease.renew()
        return seen

    other.session.refresh = once
    with pytest.raises(errors.CommitConflict, match="renewed in version"):
        other.break_claim(lease.id)
    assert lease.held()


def test_a_claim_that_goes_while_it_is_watched_is_not_broken(table):
    lease = table.claim(Ms(0), Ms(10))
    other = watcher(table, after_s=1, meanwhile=lease.release)
    with pytest.raises(errors.CommitConflict, match="was removed in the meantime"):
        other.break_claim(lease.id, silent_s=3)
    with pytest.raises(errors.InvalidInput, match="no claim"):
        other.break_claim(lease.id)


def refused(table, **options):
    """Ask for what is held, and say whether it was refused; nothing is committed then."""
    version = table.refresh().version
    try:
        table.claim(Ms(0), Ms(10), take_over=True, **options)
    except errors.CommitConflict:
        return table.refresh().version == version
    return False


@pytest.mark.hazard("K3")
def test_k3_a_silent_holder_is_broken_by_who_waited_long_between_its_calls(table):
    lease = table.claim(Ms(0), Ms(10))
    other = Table(table.store, ManualClock(START_MS, 77))
    assert refused(other)
    other.clock.advance(-YEARS_MS)  # what a clock shows does not count, but what passed
    other.clock.advance((SILENT_S - 1) * 1000)
    assert refused(other)
    assert refused(reopen(table.store))  # who has just come has waited for nothing
    other.clock.advance(1000)
    assert not refused(other)
    assert not lease.held()
    assert [e.operation for e in table.history(limit=2)] == ["claim", "break"]
    with pytest.raises(errors.ClaimLost):
        table.commit(rewrite(table, lease))


@pytest.mark.hazard("K3")
def test_k3_a_holder_that_renews_is_not_taken_over(table):
    lease = table.claim(Ms(0), Ms(10))
    other = Table(table.store, ManualClock(START_MS, 77))
    for _ in range(3 * ABANDONED_S // SILENT_S):
        for clock in (table.clock, other.clock):
            clock.advance((SILENT_S - 1) * 1000)
        lease.renew()
        assert refused(other)
    assert lease.held()


@pytest.mark.hazard("K3")
def test_k3_without_being_asked_nobody_takes_over(table):
    lease = table.claim(Ms(0), Ms(10))
    other = Table(table.store, ManualClock(START_MS, 77))
    assert refused(other)
    other.clock.advance(SILENT_S * 1000)
    with pytest.raises(errors.CommitConflict):
        other.claim(Ms(0), Ms(10))
    assert lease.held()


@pytest.mark.hazard("K3")
def test_k3_a_holder_that_the_log_has_not_seen_for_long_is_broken_at_once(table):
    """As where each challenger is a program that ends before it has waited for long."""
    lease = table.claim(Ms(0), Ms(10))
    lease.renew()
    renewed = table.session.head().header.time
    table.clock.advance(ABANDONED_S * 1000 - 1 - (table.clock.now_ms() - renewed))
    commit(table, add(table))
    assert refused(reopen(table.store))
    commit(table, add(table))
    assert table.session.head().header.time == renewed + ABANDONED_S * 1000
    assert not refused(reopen(table.store))
    assert not lease.held()


@pytest.mark.hazard("K3")
def test_k3_where_nobody_commits_the_store_tells_how_late_it_is():
    clock = ManualClock(START_MS)
    table = create(MemoryStore(clock=clock))
    lease = table.claim(Ms(0), Ms(10))
    taken = table.session.head().header.time
    clock.advance(taken + ABANDONED_S * 1000 - 1 - clock.now_ms())
    assert refused(reopen(table.store))
    clock.advance(1)
    assert not refused(reopen(table.store))
    assert not lease.held()


@pytest.mark.hazard("K3")
@pytest.mark.parametrize("off_ms", [-YEARS_MS // 20, YEARS_MS // 20])
def test_k3_no_clock_of_a_challenger_takes_a_claim_over(table, off_ms):
    lease = table.claim(Ms(0), Ms(10))
    assert refused(Table(table.store, ManualClock(START_MS + off_ms, 77)))
    assert lease.held()


@pytest.mark.hazard("K3")
def test_k3_a_sign_of_life_just_before_the_take_over_counts(table):
    lease = table.claim(Ms(0), Ms(10))
    other = Table(table.store, ManualClock(START_MS, 77))
    assert refused(other)
    other.clock.advance(SILENT_S * 1000)
    found = other.session.commit

    def late(transaction):
        if transaction.operation == "break":
            lease.renew()
        return found(transaction)

    other.session.commit = late
    with pytest.raises(errors.CommitConflict, match="is in the way"):
        other.claim(Ms(0), Ms(10), take_over=True)
    assert lease.held()


def test_only_what_stands_in_the_way_is_taken_over(table):
    mine, elsewhere = table.claim(Ms(0), Ms(10)), table.claim(Ms(20), Ms(30))
    other = Table(table.store, ManualClock(START_MS, 77))
    assert refused(other, priority=-1)
    other.clock.advance(SILENT_S * 1000)
    assert not refused(other, priority=-1)
    assert (mine.held(), elsewhere.held()) == (False, True)


def test_a_watch_does_not_travel_to_another_process(table):
    import pickle  # noqa: PLC0415

    table.claim(Ms(0), Ms(10))
    other = Table(table.store, ManualClock(START_MS, 77))
    assert refused(other)
    other.clock.advance(SILENT_S * 1000)
    ((claim_id, claim),) = other.claims().items()
    now_s = other.clock.elapsed_s()
    assert other.session.sightings.silent_s(claim_id, claim, now_s) == SILENT_S
    sent = pickle.loads(pickle.dumps(other))
    assert sent.session.sightings.silent_s(claim_id, claim, now_s) == 0


def test_two_who_break_one_claim(table):
    lease = table.claim(Ms(0), Ms(10))
    first = reopen(table.store, 1)
    second = watcher(table, after_s=1, meanwhile=lambda: first.break_claim(lease.id))
    with pytest.raises(errors.CommitConflict):
        second.break_claim(lease.id, silent_s=1)
    assert [entry.operation for entry in table.history(limit=2)] == ["break", "claim"]


def test_granularity_is_changed_as_it_was_seen(table):
    other = reopen(table.store)
    assert table.set_granularity("day") == table.session.head().version
    table.set_granularity("hour")
    assert reopen(table.store).session.head().layout.granularity == "hour"
    changed, head = other.session.commit, other.session.head()

    def meanwhile(transaction):
        table.set_granularity("month")
        return changed(transaction)

    other.refresh()
    other.session.commit = meanwhile
    with pytest.raises(errors.CommitConflict, match="granularity was changed meanwhile"):
        other.set_granularity("day")
    assert head.layout.granularity == "day"
    assert table.refresh().layout.granularity == "month"
    with pytest.raises(errors.InvalidInput, match="week"):
        table.set_granularity("week")


def test_segments_of_every_granularity_stand_side_by_side(table):
    late = add(table, DAY)  # staged by a writer that knows of days only
    table.set_granularity("hour")
    commit(table, late, add(table, "2013-01-07T05"), add(table, "2013-01"), add(table, "all"))
    chunk = parse_chunk("2013-01-07T05")
    found = {s.chunk for s in live(table.session.head(), chunk.start, chunk.end)}
    assert found == {DAY, "2013-01-07T05", "2013-01", "all"}
    assert table.session.head().totals.rows == 8
    check_sound(table.store)
