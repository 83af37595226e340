"""The public face: versions, times, histories, differences, handles."""

import datetime as dt
import pickle
import threading

import msgspec
import pyarrow as pa
import pytest
from support import builders, own_threads
from support.builders import (
    SCHEMA,
    START_MS,
    Spy,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
)

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.model.actions import PropertyChange, SetProperties, SetSchema
from eventlog.model.columns.edits import add_fields
from eventlog.store.memory import MemoryStore
from eventlog.writers import append


@pytest.fixture
def table():
    """Versions 0 to 4, one second apart."""
    t = create()
    for n in range(4):
        t.clock.advance(1000)
        commit(t, add(t, f"2013-01-{1 + n:02d}"))
    return t


def at(version):
    return START_MS + 1000 * version


# --- creating and opening -------------------------------------------------------------------------


def test_a_second_create_is_refused_and_changes_nothing(table):
    with pytest.raises(errors.AlreadyExists):
        create(table.store, seed=2)
    assert check_sound(table.store).session.head().version == 4


def test_of_two_creates_at_once_one_wins():
    inner = MemoryStore()
    spy = Spy(inner)
    spy.before_put = lambda key: key.startswith("_log/") and create(inner, seed=2)
    with pytest.raises(errors.AlreadyExists):
        create(spy, seed=1)
    check_sound(inner)


def test_no_table_is_not_found():
    store = MemoryStore()
    store.put_if_absent("_log/folder marker", b"")
    store.put_if_absent("data/something", b"")
    with pytest.raises(errors.TableNotFound):
        reopen(store)


@pytest.mark.parametrize(
    "arguments",
    [
        {"time_column": "missing"},
        {"time_column": "name"},
        {"granularity": "week"},
        {"order_by": ["missing"]},
        {"properties": {"nope": "1"}},
        {"schema": pa.schema([])},
    ],
    ids=str,
)
def test_bad_arguments_create_nothing(arguments):
    store = MemoryStore()
    with pytest.raises(errors.InvalidInput):
        create(store, **arguments)
    assert not list(store.list(""))


def test_buckets_need_a_key():
    with pytest.raises(errors.InvalidInput, match="give `key`"):
        create(buckets=4)


# --- versions and times ---------------------------------------------------------------------------


def test_every_version_can_be_had(table):
    for version in range(5):
        found = table.snapshot(version)
        assert (found.version, found.totals.segments) == (version, version)
        assert found.timestamp == dt.datetime.fromtimestamp(at(version) / 1000, dt.UTC)
    for version in (5, 999_999_999_999):
        with pytest.raises(errors.VersionNotFound):
            table.snapshot(version)
    for version in (-1, 10**12):
        with pytest.raises((errors.InvalidInput, errors.VersionNotFound)):
            table.snapshot(version)


@pytest.mark.parametrize(
    ("moment", "version"),
    [
        (at(0), 0), (at(1) - 1, 0), (at(1), 1), (at(3) + 999, 3), (at(4), 4), (at(9), 4),
        (dt.datetime.fromtimestamp(at(2) / 1000, dt.UTC), 2),
        (dt.datetime.fromtimestamp(at(2) / 1000, dt.timezone(dt.timedelta(hours=9))), 2),
        (dt.datetime.fromtimestamp(at(2) / 1000, dt.UTC).isoformat(), 2),
        (dt.datetime.fromtimestamp(at(2) / 1000, dt.UTC).replace(tzinfo=None).isoformat(), 2),
    ],
    ids=str,
)  # fmt: skip
def test_the_newest_version_at_or_before_a_time(table, moment, version):
    assert table.snapshot(timestamp=moment).version == version


def test_times_before_the_table_are_not_found(table):
    with pytest.raises(errors.VersionNotFound, match="created at"):
        table.snapshot(timestamp=at(0) - 1)


@pytest.mark.parametrize("moment", ["", "noon", "2013-13-01", dt.datetime(2013, 1, 1), "9" * 5000])
def test_other_times_are_refused(table, moment):
    with pytest.raises((errors.InvalidInput, errors.VersionNotFound)):
        table.snapshot(timestamp=moment)
    with pytest.raises(errors.InvalidInput):
        table.snapshot(version=1, timestamp=at(1))


def test_times_grow_though_the_clock_runs_backwards_or_stands(table):
    for step in (-10_000_000, 0, 0, 5):
        table.clock.advance(step)
        commit(table, add(table))
    times = [entry.time for entry in table.history()]
    assert times == sorted(set(times), reverse=True)
    check_sound(table.store)


def test_the_store_tells_the_time_where_it_can():
    store = MemoryStore(clock=ManualClock(START_MS + 77))
    table = create(store, clock=ManualClock(5, 3))
    assert table.session.head().header.time == START_MS + 77


def test_a_writer_whose_clock_is_beyond_all_years_harms_nobody(table):
    wrong = Table.open("", store=table.store, clock=ManualClock(10**15, 9))
    with pytest.raises(errors.InvalidInput):
        commit(wrong, add(wrong))
    commit(table, add(table))
    check_sound(table.store)


# --- history, diff, find --------------------------------------------------------------------------


def test_history_is_newest_first_and_may_be_cut(table):
    entries = list(table.history())
    assert [e.version for e in entries] == [4, 3, 2, 1, 0]
    assert [e.operation for e in entries] == ["append"] * 4 + ["create"]
    assert (entries[0].adds, entries[0].rows, entries[0].bytes, entries[0].drops) == (1, 1, 100, 0)
    assert [e.version for e in table.history(start=2, limit=2)] == [2, 1]
    assert list(table.history(limit=0)) == []
    with pytest.raises(errors.InvalidInput):
        list(table.history(limit=-1))
    with pytest.raises(errors.VersionNotFound):
        list(table.history(start=9))


