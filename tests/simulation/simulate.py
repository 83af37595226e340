"""Runs and checks one plan, or many with counts."""

import logging
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from unittest import mock

from simulation import naive, plans, runners
from simulation.actors import Actor
from simulation.history import check
from simulation.ledger import hold
from simulation.world import World, as_json, live, plain

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.format import deletion_vectors
from eventlog.inline.inline_objects import forget_objects
from eventlog.rewriting import translation
from eventlog.state import keyframe

NOW = timedelta(0)
# The package exports the function of that name.
PERFORM = import_module("eventlog.compaction.execute")


@dataclass
class Sums:
    """The counts of the runs so far."""

    seeds: int = 0
    steps: int = 0
    done: Counter = field(default_factory=Counter)
    struck: Counter = field(default_factory=Counter)

    def add(self, other):
        self.seeds += other.seeds
        self.steps += other.steps
        self.done.update(other.done)
        self.struck.update(other.struck)

    def __str__(self):
        operations = {k[3:]: n for k, n in self.done.items() if k.startswith("op ")}
        rest = {k: n for k, n in self.done.items() if not k.startswith("op ") and ":" not in k}
        missed = {k: n for k, n in self.done.items() if ":" in k}
        lines = [f"{self.seeds} schedules of {self.steps} steps"]
        for title, counts in (
            ("operations done", operations),
            ("operations that met an error", missed),
            ("accidents", self.struck),
            ("transactions and more", rest),
        ):
            lines.append(f"{title}:")
            lines += [
                f"  {n:>9,} {name}" for name, n in sorted(counts.items(), key=lambda i: -i[1])
            ]
        return "\n".join(lines)


def simulate(plan, show=lambda world: None):
    """Run a plan to its end, and return its world unchecked; `show` is called with it first."""
    forget_objects()  # one seed is one run, whatever came before
    with scaled(plan):
        world = World(plan)
        show(world)
        crowd = [
            Actor(world, f"{role} {number}", role, operations, plans.REGISTRY)
            for number, (role, operations) in enumerate(plan.roles)
        ]
        try:
            world.scheduler.run(*crowd)
            world.late.land_all(world.scheduler.random)
        finally:
            if world.store.broken:  # even if the code under test caught the violation
                raise world.store.broken[0]
        return world


def run(plan):
    """Run a plan and check all promises.

    Raises:
        Violation: a promise was broken.
    """
    world = simulate(plan)
    with scaled(plan):
        finish(world)
        ledger = world.store.ledger
        check(world.record, world.store.objects(), ledger)
        check_production(world.store, ledger)
    return world


def finish(world):
    """Check that a new program can use the table, without faults."""
    ledger = world.store.ledger
    clock = ManualClock(ledger.steps[-1].commit["header"]["time"], world.plan.seed)
    table = Table.open(world.store.uri, store=world.store, clock=clock)
    head = len(ledger.steps) - 1
    hold(table.session.head().version == head, "read", f"the head is {head}")
    version = table.commit(table.transaction("append", [world.stage(table, "2013-01-07")]))
    hold(version == head + 1, "end", f"the last append is version {version}")
    if any(role == "runner" for role, _ in world.plan.roles):
        table.world = world
        runners.check_fixed_point(world, table)
    if any(role == "vacuum" for role, _ in world.plan.roles):
        compaction.vacuum(table, dry_run=False, retention=NOW, staging=NOW, full=True)
        left = [k.key for k in world.store.list("data/") if ledger.dead(k.key)]
        hold(not left, "garbage", f"a vacuum of everything has left {left}")


def check_production(store, ledger):
    """Check that every version's snapshot, by key frame and delta, is that of the naive fold."""
    log = Table(store).session.log
    last = len(ledger.steps) - 1
    for version, step in enumerate(ledger.steps):
        snapshot = log.snapshot(version)
        small = as_json(snapshot.meta)
        same = small == naive.small_state(step.state)
        hold(same, "snapshot", f"small state of version {version}")
        hold(snapshot.commit_hash == step.hash, "snapshot", f"hash of version {version}")
        if version == last or (version + store.ledger.head["fence"]) % 4 == 0:
            same = plain(snapshot) == step.state["live"]
            hold(same, "snapshot", f"entries of version {version}")


@contextmanager
def scaled(plan):
    """Give small tables leaves, stems and objects of vectors, if the plan says so.

    Parquet and logging are disabled.
    """
    sizes = {"INLINE_SEGMENTS": 2, "LEAF_TARGET": 2, "LEAF_SMALL": 1, "LEAF_MAX": 4}
    sizes |= {"ROOT_LEAVES": 3, "STEM_TARGET": 2, "STEM_SMALL": 1}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.object(PERFORM, "rewrite", runners.rewritten),
            mock.patch.object(translation, "_numbered_rows", runners.numbered_rows),
            mock.patch.multiple(keyframe, **sizes) if plan.leaves else nullcontext(),
            stored_vectors() if plan.stored else nullcontext(),
        ):
            yield
    finally:
        logging.disable(disabled)


def stored_vectors():
    """Put every deletion vector into an object, however small."""
    return mock.patch.object(deletion_vectors, "_MOST_BYTES", 0)


def sums_of(world):
    """Count the events of a run."""
    sums = Sums(1, world.scheduler.steps, world.done.copy(), world.struck.copy())
    ledger = world.store.ledger
    sums.done["commits"] += len(ledger.steps)
    sums.done["transactions"] += len(ledger.accepted)
    sums.done["commits of several transactions"] += sum(len(s.accepted) > 1 for s in ledger.steps)
    sums.done["void transactions"] += sum(len(s.void) for s in ledger.steps)
    sums.done["objects deleted by vacuum"] += world.store.deleted
    sums.done["looks"] += len(world.record.looks)
    sums.done["rows rewritten"] += world.store.contents.rewritten
    sums.done["rows changed"] += world.store.contents.changed
    sums.done["rows deleted during a rewrite"] += world.store.contents.translated
    for step in ledger.steps:
        for kind in step.kinds:
            sums.done[f"did {kind}"] += 1
    return sums


__all__ = ["Sums", "live", "run", "simulate", "sums_of"]
