"""S5.3 and S5.4: two copies took writes while cut off from each other, and are one again."""

import io
from contextlib import suppress
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.builders import (
    SCHEMA,
    START_MS,
    commit,
    create,
    drop_of,
    events,
    live,
    replace_object,
    replaced,
)
from support.crashes import MortalStore
from support.damage import Damaged
from support.forked_histories import copied

from eventlog import Table, errors, replication
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.model.actions import Replace
from eventlog.model.records import App, origins_of
from eventlog.readers import scan
from eventlog.writers import append, overwrite
from eventlog.writers.batch import stage

DAY_1 = {"start": "1970-01-02", "end": "1970-01-03"}


@pytest.fixture
def pair():
    """A table and a copy of it, cut off from each other."""
    one = create()
    append(one, events(6, days=3), app_id="job", app_seq=1)
    append(one, events(6, days=3, first=6))
    two = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**6, 77))
    return one, two


def cut_off(place):
    """The same, where scenarios run."""
    one = Table.create(place, SCHEMA, time_column="at", properties={"inline_bytes": "0"})
    append(one, events(6, days=3), app_id="job", app_seq=1)
    append(one, events(6, days=3, first=6))
    replication.follow(one, place + "-copy")
    return one, Table.open(place + "-copy")


def names(table):
    return sorted(scan(table.refresh() and table).to_table().column("name").to_pylist())


def rows(*numbers):
    return sorted(f"row {n}" for n in numbers)


