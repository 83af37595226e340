"""Many threads share an appender of a store that fails now and then: each row once, or never."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import check_sound, create, events, row_names
from support.repeatable import examples

from eventlog import Table, errors
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore

PATIENCE_S = 600
faults = st.lists(
    st.builds(
        Fault,
        st.just("put"),
        st.sampled_from(["unavailable", "lost_response", "not_applied_unknown", "duplicate"]),
        st.just("_log/"),
        st.integers(1, 6),
    )
    | st.builds(
        Fault, st.just("get"), st.just("unavailable"), st.just("_log/"), st.integers(1, 12)
    ),
    max_size=6,
)
# For each thread the number of rows of each of its appends, and whether they are units of an app.
callers = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.booleans()),
    min_size=1,
    max_size=4,
)


def numbers(table):
    return sorted(int(name.split()[1]) for name in row_names(table))


def call(out, number, sizes, of_app):
    """Append rows of a thread; return what it was told: numbers of rows, and a future or error."""
    told, first = [], number * 1000
    for seq, size in enumerate(sizes):
        unit = {"app_id": f"app {number}", "app_seq": seq} if of_app else {}
        rows = range(first, first + size)
        first += size
        try:
            told.append((rows, out.append(events(size, first=rows.start), **unit)))
        except (errors.CommitConflict, errors.Unavailable) as error:
            told.append((rows, error))
    return told


def outcome(told):
    if isinstance(told, Exception):
        return told
    return told.exception(timeout=PATIENCE_S) or told.result()


@settings(max_examples=examples(25))
@given(
    callers=callers,
    faults=faults,
    limits=st.sampled_from([{"max_rows": 1}, {"max_rows": 4}, {"max_delay_s": 0}, {}]),
    patient=st.booleans(),
)
def test_each_row_is_stored_once_or_its_caller_is_told(callers, faults, limits, patient):
    store = FaultyStore(MemoryStore())
    table = create(store)
    out = table.appender(retry_s=10**6 if patient else 0, **limits)
    for n in range(len(callers)):
        assert out.committed(f"app {n}") is None
    for fault in faults:
        store.inject(fault)
    with ThreadPoolExecutor(len(callers)) as pool:
        threads = [pool.submit(call, out, n, *caller) for n, caller in enumerate(callers)]
        told = [thread.result(timeout=PATIENCE_S) for thread in threads]
    try:
        out.close()
    except (errors.CommitConflict, errors.CommitUnknown, errors.Unavailable):
        assert not patient
    table = Table.open(table.uri, store=store.inner, clock=table.clock)
    stored = numbers(table)
    assert len(stored) == len({*stored})
    marks = {app: mark.seq for app, mark in table.session.head().meta.apps.items()}
    for n, (appends, (_, of_app)) in enumerate(zip(told, callers, strict=True)):
        versions = []
        for seq, (rows, future) in enumerate(appends):
            result, there = outcome(future), {*rows} & {*stored}
            if isinstance(result, int):
                assert there == {*rows}
                versions += [result] if rows else []  # nothing is committed at once
                assert not of_app or marks[f"app {n}"] >= seq
            elif not isinstance(result, errors.CommitUnknown):
                assert not there
            assert isinstance(result, int) or not patient
        assert versions == sorted(versions)
    check_sound(store.inner)


NO_ANSWER = [Fault(verb, "unavailable", "", 0) for verb in ("get", "put", "list")]
steps = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4))  # which process appends so many rows
    | st.tuples(st.integers(0, 1), st.sampled_from(["flush", "late put", "kill", "land"])),
    min_size=1,
    max_size=14,
)


class Process:
    """One of several that append the numbers of one source, each as if it were alone."""

    def __init__(self, table):
        self.store = FaultyStore(table.store)
        handle = Table.open(table.uri, store=self.store, clock=table.clock)
        self.out = handle.appender(app_id="source", max_delay_s=10**6, retry_s=0)
        self.resume()

    def resume(self):
        last = self.out.committed()
        self.next = 0 if last is None else last + 1

    def append(self, count):
        rows = events(count, first=self.next)
        self.next += count
        try:
            self.out.append(rows, app_seq=self.next - 1)
        except errors.CommitConflict:
            self.resume()

    def flush(self):
        try:
            self.out.flush()
        except (errors.CommitConflict, errors.CommitUnknown, errors.Unavailable):
            self.resume()

    def kill(self):
        """End it: no call of it is answered from here on, and what it sent may still land."""
        for fault in NO_ANSWER:
            self.store.inject(fault)
        with contextlib.suppress(errors.EventLogError):
            self.out.close()


@settings(max_examples=examples(40))
@given(steps=steps)
@pytest.mark.hazard("I4")
def test_i4_processes_that_cut_one_source_differently_store_each_row_once(steps):
    table = create()
    processes, dead = [Process(table), Process(table)], []
    for who, what in steps:
        match what:
            case "flush":
                processes[who].flush()
            case "late put":  # the next commit is stored some calls after its writer gave it up
                processes[who].store.inject(Fault("put", "delayed", "_log/", amount=10**6))
            case "kill":
                processes[who].kill()
                dead.append(processes[who].store)
                processes[who] = Process(table)
            case "land":
                for store in (*dead, *(one.store for one in processes)):
                    store.release()
            case count:
                processes[who].append(count)
    for process in processes:
        process.flush()
        process.kill()
    for store in (*dead, *(one.store for one in processes)):
        store.release()
    mark = table.refresh().meta.apps.get("source")
    assert numbers(table) == [*range(0 if mark is None else mark.seq + 1)]
    check_sound(table.store)
