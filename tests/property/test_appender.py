"""Many threads share an appender of a store that fails now and then: each row once, or never."""

from concurrent.futures import ThreadPoolExecutor

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
    stored = [int(name.split()[1]) for name in row_names(table)]
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
