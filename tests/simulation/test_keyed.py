"""Keyed tables under the scheduler: writers of the same keys, merges and a vacuum, with accidents.

Each actor is a program that may die and come again. Nobody may be refused but for a fence, and the
table must be what the log's transactions say, in their order, at every version that is kept.
"""

import gc
import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from simulation.harsh import ALL, HarshStore, Late, Weather
from simulation.scheduler import Scheduler, WaitingClock, one_thread
from support.builders import Crash, fold_all
from support.keyed_tables import (
    SCHEMA,
    WITH_OP,
    model_of,
    ordered,
    properties_of,
    row_of,
    rule_at,
)
from support.repeatable import EXAMPLES

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.state.keyed import slices
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, upsert

POLICY = Policy(target_bytes=4096, claim_bytes=2**40, backoff_s=1, memory_bytes=2**20)
NOW = timedelta(0)
SEEDS = 4
ROLES = ("writer", "writer", "writer", "deleter", "compactor", "compactor", "vacuum", "reader")
ATTEMPTS = 4
# What a program may meet by no fault of its own.
EXPECTED = (
    errors.Unavailable,
    errors.CommitUnknown,
    errors.CommitConflict,
    errors.ClaimLost,
    errors.TableNotFound,  # a stale listing
)


@pytest.fixture(autouse=True, scope="module")
def one_at_a_time():
    with one_thread():
        yield


class World:
    """A keyed table, and what its writers handed in."""

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.scheduler = Scheduler(seed, stay=chance.choice([0.0, 0.5, 0.9]), max_steps=50_000)
        self.late = Late(self.store)
        accidents = ALL - {"stale", "empty"} if chance.random() < 0.5 else ALL
        self.weather = Weather(chance.choice([0.0, 0.05, 0.1]), frozenset(accidents))
        self.struck, self.done = Counter(), Counter()
        self.given, self.acknowledged, self.seen = {}, [], []
        self.tokens = seed * 1000
        kind = chance.choice(["last", "first", "partial", "groups"])
        Table.create(
            self.store.uri,
            SCHEMA,
            store=self.store,
            clock=ManualClock(1_600_000_000_000, seed),
            time_column="at",
            key="k",
            order_by=chance.choice([None, "o"]),
            buckets=chance.choice([1, 4]),
            properties={
                "combine_after": chance.choice(["0", "1"]),
                "keyframe_commits": chance.choice(["1", "4"]),
                "bucket_bytes": chance.choice(["1024", "8388608"]),
                **properties_of(kind, ("k",)),
            },
        )

    def open(self):
        self.tokens += 1
        store = HarshStore(
            self.store, self.scheduler, self.weather, late=self.late, struck=self.struck
        )
        return Table(store, WaitingClock(self.scheduler, self.tokens))


class Actor:
    """Programs of one role, one after another."""

    def __init__(self, world, number, role):
        self.world, self.name, self.role = world, f"{role} {number}", role
        self.chance = random.Random(f"{world.tokens} {number}")
        self.table = world.open()

    def __call__(self):
        for seq in range(3):
            for _ in range(ATTEMPTS):
                try:
                    getattr(self, self.role)(seq)
                except Crash:
                    self.world.done["crash"] += 1
                    self.table = self.world.open()
                except EXPECTED as error:
                    self.world.done[type(error).__name__] += 1
                else:
                    self.world.done[self.role] += 1
                    break

    def rows(self, seq):
        """The rows of a unit of work: the same at every attempt."""
        key = self.name, seq
        if key not in self.world.given:
            rows = [row_of(self.chance) | {"_op": "u"} for _ in range(self.chance.randrange(1, 5))]
            self.world.given[key] = rows
        return self.world.given[key]

    def writer(self, seq):
        data = pa.Table.from_pylist(self.rows(seq), schema=WITH_OP)
        version = upsert(self.table, data, app_id=self.name, app_seq=seq)
        self.world.acknowledged.append((self.name, seq, version))

    def deleter(self, seq):
        blank = dict.fromkeys(SCHEMA.names)
        key = self.name, seq
        if key not in self.world.given:
            some = self.chance.sample(range(6), 2)
            self.world.given[key] = [blank | {"k": k, "_op": "d"} for k in some]
        keys = pa.table({"k": [row["k"] for row in self.world.given[key]]})
        version = delete(self.table, keys=keys, app_id=self.name, app_seq=seq)
        self.world.acknowledged.append((self.name, seq, version))

    def compactor(self, seq):
        for outcome in compaction.run(self.table, policy=POLICY).outcomes:
            self.world.done[f"task {outcome.status}"] += 1

    def vacuum(self, seq):
        vacuum(self.table, dry_run=False, retention=NOW, staging=NOW)

    def reader(self, seq):
        version = self.table.refresh().version
        try:
            rows = scan(self.table, version=version).to_table().to_pylist()
        except (errors.VersionVacuumed, errors.DataLoss):
            return  # checked below: such a version must be behind the horizon
        self.world.seen.append((version, ordered(rows)))


def check(world):
    """Compare every kept version with the model, and reach a state without logs."""
    steps = fold_all(world.store)
    table = Table.open(
        world.store.uri, store=world.store, clock=ManualClock(steps[-1][0].header.time, 10**6)
    )
    rule = rule_at(table.head())
    rows, wanted, landed = [], {}, {}
    for state, effect in steps:
        for transaction in effect.taken:
            if transaction.app is not None:
                key = transaction.app.id, transaction.app.seq
                assert key not in landed, f"{key} took effect twice"
                landed[key] = state.version
                rows += world.given[key]
        wanted[state.version] = ordered(model_of(rows, rule).values())
    for name, seq, version in world.acknowledged:
        assert landed[name, seq] <= version
    for version, shown in world.seen:
        assert shown == wanted[version]
    for version in range(table.head().meta.horizon, table.head().version + 1):
        assert ordered(scan(table, version=version).to_table().to_pylist()) == wanted[version]
    for _ in range(6):
        report = compaction.run(table, policy=POLICY)
        assert all(outcome.ok for outcome in report.outcomes), report.outcomes
        if not report.planned:
            break
    assert not report.planned
    live = table.refresh().segments()
    assert not slices.taken_in(live)
    assert ordered(scan(table).to_table().to_pylist()) == wanted[max(wanted)]
    assert fsck(table).ok


def play(seed):
    world = World(seed)
    roles = [*world.chance.sample(ROLES, 5), "writer"]
    world.scheduler.run(*(Actor(world, n, role) for n, role in enumerate(roles)))
    world.late.land_all(world.scheduler.random)
    check(world)
    gc.collect()
    return world


def test_writers_of_the_same_keys_under_merges_and_accidents():
    done, struck = Counter(), Counter()
    for seed in range(SEEDS):
        world = play(seed)
        done.update(world.done)
        struck.update(world.struck)
    assert {"writer", "deleter", "compactor", "reader", "task done"} <= set(done)
    assert struck


@pytest.mark.long
def test_hundreds_of_schedules():
    for seed in range(1000, 1000 + (EXAMPLES or 400)):
        play(seed)
