"""Random histories of tables, copies and branches: no kept version ever loses an object.

A history makes tables that follow each other in any direction, take over and follow back, branches
of one name on several sides, pins and claims, and vacuums everything as much as is allowed; some
programs die at any call of a store. Each version is read when it first appears. From then on, as
long as it is kept, its objects must be stored, and it must read as it did. Everything is drawn from
a seed.
"""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from support.builders import START_MS, create, events, live
from support.crashes import COMPACTION, ENDS, HOUR_MS, HOWS, MortalStore, quick

from eventlog import Table, compaction, errors, readers, replication
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import held_from, root_of
from eventlog.store.memory import MemoryStore
from eventlog.table.branching.names import fork_of, stored_names
from eventlog.writers import append, overwrite

STEPS = 36
ROOTS = 3
DAYS = [("1970-01-01", "1970-01-02"), ("1970-01-02", "1970-01-03"), ("1970-01-01", "1970-01-04")]
NOTHING = timedelta(0)
# A program may refuse, and then nothing has changed; it may not fail in any other way.
REFUSALS = (
    errors.AlreadyExists,
    errors.ClaimLost,
    errors.CommitConflict,
    errors.InvalidInput,
    errors.TableNotFound,
    errors.VersionNotFound,
    errors.VersionVacuumed,
)
ACTS = {
    "append": 5,
    "replace": 5,
    "compact": 2,
    "restore": 1,
    "branch": 4,
    "delete": 1.5,
    "publish": 1,
    "merge": 0.5,
    "follow": 8,
    "take over": 3,
    "there and back": 3,
    "backfill": 0.7,
    "pin": 0.7,
    "unpin": 2,
    "claim": 0.3,
    "vacuum": 6,
}
ENOUGH_TO_TELL = 40
# How often a history has it at least, on average.
LEAST = {
    "followed back": 0.3,
    "branch pinned again": 0.05,
    "branch passed": 0.5,
    "kept for a branch": 0.05,
    "deleted objects": 2,
    "deaths": 0.5,
    "gaps": 0.5,
    "one name on two sides": 0.05,
    "copied to go on": 0.05,
    "versions checked": 200,
}


@dataclass
class Place:
    """A table, a copy or a branch.

    Attributes:
        root: number of the store.
        path: names of the branch, and of those above it.
        shown: rows of each version that was readable here.
        objects: the keys, in the store, of what each version has live.
    """

    root: int
    path: tuple[str, ...]
    shown: dict[int, frozenset[str]] = field(default_factory=dict)
    objects: dict[int, frozenset[str]] = field(default_factory=dict)


