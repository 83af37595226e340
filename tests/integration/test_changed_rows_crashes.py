"""Death, or a lost answer, at every store call of what changes rows of a table without a key."""

from functools import cache

import pyarrow as pa
import pytest
from support.builders import SCHEMA, create, events, fold_all, live
from support.crashes import (
    COMPACTION,
    ENDS,
    HOWS,
    MortalStore,
    Past,
    compact_all,
    fence_now,
    fresh,
    sweep,
)
from support.in_process_spark import InProcessSpark, update_by_tasks, with_store_of

from eventlog import errors
from eventlog.compaction import perform, plan
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, merge, overwrite, spark, update

pytestmark = pytest.mark.usefixtures("in_turn")

MOST = 60
SEEN = [how for how in HOWS if how != "after"]
DELETED = (3,)
BEFORE = {n: n / 2 for n in range(10) if n not in DELETED}
JOB = {"app_id": "job", "app_seq": 1}


@cache
def past(keyframe_commits):
    """Two segments on each of two days; one of them has a deletion vector."""
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": keyframe_commits, "combine_after": "1"})
    append(table, events(6, days=2))
    append(table, events(4, first=6, days=2))
    delete(table, where="name = 'row 3'")
    return Past({found.key: store.get(found.key) for found in store.list("")}, (*fold_all(store),))


