"""Death, or a lost answer, at every single store call of every operation that writes."""

import pyarrow as pa
import pytest
from builders import (
    SCHEMA,
    Crash,
    CrashingStore,
    check_sound,
    create,
    events,
    live,
    reopen,
    row_names,
)

from eventlog import errors
from eventlog.memory import MemoryStore
from writers import append, overwrite

HOWS = ["before", "after", "lost", "refused"]
WIDER = SCHEMA.append(pa.field("extra", pa.int64()))


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    for name, value in (("INLINE_SEGMENTS", 2), ("LEAF_TARGET", 3), ("LEAF_SMALL", 1)):
        monkeypatch.setattr(f"eventlog.keyframe.{name}", value)


OPERATIONS = {
    "append": lambda t: append(t, events(6, first=100, days=3), app_id="job", app_seq=1),
    "append one": lambda t: append(t, events(1, first=100), app_id="job", app_seq=1),
    "overwrite": lambda t: overwrite(
        t, events(2, first=100), start=0, end=86_400_000, app_id="job", app_seq=1
    ),
    "properties": lambda t: t.set_properties({"user.note": "new"}),
    "columns": lambda t: t.add_columns(WIDER),
    "key frame": lambda t: t.write_keyframe(),
}
LEFT = {
    "append": [*range(4), *range(100, 106)],
    "append one": [*range(4), 100],
    "overwrite": [1, 3, 100, 101],
}


def table_of_four_rows(keyframe_commits):
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": keyframe_commits})
    append(table, events(2, days=2))
    append(table, events(2, days=2, first=2))
    return store


def crashed(operation, how, at, store):
    """Run the operation by a handle that dies at its `at`-th call; say whether it came so far."""
    crashing = CrashingStore(store, at, how)
    try:
        OPERATIONS[operation](reopen(crashing, seed=at))
    except (Crash, errors.Unavailable, errors.CommitUnknown):
        assert crashing.calls >= at
    return crashing.calls >= at


@pytest.mark.parametrize("keyframe_commits", ["1", "64"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_call_of_an_operation_may_be_the_last(operation, how, keyframe_commits):
    at = 0
    running = True
    while running:
        at += 1
        store = table_of_four_rows(keyframe_commits)
        running = crashed(operation, how, at, store)
        after = check_sound(store)
        assert {f"row {n}" for n in LEFT.get(operation, range(4)) if n < 4} <= set(row_names(after))
        OPERATIONS[operation](reopen(store, seed=at + 500))
        table = check_sound(store)
        wanted = LEFT.get(operation, range(4))
        assert sorted(row_names(table)) == sorted(f"row {n}" for n in wanted)
        if operation == "properties":
            assert table.head().properties["user.note"] == "new"
        elif operation == "columns":
            assert table.head().schema == WIDER
    assert at > 3


@pytest.mark.parametrize("how", HOWS)
def test_every_call_of_create_may_be_the_last(how):
    at = 0
    running = True
    while running:
        at += 1
        store = MemoryStore()
        crashing = CrashingStore(store, at, how)
        try:
            create(crashing, seed=at)
        except (Crash, errors.Unavailable, errors.CommitUnknown):
            assert crashing.calls >= at
        running = crashing.calls >= at
        try:
            table = create(store, seed=at + 500)
        except errors.AlreadyExists:
            table = reopen(store)
        assert append(table, events(2)) == 1
        assert row_names(check_sound(store)) == ["row 0", "row 1"]
    assert at > 4


@pytest.mark.parametrize("how", HOWS)
def test_an_append_without_an_app_id_takes_effect_at_most_once(how):
    at = 0
    running = True
    while running:
        at += 1
        store = table_of_four_rows("1")
        crashing = CrashingStore(store, at, how)
        acknowledged = None
        try:
            acknowledged = append(reopen(crashing, seed=at), events(2, first=100))
        except (Crash, errors.Unavailable, errors.CommitUnknown) as error:
            if isinstance(error, errors.Unavailable):
                assert len(live(reopen(store).head())) == 4  # it said that nothing was committed
        running = crashing.calls >= at
        rows = row_names(check_sound(store))
        assert rows.count("row 100") == rows.count("row 101") <= 1
        assert acknowledged is None or rows.count("row 100") == 1
