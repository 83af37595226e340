"""Overwriting a range: what was there goes, what comes stands there, the rest stays."""

import pyarrow as pa
import pytest
from support import builders
from support.builders import SCHEMA, Spy, check_sound, create, events, live, reopen, row_names

from eventlog import Ms, errors
from eventlog.format import keys
from eventlog.readers import count, scan
from eventlog.table.settings import move_granularity
from eventlog.writers import append, overwrite

DAY_MS = Ms(86_400_000)
EMPTY = SCHEMA.empty_table()


@pytest.fixture
def table():
    t = create()
    append(t, events(6, days=3))  # rows 0 and 3 on day 0, 1 and 4 on day 1, 2 and 5 on day 2
    return t


def names(*numbers):
    return [f"row {n}" for n in numbers]


def test_overwrite_replaces_a_range(table):
    assert overwrite(table, events(1, day=1, first=9), start=DAY_MS, end=Ms(2 * DAY_MS)) == 2
    assert row_names(check_sound(table.store)) == names(0, 3, 9, 2, 5)


def test_overwrite_without_bounds_replaces_everything(table):
    overwrite(table, events(1, first=9))
    assert row_names(check_sound(table.store)) == names(9)


def test_overwrite_with_nothing_empties_the_range(table):
    overwrite(table, EMPTY, end="1970-01-02")
    assert row_names(table) == names(1, 4, 2, 5)
    overwrite(table, EMPTY)
    assert row_names(check_sound(table.store)) == []
    assert check_sound(table.store).session.head().totals.segments == 0


@pytest.mark.parametrize(
    "bounds", [{"start": Ms(1)}, {"end": Ms(DAY_MS - 1)}, {"start": Ms(0), "end": Ms(5)}]
)
def test_bounds_inside_a_chunk_with_rows_are_refused(bounds):
    table = create(granularity="day")
    append(table, events(6, days=3))
    with pytest.raises(errors.InvalidInput, match="chunk boundaries"):
        overwrite(table, EMPTY, **bounds)
    assert table.refresh().version == 1


@pytest.mark.parametrize("name", ["at", 'the "time"'])
def test_a_day_is_overwritten_also_after_the_granularity_has_changed(name):
    """A job that overwrites a day need not know how time is cut."""
    schema = SCHEMA.set(0, SCHEMA.field(0).with_name(name))
    table = create(schema=schema, time_column=name)
    rows = lambda *given, **more: events(*given, **more).rename_columns(schema.names)
    append(table, rows(80, days=40))
    assert table.session.head().layout.granularity == "month"
    for _ in range(2):
        done = overwrite(table, rows(2, day=1, first=100), start=DAY_MS, end=Ms(2 * DAY_MS))
        assert (done.deleted, done.added) == (2, 2)
    left = {f"row {n}" for n in range(80) if n % 40 != 1}
    assert {*row_names_of(table)} == left | {"row 100", "row 101"}
    with pytest.raises(errors.InvalidInput, match="1 of the new rows do not pass"):
        overwrite(table, rows(1, day=2), start=DAY_MS, end=Ms(2 * DAY_MS))
    month = overwrite(table, rows(0), start="1970-02-01", dry_run=True)
    assert (month.dropped, month.committed) == (1, False)


def test_chunks_from_before_the_granularity_was_made_finer_are_not_dropped():
    table = create(granularity="month", properties={"auto_granularity": "1"})
    append(table, events(6, days=3))
    move_granularity(table.session, "month", "day")
    overwrite(table, EMPTY, start="1970-01-02", end="1970-01-03")
    assert sorted(row_names_of(check_sound(table.store))) == names(0, 2, 3, 5)


def row_names_of(table):
    return scan(table).to_table().column("name").to_pylist()


