"""An appender: appends of many callers become groups, and each caller learns what became of it."""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from support.builders import SCHEMA, check_sound, create, events, row_names

from eventlog import Table, errors
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

PATIENCE_S = 600
MIB = 2**20


class GatedStore(MemoryStore):
    """A store whose commits wait at a gate; counts its calls."""

    def __init__(self):
        super().__init__()
        self.gate, self.reached, self.calls = threading.Event(), threading.Event(), count()
        self.gate.set()

    def put_if_absent(self, key, body):
        if key.startswith("_log/"):
            self.reached.set()
            assert self.gate.wait(PATIENCE_S)
        return super().put_if_absent(key, body)

    def shut(self):
        self.gate.clear()
        self.reached.clear()


class MoodyStore(MemoryStore):
    """A store whose log does not answer for a number of calls."""

    def __init__(self):
        super().__init__()
        self.silent = 0
        self.loses = False

    def get(self, key, *, start=0, length=None):
        self._answer(key)
        return super().get(key, start=start, length=length)

    def put_if_absent(self, key, body):
        self._answer(key)
        done = super().put_if_absent(key, body)
        if self.loses and key.startswith("_log/"):
            self.loses, self.silent = False, 40
            raise errors.OutcomeUnknown("the answer was lost")
        return done

    def _answer(self, key):
        if self.silent and key.startswith("_log/"):
            self.silent -= 1
            raise errors.Unavailable("no answer")


@pytest.fixture
def moody():
    return create(MoodyStore())


@pytest.fixture
def gated():
    store = GatedStore()
    yield create(store)
    store.gate.set()


def numbers(table):
    return sorted(int(name.split()[1]) for name in row_names(table))


def version_of(future):
    return future.result(timeout=PATIENCE_S)


def failure_of(future):
    return future.exception(timeout=PATIENCE_S)


def test_appends_are_one_version_and_each_caller_is_told_it():
    table = create()
    with table.appender() as out:
        futures = [out.append(events(2, first=2 * n)) for n in range(5)]
        assert not any(future.done() for future in futures)
        out.flush()
        assert {version_of(future) for future in futures} == {1}
        late = out.append(events(1, first=10))
    assert version_of(late) == 2  # leaving the block committed it
    assert numbers(table) == list(range(11))
    assert table.session.head().totals.segments == 2
    check_sound(table.store)


@pytest.mark.parametrize("limit", [{"max_rows": 3}, {"max_bytes": 1200}, {"max_delay_s": 0}])
def test_a_full_group_is_committed_without_a_word(limit):
    table = create()
    with table.appender(**{"max_delay_s": 10**8, **limit}) as out:
        futures = [out.append(events(1, first=n)) for n in range(3)]
        assert version_of(futures[0]) == 1
        assert "max_delay_s" in limit or version_of(futures[2]) == 1


def test_an_append_waits_for_others_no_longer_than_it_was_told():
    table = create()
    with table.appender(max_delay_s=10**6) as out:
        first = out.append(events(1))
        table.clock.advance(10**9 - 1)
        second = out.append(events(1, first=1))
        assert not first.done()
        table.clock.advance(1)
        out.append(events(1, first=2))  # it wakes the thread, as the end of a wait does
        assert version_of(first) == version_of(second) == 1


def test_a_group_is_committed_by_the_time_alone():
    table = create(clock=None)
    with table.appender(max_delay_s=0.001) as out:
        assert version_of(out.append(events(1))) == 1


def test_what_comes_while_a_commit_is_under_way_is_the_next_group(gated):
    store = gated.store
    store.shut()
    with gated.appender(max_rows=1) as out:
        first = out.append(events(1))
        assert store.reached.wait(PATIENCE_S)
        others = [out.append(events(1, first=n)) for n in range(1, 9)]
        assert not first.done()
        store.gate.set()
        assert version_of(first) == 1
        assert {version_of(future) for future in others} == {2}


def test_an_appender_without_appends_sends_nothing(gated, monkeypatch):
    with gated.appender(max_delay_s=0) as out:
        version_of(out.append(events(1)))
        sent = []
        for verb in ("get", "list", "put_if_absent"):
            monkeypatch.setattr(gated.store, verb, lambda *_, verb=verb, **__: sent.append(verb))
        out.flush()
    assert gated.appender().close() is None
    assert not sent


def test_rows_that_do_not_fit_fail_their_call_alone():
    table = create()
    with table.appender() as out:
        good = out.append(events(1))
        with pytest.raises(errors.InvalidInput, match="unknown columns"):
            out.append(pa.table({"other": [1]}))
        with pytest.raises(errors.InvalidInput, match="column 'at': 1 event times are null"):
            out.append([{"at": None, "name": "x", "value": 1.0}])
        also_good = out.append(events(1, first=1))
    assert version_of(good) == version_of(also_good) == 1
    assert numbers(table) == [0, 1]


