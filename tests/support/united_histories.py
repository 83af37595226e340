"""Random histories of several copies that become one again by the commands that messages name.

Copies, along a tree, a ring or any way, append, overwrite, delete, restore, compact and vacuum, do
the same units of work, and are merged now and then. Where a merge is refused, the history goes on
with a command of the message. In the end all are merged in both directions until nothing is left:
then all have the same rows, none is there twice, and none is lost that nobody removed or left out.
A merge that is refused commits nothing, and the dry run of each tells what is left out.
"""

import itertools
import re
import shlex

from support.forked_histories import (
    ForkedHistory,
    KeyedFork,
    Side,
    Stuck,
    copied,
    played,
    rare,
)

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.replication import merge

NAMED = re.compile(r"`eventlog merge ([^`]*) --take source` or `--take target`")
ROUNDS = 6
OFTEN = 5  # one of so many histories overwrites more often
LEAST = {
    "became one": 0.95,
    "conflict": 0.1,
    "taken": 0.1,
    "rows left out": 0.05,
    "skipped": 0.5,
    "units done twice": 0.2,
    "restore": 0.1,
}
KEYED_LEAST = {"became one": 0.95, "conflict": 0.02, "taken": 0.02}


def commands(message):
    """The arguments of the merge that a message names."""
    (named,) = NAMED.findall(message)
    return shlex.split(named)


class Ways:
    """How copies are merged whose histories may exclude each other."""

    def edges(self):
        """The pairs that are merged with each other: a tree, a ring, or all."""
        names = [*range(len(self.sides))]
        self.chance.shuffle(names)
        path = [(a, b) for a, b in itertools.pairwise(names)]
        star = [(names[0], other) for other in names[1:]]
        ring = [*path, (names[-1], names[0])]
        return self.chance.choice([path, star, ring])

    def pair(self):
        ends = [*self.chance.choice(self.ways)]
        self.chance.shuffle(ends)
        return [self.sides[end] for end in ends]

    def merge(self, _):
        source, target = self.pair()
        self.go_on(source, target, patient=self.chance.random() < 0.5)

    def go_on(self, source, target, *, patient=False):
        """Merge, and where it is refused by a command of the message; return the commits."""
        try:
            return self.checked(source, target)
        except errors.CommitConflict as conflict:
            self.counts["conflict"] += 1
            message, why = str(conflict), "conflict"
        except errors.VersionVacuumed as gone:
            self.counts["gone"] += 1
            message, why = str(gone), "gone"
        if "of type" in message:  # a column of two types: one of the two has to be kept
            raise Stuck(message)
        if patient:
            return 0
        one, two = source.handle(), target.handle()
        assert commands(message) == [one.uri, two.uri], (why, message)
        self.counts["taken"] += 1
        return self.checked(source, target, self.chance.choice(["source", "target"]))

    def tried(self, source, target, take):
        """Merge, as the dry run tells it before; one that is refused commits nothing."""
        refusals = (errors.CommitConflict, errors.VersionVacuumed)
        here = lambda side: Table.open("", store=side.store, clock=ManualClock(side.now_ms))
        before = here(target).session.head().version
        told = refused = None
        try:
            told = merge(here(source), here(target), take=take, dry_run=True)
        except refusals as conflict:
            refused = type(conflict)
        try:
            done = merge(source.handle(), target.handle(), take=take)
        except refusals as conflict:
            same = refused is type(conflict)
            assert same, "the dry run told something else"
            assert here(target).session.head().version == before
            raise
        assert told is not None, refused
        assert told.left_out == done.left_out
        return done

    def make_one(self):
        for _ in range(ROUNDS * len(self.sides)):
            done = 0
            for a, b in self.chance.sample(self.ways, len(self.ways)):
                for source, target in ((a, b), (b, a)):
                    done += self.go_on(self.sides[source], self.sides[target])
            if not done:
                break
        assert not done, "merging again still commits something"
        self.counts["became one"] += 1

    def play(self, steps):
        try:
            for _ in range(steps):
                name = self.chance.choices([*self.CHOICES], [*self.CHOICES.values()])[0]
                self.counts[name] += 1
                getattr(self, name)(self.chance.choice(self.sides))
                if name == "merge":
                    self.check_once()
            self.make_one()
            self.check_equal()
        except Stuck:
            self.counts["stuck"] += 1
        self.check_once()
        self.counts["histories"] += 1


