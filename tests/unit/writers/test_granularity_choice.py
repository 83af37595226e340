"""The first rows of a table whose granularity follows its data choose it; later ones do not."""

import logging

import pyarrow as pa
import pytest
from support.builders import SCHEMA, check_sound, create, events, live, reopen, row_names

from eventlog import errors
from eventlog.readers import scan
from eventlog.staging.stager import MIN_MEMORY_BYTES
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite


def granularity(table):
    return table.refresh().layout.granularity


def chunks(table):
    return sorted({segment.chunk for segment in live(table.refresh())})


@pytest.mark.parametrize(
    ("days", "wanted", "segments"),
    [(1, "day", 1), (32, "day", 32), (33, "month", 2), (3 * 365, "year", 3), (12_100, "all", 1)],
)
def test_the_first_rows_choose(days, wanted, segments):
    table = create()
    append(table, events(days, days=days))
    assert (granularity(table), len(live(table.session.head()))) == (wanted, segments)
    assert row_names(table) == [f"row {n}" for n in range(days)]
    check_sound(table.store)


def test_later_rows_follow_and_choose_nothing():
    table = create()
    append(table, events(1))
    append(table, events(33, days=33, first=1))
    assert granularity(table) == "day"
    assert len(live(table.session.head())) == 34
    year = create()
    append(year, events(40, days=40))
    append(year, events(1000, days=1000, first=40))
    assert granularity(year) == "month"
    assert chunks(year)[-1] == "1972-09"


@pytest.mark.parametrize("given", ["hour", "day", "month", "year", "all"])
def test_a_granularity_that_was_given_stays(given):
    table = create(granularity=given)
    assert append(table, events(40, days=40)) == 1
    assert granularity(table) == given
    assert "auto_granularity" not in table.session.head().properties


def test_auto_is_the_default_and_keyed_tables_have_none():
    assert create(granularity="auto").session.head().layout == create().session.head().layout
    assert create(granularity="auto").session.head().properties == {"auto_granularity": "1"}
    keyed = create(key="name")
    append(keyed, events(400, days=400))
    assert (granularity(keyed), keyed.session.head().properties) == ("all", {})
    with pytest.raises(errors.InvalidInput, match="auto is for tables with a time column"):
        create(key="name", granularity="auto")
    timeless = create(time_column=None)
    assert (granularity(timeless), timeless.session.head().properties) == ("all", {})
    with pytest.raises(errors.InvalidInput, match="without a time column has one chunk"):
        timeless.set_granularity("auto")
    with pytest.raises(errors.InvalidInput, match="is fixed at its creation"):
        keyed.set_granularity("auto")
    with pytest.raises(errors.InvalidInput, match=r"one of hour, day, month, year, all, auto$"):
        create(granularity="week")


def test_of_two_first_appends_at_once_both_take_effect():
    store = MemoryStore()
    create(store)
    one, two = reopen(store, 2), reopen(store, 3)
    for table in (one, two):
        table.session.head()
    append(one, events(40, days=40))
    append(two, events(1000, days=1000, first=40))  # the handle has seen no rows
    assert granularity(reopen(store)) == "month"
    assert {len(name) for name in chunks(one)} == {4, 7}
    assert len(row_names(reopen(store))) == 1040
    check_sound(store)


def test_of_two_that_choose_at_once_the_first_counts(monkeypatch):
    """The second one has looked and seen no rows, and its change comes too late."""
    store = MemoryStore()
    create(store)
    one, two = reopen(store, 2), reopen(store, 3)
    old = two.session.head()
    append(one, events(40, days=40))
    monkeypatch.setattr(type(two.session), "refresh", lambda _: old)
    append(two, events(1000, days=1000, first=40))
    monkeypatch.undo()
    assert granularity(reopen(store)) == "month"
    assert len(row_names(reopen(store))) == 1040
    check_sound(store)


def test_rows_that_an_old_handle_has_not_seen_are_the_first():
    store = MemoryStore()
    create(store)
    one, two = reopen(store, 2), reopen(store, 3)
    two.session.head()
    append(one, events(1))
    append(two, events(40, days=40, first=1))
    assert (granularity(reopen(store)), chunks(two)) == (
        "day",
        ["1970-01", "1970-01-01", "1970-02"],
    )
    assert len(row_names(reopen(store))) == 41