def test_a_check_that_is_added_meanwhile_fails_the_rows_that_break_it_alone():
    table = create()
    other = Table.open(table.uri, store=table.store, clock=table.clock)
    out = table.appender()
    good, bad = out.append(events(1)), out.append(events(1, first=8))
    also_good = out.append(events(1, first=2))
    other.add_check("low", "value < 3")
    with pytest.raises(errors.InvalidInput, match="check 'low'"):
        out.flush()
    assert isinstance(failure_of(bad), errors.InvalidInput)
    assert {version_of(good), version_of(also_good)} == {2, 3}
    assert numbers(table) == [0, 2]
    out.close()
    check_sound(table.store)


def test_columns_that_are_added_and_dropped_meanwhile_disturb_nobody():
    table = create()
    other = Table.open(table.uri, store=table.store, clock=table.clock)
    with table.appender() as out:
        old = out.append(events(1))
        other.add_columns([pa.field("more", pa.int64())])
        other.drop_columns(["value"])
        # These rows make the handle read the new columns.
        new = out.append(events(1, first=1).drop_columns(["value"]).append_column("more", [[5]]))
    assert version_of(old) < version_of(new)
    rows = scan(table).to_table().sort_by("name").to_pylist()
    assert [(row["name"], row["more"]) for row in rows] == [("row 0", None), ("row 1", 5)]
    check_sound(table.store)