@pytest.mark.hazard("W7")
@pytest.mark.parametrize(
    ("start", "end"),
    [(Ms(5), Ms(5)), (Ms(6), Ms(5)), ("yesterday", None), ("1970-01-02", "1970-01-01")],
)
def test_ranges_that_are_none_are_refused(table, start, end):
    with pytest.raises(errors.InvalidInput):
        overwrite(table, EMPTY, start=start, end=end)


def test_rows_outside_the_range_are_refused(table):
    with pytest.raises(errors.InvalidInput, match="outside the range of the overwrite"):
        overwrite(table, events(2, days=2), end=DAY_MS)
    assert table.refresh().version == 1


def race(table, write, rival, seed=9):
    """Run `rival` on another handle just before the first commit that `write` sends."""
    spy = Spy(table.store)
    other = reopen(table.store, seed)

    def interfere(key):
        if key.startswith(keys.LOG_PREFIX):
            spy.before_put = lambda key: None
            rival(other)

    spy.before_put = interfere
    return write(reopen(spy, seed=8))


def test_segments_that_arrive_meanwhile_are_carried_forward(table):
    version = race(
        table,
        lambda t: overwrite(t, events(1, first=9), end=DAY_MS),
        lambda t: append(t, events(1, first=7)),
    )
    assert version == 3
    assert row_names(check_sound(table.store)) == names(7, 9, 1, 4, 2, 5)


def test_segments_that_arrive_meanwhile_conflict_when_serializable(table):
    def write(t):
        return overwrite(t, events(1, first=9), end=DAY_MS, isolation="serializable")

    with pytest.raises(errors.CommitConflict, match="1970-01-01"):
        race(table, write, lambda t: append(t, events(1, first=7)))
    assert row_names(check_sound(table.store)) == names(0, 3, 7, 1, 4, 2, 5)
    assert race(table, write, lambda t: append(t, events(1, day=2, first=8)), seed=19) == 4


def test_two_overwrites_of_one_range_conflict(table):
    with pytest.raises(errors.CommitConflict, match="no longer live"):
        race(
            table,
            lambda t: overwrite(t, events(1, first=9), end=DAY_MS),
            lambda t: overwrite(t, events(1, first=8), end=DAY_MS),
        )
    assert row_names(check_sound(table.store)) == names(8, 1, 4, 2, 5)


def test_two_overwrites_of_different_ranges_do_not(table):
    race(
        table,
        lambda t: overwrite(t, events(1, first=9), end=DAY_MS),
        lambda t: overwrite(t, events(1, day=1, first=8), start=DAY_MS, end=Ms(2 * DAY_MS)),
    )
    assert row_names(check_sound(table.store)) == names(9, 8, 2, 5)


def test_a_second_delivery_has_no_second_effect(table):
    for seed in (5, 6):
        other = reopen(table.store, seed)
        assert overwrite(other, events(1, first=9), app_id="job", app_seq=1) == 2
    append(table, events(1, first=10))
    assert overwrite(reopen(table.store, 7), events(1, first=9), app_id="job", app_seq=1) == 2
    assert row_names(check_sound(table.store)) == names(9, 10)


def test_unknown_isolation_is_refused(table):
    with pytest.raises(errors.InvalidInput, match="isolation"):
        overwrite(table, EMPTY, isolation="chaos")


def test_overwritten_versions_can_still_be_read(table):
    before = live(table.snapshot(1))
    overwrite(table, events(1, first=9))
    table.write_keyframe()
    assert live(reopen(table.store).snapshot(1)) == before
    assert builders.fold_all(table.store)[1][0].header.totals.rows == 6
    assert isinstance(EMPTY, pa.Table)


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_what_came_after_the_version_read_is_not_replaced_unseen(isolation):
    table = create()
    append(table, events(3))
    version = table.snapshot().version
    rows = scan(table, version=version).to_table()
    append(reopen(table.store, seed=5), events(5))
    if isolation == "serializable":
        with pytest.raises(errors.CommitConflict):
            overwrite(table, rows, isolation=isolation, read_version=version)
    else:
        overwrite(table, rows, read_version=version)
    assert count(table) == 8