def test_a_granularity_that_is_fixed_meanwhile_stays(monkeypatch):
    store = MemoryStore()
    create(store)
    one, two = reopen(store, 2), reopen(store, 3)
    old = two.session.head()
    one.set_granularity("day")
    monkeypatch.setattr(type(two.session), "refresh", lambda _: old)
    append(two, events(40, days=40))
    monkeypatch.undo()
    assert granularity(reopen(store)) == "day"
    assert len(row_names(reopen(store))) == 40


def test_the_first_rows_of_a_stream_choose_a_month_at_most():
    table = create()
    rows = events(4000, days=1000)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows.to_batches(max_chunksize=500))
    append(table, reader, memory_bytes=MIN_MEMORY_BYTES)
    assert granularity(table) == "month"
    assert scan(table).to_table().num_rows == 4000
    whole = create()
    append(whole, rows)
    assert granularity(whole) == "year"


def test_segments_of_the_size_that_is_aimed_at_stay():
    table = create(properties={"segment_bytes": "1024"})
    append(table, events(4000, days=40))
    assert granularity(table) == "day"


def test_rows_after_all_were_deleted_are_the_first_again():
    table = create()
    append(table, events(3))
    delete(table, where="true")
    append(table, events(40, days=40))
    assert granularity(table) == "month"


def test_an_overwrite_of_everything_chooses_and_one_of_a_range_does_not():
    table = create()
    overwrite(table, events(40, days=40), dry_run=True)
    assert granularity(table) == "day"
    overwrite(table, events(40, days=40))
    assert granularity(table) == "month"
    part = create()
    overwrite(part, events(40, days=40), start="1970-01-01", end="1971-01-01")
    assert (granularity(part), len(live(part.session.head()))) == ("day", 40)
    check_sound(part.store)


def test_dates_choose_too():
    schema = pa.schema([("at", pa.date32()), ("n", pa.int64())])
    table = create(schema=schema)
    numbers = pa.array(range(4000), pa.int32())
    append(table, pa.table({"at": numbers.cast(pa.date32()), "n": numbers.cast(pa.int64())}))
    assert granularity(table) == "year"


def test_a_warm_append_of_few_chunks_costs_no_request_more():
    store = CountingStore(MemoryStore())
    table = create(store)
    with store.measure() as counts:
        append(table, events(20, days=20))
    assert counts.put == 21


def test_a_fixed_granularity_that_does_not_fit_is_reported_once(caplog):
    table = create(granularity="day")
    with caplog.at_level(logging.WARNING, "eventlog"):
        append(table, events(40, days=40))
        append(table, events(40, days=40))
    (record,) = caplog.records
    assert record.message.startswith("40 time chunks of granularity day hold ")
    assert "--granularity month --run` joins them" in record.message
    caplog.clear()
    with caplog.at_level(logging.WARNING, "eventlog"):
        append(create(granularity="day"), events(32, days=32))
        append(create(), events(40, days=40))
        append(create(key="name", granularity="day"), events(40, days=40))
    assert not caplog.records


def test_a_granularity_is_fixed_and_follows_again():
    table = create()
    assert table.set_granularity("day") == 1
    assert (granularity(table), dict(table.session.head().properties)) == ("day", {})
    assert table.set_granularity("day") == 1
    assert table.set_granularity("auto") == 2
    assert table.set_granularity("auto") == 2
    assert dict(table.session.head().properties) == {"auto_granularity": "1"}
    assert table.set_granularity("year") == 3
    assert (granularity(table), dict(table.session.head().properties)) == ("year", {})
    check_sound(table.store)


def test_a_table_that_is_there_may_have_changed_its_granularity():
    store = MemoryStore()
    table = create(store)
    append(table, events(40, days=40))
    for given in (None, "auto", "day"):
        again = create(store, granularity=given, exist_ok=True)
        assert granularity(again) == "month"
    table.set_granularity("year")
    assert granularity(create(store, exist_ok=True)) == "year"
    with pytest.raises(errors.AlreadyExists, match="granularity is year there, and day here"):
        create(store, granularity="day", exist_ok=True)