@pytest.mark.parametrize("start", [10**12, 2**63 - 1])
def test_a_history_from_a_version_that_no_log_has_is_refused(table, start):
    with pytest.raises(errors.InvalidInput, match="start"):
        table.history(start)


def test_history_may_be_left_unfinished(table):
    with own_threads.none_left():
        entries = table.history()
        next(entries)
        entries.close()


def test_diff_in_both_directions(table):
    gone = live(table.session.head())[0]
    version = commit(table, drop_of(gone), add(table), operation="replace")
    forth, back = table.diff(4, version), table.diff(version, 4)
    assert [s.id for s in forth.dropped] == [gone.id] == [s.id for s in back.added]
    assert len(forth.added) == len(back.dropped) == 1
    assert table.diff(3, 3).added == table.diff(3, 3).dropped == []


# --- properties and schema ------------------------------------------------------------------------


def test_properties_are_compared_with_what_the_writer_saw(table):
    other = reopen(table.store)
    stale = table.transaction("properties", [_change("user.a", None, "mine")])
    other.set_properties({"user.a": "theirs"})
    with pytest.raises(errors.CommitConflict, match=r"user\.a"):
        table.commit(stale)
    other.set_properties({"user.a": None, "user.b": "1"})
    first = {"auto_granularity": "1"}
    assert dict(check_sound(table.store).session.head().properties) == {**first, "user.b": "1"}
    table.set_properties({"user.a": "again"})
    assert dict(table.session.head().properties) == {**first, "user.a": "again", "user.b": "1"}


def _change(name, old, new):
    return SetProperties((PropertyChange(name, old, new),))


def test_two_changes_of_the_schema_conflict(table):
    mine = add_fields(table.session.head().stored_schema, [pa.field("mine", pa.int64())])
    stale = table.transaction("schema", [SetSchema(mine)])
    reopen(table.store).add_columns(SCHEMA.append(pa.field("theirs", pa.int64())))
    with pytest.raises(errors.CommitConflict, match="schema"):
        table.commit(stale)
    wider = SCHEMA.append(pa.field("theirs", pa.int64())).append(pa.field("mine", pa.string()))
    table.add_columns(wider)
    assert check_sound(table.store).session.head().schema == wider


# --- handles --------------------------------------------------------------------------------------


def test_a_handle_can_be_pickled(table):
    other = pickle.loads(pickle.dumps(table))
    assert (other.uri, other.id, other.session.head().version) == (table.uri, table.id, 4)
    append(other, events(1))
    assert table.refresh().version == 5
    assert table.uri in repr(table)


def test_threads_may_share_a_handle():
    table = create(properties={"combine_after": "0"})
    problems, versions = [], []

    def work(number):
        try:
            seen = -1
            for n in range(15):
                version = append(table, events(1, first=number * 100 + n))
                versions.append(version)
                assert table.refresh().version >= version
                assert table.session.head().version >= seen
                seen = table.session.head().version
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert problems == []
    assert sorted(versions) == list(range(1, 61))
    assert check_sound(table.store).session.head().totals.rows == 60


def test_errors_survive_pickle_and_say_where():
    for kind in (errors.CommitUnknown, errors.Corrupt, errors.VersionNotFound, errors.InvalidInput):
        error = kind("what", table="t", key="k", version=3, transaction="x")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error) == "what (table=t, key=k, version=3, transaction=x)"


def test_a_column_that_is_added_again_keeps_its_default():
    table = create()
    unit = [pa.field("unit", pa.string())]
    version = table.add_columns(unit, {"unit": "celsius"})
    assert table.add_columns(unit, {"unit": "celsius"}) == table.add_columns(unit) == version
    for other in ("kelvin", {"initial": "celsius"}):
        with pytest.raises(errors.InvalidInput, match="'unit' exists, and the default"):
            table.add_columns([*unit, pa.field("n", pa.int8())], {"unit": other})
    assert table.refresh().version == version


@pytest.mark.parametrize(
    "given",
    [
        "n int8, unit text",
        {"n": "tinyint", "unit": pa.string()},
        pa.schema([("n", pa.int8()), ("unit", pa.string())]),
        [("n", pa.int8()), ("unit", pa.string())],
    ],
)
def test_columns_are_added_in_the_forms_that_create_takes(given):
    table = create()
    table.add_columns(given, {"unit": "celsius"})
    added = table.session.head().schema.remove_metadata()
    assert [added.field("n").type, added.field("unit").type] == [pa.int8(), pa.string()]
    for wrong, why in (("n", "n"), ({"m": "nothing"}, "nothing"), ([7], "columns as text")):
        with pytest.raises(errors.InvalidInput, match=why):
            table.add_columns(wrong)


def test_the_time_column_is_never_null():
    table = create(schema=pa.schema([SCHEMA.field("at").with_nullable(False)]))
    with pytest.raises(errors.InvalidInput, match="'at' cannot become null: it is the time column"):
        table.relax_columns(["at"])
    assert create().relax_columns(["at"]) == 0  # it is declared as nullable, and never is


def test_info_is_stored_in_order():
    table = create()
    made = table.transaction("append", [builders.add(table)], info={"b": "1", "a": "2"})
    table.commit(made)
    assert list(table.session.log.read(1)[0].transactions[0].info) == ["a", "b"]
    unsorted = msgspec.structs.replace(made, id="1" * 32, info={"b": "1", "a": "2"})
    with pytest.raises(errors.InvalidInput, match="order"):
        table.commit(unsorted)