class HeldHistory:
    """Tables, copies and branches, and what each of their versions shows.

    Args:
        seed: of all that is drawn.
        counts: how often things happened.
    """

    def __init__(self, seed):
        self.chance = random.Random(f"held {seed}")
        self.counts = Counter()
        self.handles = self.rows = 0
        self.stores = [MemoryStore() for _ in range(ROOTS)]
        self.mortal = None
        frames = self.chance.choice(["1", "3", "64"])
        create(self.stores[0], properties={"keyframe_commits": frames})
        self.places, self.rows_of = {}, {}  # the rows by the hash of the commit
        self.leader = 0  # the root that takes writes, mostly
        self.look(None)

    def open(self, place, store=None):
        """A handle of a process of its own, an hour after the one before."""
        self.handles += 1
        store = store or self.stores[place.root]
        for name in place.path:
            store = BranchStore(store, name)
        return Table(store, ManualClock(START_MS + self.handles * HOUR_MS, self.handles))

    def program(self, place):
        """A handle that may die."""
        if self.mortal is not None:
            return self.open(place)  # one program dies in one of its stores
        dies = self.chance.random() < 0.15
        at = self.chance.randint(1, 25) if dies else 0
        self.mortal = MortalStore(self.stores[place.root], at, self.chance.choice([*HOWS, "half"]))
        return self.open(place, self.mortal)

    def step(self):
        place = self.chance.choice([*self.places.values()])
        if not place.path and self.chance.random() < 0.95:
            place = self.table(self.leader)
        act = self.chance.choices([*ACTS], [*ACTS.values()])[0]
        self.mortal = None
        try:
            getattr(self, act.replace(" ", "_"))(place)
            self.counts[act] += 1
        except REFUSALS as refusal:
            if "no pin of" in refusal.message:
                self.go_on(place)
            elif act == "vacuum":
                raise AssertionError(refusal) from refusal
            self.counts[f"{act} refused"] += 1
        except ENDS:
            self.counts["deaths"] += 1
        self.look(act)
        self.check()

    def table(self, root):
        return next(p for p in self.places.values() if (p.root, p.path) == (root, ()))

    def go_on(self, place):
        """A branch that no pin holds takes no first commit: do what the refusal advises."""
        if place.path:
            with suppress(errors.CommitConflict):
                append(self.open(place), events(1, first=10**6))
                return  # it was another branch
            copy = Table(MemoryStore(), self.open(place).clock)
            replication.follow(self.open(place), copy, clock=copy.clock)
            assert frozenset(self.names(copy, None)) == self.newest(place)
            above = Place(place.root, place.path[:-1])
            passed = (
                self.open(place).store.forks[0].held < self.open(above).session.head().meta.horizon
            )
            self.counts["copied to go on"] += passed
            if not passed and not above.path:
                self.mortal = self.stores[above.root]  # nothing dies from here on
                self.vacuum(above)
                append(self.open(place), self.fresh(1))
                self.counts["went on"] += 1

    # ------------------------------------------------------------------------------ what is done

    def fresh(self, count):
        self.rows += count
        return events(count, first=self.rows - count, days=3)

    def append(self, place):
        before = self.newest(place)
        table = self.program(place)
        new = self.fresh(self.chance.randint(1, 4))
        append(table, new)
        self.look("append")
        assert self.newest(place) == before | set(new.column("name").to_pylist())

    def replace(self, place):
        start, end = self.chance.choice(DAYS)
        self.rows += 1
        new = events(1, first=self.rows - 1, day=int(start[-2:]) - 1)
        overwrite(self.program(place), new, start=start, end=end)

    def compact(self, place):
        before = self.newest(place)
        compaction.run(self.program(place), policy=COMPACTION)
        self.look("compact")
        assert self.newest(place) == before

    def restore(self, place):
        table = self.open(place)
        version = self.chance.choice([*place.shown])
        kept = version >= self.floor(table)
        table.restore(version)
        self.look("restore")
        assert kept
        assert self.newest(place) == place.shown[version]

    def branch(self, place):
        if len(place.path) == 2:
            return
        at = self.chance.choice([None, None, *place.shown])
        name = self.chance.choice("ab")
        self.program(place).branch(name, at)
        others = [p for p in self.places.values() if p.path == (*place.path, name)]
        self.counts["one name on two sides"] += any(p.root != place.root for p in others)

    def delete(self, place):
        if place.path and self.chance.random() < 0.7:
            place = Place(place.root, place.path[:-1])
        self.program(place).delete_branch(self.chance.choice("ab"))

    def publish(self, place):
        if not place.path:
            return
        above = Place(place.root, place.path[:-1])
        self.open(above).merge(self.open(place))

    def merge(self, place):
        other = self.chance.choice([*self.places.values()])
        replication.merge(self.open(place), self.open(other))

    def follow(self, place):
        """Make a copy of a table or branch, or bring one up to date, or the wrong one."""
        others = [Place(n, ()) for n in range(ROOTS) if n != place.root]
        into = self.chance.choice([*others, *others, *self.places.values()])
        self.follow_into(place, into, self.program(into))

    def follow_into(self, place, into, target):
        name = self.chance.choice([None, f"r{into.root}"])
        start = self.chance.choice(["oldest", "oldest", "keyframe"])
        source = self.open(place)
        return replication.follow(source, target, name=name, start=start, clock=target.clock)

    def take_over(self, place):
        """The writers go to another root, which has followed."""
        del place
        root = self.chance.choice([n for n in range(ROOTS) if n != self.leader])
        here, there = Place(self.leader, ()), Place(root, ())
        try:
            self.follow_into(here, there, self.open(there))
        except errors.CommitConflict:  # it took writes of its own: a new copy under an empty root
            self.stores[root] = MemoryStore()
            self.places = {at: p for at, p in self.places.items() if p.root != root}
            raise
        self.leader = root
        table = self.open(there)
        names = {fork_of(table.store, name) for name in stored_names(table.store)}
        self.counts["followed back"] += bool(names)
        for name in sorted(replication.replicas(table)):
            if self.chance.random() < 0.8:
                replication.break_replica(table, name)

    def there_and_back(self, place):
        """The branches of the leader lose their pins in a copy that takes over for a while."""
        home = self.leader
        self.take_over(place)
        self.look("take over")
        away = self.table(self.leader)
        for name in sorted(self.open(away).refresh().meta.pins):
            if self.chance.random() < 0.8:
                self.open(away).break_pin(name)
        self.replace(away)
        if self.chance.random() < 0.5:
            self.vacuum(away)
        self.follow_into(away, Place(home, ()), self.open(Place(home, ())))
        self.leader = home
        self.look("follow")
        table = self.open(self.table(home))
        for name in sorted(replication.replicas(table)):
            if self.chance.random() < 0.8:
                replication.break_replica(table, name)

    def backfill(self, place):
        other = self.chance.choice([*self.places.values()])
        replication.backfill(self.open(place), self.open(other))

    def pin(self, place):
        version = self.chance.choice([None, *place.shown])
        self.open(place).pin(f"p{self.handles}", version)

    def unpin(self, place):
        """Remove any pin, also that of a branch, as on a copy that has not the branch."""
        table = self.open(place)
        if pins := sorted(table.refresh().meta.pins):
            table.break_pin(self.chance.choice(pins))

    def claim(self, place):
        table = self.open(place)
        if claims := sorted(table.claims()):
            table.break_claim(claims[0])
        else:
            table.claim("1970-01-01", "1970-01-03")

    def vacuum(self, place):
        lost = [b.name for b in self.open(place).branches() if not b.held and not b.unfinished]
        table = self.program(place)
        full = self.chance.random() < 0.4
        report = compaction.vacuum(
            table, dry_run=False, retention=NOTHING, staging=NOTHING, full=full
        )
        self.counts["deleted objects"] += sum(sums.objects for sums in report.gone.values())
        self.counts["kept for a branch"] += any(why.startswith("branch '") for why in report.kept)
        for branch in self.open(place).branches():
            assert branch.held or branch.unfinished, branch
        found = [f for f in fsck(self.open(place)).findings if f.severity == "error"]
        assert not found, found
        self.counts["branch pinned again"] += len(lost)
        # The table has the same vacuum once more: it finds what it left, and deletes nothing.
        again = compaction.vacuum(
            self.open(place), dry_run=False, retention=NOTHING, staging=timedelta(days=3650)
        )
        gone = {kind: sums.objects for kind, sums in again.gone.items()}
        assert not any(gone.values()), gone

    # ------------------------------------------------------------------------------ what is there

    def newest(self, place):
        return place.shown[max(place.shown)]

    def floor(self, table):
        return max(table.refresh().meta.horizon, held_from(table.store.forks))

    def look(self, act):
        """Find all places, and read the versions that are new in them."""
        found = {}
        waiting = [Place(number, ()) for number in range(ROOTS)]
        while waiting:
            place = waiting.pop()
            table = self.open(place)
            try:
                table.session.head()
            except errors.TableNotFound:
                continue
            ids = tuple(fork.id for fork in table.store.forks)
            place = found[place.root, place.path, ids] = self.places.get(
                (place.root, place.path, ids), place
            )
            names = [n for n in stored_names(table.store) if fork_of(table.store, n) is not None]
            waiting += [Place(place.root, (*place.path, name)) for name in names]
        gone = self.places.keys() - found.keys()
        assert act == "delete" or not gone, gone
        self.places = found
        for place in self.places.values():
            self.read_new(place)

    def read_new(self, place):
        table = self.open(place)
        head, floor = table.refresh().version, self.floor(table)
        first = 0 if table.session.log.starts.all() else max(place.shown, default=-1) + 1
        for version in range(max(first, floor), head + 1):
            if version in place.shown:
                continue
            try:
                snapshot = table.snapshot(version)
            except errors.VersionNotReplicated:
                self.counts["gaps"] += version > min(place.shown, default=head)
                continue
            rows = self.rows_of.get(snapshot.commit_hash)  # what the log that made it shows
            if rows is None:
                rows = frozenset(self.names(table, version))
            place.shown[version] = self.rows_of[snapshot.commit_hash] = rows
            place.objects[version] = self.stored(table, snapshot)

    def names(self, table, version):
        return readers.scan(table, version=version).to_table().column("name").to_pylist()

    def stored(self, table, snapshot):
        """The keys in the store of the root of what is live."""
        root = table.store.uri.partition("/_branches/")[0]
        return frozenset(
            f"{root_of(table.store, key)}/{key}".removeprefix(f"{root}/")
            for key in map(keys.key_of, live(snapshot))
        )

    def check(self, *, rows=False):
        """Check that what is kept is stored, and if asked that it reads as it did."""
        for place in self.places.values():
            there = {row.key for row in self.stores[place.root].list("")}
            table = self.open(place)
            floor = self.floor(table)
            for version in sorted(place.shown):
                if version < floor:
                    continue
                self.counts["versions checked"] += 1
                lost = place.objects[version] - there
                assert not lost, (place.root, place.path, version, lost)
                if rows:
                    assert frozenset(self.names(table, version)) == place.shown[version]
            if place.path:
                above = self.open(Place(place.root, place.path[:-1])).refresh()
                fork = table.store.forks[0]
                self.counts["branch passed"] += fork.held < above.meta.horizon


def play_held(seed):
    """Play one history, and return it."""
    with quick():
        history = HeldHistory(seed)
        for _ in range(STEPS):
            history.step()
        history.check(rows=True)
        history.counts["histories"] += 1
        for place in history.places.values():
            found = fsck(history.open(place), checksums=True).findings
            wrong = [
                f for f in found if f.severity == "error" and "no pin protects" not in f.message
            ]
            assert not wrong, wrong
    return history


def rare_held(counts):
    """What happened too rarely to prove anything."""
    played = counts["histories"]
    if played < ENOUGH_TO_TELL:
        return {}
    return {name: counts[name] for name, least in LEAST.items() if counts[name] < least * played}
