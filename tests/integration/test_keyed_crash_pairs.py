"""Two operations on a keyed table at once: one stops before a call, the other runs or dies.

As `test_crash_pairs`, for what changes slices: writers beside a merge, a vacuum beside it, two
merges of neighbouring buckets that share their logs, and one task that is delivered twice. The long
run has every stop of the first with the second running whole, and a fixed part of the deaths, with
`EVENTLOG_CRASH_FULL=1` all; the default run has a few points of each pair.
"""

import os
from collections import Counter
from functools import cache
from itertools import product
from zlib import crc32

import pyarrow as pa
import pytest
from msgspec.structs import replace
from support.builders import Crash, create, events, fold_all
from support.crashes import (
    COMPACTION,
    ENDS,
    HOWS,
    MortalStore,
    Past,
    compact_all,
    fresh,
    sweep,
)

from eventlog import errors
from eventlog.compaction import Task, perform, plan
from eventlog.compaction.tasks import task_id
from eventlog.fsck.check import fsck
from eventlog.keyed import placement, slices
from eventlog.keyed.rule import buckets_split
from eventlog.readers import scan
from eventlog.rewriting.slice_merge import Buckets
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, upsert

pytestmark = pytest.mark.usefixtures("in_turn")

FULL = bool(os.environ.get("EVENTLOG_CRASH_FULL"))
MOST = 60
PLANNED = 6  # the version that the tasks were planned at
# Merges of neighbouring buckets have inputs in common, so that with claims one would wait.
UNCLAIMED = replace(COMPACTION, claim_bytes=2**40)
tried = Counter()


class Claimed(Exception):
    """Another has a claim on the inputs, and may be alive."""


def rows(first, count, plus):
    """Rows of `events` whose value says who wrote them."""
    made = events(count, first=first)
    return made.set_column(2, "value", pa.array([n + plus for n in map(float, range(count))]))


@cache
def past(keyframe_commits):
    """A base of both buckets; above it shared logs of upserts and a delete."""
    store = MemoryStore()
    properties = {"keyframe_commits": keyframe_commits, "combine_after": "1"}
    table = create(store, key="name", granularity="all", buckets=2, properties=properties)
    upsert(table, rows(0, 6, 0.0))
    compact_all(table)
    upsert(table, rows(1, 3, 10.0))
    delete(table, keys=pa.table({"name": ["row 4", "row 5"]}))
    upsert(table, rows(5, 1, 50.0))
    assert table.session.head().version == PLANNED
    return Past({found.key: store.get(found.key) for found in store.list("")}, (*fold_all(store),))


def held(table):
    found = scan(table).to_table().to_pylist()
    assert len({row["name"] for row in found}) == len(found)
    return {row["name"]: row["value"] for row in found}


def whole_task(t):
    (task,) = plan(t, COMPACTION, version=PLANNED).tasks
    return task


def bucket_task(bucket):
    """The task that merges one bucket, and leaves the shared logs to the other one."""

    def made(t):
        whole = whole_task(t)
        inputs = tuple(s for s in whole.inputs if s.slice.first <= bucket <= s.slice.last)
        spans = [placement.span(s) for s in inputs]
        named = [(s.id, s.version) for s in inputs]
        return Task(
            id=task_id(t.session.head().header.table, f"all {bucket}", named),
            version=PLANNED,
            granularity="all",
            chunks=("all",),
            inputs=inputs,
            priority=0.5,
            reason="a test",
            buckets=Buckets(bucket, bucket, min(s[0] for s in spans), max(s[1] for s in spans)),
        )

    return made


def performing(task_of, policy=COMPACTION):
    def act(t):
        outcome = perform(t, task_of(t), policy)
        if outcome.status == "claimed":
            raise Claimed(outcome.error)
        if not outcome.ok:
            raise errors.Unavailable(outcome.error)

    return act


def upserting(app, plus):
    return lambda t: upsert(t, rows(3, 3, plus), app_id=app, app_seq=1)


def deleting(app):
    keys = pa.table({"name": ["row 0", "row 3", "row 9"]})
    return lambda t: delete(t, keys=keys, app_id=app, app_seq=1)


def put(plus):
    return lambda seen: seen | {f"row {3 + n}": n + plus for n in range(3)}


def without(seen):
    return {name: value for name, value in seen.items() if name not in ("row 0", "row 3", "row 9")}


# What each does, and what becomes of the rows; a merge or a vacuum changes none.
ACTS = {
    "upsert": lambda app: upserting(app, 20.0),
    "delete": deleting,
    "merge": lambda app: performing(whole_task),
    "merge 0": lambda app: performing(bucket_task(0), UNCLAIMED),
    "merge 1": lambda app: performing(bucket_task(1), UNCLAIMED),
    "vacuum": lambda app: sweep,
    "split": lambda app: lambda t: t.set_buckets(4),
}
EFFECTS = {"upsert": put(20.0), "delete": without}
PAIRS = [("upsert", "merge"), ("merge 0", "merge 1"), ("delete", "merge"), ("vacuum", "merge")]
PAIRS += [(second, first) for first, second in PAIRS]
PAIRS += [("merge", "merge"), ("upsert", "delete"), ("merge 0", "merge"), ("upsert", "vacuum")]
PAIRS += [("split", "merge"), ("merge", "split"), ("upsert", "split"), ("merge 0", "split")]


