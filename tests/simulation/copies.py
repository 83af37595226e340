"""Copies that follow the simulated table, while all others work on it.

Replicators die and meet every accident, at the table and at the copy; several serve one copy, and
the table is vacuumed meanwhile. At the end every copy has the table's bytes and nothing else, and
one more pass makes it complete.
"""

import random
from collections import Counter
from dataclasses import replace

from simulation import plans
from simulation.actors import EXPECTED
from simulation.harsh import HarshStore, Late
from simulation.ledger import COMMIT, TOP, hold, keys_of
from simulation.simulate import run as run_plan

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.replication import follow as replicate
from eventlog.store.memory import MemoryStore

ROLE = "replicator"
NAMES = ("east", "west")
OWN = (keys.STARTS_PREFIX, keys.PROBES_PREFIX)
# How often a run has it at least, on average.
LEAST = {"copied": 1, "copied a part": 0.1, "began above 0": 0.05, "attached": 0.3, "vacuumed": 0.1}


def draw(seed):
    """Return a plan with replicators."""
    chance = random.Random(f"copies {seed}")
    plan = plans.draw(seed)
    roles = [*plan.roles[: chance.randrange(2, 5)], ("vacuum", chance.randrange(1, 4))]
    roles += [(ROLE, chance.randrange(2, 5)) for _ in range(chance.randrange(1, 3))]
    return replace(plan, roles=tuple(roles))


def follow(me):
    """One pass for one of the copies."""
    world = me.world
    if not hasattr(world, "copies"):
        world.copies = {}
    name = me.random.choice(NAMES)
    store, late = world.copies.setdefault(name, _copy())
    harsh = HarshStore(store, world.scheduler, world.plan.weather, late=late, struck=world.struck)
    harsh.near = False
    named = name if me.random.random() < 0.6 else None
    start = me.random.choice(("oldest", "oldest", "keyframe"))
    try:
        done = replicate(
            me.table, Table(harsh, me.table.clock), name=named, start=start, clock=me.table.clock
        )
    except EXPECTED:
        world.done["copied a part"] += 1
        raise
    except errors.Corrupt as error:
        # A listing that lacks the start of a copy shows an unexplained gap: an error, and no more.
        if world.struck["stale"] + world.struck["empty"] == 0 or "but not" not in error.message:
            raise
        world.done["misled by a listing"] += 1
        return
    world.done["copied"] += 1
    world.done["began above 0"] += bool(done.start)
    world.done["attached"] += bool(done.attached)


def _copy():
    store = MemoryStore()
    return store, Late(store)


plans.REGISTRY[ROLE] = [follow]


def play(seed):
    """Run a plan, and check its copies; return the world.

    Raises:
        Violation: a promise was broken.
    """
    world = run_plan(draw(seed))
    for store, late in getattr(world, "copies", {}).values():
        late.land_all(world.scheduler.random)
        check(world, store)
    world.done["vacuumed"] = int(world.store.deleted > 0)
    return world


def check(world, store):
    """Check that a copy has the table's bytes, what each version needs, and can be completed."""
    theirs = world.store.objects()
    source = Table.open(world.store.uri, store=world.store, clock=_clock(world, 1))
    for stage in ("as it was left", "completed"):
        mine = {o.key: store.get(o.key) for o in store.list("") if not o.key.startswith(OWN)}
        for key, body in mine.items():
            gone = key.startswith(keys.SEGMENTS_PREFIX) and key not in theirs
            hold(gone or theirs.get(key) == body, "copy", f"{key} differs, {stage}")
        have = sorted(TOP - int(m[1]) for key in mine if (m := COMMIT.fullmatch(key)))
        if have:
            _check_whole(world, store, mine, have, stage)
        if stage == "completed":
            hold(have[-1:] == [source.refresh().version], "copy", f"it ends at {have[-1:]}")
        else:
            _complete(source, store, world)
            theirs = world.store.objects()


def _complete(source, store, world):
    clock = _clock(world, 2)
    replicate(source, Table(store, clock), clock=clock)


def _check_whole(world, store, mine, have, stage):
    """Check that a reader finds the newest version, and all that its kept versions need."""
    head = Log(store).head()
    hold(head.version == have[-1], "copy", f"its head is {head.version}, {stage}")
    steps, least = world.store.ledger.steps, head.meta.horizon
    for version in have:
        if version < least:
            continue
        live = steps[version].state["live"].values()
        needed = {key for entry in live for key in keys_of(entry)}
        lost = sorted(needed - mine.keys())
        hold(not lost, "copy", f"version {version} lacks {lost}, {stage}")
        try:
            found = Log(store).snapshot(version)
        except errors.EventLogError as error:
            hold(False, "copy", f"version {version} cannot be read, {stage}: {error}")
        hold(found.commit_hash == steps[version].hash, "copy", f"version {version}, {stage}")


def _clock(world, seed):
    last = world.store.ledger.steps[-1].commit["header"]["time"]
    return ManualClock(last, world.plan.seed + seed)


def rare(done, runs):
    """What happened too rarely in so many runs, and how often."""
    counts = Counter(done)
    return {name: counts[name] for name, least in LEAST.items() if counts[name] < least * runs}
