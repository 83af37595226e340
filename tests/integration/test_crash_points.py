"""Death, or a lost answer, at every single store call of every operation that writes.

Death after a call is death before the next one: the store cannot tell them apart. So `after` runs
only where `EVENTLOG_CRASH_FULL=1` asks for everything.
"""

import os

import pytest
from support.builders import check_sound, create, events, live, reopen, row_names
from support.crashes import (
    ENDS,
    HOWS,
    OPERATIONS,
    MortalStore,
    fresh,
    names,
    rows_of,
    sweep,
    table_with_history,
)

from eventlog import errors
from eventlog.format import keys
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

pytestmark = pytest.mark.usefixtures("in_turn")

FULL = bool(os.environ.get("EVENTLOG_CRASH_FULL"))
MOST = 60  # calls of one operation
SEEN = [how for how in HOWS if FULL or how != "after"]
# Where a key frame at every commit takes other calls than none at all.
FRAMED = ("append", "overwrite", "replace", "published append", "vacuum", "repair", "compact")
CASES = [(name, "64") for name in OPERATIONS]
CASES += [(name, "1") for name in (OPERATIONS if FULL else FRAMED)]


def is_long(name, every, how):
    """An answer that is lost or refused leaves what a death leaves, whatever frames there are."""
    if FULL or how == "before":
        return False
    return every == "1" or name == "compact all" or (how == "refused" and name not in FRAMED)


RUNS = [
    pytest.param(*case, how, marks=[pytest.mark.long] * is_long(*case, how))
    for case in CASES
    for how in SEEN
]


def crashed(operation, store, at, how):
    """Run the operation in a program that dies at its `at`-th call; say whether it came so far."""
    mortal = MortalStore(store, at, how)
    table = fresh(mortal, 100)
    if operation.meanwhile is not None:
        mortal.armed = False
        table.session.head()
        operation.meanwhile(store)
        mortal.armed = True
    if operation.race is not None:
        mortal.before_put = lambda key: race(mortal, operation, key)
    try:
        operation.act(table)
    except ENDS:
        assert mortal.calls >= at
    assert not mortal.deletes or operation is OPERATIONS["vacuum"]
    return mortal.calls >= at


def race(mortal, operation, key):
    if key.startswith(keys.LOG_PREFIX):
        mortal.before_put = lambda key: None
        operation.race(mortal.inner)


@pytest.mark.sample(16, verify=24)
@pytest.mark.parametrize(("name", "keyframe_commits", "how"), RUNS)
def test_every_call_of_an_operation_may_be_the_last(name, keyframe_commits, how):
    operation = OPERATIONS[name]
    past = table_with_history(keyframe_commits, operation.prepare)
    for at in range(1, MOST):
        store = past.store()
        running = crashed(operation, store, at, how)
        after = past.check(store)
        assert set(names(operation.kept)) <= set(rows_of(after))
        if operation.race is not None:
            operation.race(store)
        operation.act(fresh(store, 200))
        again = fresh(store, 300)
        assert rows_of(again) == names(operation.rows)
        assert operation.done(again)
        if not running:
            break
    assert not running
    assert at > 3


def test_single_operations_have_hundreds_of_crash_points():
    calls = 0
    for name, keyframe_commits in CASES:
        operation = OPERATIONS[name]
        store = MortalStore(table_with_history(keyframe_commits, operation.prepare).store())
        operation.act(fresh(store, 100))
        calls += store.calls
    print(f"{calls * len(SEEN)} crash points of single operations")  # noqa: T201
    assert calls * len(SEEN) > 400


@pytest.mark.sample(2)
@pytest.mark.parametrize("keyframe_commits", ["1", "64"])
@pytest.mark.parametrize("how", [*SEEN, "half"])
def test_a_vacuum_after_one_that_died_leaves_nothing_dead(how, keyframe_commits):
    past = table_with_history(keyframe_commits)
    for at in range(1, MOST):
        store = past.store()
        running = crashed(OPERATIONS["vacuum"], store, at, how)
        past.check(store)
        sweep(fresh(store, 200))
        assert past.dead(store) == set()
        assert past.check(store).session.head().meta.swept is not None
        if not running:
            break
    assert not running


def test_there_is_something_to_vacuum():
    past = table_with_history()
    store = past.store()
    before = {found.key for found in store.list("")}
    sweep(fresh(store, 200))
    assert len(before - {found.key for found in store.list("")}) == 3


@pytest.mark.parametrize("how", HOWS)
def test_every_call_of_create_may_be_the_last(how):
    at = 0
    running = True
    while running:
        at += 1
        store = MemoryStore()
        crashing = MortalStore(store, at, how)
        try:
            create(crashing, seed=at)
        except ENDS:
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
    past = table_with_history("1")
    for at in range(1, MOST):
        store = past.store()
        mortal = MortalStore(store, at, how)
        acknowledged = None
        try:
            acknowledged = append(fresh(mortal, 100), events(2, first=100))
        except ENDS as error:
            if isinstance(error, errors.Unavailable):
                assert (
                    len(live(fresh(store, 200).session.head())) == 3
                )  # it said: nothing was committed
        rows = rows_of(past.check(store))
        assert rows.count("row 100") == rows.count("row 101") <= 1
        assert acknowledged is None or rows.count("row 100") == 1
        if mortal.calls < at:
            break
    assert mortal.calls < at