class UnitedHistory(Ways, ForkedHistory):
    """Copies of a table without a key.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = ForkedHistory.CHOICES | {"job": 3, "overwrite": 1.5, "restore": 1, "merge": 4}

    def __init__(self, seed):
        super().__init__(seed)
        self.calm = self.chance.random() < 0.15
        origin = self.sides[0]
        for number in range(len(self.sides), self.chance.choice([2, 3, 3, 4])):
            self.sides.append(Side(number, copied(origin.store)))
        self.ways = self.edges()
        if seed % OFTEN == 3:
            self.CHOICES = self.CHOICES | {"overwrite": 4, "merge": 6, "restore": 2}
        self.open = set()  # rows that somebody removed, restored or left out: either is right

    def restore(self, side):
        before = set(side.names())
        super().restore(side)
        self.open |= before ^ set(side.names())

    def checked(self, source, target, take=None):
        had, own = set(source.names()), set(target.names())
        done = self.tried(source, target, take)
        now = set(target.names())
        assert now <= own | had, "a row is back that neither of the two had live"
        self.counts["skipped"] += done.skipped
        free = self.removed | self.open
        for before, side in ((own, target), (had, source)):
            lost = before - now - free
            left = [o.rows for o in done.left_out if o.root == side.handle().uri]
            assert len(lost) <= sum(left), (lost, done)
            self.counts["rows left out"] += bool(lost)
            self.open |= lost
        return done.commits

    def check_equal(self):
        first, *others = [side.names() for side in self.sides]
        for other in others:
            assert other == first
        assert set(first) <= self.added
        assert not self.added - set(first) - self.removed - self.open
        heads = [side.handle().session.head() for side in self.sides]
        assert len({tuple(sorted(h.schema.names)) for h in heads}) == 1
        assert len({h.layout.granularity for h in heads}) == 1


class UnitedKeyed(Ways, KeyedFork):
    """Copies of a keyed table.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = KeyedFork.CHOICES | {"replace_chunk": 1, "merge": 4}

    def __init__(self, seed):
        super().__init__(seed)
        origin = self.sides[0]
        for number in range(len(self.sides), self.chance.choice([2, 2, 3])):
            self.sides.append(Side(number, copied(origin.store)))
        self.ways = self.edges()
        if seed % OFTEN == 3:
            self.CHOICES = self.CHOICES | {"replace_chunk": 5, "merge": 6, "write": 4}

    def checked(self, source, target, take=None):
        done = self.tried(source, target, take)
        self.counts["skipped"] += done.skipped
        if take == "source" and len(self.sides) == 2:
            self.counts["taken whole"] += self.rows_at(source) == self.rows_at(target)
        return done.commits

    def check_equal(self):
        first, *others = [self.rows_at(side) for side in self.sides]
        for other in others:
            assert other == first
        for side in self.sides:
            keys = scan(side.handle(), ["k", "s", "at"]).to_table().to_pylist()
            days = {(r["k"], r["s"], r["at"].date() if self.days > 1 else None) for r in keys}
            assert len(days) == len(keys)


def play_united(seed):
    """Play a history and return it."""
    return played(UnitedHistory, seed)


def play_united_keyed(seed):
    """Play a history of a keyed table and return it."""
    return played(UnitedKeyed, seed)


def rare_united(counts):
    """What happened too rarely in so many histories."""
    return rare(counts, LEAST)


def rare_united_keyed(counts):
    """What happened too rarely in so many histories of keyed tables."""
    return rare(counts, KEYED_LEAST)