def held(table):
    rows = scan(table, ["name", "value"]).to_table().to_pylist()
    found = {int(row["name"].removeprefix("row ")): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def without(*numbers):
    return {n: value for n, value in BEFORE.items() if n not in numbers}


def source(*pairs):
    names = [f"row {n}" for n, _ in pairs]
    return pa.table([[0] * len(pairs), names, [v for _, v in pairs]], schema=SCHEMA)


def compact(t):
    """Perform the first of the tasks that were planned first, as on a redelivery."""
    outcome = perform(t, plan(t, COMPACTION, version=3).tasks[0], COMPACTION)
    if not outcome.ok:
        raise errors.Unavailable(outcome.error)


SOME = "name in ('row 1', 'row 2', 'row 5', 'row 8')"
PLUS = {"value": "value + 10"}
SPARK = InProcessSpark()


def from_spark(call):
    """Return an operation of a driver, whose tasks run in its process."""
    return lambda t: with_store_of(t, call)


# The operation, and the rows at the end.
OPERATIONS = {
    "delete": (lambda t: delete(t, where=SOME, **JOB), without(1, 2, 5, 8)),
    "delete of segments": (
        lambda t: delete(t, where="at >= timestamp '1970-01-02'", **JOB),
        without(1, 5, 7, 9),
    ),
    "update": (
        lambda t: update(t, PLUS, SOME, **JOB),
        BEFORE | {n: n / 2 + 10 for n in (1, 2, 5, 8)},
    ),
    "overwrite": (
        lambda t: overwrite(t, source((1, 7.0), (2, 8.0)), where=SOME, **JOB),
        without(5, 8) | {1: 7.0, 2: 8.0},
    ),
    "merge": (
        lambda t: merge(
            t, source((1, 7.0), (20, 8.0)), "name", when_matched={"value": "value + 10"}, **JOB
        ),
        BEFORE | {1: 10.5, 20: 8.0},
    ),
    "merge that deletes": (
        lambda t: merge(
            t,
            source((1, 7.0), (20, 8.0)),
            "name",
            when_not_matched_by_source="delete",
            **JOB,
        ),
        {1: 7.0, 20: 8.0},
    ),
    "delete from Spark": (
        from_spark(lambda uri: spark.delete(uri, SPARK, where=SOME, **JOB)),
        without(1, 2, 5, 8),
    ),
    "update from Spark": (
        lambda t: update_by_tasks(t, PLUS, SOME, **JOB),
        BEFORE | {n: n / 2 + 10 for n in (1, 2, 5, 8)},
    ),
    "overwrite from Spark": (
        from_spark(
            lambda uri: spark.overwrite(
                uri, SPARK.frame_of(source((1, 7.0), (2, 8.0))), where=SOME, **JOB
            )
        ),
        without(5, 8) | {1: 7.0, 2: 8.0},
    ),
    "compact": (compact, BEFORE),
    "compact all": (compact_all, BEFORE),
    "vacuum": (sweep, BEFORE),
    "restore": (lambda t: t.restore(2), {n: n / 2 for n in range(10)}),
}
VERBS = [*OPERATIONS][: [*OPERATIONS].index("compact")]
CASES = [(name, "64", "before") for name in OPERATIONS]
CASES += [(name, "64", "lost") for name in VERBS]
LONG = [(name, every, how) for name in OPERATIONS for every in ("64", "1") for how in SEEN]
RUNS = [
    *CASES,
    *(pytest.param(*case, marks=pytest.mark.long) for case in LONG if case not in CASES),
]


@pytest.mark.sample(3, verify=6)
@pytest.mark.parametrize(("name", "keyframe_commits", "how"), RUNS)
def test_a_change_of_rows_that_dies_is_made_whole_or_not_at_all(name, keyframe_commits, how):
    act, wanted = OPERATIONS[name]
    before = past(keyframe_commits)
    assert held(fresh(before.store(), 50)) == BEFORE
    for at in range(1, MOST):
        store = before.store()
        mortal = MortalStore(store, at, how)
        try:
            act(fresh(mortal, 100))
        except ENDS:
            assert mortal.calls >= at
        assert held(before.check(store)) in (BEFORE, wanted)
        act(fresh(store, 200))
        assert held(fresh(store, 300)) == wanted
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert at > 3
    assert fsck(fresh(store, 400)).errors == 0


# While the verb runs, others change its rows just before its first commit.
OTHER = {"app_id": "other", "app_seq": 1}
OTHERS = {
    "delete": (lambda t: delete(t, where="name in ('row 0', 'row 7')", **OTHER), (0, 7)),
    "compaction": (compact_all, ()),
    "append and fence": (lambda t: (append(t, source((50, 1.0)), **OTHER), fence(t)), ()),
}


def fence(t):
    if not t.refresh().meta.fence:
        fence_now(t.store)


@pytest.mark.sample(1, verify=2)
@pytest.mark.parametrize("how", SEEN)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", VERBS)
def test_a_change_that_dies_beside_others_is_made_once(name, other, how):
    act, wanted = OPERATIONS[name]
    rival, gone = OTHERS[other]
    before = past("64")
    came = {50: 1.0} if "append" in other else {}
    ends = [{n: v for n, v in rows.items() if n not in gone} for rows in (BEFORE, wanted)]
    ends[0] |= came
    if name != "merge that deletes":
        ends[1] |= came
    for at in range(1, MOST):
        store = before.store()
        mortal = MortalStore(store, at, how)

        def race(key, mortal=mortal, store=store):
            if key.startswith(keys.LOG_PREFIX):
                mortal.before_put = lambda key: None
                rival(fresh(store, 60))

        mortal.before_put = race
        try:
            act(fresh(mortal, 100))
        except ENDS:
            assert mortal.calls >= at
        found = held(fresh(store, 400))
        assert found in (BEFORE, *ends)
        rival(fresh(store, 150))
        act(fresh(store, 200))
        assert held(fresh(store, 300)) == ends[1]
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert fsck(fresh(store, 500)).errors == 0


@pytest.mark.sample(0, verify=3)
@pytest.mark.parametrize("name", [name for name in VERBS if not name.startswith("delete")])
def test_a_vacuum_deletes_what_a_change_that_died_stored(name):
    act, wanted = OPERATIONS[name]
    garbage = 0
    for at in range(1, MOST):
        store = past("64").store()
        mortal = MortalStore(store, at)
        try:
            act(fresh(mortal, 100))
        except ENDS:
            assert mortal.calls >= at
        act(fresh(store, 200))
        garbage += len(stored(store) - named(store))
        for seed in (300, 400):  # the first one raises the fence above what was stored last
            sweep(fresh(store, seed))
        assert stored(store) == named(store)
        assert held(fresh(store, 500)) == wanted
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert garbage > 0


def stored(store):
    """Return the keys of all segments, whether a version has them or not."""
    return {found.key for found in store.list(keys.SEGMENTS_PREFIX)}


def named(store):
    """Return the keys of the segments that the newest version has."""
    return {keys.key_of(segment) for segment in live(fresh(store, 600).refresh())}


def test_a_crash_point_is_a_change_that_was_begun():
    calls = 0
    for name in OPERATIONS:
        mortal = MortalStore(past("64").store())
        OPERATIONS[name][0](fresh(mortal, 100))
        calls += mortal.calls
    assert calls * len(SEEN) > 200
