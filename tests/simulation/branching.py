"""Branches and merges under the scheduler, beside appends, compaction and vacuum, with accidents.

A table, a copy of it that takes writes of its own, and branches that are made, written to,
published and deleted by programs that may die at any request. Each unit of work has rows of its
own. At the end every table has the rows of all units that were acknowledged there, or were merged
from where they were, each once, and of every other unit all rows or none.
"""

import gc
import logging
import random
from collections import Counter, defaultdict
from datetime import timedelta

from simulation.harsh import ALL, HarshStore, Late, Weather
from simulation.scheduler import Scheduler, WaitingClock
from support.builders import START_MS, ApartStore, Crash, create, events

from eventlog import Table, compaction, errors, replication
from eventlog.clock import ManualClock
from eventlog.compaction import Policy
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.inline.inline_objects import forget_objects
from eventlog.readers import scan
from eventlog.store.branching.branch import BranchStore
from eventlog.writers import append

NOW = timedelta(0)
POLICY = Policy(target_bytes=2**20, backoff_s=1, min_gain=0)
SIDES = ("one", "two")
BRANCHES = ("a", "b")
ROWS = 3
# What each does is the method of that name.
ROLES = (
    "writer", "writer", "brancher", "brancher", "brancher", "publisher", "publisher", "deleter",
    "merger", "merger", "compactor", "vacuum", "branch_compactor",
)  # fmt: skip
# How often in 1,000 runs it is done at least.
IN_1000 = dict.fromkeys(ROLES, 100) | {"crash": 200, "published rows": 100, "merged rows": 100}
ENOUGH_TO_TELL = 150
ATTEMPTS = 3
ROUNDS = 4  # of merges both ways
# What a program may meet by no fault of its own.
EXPECTED = (
    errors.Unavailable,
    errors.CommitUnknown,
    errors.CommitConflict,
    errors.ClaimLost,
    errors.VersionVacuumed,
    errors.TableNotFound,  # a branch that was deleted, or a stale listing
    errors.AlreadyExists,  # another has made the branch
)


class World:
    """A table, a copy of it, and what was acknowledged where."""

    def __init__(self, seed):
        forget_objects()  # one seed is one run, whatever came before
        chance = self.chance = random.Random(f"branching {seed}")
        self.stores = {side: ApartStore(f"memory://{side}") for side in SIDES}
        self.late = {side: Late(store) for side, store in self.stores.items()}
        self.scheduler = Scheduler(seed, stay=chance.choice([0.0, 0.5, 0.9]), max_steps=50_000)
        accidents = ALL - {"stale", "empty"} if chance.random() < 0.5 else ALL
        self.weather = Weather(chance.choice([0.0, 0.05, 0.1]), frozenset(accidents))
        self.struck, self.done = Counter(), Counter()
        self.tokens, self.units = seed * 1000, 1
        # The units that were handed in, and those that a place must have: sides by their names,
        # branches also by what makes a branch another one of its name.
        self.given, self.must = defaultdict(set), defaultdict(set)
        properties = {
            "combine_after": chance.choice(["0", "1"]),
            "keyframe_commits": chance.choice(["1", "3", "64"]),
            "inline_bytes": chance.choice(["0", "16384"]),
        }
        table = create(self.stores["one"], seed=seed, properties=properties)
        append(table, rows(0))
        replication.follow(table, Table(self.stores["two"]), clock=ManualClock(START_MS, seed))
        for side in SIDES:
            self.must[side].add(0)

    def lies(self):
        """How many listings have lacked what is there."""
        return self.struck["stale"] + self.struck["empty"]

    def open(self, side):
        """A handle of another process."""
        self.tokens += 1
        store = HarshStore(
            self.stores[side],
            self.scheduler,
            self.weather,
            late=self.late[side],
            struck=self.struck,
        )
        return Table(store, WaitingClock(self.scheduler, self.tokens))


def rows(unit):
    """The rows of a unit of work: over several days, so in several segments."""
    return events(ROWS, first=unit * ROWS, days=2)


