"""Random histories of copies of copies and branches of branches, merged in any direction.

Each merge that succeeds is compared with a book: the target then has every row that the source had
and nobody removed, whether the histories converge in the end or not. See `forked_histories`.
"""

from support.builders import START_MS
from support.forked_histories import BranchedHistory, ForkedHistory, Side, played, rare

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.replication import follow
from eventlog.store.branching.branch import BranchStore
from eventlog.store.memory import MemoryStore

MOST_SIDES = 5
LEAST = {
    "branched": 0.3,
    "copied": 0.1,
    "published": 0.1,
    "refused": 0.05,
    "rows compared": 1,
    "third": 0.1,
}


class Nested(Side):
    """A copy, or a branch of one, or a branch of a branch.

    Args:
        number: names it.
        store: of the copy.
        path: names of the branch, and of those above it.
    """

    def __init__(self, number, store, path=()):
        super().__init__(number, store, path[-1] if path else None)
        self.path = path

    def handle(self, store=None):
        self.handles += 1
        self.now_ms += 1000
        found = self.store if store is None else store
        for name in self.path:
            found = BranchStore(found, name)
        return Table.open("", store=found, clock=ManualClock(self.now_ms, self.seed()))

    def seed(self):
        return self.number * 10_000 + self.handles


class DeepHistory(BranchedHistory):
    """Copies and branches are made all the time, of each other.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = ForkedHistory.CHOICES | {
        "fork": 1.5,
        "publish": 1.5,
        "restore": 0.1,
        "granularity": 0.1,
        "vacuum": 0.3,
    }

    def __init__(self, seed):
        ForkedHistory.__init__(self, seed)
        self.calm = False  # many ends are refusals
        self.sides = [Nested(side.number, side.store) for side in self.sides]

    def fork(self, side):
        if len(self.sides) == MOST_SIDES:
            return
        number = 10 + len(self.sides)
        if self.chance.random() < 0.5:
            side.handle().branch(f"b{number}")
            self.sides.append(Nested(number, side.store, (*side.path, f"b{number}")))
            self.counts["branched"] += 1
        elif not side.path:  # a copy has none of the branches
            store = MemoryStore()
            follow(side.handle(), Table(store), clock=ManualClock(START_MS, number))
            self.sides.append(Nested(number, store))
            self.counts["copied"] += 1

    def publish(self, side):
        above = (s for s in self.sides if s.store is side.store and s.path == side.path[:-1])
        parent = next(above, None) if side.path else None
        if parent is None:
            return
        try:
            parent.handle().merge(side.path[-1])
            self.counts["published"] += 1
        except (errors.CommitConflict, errors.VersionVacuumed):
            self.check_once()
            self.counts["refused"] += 1

    def told(self, why):
        self.counts["refused"] += 1

    def merged(self, source, target, store=None):
        had, own = set(source.names()), set(target.names())
        done = super().merged(source, target, store)
        if self.exact and store is None:
            now = set(target.names())
            assert not (had | own) - now - self.removed, f"{source.path} into {target.path}"
            self.counts["rows compared"] += 1
        return done


def play_deep(seed):
    """Play a history and return it."""
    return played(DeepHistory, seed, steps=18)


def rare_deep(counts):
    """What happened too rarely in so many histories."""
    return rare(counts, LEAST)