FORMS = {
    "dicts": lambda rows: rows.to_pylist(),
    "batch": lambda rows: rows.to_batches()[0],
    "reader": lambda rows: rows.to_reader(),
    "pandas": lambda rows: rows.to_pandas(),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_in_every_form_that_an_append_takes(form):
    table = create()
    with table.appender() as out:
        out.append(FORMS[form](events(3)))
        assert version_of(out.append(events(0))) == 0  # nothing to commit
    assert numbers(table) == [0, 1, 2]


def test_a_caller_may_use_its_buffers_again():
    table = create()
    values = np.arange(3, dtype=np.float64)
    with table.appender() as out:
        out.append(events(3).set_column(2, "value", pa.array(values)))
        values[:] = -1
    assert scan(table).to_table().column("value").to_pylist() == [0.0, 1.0, 2.0]


def wide(number):
    return pa.table([[number], ["x" * 300_000], [0.0]], schema=SCHEMA)


def test_a_full_buffer_makes_callers_wait(gated):
    store = gated.store
    store.shut()
    with gated.appender(buffer_bytes=MIB, max_rows=1) as out, ThreadPoolExecutor(1) as pool:
        taken = [out.append(wide(n)) for n in range(3)]
        with pytest.raises(errors.Unavailable, match="no room for 0 s; nothing was taken"):
            out.append(wide(3), timeout_s=0)
        waiting = pool.submit(lambda: out.append(wide(4)))
        assert store.reached.wait(PATIENCE_S)
        assert not waiting.done()
        store.gate.set()
        assert version_of(version_of(waiting))
        assert all(map(version_of, taken))
    assert gated.count() == 4


def test_what_an_append_takes_beside_its_rows_counts(gated):
    """A future takes more than a row: many small appends would otherwise take a multiple."""
    store = gated.store
    store.shut()
    with gated.appender(buffer_bytes=MIB, max_rows=1) as out:
        taken = []
        with contextlib.suppress(errors.Unavailable):
            while len(taken) < 1000:
                taken.append(out.append(events(1), timeout_s=0))
        store.gate.set()
    assert 200 < len(taken) < MIB / 2560


def test_rows_that_never_fit_are_refused_whatever_they_come_from():
    out = create().appender(buffer_bytes=MIB)
    with pytest.raises(errors.InvalidInput, match="more than the buffer of 1"):
        out.append(pa.concat_tables([wide(n) for n in range(4)]))
    endless = pa.RecordBatchReader.from_batches(
        SCHEMA, (batch for n in count() for batch in wide(n).to_batches())
    )
    with pytest.raises(errors.InvalidInput, match="more than the buffer of 1"):
        out.append(endless)


def test_a_store_that_does_not_answer_for_a_while_delays_rows(moody):
    moody.store.silent = 40
    out = moody.appender(retry_s=10**6)
    future = out.append(events(1))
    out.flush()
    assert (version_of(future), moody.store.silent) == (1, 0)
    out.close()
    assert numbers(moody) == [0]


def test_a_store_that_does_not_answer_for_long_fails_rows_and_later_ones_are_committed(moody):
    moody.store.silent = 10**6
    out = moody.appender(retry_s=5)
    lost = out.append(events(1))
    with pytest.raises(errors.Unavailable):
        out.flush()
    assert isinstance(failure_of(lost), errors.Unavailable)
    moody.store.silent = 0
    later = out.append(events(1, first=1))
    out.close()
    assert version_of(later) == 1
    assert numbers(moody) == [1]


@pytest.mark.hazard("I3")
@pytest.mark.parametrize("app", [{}, {"app_id": "job", "app_seq": 0}], ids=["rows", "units"])
def test_i3_a_group_whose_answer_is_lost_is_stored_once(moody, app):
    out = moody.appender(retry_s=10**6)
    if app:
        out.committed("job")
    moody.store.loses = True
    future = out.append(events(1), **app)
    out.flush()
    assert (version_of(future), moody.store.silent) == (1, 0)
    out.append(events(1, first=1), **({"app_id": "job", "app_seq": 1} if app else {}))
    out.close()
    assert numbers(moody) == [0, 1]
    check_sound(moody.store)


def test_sequences_are_committed_with_their_rows_and_found_again():
    table = create()
    with table.appender(app_id="a") as out:
        assert out.committed() is None
        out.append(events(1), app_seq=3)
        out.append(events(1, first=1), app_seq=4)
        out.append(events(1, first=2), app_id="b", app_seq=0)
        with pytest.raises(errors.InvalidInput, match="handed in after 4"):
            out.append(events(1), app_seq=4)
        out.flush()
        assert (out.committed(), out.committed("b"), out.committed("c")) == (4, 0, None)
    with table.appender() as again:
        assert version_of(again.append(events(1, first=1), app_id="a", app_seq=4)) == 1
        assert again.append(events(1, first=1), app_id="a", app_seq=2).done()
        version = again.append(events(1, first=3), app_id="a", app_seq=9)
    assert version_of(version) == 2
    assert numbers(table) == [0, 1, 2, 3]
    assert {app: mark.seq for app, mark in table.session.head().meta.apps.items()} == {
        "a": 9,
        "b": 0,
    }


def test_people_see_whose_rows_a_group_has():
    table = create()
    with table.appender() as out:
        out.append(events(1), app_id="a", app_seq=3)
        out.append(events(1, first=1), app_id="a", app_seq=4)
        out.flush()
        out.append(events(1, first=2), app_id="a", app_seq=5)
        out.append(events(1, first=3), app_id="b", app_seq=0)
    listed = table.inspect.transactions().sort_by("version").to_pylist()
    assert [(row["app_id"], row["app_seq"]) for row in listed] == [
        (None, None),
        ("a", 4),
        (None, None),  # of two apps
    ]
    blamed = table.blame(where="true").sort_by("name").to_pylist()
    assert [row["_app_id"] for row in blamed] == ["a", "a", None, None]
    assert [entry.version for entry in table.history(app="b")] == [2]


def test_a_sequence_without_rows_is_committed_too():
    table = create()
    with table.appender(app_id="a") as out:
        out.append(events(0), app_seq=7)
    assert (table.refresh().version, table.session.head().meta.apps["a"].seq) == (1, 7)


@pytest.mark.hazard("I4")
def test_i4_who_was_overtaken_loses_its_own_rows_and_goes_on_where_the_other_one_is():
    """A process that was taken for dead goes on beside the one that took its place."""
    table = create()
    late = Table.open(table.uri, store=table.store, clock=table.clock).appender()
    with table.appender(app_id="a") as early:
        version_of_three = early.append(events(4), app_seq=3)
    assert version_of(version_of_three) == 1
    assert late.committed("a") == 3
    held = late.append(events(3, first=4), app_id="a", app_seq=6)
    another = late.append(events(1, first=100), app_id="b", app_seq=0)
    nobody = late.append(events(1, first=101))
    with table.appender(app_id="a") as early:  # cuts the rows otherwise
        early.append(events(2, first=4), app_seq=5)
        early.append(events(2, first=6), app_seq=7)
    with pytest.raises(errors.CommitConflict, match="'a' is at sequence 7 by now, and not 3"):
        late.flush()
    assert isinstance(failure_of(held), errors.CommitConflict)
    assert version_of(another) == version_of(nobody) == 3
    with pytest.raises(errors.CommitConflict, match="an earlier append of app 'a' was not"):
        late.append(events(1, first=7), app_id="a", app_seq=8)
    assert late.committed("a") == 7
    late.append(events(1, first=8), app_id="a", app_seq=8)
    late.close()
    assert numbers(table) == [*range(9), 100, 101]


@pytest.mark.hazard("I4")
def test_i4_after_a_failure_no_later_unit_of_the_app_is_committed(moody):
    out = moody.appender(app_id="a", retry_s=0, max_rows=1)
    assert out.committed() is None
    moody.store.silent = 10**6
    assert isinstance(failure_of(out.append(events(1), app_seq=0)), errors.Unavailable)
    moody.store.silent = 0
    for n in (1, 2):
        with pytest.raises(errors.CommitConflict, match="Ask `committed` how far"):
            out.append(events(1, first=n), app_seq=n)
    with pytest.raises(errors.Unavailable):
        out.flush()
    assert out.committed() is None
    for n in range(3):
        assert version_of(out.append(events(1, first=n), app_seq=n)) == n + 1
    out.close()
    assert numbers(moody) == [0, 1, 2]


def test_units_that_wait_behind_a_failed_one_fail_with_it(gated):
    store = gated.store
    with gated.appender(max_rows=1) as out:
        out.committed("a")
        append(Table.open(gated.uri, store=store), events(1), app_id="a", app_seq=5)
        store.shut()
        stuck = out.append(events(1, first=50))
        assert store.reached.wait(PATIENCE_S)
        behind = [out.append(events(1, first=n), app_id="a", app_seq=n) for n in (6, 7)]
        store.gate.set()
        version_of(stuck)
        assert {type(failure_of(one)) for one in behind} == {errors.CommitConflict}
        with pytest.raises(errors.CommitConflict):
            out.flush()
    assert numbers(gated) == [0, 50]


def test_upserts_and_deletes_of_one_key_count_in_their_order():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = create(schema=schema, time_column=None, key="id", buckets=2)
    with table.appender() as out:
        for number in (1, 2, 3):
            out.append([{"id": number, "name": f"first {number}"}])
        out.append([{"id": 2, "name": "second"}])
        out.append([{"id": number, "name": None, "_op": "d"} for number in (1, 3)])
        out.append([{"id": 1, "name": "again"}])
        with pytest.raises(errors.InvalidInput, match="column 'name' is missing"):
            out.append([{"id": 1}])
    assert table.session.head().version == 1
    rows = scan(table).to_table().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "name": "again"}, {"id": 2, "name": "second"}]
    check_sound(table.store)