def fork_at(store, name):
    """What makes a branch another one than its predecessors of that name; None: there is none."""
    try:
        body = store.get(f"{keys.branch_root(name)}/{keys.FORK_KEY}")
    except errors.KeyNotFound:
        return None
    return name, codec.sha256(body)


class Actor:
    """Programs of one role, one after another."""

    def __init__(self, world, number, role):
        self.world, self.role = world, role
        self.chance = random.Random(f"{world.tokens} {number}")
        self.tables = {}

    def __call__(self):
        for _ in range(3):
            self.unit = None
            for _ in range(ATTEMPTS):
                try:
                    getattr(self, self.role)()
                except Crash:
                    self.world.done["crash"] += 1
                    self.tables.clear()
                except EXPECTED as error:
                    self.world.done[f"{self.role}: {type(error).__name__}"] += 1
                except (errors.Corrupt, errors.InvalidInput) as error:
                    self.misled(error)
                else:
                    self.world.done[self.role] += 1
                    break

    def misled(self, error):
        """Accept what a listing does that lacks what is there: an error, and no more.

        It may lack what explains a gap, or show the head of a branch below its fork.
        """
        if not self.world.lies() or not any(
            text in error.message for text in ("but not", "before branch")
        ):
            raise error
        self.world.done["misled by a listing"] += 1

    def table(self, side):
        if side not in self.tables or self.chance.random() < 0.2:
            self.tables[side] = self.world.open(side)
        return self.tables[side]

    def branch(self, name):
        """A handle to a branch of the first table, and which one of that name it is."""
        parent = self.table("one")
        found = fork_at(parent.store, name)
        branch = Table(BranchStore(parent.store, name), parent.clock)
        branch.session.head()  # from here on it is that branch
        if found is None or fork_at(parent.store, name) != found:
            raise errors.TableNotFound("made or deleted meanwhile", table=name)
        return branch, found

    def unit_of(self, place):
        """A unit of work for a place, the same one after an error."""
        if self.unit is None or self.unit[0] != place:
            self.unit = place, self.world.units
            self.world.units += 1
        self.world.given[place].add(self.unit[1])
        return self.unit[1]

    def hand_in(self, table, place):
        unit = self.unit_of(place)
        append(table, rows(unit), app_id=f"unit {unit}", app_seq=1)
        self.world.must[place].add(unit)

    # --------------------------------------------------------------------------------- the roles

    def writer(self):
        side = self.chance.choice(SIDES)
        self.hand_in(self.table(side), side)

    def brancher(self):
        """Writes to a branch, and makes it first where there is none."""
        name = self.chance.choice(BRANCHES)
        try:
            branch, place = self.branch(name)
        except errors.TableNotFound:
            self.make(name)
            branch, place = self.branch(name)
        self.hand_in(branch, place)

    def make(self, name):
        try:
            self.table("one").branch(name)
        except errors.InvalidInput as refused:  # a program that deleted it has died
            if "has commits and no `_fork.json`" not in refused.message:
                raise
            self.table("one").delete_branch(name)
            self.table("one").branch(name)

    def publisher(self):
        branch, place = self.branch(self.chance.choice(BRANCHES))
        known, lies = set(self.world.must[place]), self.world.lies()
        self.table("one").merge(branch)
        if lies == self.world.lies():  # a head that a listing hides is not merged
            self.world.done["published rows"] += len(known - self.world.must["one"])
            self.world.must["one"] |= known

    def deleter(self):
        self.table("one").delete_branch(self.chance.choice(BRANCHES))

    def merger(self):
        source, target = self.chance.sample(SIDES, 2)
        known, lies = set(self.world.must[source]), self.world.lies()
        ours = self.table(target)
        replication.merge(self.table(source), ours, clock=ours.clock)
        if lies == self.world.lies():
            self.world.done["merged rows"] += len(known - self.world.must[target])
            self.world.must[target] |= known

    def compactor(self):
        compaction.run(self.table(self.chance.choice(SIDES)), policy=POLICY)

    def branch_compactor(self):
        compaction.run(self.branch(self.chance.choice(BRANCHES))[0], policy=POLICY)

    def vacuum(self):
        table = self.table(self.chance.choice(SIDES))
        compaction.vacuum(table, dry_run=False, retention=NOW, staging=NOW)