class Run:
    """One run of two operations on a table of its own; (0, "") is the fate of who lives on."""

    def __init__(self, names, stop, fates, keyframe_commits):
        self.names, self.past = names, past(keyframe_commits)
        self.store = self.past.store()
        self.acts = [ACTS[name](app) for name, app in zip(names, ("job", "other"), strict=True)]
        (at, how), (others_at, others_how) = fates
        self.second = MortalStore(self.store, others_at, others_how or "before")
        self.first = MortalStore(
            self.store, at, how or "before", pause=stop, meanwhile=self._meanwhile
        )
        self.ends, self.met = [None, None], False
        self.ends[0] = self._end(0, self.first, 100)

    def _meanwhile(self):
        self.met = True
        self.ends[1] = self._end(1, self.second, 101)

    def _end(self, which, store, seed):
        try:
            self.acts[which](fresh(store, seed))
        except (*ENDS, Claimed, errors.CommitConflict) as error:
            return error
        return None

    def landed(self):
        """The operations that are in the log, in its order: each at most once."""
        taken = [txn for _, effect in self.past.folded(self.store) for txn in effect.taken]
        apps = [txn.app.id for txn in taken if txn.app is not None]
        assert len(set(apps)) == len(apps)
        return [self.names[("job", "other").index(app)] for app in apps]

    def check(self):
        """Check what is there, then that both can be done again, merged and swept."""
        for which, name in enumerate(self.names[: 1 + self.met]):
            end, store = self.ends[which], (self.first, self.second)[which]
            assert name == "vacuum" or not store.deletes
            if isinstance(end, errors.CommitConflict):
                assert "vacuum" in self.names, (self.names, end)
                assert "deleted it" in str(end)
            if name in EFFECTS and end is None:
                assert name in self.landed()
            elif name in EFFECTS and not isinstance(end, (Crash, errors.CommitUnknown)):
                assert name not in self.landed()
        self._same(self.past.check(self.store))
        for number in range(MOST):  # a claim of the dead is broken after some time
            try:
                for which, act in enumerate(self.acts):
                    act(fresh(self.store, 200 + 2 * number + which))
            except Claimed:
                self._break_claims()
            else:
                break
        assert set(self.landed()) == set(self.names) & set(EFFECTS)
        self._same(fresh(self.store, 400))
        self._break_claims()
        compact_all(fresh(self.store, 401))
        table = self._same(fresh(self.store, 402))
        live = table.session.head().segments()
        assert not slices.ineffective(live, buckets_split(table.session.head().layout))
        assert {s.slice.kind for s in live} == {"base"}
        sweep(fresh(self.store, 500), full=True)
        assert self.past.dead(self.store) == set()
        self._same(self.past.check(self.store, 501))

    def _break_claims(self):
        """Let nobody wait for the dead, as after some time."""
        keeper = fresh(self.store, 199)
        for claim in keeper.claims():
            keeper.break_claim(claim, silent_s=0)

    def _same(self, table):
        wanted = held(fresh(self.past.store(), 50))
        for name in self.landed():
            wanted = EFFECTS[name](wanted)
        table.refresh()
        assert held(table) == wanted
        return table


def points(whole, stop, second):
    """Yield the fates of both: either dies anywhere, or both do, the first where it stopped."""
    hows = [how for how in HOWS if how != "after"]  # the same as before the next call
    harder = [*hows, "half"] if second == "vacuum" else hows
    deaths = [(at, how) for at in range(1, whole.second.calls + 1) for how in harder]
    lives = [(at, how) for at in range(stop, whole.first.calls + 1) for how in hows]
    yield from ((LIVES, death) for death in deaths)
    yield from ((life, LIVES) for life in lives)
    yield from product(lives[: len(hows)], deaths)


LIVES = 0, ""
FATES = [(LIVES, LIVES), (LIVES, (6, "lost")), ((4, "before"), LIVES)]


@pytest.mark.sample(1, verify=2)
@pytest.mark.parametrize("names", PAIRS[:5], ids=" x ".join)
def test_two_operations_at_some_points(names):
    for stop, fates in zip((2, 3, 1), FATES, strict=True):
        run = Run(names, stop, fates, "64")
        assert run.met
        run.check()
        assert fates != FATES[0] or not any(isinstance(end, ENDS) for end in run.ends)


@pytest.mark.long
@pytest.mark.parametrize("keyframe_commits", ["64", "1"])
@pytest.mark.parametrize("names", PAIRS, ids=" x ".join)
def test_two_operations_at_once(names, keyframe_commits):
    for stop in range(1, MOST):
        whole = Run(names, stop, FATES[0], keyframe_commits)
        if not whole.met:
            break
        whole.check()
        assert not any(isinstance(end, ENDS) for end in whole.ends)
        tried["stops"] += 1
        for fates in points(whole, stop, names[1]):
            both = all(at for at, _ in fates)
            text = repr((names, stop, fates, keyframe_commits))
            if FULL or crc32(text.encode()) % (400 if both else 50) == 0:
                Run(names, stop, fates, keyframe_commits).check()
                tried["deaths"] += 1
    assert stop > 3
    print(f"keyed crash pairs: {dict(tried)}")  # noqa: T201


def test_the_table_has_what_two_merges_share():
    store = past("64").store()
    table = fresh(store, 50)
    tasks = [bucket_task(bucket)(table) for bucket in (0, 1)]
    shared = set.intersection(*({s.id for s in task.inputs} for task in tasks))
    assert len(shared) >= 2
    for number, task in enumerate(tasks):
        assert perform(fresh(store, 60 + number), task, COMPACTION).status == "done"
    assert fsck(fresh(store, 70)).errors == 0