def test_leaving_by_an_exception_commits_what_was_appended():
    table = create()
    futures = []

    def work():
        with table.appender() as out:
            futures.append(out.append(events(1)))
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert version_of(futures[0]) == 1


def test_an_exception_is_not_hidden_by_rows_that_cannot_be_committed(moody, caplog):
    moody.store.silent = 10**6

    def work():
        with moody.appender(retry_s=0) as out:
            out.append(events(1))
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert "were not committed" in caplog.text


def test_a_closed_appender_takes_nothing():
    out = create().appender()
    out.append(events(1))
    out.close()
    out.close()
    for call in (lambda: out.append(events(1)), out.flush, lambda: out.committed("a")):
        with pytest.raises(errors.InvalidInput, match="the appender is closed"):
            call()


def test_a_child_has_no_part_in_the_appender_of_its_parent(monkeypatch):
    table = create()
    out = table.appender()
    future = out.append(events(1))
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(errors.InvalidInput, match="was made before a fork"):
        out.append(events(1))
    out.close()  # does nothing
    assert not future.done()
    monkeypatch.undo()
    out.close()
    assert version_of(future) == 1
    with pytest.raises(errors.InvalidInput, match="belongs to its process"):
        pickle.dumps(out)


def test_a_callback_of_a_future_may_append_and_does_not_wait_for_itself():
    table = create()
    told = Future()

    def callback(_future):
        out.append(events(1, first=1))
        try:
            out.flush()
        except errors.InvalidInput as error:
            told.set_result(str(error))

    with table.appender() as out:
        out.append(events(1)).add_done_callback(callback)
        out.flush()
        assert "cannot be flushed by a callback" in told.result(timeout=PATIENCE_S)
    assert numbers(table) == [0, 1]


ODD = {
    "max_rows": 0,
    "max_bytes": 0,
    "max_delay_s": -1,
    "buffer_bytes": 10,
    "retry_s": "soon",
    "app_id": 5,
    "missing": "nothing",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_settings_are_refused(name):
    with pytest.raises(errors.InvalidInput, match=name):
        create().appender(**{name: ODD[name]})


def test_an_app_and_its_sequence_come_together():
    out = create().appender()
    with pytest.raises(errors.InvalidInput, match="give app_id and app_seq together"):
        out.append(events(1), app_id="a")
    with pytest.raises(errors.InvalidInput, match="give app_id and app_seq together"):
        out.append(events(1), app_seq=1)
    with pytest.raises(errors.InvalidInput, match="give app_id"):
        out.committed()


@pytest.mark.verify
def test_a_process_that_ends_without_closing_says_what_is_lost():
    program = """
from eventlog import Table
t = Table.create("memory://lost", "at timestamp", time_column="at")
t.appender(max_delay_s=10**6).append([{"at": "2013-01-07T05:00:00Z"}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert "1 append to memory://lost ends with the process and is not committed" in done.stderr