def units_in(table):
    """The units whose rows a table shows: each with all of them, and each once."""
    found = Counter(scan(table).to_table().column("name").to_pylist())
    twice = [name for name, count in found.items() if count > 1]
    assert not twice, f"{table.uri} has rows twice: {sorted(twice)}"
    units = {int(name.removeprefix("row ")) // ROWS for name in found}
    wanted = {name for unit in units for name in rows(unit).column("name").to_pylist()}
    assert set(found) == wanted, f"{table.uri} has a part of {sorted(wanted - set(found))}"
    return units


def check_rows(world, table, place):
    units = units_in(table)
    lost = world.must[place] - units
    assert not lost, f"{table.uri} has lost {lost}"
    every = set().union({0}, *world.given.values())
    assert units <= every, f"{table.uri} has {units - every}"
    return units


def check(world):
    """Check the rows of every table, then bring them together, and check them again."""
    last = max(actor_clock(store) for store in world.stores.values())
    tables = {
        side: Table(store, ManualClock(last + n + 1, 10**6 + n))
        for n, (side, store) in enumerate(world.stores.items())
    }
    one, two = tables["one"], tables["two"]
    for side, table in tables.items():
        check_rows(world, table, side)
        # A PUT that lands after its branch was deleted leaves one without a pin.
        found = [f for f in fsck(table).findings if f.severity == "error"]
        assert all("no pin protects what branch" in f.message for f in found), found
    for branch in one.branches():
        place = fork_at(one.store, branch.name)
        if place is not None and branch.head is not None and branch.held:
            handle = Table(BranchStore(one.store, branch.name), one.clock)
            units = check_rows(world, handle, place)
            assert fsck(handle).ok, fsck(handle).findings
            one.merge(handle)
            assert units <= check_rows(world, one, "one")
            assert one.merge(handle).commits == 0
        one.delete_branch(branch.name)
    assert one.branches() == []
    try:
        together = bring_together(world, one, two)
    except errors.CommitConflict as conflict:
        # A published branch whose compaction took segments of its parent, and a copy that has
        # compacted the same ones together with rows of its own.
        if "rewritten them together" not in conflict.message:
            raise
        world.done["conflicts of the copies"] += 1
        return
    for table in tables.values():
        compaction.vacuum(table, dry_run=False, retention=NOW, staging=NOW, full=True)
        assert fsck(table).ok, fsck(table).findings
        assert units_in(table) == together


def bring_together(world, one, two):
    """Merge both ways, and return the units that both have then."""
    for source, target in ((two, one), (one, two)):
        replication.merge(source, target, clock=target.clock)
    together = check_rows(world, one, "one")
    assert together == check_rows(world, two, "two")
    assert together >= world.must["one"] | world.must["two"]
    for _ in range(ROUNDS):  # the marks of a merge are no news for ever
        again = [replication.merge(a, b, clock=b.clock) for a, b in ((two, one), (one, two))]
        assert [merged.segments for merged in again] == [0, 0], again
        if not any(merged.commits for merged in again):
            break
    assert [merged.commits for merged in again] == [0, 0], again
    return together


def actor_clock(store):
    return Table(store, ManualClock(START_MS, 1)).session.head().header.time


def play(seed):
    """Run and check the world of a seed."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        world = World(seed)
        roles = [*world.chance.sample(ROLES, 5), "brancher", "publisher"]
        world.scheduler.run(*(Actor(world, n, role) for n, role in enumerate(roles)))
        for late in world.late.values():
            late.land_all(world.scheduler.random)
        check(world)
    finally:
        logging.disable(disabled)
    gc.collect()
    return world


def rare(done, runs):
    """What was done too rarely in so many runs."""
    if runs < ENOUGH_TO_TELL:
        return {}
    return {name: done[name] for name, least in IN_1000.items() if done[name] * 1000 < least * runs}
