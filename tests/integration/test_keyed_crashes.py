"""Death, or a lost answer, at every store call of what changes a keyed table."""

from functools import cache

import pyarrow as pa
import pytest
from support.builders import create, events, fold_all
from support.crashes import (
    COMPACTION,
    ENDS,
    HOWS,
    MortalStore,
    Past,
    compact_all,
    fresh,
    names,
    sweep,
)

from eventlog import errors
from eventlog.compaction import perform, plan
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, overwrite, upsert

pytestmark = pytest.mark.usefixtures("in_turn")

MOST = 60
SEEN = [how for how in HOWS if how != "after"]
BEFORE = {f"row {n}": float(n + 10 * (n > 0)) for n in range(4)}


def values(count, first=0, plus=0.0):
    """Rows of `events` whose value says which of the writers wrote them."""
    rows = events(count, first=first)
    numbers = [float(n) + plus for n in range(first, first + count)]
    return rows.set_column(2, "value", pa.array(numbers))


@cache
def keyed(keyframe_commits):
    """A merge has been made of one of two buckets; above it lie upserts and a delete."""
    store = MemoryStore()
    table = create(
        store,
        key="name",
        granularity="all",
        buckets=2,
        properties={"keyframe_commits": keyframe_commits, "combine_after": "1"},
    )
    upsert(table, values(6))
    upsert(table, values(2, first=4, plus=5))
    compact_all(table)
    upsert(table, values(3, first=1, plus=10))
    delete(table, keys=pa.table({"name": ["row 4", "row 5"]}))
    return Past({found.key: store.get(found.key) for found in store.list("")}, (*fold_all(store),))


def held(table):
    rows = scan(table).to_table().to_pylist()
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row["value"] for row in rows}


def compact(t):
    """Perform the task that was planned first, as on a redelivery."""
    (task,) = plan(t, COMPACTION, version=5).tasks
    outcome = perform(t, task, COMPACTION)
    if not outcome.ok:
        raise errors.Unavailable(outcome.error)


JOB = {"app_id": "job", "app_seq": 1}
OPERATIONS = {
    "upsert": (
        lambda t: upsert(t, values(3, first=3, plus=20), **JOB),
        BEFORE | {"row 3": 23.0, "row 4": 24.0, "row 5": 25.0},
    ),
    "delete": (
        lambda t: delete(t, keys=pa.table({"name": ["row 0", "row 9"]}), **JOB),
        {name: value for name, value in BEFORE.items() if name != "row 0"},
    ),
    "delete where": (
        lambda t: delete(t, where="value > 11.5", **JOB),
        {name: value for name, value in BEFORE.items() if value <= 11.5},
    ),
    "overwrite": (
        lambda t: overwrite(t, values(2, first=5), **JOB),
        {"row 5": 5.0, "row 6": 6.0},
    ),
    "restore": (
        lambda t: t.restore(2),
        {f"row {n}": float(n + 5 * (n > 3)) for n in range(6)},
    ),
    "split": (lambda t: t.set_buckets(4), BEFORE),
    "compact": (compact, BEFORE),
    "compact all": (compact_all, BEFORE),
    "vacuum": (sweep, BEFORE),
}
CASES = [
    (name, "64", "before") for name in ("delete where", "overwrite", "restore", "compact", "split")
]
CASES += [("upsert", "1", how) for how in SEEN]
LONG = [(name, "64", how) for name in OPERATIONS for how in SEEN if how != "before"]
LONG += [(name, "1", how) for name in OPERATIONS for how in SEEN]


@pytest.mark.sample(2, verify=4)
@pytest.mark.parametrize(
    ("name", "keyframe_commits", "how"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG if case not in CASES)],
)
def test_an_operation_that_dies_is_seen_whole_or_not_at_all(name, keyframe_commits, how):
    act, wanted = OPERATIONS[name]
    past = keyed(keyframe_commits)
    assert held(fresh(past.store(), 50)) == BEFORE
    for at in range(1, MOST):
        store = past.store()
        mortal = MortalStore(store, at, how)
        try:
            act(fresh(mortal, 100))
        except ENDS:
            assert mortal.calls >= at
        assert held(past.check(store)) in (BEFORE, wanted)
        act(fresh(store, 200))
        assert held(fresh(store, 300)) == wanted
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert at > 3
    assert fsck(fresh(store, 400)).errors == 0


def test_the_table_has_what_a_crash_could_break():
    table = fresh(keyed("64").store(), 50)
    kinds = {segment.slice.kind for segment in table.session.head().segments()}
    assert kinds == {"base", "log"}
    assert names(range(4)) == sorted(held(table))