def rewritten(table, inputs=None, *, parts=1, deletes=0):
    """Compact segments, else all of day 0, into so many."""
    inputs = inputs or [s for s in live(table.refresh()) if s.chunk == "1970-01-01"]
    bodies = [table.store.get(keys.key_of(s)) for s in inputs]
    found = pa.concat_tables(pq.read_table(io.BytesIO(body)) for body in bodies).slice(deletes)
    size = -(-found.num_rows // parts)
    pieces = [found.slice(n * size, size) for n in range(parts)]
    adds = [a for piece in pieces for a in stage(table, table.session.head(), piece, 2**29)]
    commit(table, Replace(table.session.head().version, deletes), *map(drop_of, inputs), *adds)


def both_ways(one, two):
    done = replication.merge(two, one), replication.merge(one, two)
    assert names(one) == names(two)
    for a, b in ((one, two), (two, one)):
        again = replication.merge(a, b)
        assert (again.commits, again.segments) == (0, 0)
    return done


@pytest.mark.scenario("S5.3")
@pytest.mark.hazard("G3")
def test_s5_3_both_took_writes_and_have_the_same_rows_again(place):
    one, two = cut_off(place)
    append(one, events(2, first=100))
    append(two, events(2, first=200), app_id="job", app_seq=2)
    two.set_properties({"user.by": "two"})
    overwrite(two, events(1, first=300, day=1), **DAY_1)
    into_one, into_two = both_ways(one, two)
    kept = [n for n in range(12) if n % 3 != 1]
    assert names(one) == rows(*kept, 100, 101, 200, 201, 300)
    assert (into_one.commits, into_one.transactions, into_one.common) == (3, 3, 2)
    assert (into_two.commits, into_two.skipped) == (1, 3)
    assert one.session.head().properties["user.by"] == "two"
    (mark,) = origins_of(one.session.head().meta).values()
    assert (mark.version, mark.token) == (
        two.session.head().version - 1,
        one.session.head().version,
    )
    assert append(one, events(2, first=200), app_id="job", app_seq=2) <= one.session.head().version
    assert "row 200" in names(one)
    assert len(names(one)) == 13  # the job has done that, on the other side


@pytest.mark.scenario("S5.4")
def test_s5_4_both_compacted_the_same_segments_and_no_row_is_lost_or_doubled(place):
    one, two = cut_off(place)
    rewritten(one)
    rewritten(two, parts=2)
    append(two, events(1, first=100))
    into_one, into_two = both_ways(one, two)
    assert names(one) == rows(*range(12), 100)
    assert (into_one.declined, into_two.declined) == (1, 1)
    # Each has its own segments of the day: no rewrite was done again.
    assert len(live(one.session.head())) == len(live(two.session.head())) - 1


@pytest.mark.scenario("S5.4")
def test_s5_4_what_only_one_has_compacted_the_other_takes_over(place):
    one, two = cut_off(place)
    append(one, events(1, first=100, day=2))
    rewritten(two)
    done, _ = both_ways(one, two)
    assert (done.declined, done.segments) == (0, 1)
    assert {s.id for s in live(one.refresh())} == {s.id for s in live(two.refresh())}


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("after", [0, 1])
def test_g3_a_transaction_is_carried_also_where_its_header_counts_none(pair, after):
    one, two = pair
    for n in range(after):
        append(one, events(2, first=100 + 2 * n))
    append(one, events(2, first=200))

    def uncounted(commit):
        changes = replaced(commit.header.changes, transactions=0)
        return replaced(commit, header=replaced(commit.header, changes=changes))

    Damaged.of(one.store).forge_commit(one.session.head().version, uncounted)
    one = Table.open("", store=one.store, clock=ManualClock(START_MS + 10**6, 78))
    append(one, events(2, first=300))
    append(two, events(2, first=400))
    both_ways(one, two)
    more = [100, 101] if after else []
    assert names(two) == rows(*range(12), *more, 200, 201, 300, 301, 400, 401)


@pytest.mark.hazard("G3")
def test_g3_rows_that_one_dropped_and_the_other_compacted_are_dropped_by_what_they_became(pair):
    one, two = pair
    rewritten(one)
    rewritten(two, parts=2)
    both_ways(one, two)
    overwrite(one, events(0), start="1970-01-01", end="1970-01-02")
    both_ways(one, two)
    assert names(two) == rows(*(n for n in range(12) if n % 3))


@pytest.mark.hazard("G3")
def test_g3_rows_that_one_dropped_and_the_other_compacted_with_its_own_leave_these(pair):
    one, two = pair
    append(one, events(1, first=100))
    rewritten(one)
    append(two, events(1, first=200))
    overwrite(two, events(0), start="1970-01-01", end="1970-01-02")
    replication.merge(two, one)
    kept = [n for n in range(12) if n % 3]
    assert names(one) == rows(*kept, 100)
    replication.merge(one, two)
    assert names(two) == rows(*kept, 100)
    append(one, events(1, first=300))
    rewritten(one)
    overwrite(two, events(0), start="1970-01-01", end="1970-01-02")
    one.clock.advance(10**9)
    vacuum(one, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    with pytest.raises(errors.CommitConflict) as caught:  # the rows are nowhere alone
        replication.merge(two, one)
    assert "it drops 1 segment, and the target has" in str(caught.value)
    assert "nothing was committed" in str(caught.value)
    replication.merge(two, one, take="target")
    replication.merge(one, two)
    assert names(one) == names(two) == rows(*kept, 100, 300)


@pytest.mark.hazard("G3")
def test_g3_of_what_cannot_come_whole_since_a_vacuum_was_there_nothing_comes(pair):
    one, two = pair
    overwrite(one, events(1, first=300), start="1970-01-01", end="1970-01-02")
    shared = {s.id for s in live(two.refresh())}
    append(two, events(1, first=100))
    (alone,) = {s.id for s in live(two.refresh())} - shared
    append(two, events(1, first=200))
    inputs = [s for s in live(two.refresh()) if s.chunk == "1970-01-01" and s.id != alone]
    rewritten(two, inputs)
    two.clock.advance(10**9)
    vacuum(two, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    commit(two, *(drop_of(s) for s in live(two.refresh()) if s.id == alone))
    kept, version = names(one), one.refresh().version
    for dry_run in (True, False):
        with pytest.raises(errors.VersionVacuumed, match="--take target"):
            replication.merge(two, one, dry_run=dry_run)
        assert (one.refresh().version, names(one)) == (version, kept)
    told = replication.merge(two, one, take="target", dry_run=True)
    assert replication.merge(two, one, take="target").left_out == told.left_out
    assert names(one) == kept


@pytest.mark.hazard("G3")
def test_g3_rows_that_both_replaced_are_a_conflict(pair):
    one, two = pair
    for n, table in ((1, one), (2, two)):
        overwrite(table, events(1, first=100 * n, day=1), **DAY_1)
    for a, b in ((one, two), (two, one)):
        with pytest.raises(errors.CommitConflict, match="dropped or replaced them itself"):
            replication.merge(a, b)


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_that_both_did_is_there_once(pair):
    one, two = pair
    for table in pair:
        append(table, events(2, first=100), app_id="job", app_seq=2)
    append(two, events(2, first=200), app_id="job", app_seq=3)
    into_one, _ = both_ways(one, two)
    assert (into_one.transactions, into_one.skipped) == (1, 1)
    assert names(one) == rows(*range(12), 100, 101, 200, 201)


@pytest.mark.hazard("G3")
def test_g3_rows_are_not_lost_with_a_unit_of_work_that_the_other_log_has_undone(trio):
    """What one log replaced by the unit came to the other one after that had undone it."""
    a, b, _ = trio
    overwrite(a, events(1, first=33))
    version = b.session.head().version
    overwrite(b, events(1, first=250), app_id="job", app_seq=1)
    b.restore(version)
    replication.merge(a, b)
    overwrite(a, events(1, first=250), app_id="job", app_seq=1)
    for source, target in ((a, b), (b, a)):
        with pytest.raises(errors.CommitConflict):
            replication.merge(source, target)
    assert (names(a), names(b)) == (rows(250), rows(33))
    replication.merge(a, b, take="source")
    both_ways(a, b)
    assert names(b) == rows(250)


@pytest.mark.hazard("G3")
def test_g3_a_part_of_a_unit_of_work_that_one_wrote_in_parts_goes_in_both(pair):
    one, two = pair
    for table, parts in ((one, 2), (two, 1)):
        size = 4 // parts
        batches = [events(size, first=100 + n * size) for n in range(parts)]
        adds = [a for batch in batches for a in stage(table, table.session.head(), batch, 2**29)]
        commit(table, *adds, app=App("job", 2))
    last = max(live(one.refresh()), key=lambda s: s.version * 10 + s.partition)
    one.drop_segments([last], reason="it was wrong")
    replication.merge(one, two)
    assert names(one) == names(two) == rows(*range(12), 100, 101)


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_in_chunks_of_two_granularities_is_there_once(pair):
    one, two = pair
    one.set_granularity("hour")
    for table in pair:
        append(table, events(2, first=100), app_id="job", app_seq=2)
    both_ways(one, two)
    assert names(one) == rows(*range(12), 100, 101)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("first", [0, 1])
def test_g3_what_a_unit_of_work_that_both_did_dropped_at_one_of_them_goes(pair, first):
    """The other one had not these rows when it did the unit."""
    one, two = pair
    append(two, events(2, first=300))
    append(one, events(2, first=400))
    for table in pair:
        overwrite(table, events(2, first=100), app_id="job", app_seq=2)
    append(one, events(1, first=200))
    both_ways(*(pair[::-1] if first else pair))
    assert names(one) == rows(100, 101, 200)


@pytest.mark.sample(4)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("before", ["", "to", "both"])
@pytest.mark.parametrize("doers", [1, 2])
def test_g3_what_a_restore_brings_back_above_a_unit_of_work_stays(pair, doers, before, goes_on):
    one, two = pair
    version = one.session.head().version
    append(two, events(1, first=300))
    for table in pair[:doers]:
        overwrite(table, events(2, first=100), app_id="job", app_seq=2)
    if before:
        replication.merge(one, two)
    if before == "both":
        replication.merge(two, one)
    one.refresh()
    one.restore(version)
    if goes_on:
        append(two, events(1, first=200))
    both_ways(one, two)
    # What its own unit of work or the restore dropped of it is gone.
    there = doers == 1 and before != "both"
    assert names(one) == rows(*range(12), *[200] * goes_on, *[300] * there)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("version", range(3, 7))
def test_g3_a_merge_ends_where_a_commit_of_another_log_stands(pair, version):
    """Those of a copy that parted in place of one's own, as after a backup of the wrong root."""
    one, two = pair
    for n in range(5):
        append(one, events(1, first=100 + n))
        append(two, events(1, first=200 + n))
    key = keys.commit_key(version)
    wrong, sound = Damaged.of(copied(one.store)), Damaged.of(copied(two.store))
    wrong.replace(key, two.store.get(key))
    opened = lambda of: Table.open("", store=of.store)
    with pytest.raises(errors.Corrupt, match="does not follow the version read before"):
        replication.merge(opened(wrong), opened(sound))
    with suppress(errors.Corrupt):  # it reads no more of the target than it needs
        replication.merge(opened(sound), opened(wrong))
    wrong.replace(key, one.store.get(key))
    mended = opened(wrong)
    both_ways(mended, opened(sound))
    assert names(mended) == rows(*range(12), *range(100, 105), *range(200, 205))


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("before", [False, True])
def test_g3_a_commit_of_the_branch_in_its_parents_log_hides_no_other_one(number, before):
    table = create()
    append(table, events(1))
    branch = table.branch("b")
    fork = branch.session.head().version
    append(branch, events(1, first=99))
    if before:
        table.merge("b")
        branch.refresh()
    for n in range(5):
        append(table, events(1, first=100 + n))
        append(branch, events(1, first=200 + n))
    key = keys.commit_key(fork + number)
    sound = table.store.get(key)
    opened = lambda: Table(table.store, ManualClock(START_MS + 10**8, 9))
    replace_object(table.store, key, branch.store.get(key))
    with suppress(errors.Corrupt):
        opened().merge("b")
    replace_object(table.store, key, sound)
    opened().merge("b")
    wanted = rows(0, 99, *range(100, 105), *range(200, 205))
    assert names(opened()) == wanted


@pytest.mark.hazard("G3")
def test_g3_two_that_did_one_unit_of_work_are_merged_at_the_same_time(pair):
    one, two = pair
    three = copied(one.store)
    append(Table.open("", store=three), events(1, first=300), app_id="job", app_seq=7)
    for table in pair:
        append(table, events(2, first=100), app_id="job", app_seq=2)
    times = []
    for pause in range(1, 20):
        store = copied(three)
        other = lambda store=store: times.append(
            replication.merge(two, Table.open("", store=store))
        )
        paused = MortalStore(store, pause=pause, meanwhile=other)
        replication.merge(one, Table.open("", store=paused))
        assert names(Table.open("", store=store)) == rows(*range(12), 100, 101, 300)
    assert len(times) == 8  # as many calls has a merge


@pytest.mark.hazard("G3")
def test_g3_a_target_that_is_made_to_follow_while_it_is_merged_into_has_everything_once(pair):
    one, _ = pair
    one.branch("audit")
    append(one, events(2, first=100))
    for pause in range(1, 25):
        store = copied(one.store)

        def meanwhile(store=store):
            branch = Table.open("", store=store, branch="audit")
            with suppress(errors.CommitConflict):  # the merge was first
                replication.follow(Table.open("", store=store), branch)
                rewritten(branch)

        paused = MortalStore(store, pause=pause, meanwhile=meanwhile)
        replication.merge(Table.open("", store=store), Table.open("", store=paused, branch="audit"))
        found = names(Table.open("", store=store, branch="audit"))
        assert found == rows(*range(12), 100, 101)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("by_state", [False, True])
def test_g3_a_unit_of_work_that_changed_nothing_is_done_in_both(pair, by_state):
    """Its program tries it again in the other log: it drops nothing that came meanwhile."""
    one, two = pair
    version = one.session.head().version
    if by_state:
        append(one, events(1, first=100), app_id="other", app_seq=1)
        one.restore(version)
    unit = {"start": "1970-02-01", "end": "1970-02-02", "app_id": "job", "app_seq": 2}
    overwrite(one, events(0), **unit)
    append(two, events(1, first=200))
    both_ways(one, two)
    append(two, events(1, first=300, day=31))
    overwrite(two, events(0), **unit)
    assert names(two) == rows(*range(12), 200, 300)
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    both_ways(two, three)
    both_ways(one, two)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_g3_what_a_restore_brings_back_stays_where_others_have_the_undone_unit(pair, first, later):
    """Of three copies one did the unit and undid it; the others have both from there."""
    one, two = pair
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    sides = [one, two, three][first:] + [one, two, three][:first]
    a, b, c = sides
    version = a.session.head().version
    for n, table in enumerate((b, c)):
        append(table, events(1, first=100 * n + 100))
    overwrite(a, events(1, first=300), app_id="job", app_seq=2)
    if not later:
        replication.merge(a, b)
    a.restore(version)
    for source, target in ((a, b), (a, c), (b, c), (c, b), (b, a), (a, c), (b, c)):
        replication.merge(source, target)
    assert [names(table) for table in sides] == [rows(*range(12), 100, 200)] * 3


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("first", [0, 1, 2])
def test_g3_a_row_that_a_choice_left_out_does_not_come_back_from_where_it_was_dropped(pair, first):
    """Two copies did the unit of the row; one of them got the chosen state from the other."""
    one, two = pair
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    sides = [one, two, three][first:] + [one, two, three][:first]
    a, b, c = sides
    for table in (b, c):
        append(table, events(1, first=100), app_id="job", app_seq=2)
    append(b, events(1, first=200))
    replication.merge(b, c)
    for n, table in enumerate((a, c)):
        overwrite(table, events(1, first=300 + n), start="1970-01-01", end="1970-01-02")
    replication.merge(c, a, take="target")
    for source, target in ((a, c), (c, b), (b, a), (a, b), (c, a)):
        replication.merge(source, target)
    kept = [n for n in range(12) if n % 3]
    assert [names(table) for table in sides] == [rows(*kept, 300)] * 3


@pytest.mark.hazard("G3")
def test_g3_units_of_work_that_were_carried_at_once_are_known_one_by_one(pair):
    one, two = pair
    branch = one.branch("loads", at=one.session.head().version)
    for seq in (2, 4):
        append(branch, events(1, first=100 * seq), app_id="job", app_seq=seq)
    one.merge(branch)
    for seq in (2, 3):
        append(two, events(1, first=100 * seq), app_id="job", app_seq=seq)
    replication.merge(one, two)
    replication.merge(two, one)
    both_ways(one, two)
    replication.merge(branch, two)
    both_ways(one, two)
    assert names(one) == rows(*range(12), 200, 300, 400)


@pytest.mark.hazard("G3")
def test_g3_what_came_from_the_target_is_not_carried_back(pair):
    one, two = pair
    append(one, events(1, first=100))
    append(two, events(1, first=200))
    replication.merge(one, two)
    rewritten(one)  # the segment is not live any more: nothing but its origin tells
    merged = replication.merge(two, one)
    assert (merged.transactions, merged.skipped) == (1, 1)
    assert names(one) == rows(*range(12), 100, 200)


@pytest.mark.hazard("G3")
def test_g3_a_third_copy_is_merged_once_by_whatever_way(pair):
    one, two = pair
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    for n, table in enumerate((one, two, three)):
        append(table, events(1, first=100 * n + 100))
    replication.merge(three, two)
    replication.merge(three, one)
    both_ways(one, two)
    assert names(one) == rows(*range(12), 100, 200, 300)


@pytest.mark.hazard("G3")
def test_g3_a_copy_of_what_was_merged_is_no_new_source(pair):
    one, two = pair
    append(one, events(1, first=100))
    append(two, events(1, first=200))
    replication.merge(two, one)
    three = Table.open("", store=copied(two.store), clock=ManualClock(START_MS + 10**7, 78))
    append(two, events(1, first=300))
    append(three, events(1, first=400))
    replication.merge(two, one)
    replication.merge(three, one)
    replication.merge(one, three)
    replication.merge(three, two)
    replication.merge(two, three)
    both_ways(one, two)
    assert names(three) == names(one)
    assert names(one) == rows(*range(12), 100, 200, 300, 400)


@pytest.mark.hazard("G3")
def test_g3_of_two_logs_with_one_beginning_neither_is_taken_for_the_other(pair):
    one, two = pair
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    for n, table in enumerate((one, two, three)):
        append(table, events(1, first=100 * n + 100))
    four = Table.open("", store=copied(three.store), clock=ManualClock(START_MS + 10**7, 79))
    append(three, events(1, first=400))
    for n in (500, 600):
        append(four, events(1, first=n))
    replication.merge(three, one)
    replication.merge(four, two)
    both_ways(one, two)  # of both the first new version is the same
    assert names(two) == rows(*range(12), 100, 200, 300, 400, 500, 600)
    replication.merge(four, three)
    replication.merge(three, one)
    assert names(one) == rows(*range(12), 100, 200, 300, 400, 500, 600)


@pytest.mark.hazard("G3")
def test_g3_what_comes_from_one_log_under_two_origins_is_there_once(pair):
    one, two = pair
    append(one, events(1, first=100))
    append(two, events(1, first=200))
    three = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 78))
    four = Table.open("", store=copied(one.store), clock=ManualClock(START_MS + 10**7, 79))
    five = Table.open("", store=copied(two.store), clock=ManualClock(START_MS + 10**7, 80))
    rewritten(four)
    rewritten(four)
    replication.merge(four, five)
    append(three, events(1, first=300))
    replication.merge(three, four)  # above version 3, which both have
    append(three, events(1, first=350))
    replication.merge(three, two)
    replication.merge(five, two)
    rewritten(two)  # so it is not the ids of segments that tell
    replication.merge(four, five)
    replication.merge(five, two)
    assert names(two) == rows(*range(12), 100, 200, 300, 350)


@pytest.mark.hazard("G3")
def test_g3_a_part_of_a_log_that_the_target_has_as_a_whole_is_known(pair):
    one, _ = pair
    two, branch = one.branch("a"), one.branch("b", at=2)
    for n in (100, 200):
        append(branch, events(1, first=n))
    replication.merge(branch, two)
    append(one, events(1, first=400))
    append(branch, events(1, first=300))
    one.merge(branch)  # in one version
    replication.merge(two, one)
    assert names(one) == rows(*range(12), 100, 200, 300, 400)


@pytest.mark.hazard("G3")
def test_g3_a_branch_that_its_parent_followed_is_published_from_there_on(pair):
    one, _ = pair
    branch = one.branch("b")
    append(branch, events(1, first=100))
    append(branch, events(1, first=200))
    replication.follow(branch, one)  # the parent did nothing: it has the log now
    rewritten(one)  # so it is not the ids of segments that tell
    append(branch, events(1, first=300))
    assert one.merge(branch).common == 5
    assert names(one) == rows(*range(12), 100, 200, 300)
    assert one.merge(branch).commits == 0


@pytest.mark.hazard("G3")
def test_g3_a_damaged_segment_is_not_carried(pair):
    one, two = pair
    append(one, events(1, first=100))
    append(two, events(2, first=200))
    (segment,) = [s for s in live(two.session.head()) if s.version == 3]
    body = two.store.get(keys.key_of(segment))
    replace_object(two.store, keys.key_of(segment), body[:50] + b"?" + body[51:])
    with pytest.raises(errors.DataLoss, match="other bytes than the log describes"):
        replication.merge(two, one)
    assert one.refresh().version == 3
    replace_object(two.store, keys.key_of(segment), body)
    both_ways(one, two)


@pytest.mark.hazard("G3")
def test_g3_what_a_vacuum_took_is_merged_by_what_replaced_it(pair):
    one, two = pair
    append(one, events(1, first=100))
    append(two, events(1, first=200))
    rewritten(two)
    two.clock.advance(10**9)
    vacuum(two, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    done = replication.merge(two, one)
    assert (done.commits, done.transactions) == (1, 2)
    assert names(one) == rows(*range(12), 100, 200)
    rewritten(one)
    append(two, events(1, first=300))
    rewritten(two)
    two.clock.advance(10**9)
    vacuum(two, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    replication.merge(two, one)
    both_ways(one, two)
    assert names(one) == rows(*range(12), 100, 200, 300)


def test_columns_and_properties_of_both_fit_together_or_are_named(pair):
    one, two = pair
    one.add_columns(one.session.head().schema.append(pa.field("a", pa.int64())))
    two.add_columns(two.session.head().schema.append(pa.field("b", pa.string())))
    wide = events(1, first=100).append_column("b", [["x"]])
    append(two, wide)
    both_ways(one, two)
    assert set(one.session.head().schema) == set(two.session.head().schema)
    assert scan(one, ["b"], "b = 'x'").to_table().to_pylist() == [{"b": "x"}]
    one.set_properties({"user.x": "1"})
    two.set_properties({"user.x": "2"})
    with pytest.raises(errors.CommitConflict, match=r"'user.x' to '2', .* has set it to '1' "):
        replication.merge(two, one)


def test_a_copy_that_did_nothing_follows(pair):
    one, two = pair
    append(one, events(1, first=100))
    done = replication.merge(one, two)
    assert (done.commits, done.transactions, done.followed) == (1, 0, True)
    assert two.refresh().commit_hash == one.refresh().commit_hash


@pytest.mark.hazard("G3")
def test_g3_what_a_branch_wrote_and_dropped_by_a_shared_unit_of_work_stays_away(pair):
    """Its parent gets both at once; a copy has what the branch wrote, and not the unit."""
    table, copy = pair
    branch = table.branch("b")
    unit = {"app_id": "job", "app_seq": 2}
    overwrite(table, events(0), **unit)
    append(branch, events(1, first=100))
    replication.merge(branch, copy)
    overwrite(branch, events(0), **unit)
    table.merge(branch)
    table.delete_branch("b")
    replication.merge(table, copy)
    assert (names(table), names(copy)) == ([], [])


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("forget_units", [False, True])
def test_g3_a_row_that_was_dropped_and_restored_by_another_copy_is_there(pair, forget_units):
    """What dropped the row came to a copy directly, what restored it by way of its table."""
    table, copy = pair
    branch, version = table.branch("b"), table.session.head().version
    append(copy, events(1, first=100))
    overwrite(branch, events(1, first=300))
    replication.merge(copy, branch)
    replication.merge(branch, copy)
    branch.restore(version, forget_units=forget_units)
    for source, target in ((branch, table), (copy, table), (table, copy), (branch, copy)):
        replication.merge(source, target)
    assert [names(one) for one in (table, copy, branch)] == [rows(*range(12))] * 3


@pytest.fixture
def trio(pair):
    """A table with one row, and two copies of it."""
    one = create()
    append(one, events(1))
    return [one, *(third(one, n) for n in range(2))]


def third(table, number=0):
    clock = ManualClock(START_MS + 10**8, 90 + number)
    return Table.open("", store=copied(table.store), clock=clock)


def merge_all(*ways):
    for source, target in ways:
        replication.merge(source, target)


@pytest.mark.hazard("G3")
def test_g3_a_choice_is_more_than_the_unit_of_work_that_it_chose(trio):
    """The unit was done at a third log, too, and undone there."""
    a, b, c = trio
    unit = {"app_id": "job", "app_seq": 1}
    version = a.session.head().version
    for table in (b, a):
        overwrite(table, events(1, first=250), **unit)
    overwrite(c, events(1, first=60))
    a.restore(version)
    replication.merge(c, a)
    replication.merge(b, c, take="source")
    with pytest.raises(errors.CommitConflict, match="--take source"):
        replication.merge(c, a)
    replication.merge(c, a, take="source")
    merge_all((c, b), (a, b), (a, c))
    assert [names(table) for table in trio] == [["row 250"]] * 3


@pytest.mark.hazard("G3")
def test_g3_what_a_choice_left_out_is_left_out_where_it_was_merged_before(trio):
    a, c, _ = trio
    version = a.session.head().version
    overwrite(a, events(1, first=250), app_id="job", app_seq=1)
    overwrite(c, events(0))
    b = third(a, 5)
    a.restore(version)
    replication.merge(c, a)
    replication.merge(b, c, take="source")
    replication.merge(c, b)
    with pytest.raises(errors.CommitConflict):  # a got what was left out, and dropped row 0 by it
        replication.merge(a, b)
    replication.merge(a, b, take="target")
    merge_all((b, c), (b, a))
    assert names(a) == names(b) == names(c) == ["row 250"]


@pytest.mark.hazard("G3")
def test_g3_a_restored_row_comes_with_a_union_that_had_it_all_the_time(trio):
    a, b, c = trio
    append(c, events(1, first=30, day=1))
    version = a.session.head().version
    overwrite(a, events(1, first=60))
    replication.merge(a, b)
    a.restore(version)
    append(a, events(1, first=90, day=2))
    merge_all((a, c), (c, b))
    assert names(b) == names(c) == rows(0, 30, 90)


@pytest.mark.hazard("G3")
def test_g3_a_row_that_came_restored_is_not_dropped_by_who_had_not_seen_that(trio):
    a, b, c = trio
    c.set_properties({"user.by": "c"})
    version = a.session.head().version
    overwrite(a, events(1, first=60))
    a.restore(version)
    replication.merge(a, c)
    overwrite(b, events(1, first=70))
    with pytest.raises(errors.CommitConflict) as caught:
        replication.merge(b, c)
    assert "nothing was committed" in str(caught.value)
    assert names(c) == rows(0)
    left_out = replication.merge(b, c, take="source").left_out
    assert [(part.rows, part.versions) for part in left_out] == [(1, (3, 4))]
    merge_all((c, b), (c, a))
    assert names(a) == names(b) == names(c) == rows(70)


@pytest.mark.hazard("G3")
def test_g3_copies_that_agree_are_left_as_they_are(trio):
    """A unit of work was done at two, undone and forgotten at one of these, and left out."""
    a = trio[0]
    b, d = a.branch("b"), third(a, 5)
    unit = {"app_id": "job", "app_seq": 1}
    version = d.session.head().version
    for table in (b, d):
        overwrite(table, events(1, first=250), **unit)
    d.restore(version, forget_units=True)
    merge_all((b, a), (a, b))
    replication.merge(d, b, take="source")
    merge_all((b, d), (b, a), (b, d), (a, b), (d, b))
    sides = [a, b, d]
    assert [names(table) for table in sides] == [["row 0"]] * 3
    merge_all((d, a), (a, b), (a, d))
    assert [names(table) for table in sides] == [["row 0"]] * 3


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("way", ["directly", "by another copy"])
def test_g3_a_row_that_was_restored_after_a_merge_stays(trio, way):
    """All three had dropped it, so that the merge dropped nothing."""
    a, b, c = trio
    version = a.session.head().version
    for table in trio:
        overwrite(table, events(0))
    merge_all(*([(b, a)] if way == "directly" else [(b, c), (c, a)]))
    a.restore(version)
    again = replication.merge(b, a)
    assert (again.commits, names(a)) == (0, ["row 0"])
    merge_all((a, b))
    assert names(b) == ["row 0"]


@pytest.mark.hazard("G3")
def test_g3_rows_that_a_unit_of_work_replaced_are_not_dropped_where_it_is_undone(trio):
    _, b, c = trio
    unit = {"app_id": "job", "app_seq": 1}
    version = b.session.head().version
    overwrite(b, events(1, first=250), **unit)
    b.restore(version)
    overwrite(c, events(1, first=40))
    overwrite(c, events(1, first=250), **unit)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        replication.merge(c, b)
    assert names(b) == ["row 0"]
    replication.merge(c, b, take="source")
    merge_all((b, c))
    assert names(b) == names(c) == ["row 250"]


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_that_replaced_rows_at_one_and_added_some_at_the_other(pair):
    one, two = pair
    unit = {"app_id": "job", "app_seq": 2}
    overwrite(one, events(1, first=100), **unit)
    append(two, events(1, first=100), **unit)
    both_ways(one, two)
    assert names(one) == rows(100)


@pytest.mark.hazard("G3")
def test_g3_rows_that_their_unit_of_work_replaced_stay_away_where_a_choice_brought_the_unit(trio):
    a, b, c = trio
    unit = {"app_id": "job", "app_seq": 1}
    append(a, events(1, first=41))
    for table in (a, c):
        overwrite(table, events(1, first=250), **unit)
    overwrite(b, events(0))
    replication.merge(c, b, take="source")
    merge_all((b, c), (a, b), (b, c), (b, a))
    assert [names(table) for table in trio] == [["row 250"]] * 3


@pytest.mark.hazard("G3")
def test_g3_a_restore_forgets_also_another_copys_doing_of_the_unit_that_it_has_seen(trio):
    _, b, c = trio
    version = c.session.head().version
    for table in (b, c):
        append(table, events(1, first=100), app_id="job", app_seq=1)
    append(b, events(1, first=5))
    replication.merge(b, c)
    c.restore(version, forget_units=True)
    merge_all((b, c), (c, b), (b, c))
    assert names(b) == names(c) == rows(0)
    assert is_loadable(b, {"app_id": "job", "app_seq": 1})


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_below_one_that_a_choice_left_out_is_there_once(trio):
    a, c, d = trio
    overwrite(a, events(1, first=2))
    append(a, events(1, first=250), app_id="job", app_seq=2)
    overwrite(d, events(1, first=3), app_id="job", app_seq=3)
    append(c, events(1, first=250), app_id="job", app_seq=2)
    replication.merge(a, c)
    replication.merge(d, a, take="target")
    merge_all((a, d), (a, c), (d, c), (c, a), (a, d))
    assert [names(table) for table in trio] == [rows(2, 250)] * 3


@pytest.mark.hazard("G3")
def test_g3_a_union_that_forgets_a_unit_of_work_is_not_taken_for_another_unit(trio):
    """The union says which units count still; this is not to have done them."""
    a, c, d = trio
    b = a.branch("b")
    append(c, events(1, first=270), app_id="job", app_seq=3)
    append(d, events(1, first=250), app_id="job", app_seq=1)
    replication.merge(d, a)
    a.restore(a.refresh().version - 1, forget_units=True)
    merge_all((d, c), (c, d), (d, b), (a, c), (c, a), (c, d), (d, b))
    assert [names(table) for table in (a, b, c, d)] == [rows(0, 270)] * 4


@pytest.mark.hazard("G3")
def test_g3_what_a_unit_of_work_dropped_compacted_is_dropped_further_along_a_tree(pair):
    a = pair[0]
    b, c = third(a, 1), third(a, 2)
    unit = {"app_id": "job", "app_seq": 2}
    overwrite(a, events(1, first=250), **unit)
    append(b, events(1, first=30))
    replication.merge(b, c)
    rewritten(b)
    overwrite(b, events(1, first=250), **unit)
    merge_all((b, a), (a, c), (c, a))
    assert [names(table) for table in (a, b, c)] == [["row 250"]] * 3


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_whose_form_a_union_took_over_comes_further(trio):
    """The union replaces what its log did by what the other log did of the unit."""
    a, c, d = trio
    unit = {"app_id": "job", "app_seq": 1}
    append(d, events(1, first=250), **unit)
    a.restore(0)
    replication.merge(a, c)
    append(a, events(1, first=250), **unit)
    merge_all((d, a), (a, d), (c, d), (d, c), (a, d), (d, c))
    assert [names(table) for table in trio] == [["row 250"]] * 3


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_counts_as_done_where_its_row_is_though_another_copy_forgot_it(trio):
    a, b, c = trio
    overwrite(b, events(1, first=30))
    append(a, events(1, first=250), app_id="job", app_seq=1)
    replication.merge(a, b)
    overwrite(c, events(1, first=60))
    replication.merge(b, c, take="target")
    version = a.refresh().version
    append(a, events(1, first=90))
    a.restore(version)
    replication.merge(c, a, take="target")
    assert names(a) == rows(0, 250)
    append(a, events(1, first=250), app_id="job", app_seq=1)
    assert names(a) == rows(0, 250)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("compacted", [False, True])
def test_g3_a_unit_of_work_that_a_later_choice_brings_counts_as_done(trio, compacted):
    a, b, _ = trio
    unit = {"app_id": "job", "app_seq": 1}
    overwrite(a, events(1, first=250), **unit)
    overwrite(b, events(1, first=30))
    replication.merge(a, b, take="target")
    assert b.session.head().meta.apps == {}
    append(a, events(1, first=60))
    if compacted:
        rewritten(a)
    version = a.refresh().version
    append(a, events(1, first=61))
    replication.merge(a, b)
    overwrite(b, events(1, first=31))
    a.restore(version)
    with pytest.raises(errors.CommitConflict):
        replication.merge(a, b)
    replication.merge(a, b, take="source")
    assert names(b) == rows(60, 250)
    append(b, events(1, first=250), **unit)
    assert names(b) == rows(60, 250)


UNIT = {"app_id": "job", "app_seq": 2}  # `pair` has the one below it


def is_loadable(table, unit=UNIT):
    """Load a unit of work once more, and return whether that added rows."""
    before = table.refresh().version
    append(table, events(1, first=250), **unit)
    return table.refresh().version > before


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_g3_a_unit_of_work_is_not_there_as_restored_and_as_loaded_again(order):
    a = create()
    assert is_loadable(a)
    a.restore(0, forget_units=True)
    b = third(a)
    b.restore(1)
    assert is_loadable(a)
    assert not is_loadable(b)
    source, target = (a, b) if order == "ab" else (b, a)
    with pytest.raises(errors.CommitConflict, match="--take"):
        replication.merge(source, target)
    replication.merge(source, target, take="source")
    replication.merge(target, source)
    assert names(a) == names(b) == rows(250)
    assert not is_loadable(a)
    assert not is_loadable(b)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_g3_a_unit_of_work_whose_restored_rows_a_choice_left_out_can_be_loaded(order):
    a = create()
    assert is_loadable(a)
    b = third(a)
    for table in (a, b):
        table.restore(0, forget_units=True)
    b.restore(1)
    source, target, take = (a, b, "source") if order == "ab" else (b, a, "target")
    replication.merge(source, target, take=take)
    replication.merge(target, source)
    assert names(a) == names(b) == []
    assert is_loadable(a)
    assert is_loadable(b)


@pytest.mark.hazard("G3")
def test_g3_a_unit_of_work_whose_restored_rows_a_choice_brings_is_done():
    a = create()
    assert is_loadable(a)
    b = third(a)
    a.restore(0, forget_units=True)
    assert is_loadable(a)
    b.restore(0, forget_units=True)
    b.restore(1)
    replication.merge(a, b, take="target")
    replication.merge(b, a)
    assert names(a) == names(b) == rows(250)
    assert not is_loadable(a)
    assert not is_loadable(b)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("chosen", ["a", "b"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_g3_rows_and_units_are_those_of_the_chosen_log_where_one_forgot_units(order, chosen):
    """Each day by itself needs a choice, or none; the units are of both days."""
    a = create()
    b = third(a)
    append(a, events(1, first=30, day=1))
    assert is_loadable(a)
    append(a, events(1, first=32, day=1))
    replication.merge(a, b)
    append(b, events(1, first=40, day=5))
    b.restore(b.refresh().version - 1)
    append(b, events(1, first=41, day=6))
    a.restore(1, forget_units=True)
    append(a, events(1, first=42, day=7))
    source, target = (a, b) if order == "ab" else (b, a)
    with pytest.raises(errors.CommitConflict, match="which of the two counts"):
        replication.merge(source, target)
    replication.merge(source, target, take="source" if chosen == order[0] else "target")
    replication.merge(target, source)
    assert names(a) == names(b) == (rows(30, 42) if chosen == "a" else rows(30, 32, 250, 41))
    assert is_loadable(a) is is_loadable(b) is (chosen == "a")


def two_days(table, *firsts, **unit):
    """Append a row to day 0 and one to day 1, in one version."""
    days = [events(1, first=first, day=day) for day, first in enumerate(firsts)]
    append(table, pa.concat_tables(days), **unit)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("take", ["source", "target"])
def test_g3_units_that_one_forgot_and_rows_that_another_copy_restored_need_a_choice(take, carried):
    """The restore brings back what the unit had in another day."""
    a = create()
    two_days(a, 250, 251, **UNIT)
    overwrite(a, events(0), start="1970-01-02", end="1970-01-03")
    b, c = third(a), third(a, 1)
    a.restore(0, forget_units=True)
    append(a, events(1, first=60, day=5))
    b.restore(1)
    if carried:
        c.set_properties({"user.by": "c"})
        replication.merge(b, c)
    other = c if carried else b
    for source, target in ((a, other), (other, a)):
        with pytest.raises(errors.CommitConflict, match="which of the two counts"):
            replication.merge(source, target)
    chosen = a if take == "source" else other
    before = names(chosen)
    replication.merge(a, other, take=take)
    replication.merge(other, a)
    assert names(a) == names(other) == before
    assert is_loadable(a) is is_loadable(other) is (take == "source")


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
def test_g3_a_unit_that_one_forgot_is_not_there_in_part_after_a_choice(take):
    """The choice is about day 1, and the unit has a row in day 0, too."""
    a = create()
    append(a, events(1, first=30, day=1))
    two_days(a, 250, 251, **UNIT)
    b = third(a)
    a.restore(1, forget_units=True)
    append(b, events(1, first=40, day=5))
    (row,) = [s for s in b.session.head().segments() if s.chunk == "1970-01-02" and s.version == 1]
    b.drop_segments([row], reason="wrong")
    before = names(a if take == "source" else b)
    with pytest.raises(errors.CommitConflict, match="which of the two counts"):
        replication.merge(a, b)
    replication.merge(a, b, take=take)
    replication.merge(b, a)
    assert names(a) == names(b) == before
    assert is_loadable(a) is is_loadable(b) is (take == "source")


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_g3_restored_rows_are_not_carried_where_their_unit_was_forgotten(order):
    """The second restore changes no row."""
    a = create()
    assert is_loadable(a)
    a.restore(0)
    b = third(a)
    a.restore(0, forget_units=True)
    b.restore(1)
    source, target = (a, b) if order == "ab" else (b, a)
    with pytest.raises(errors.CommitConflict, match="which of the two counts"):
        replication.merge(source, target)
    replication.merge(source, target, take="source")
    replication.merge(target, source)
    assert names(a) == names(b) == (rows(250) if order == "ba" else [])
    assert is_loadable(a) is is_loadable(b) is (order == "ab")


@pytest.mark.hazard("G3")
def test_g3_what_a_third_copy_forgot_needs_no_choice_between_two_that_know_it(trio):
    a, b, c = trio
    assert is_loadable(a)
    merge_all((a, b), (a, c))
    a.restore(1, forget_units=True)
    append(b, events(1, first=40))
    append(c, events(1, first=50))
    merge_all((a, b), (a, c), (b, c), (c, b), (b, a))
    assert [names(table) for table in trio] == [rows(0, 40, 50)] * 3
    assert is_loadable(c)
    merge_all((c, a), (c, b))
    assert not is_loadable(a)
    assert not is_loadable(b)


@pytest.mark.hazard("G3")
def test_g3_a_unit_that_its_log_forgot_counts_in_no_third_copy_that_knows_the_restore(trio):
    """The unit was left out by the second copy, which had done it, too; then it chose the first."""
    a, b, c = trio
    assert is_loadable(a)
    assert is_loadable(b)
    append(c, events(1, first=70))
    append(a, events(1, first=60))
    replication.merge(a, b)
    a.restore(1, forget_units=True)
    replication.merge(a, b, take="source")
    merge_all((b, c), (a, c), (c, a), (c, b))
    assert [names(table) for table in trio] == [rows(0, 70)] * 3
    assert is_loadable(c)
    merge_all((c, a), (c, b))
    assert [names(table) for table in trio] == [rows(0, 70, 250)] * 3
    assert not is_loadable(a)


@pytest.mark.hazard("G3")
def test_g3_a_unit_that_was_done_beside_a_forgotten_one_counts_in_both_copies():
    a = create()
    assert is_loadable(a)
    b = third(a)
    a.restore(0, forget_units=True)
    next_one = {"app_id": "job", "app_seq": 3}
    append(b, events(1, first=40, day=3), **next_one)
    merge_all((a, b), (b, a))
    assert names(a) == names(b) == rows(40)
    assert not is_loadable(a, next_one)


@pytest.mark.hazard("G3")
def test_g3_a_unit_that_a_union_brought_and_another_copy_forgot_counts_in_neither(trio):
    a, b, c = trio
    assert is_loadable(c)
    c.restore(1, forget_units=True)
    assert is_loadable(c)
    for table in (a, b):
        append(table, events(1, first=40 if table is a else 50))
        replication.merge(c, table)
    a.restore(1, forget_units=True)
    merge_all((a, b), (b, a), (b, c))
    assert [names(table) for table in trio] == [rows(0, 50)] * 3
    assert is_loadable(a)
    merge_all((a, b), (b, c))
    assert not is_loadable(b)
    assert not is_loadable(c)


@pytest.mark.hazard("G3")
def test_g3_a_unit_that_one_forgot_counts_in_no_copy_that_wrote_no_rows(trio):
    a, b, _ = trio
    b.set_properties({"user.by": "b"})
    assert is_loadable(a)
    replication.merge(a, b)
    a.restore(1, forget_units=True)
    replication.merge(a, b)
    assert names(b) == rows(0)
    assert is_loadable(b)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
def test_g3_a_chosen_state_has_what_the_other_doing_of_a_unit_replaced(trio, take):
    a, b, _ = trio
    overwrite(a, events(1, first=250), **UNIT)
    append(b, events(1, first=250), **UNIT)
    b.restore(1)
    expected = names(b if take == "source" else a)
    told = replication.merge(b, a, take=take, dry_run=True)
    done = replication.merge(b, a, take=take)
    [left] = done.left_out
    assert told.left_out == (left,)
    versions = (2,) if take == "source" else (3,)
    assert (left.rows, left.versions) == (1, versions)
    replication.merge(a, b)
    assert names(a) == names(b) == expected


@pytest.mark.hazard("G3")
def test_g3_a_unit_that_was_loaded_again_unseen_by_a_choice_is_not_there_twice():
    a = create()
    append(a, events(1, first=30))
    assert is_loadable(a)
    b = third(a)
    a.restore(0, forget_units=True)
    b.drop_segments([s for s in b.session.head().segments() if s.version == 1], reason="wrong")
    replication.merge(a, b, take="target")
    assert names(b) == rows(250)
    assert is_loadable(a)
    with pytest.raises(errors.CommitConflict, match="which of the two counts"):
        replication.merge(b, a)
    replication.merge(b, a, take="source")
    replication.merge(a, b)
    assert names(a) == names(b) == rows(250)
    assert not is_loadable(a)


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_g3_units_that_the_chosen_log_has_not_forgotten_are_done(order):
    a = create()
    append(a, events(1, first=30))
    assert is_loadable(a)
    b = third(a)
    b.restore(1, forget_units=True)
    overwrite(a, events(1, first=40), start="1970-01-01", end="1970-01-02")
    source, target, take = (a, b, "source") if order == "ab" else (b, a, "target")
    with pytest.raises(errors.CommitConflict, match="--take"):
        replication.merge(source, target)
    replication.merge(source, target, take=take)
    replication.merge(target, source)
    assert names(a) == names(b) == rows(40)
    assert not is_loadable(a)
    assert not is_loadable(b)
