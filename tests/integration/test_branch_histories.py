"""Random histories of a table and its branches, beside dictionaries of what each version shows."""

import random
from contextlib import suppress
from datetime import timedelta

import pytest
from support.builders import START_MS, check_sound, create, events
from support.crashes import COMPACTION, ENDS, HOUR_MS, MortalStore

from eventlog import Table, errors, readers
from eventlog.clock import ManualClock
from eventlog.compaction import run, vacuum
from eventlog.fsck.check import fsck
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import held_from
from eventlog.store.memory import MemoryStore
from eventlog.table.branching.names import fork_of
from eventlog.writers import append, overwrite

pytestmark = pytest.mark.usefixtures("in_turn")

STEPS = 40
SEEDS = [pytest.param(n, marks=[pytest.mark.long] if n > 0 else []) for n in range(80)]
DAYS = [("1970-01-01", "1970-01-02"), ("1970-01-02", "1970-01-03"), ("1970-01-01", "1970-01-04")]


class Tree:
    """A table, its branches by the names on the way, and the rows of each version of each."""

    def __init__(self, seed, *, deaths):
        self.chance = random.Random(f"branches {seed}")
        self.store, self.deaths = MemoryStore(), deaths
        self.seed, self.rows = 0, 0
        create(self.store, properties={"keyframe_commits": str(self.chance.choice([1, 3, 64]))})
        self.seen = {(): {0: set()}}

    def open(self, path, store=None):
        """A handle of a process of its own, an hour after the one before."""
        self.seed += 1
        store = store or self.store
        for name in path:
            store = BranchStore(store, name)
        return Table(store, ManualClock(START_MS + self.seed * HOUR_MS, self.seed))

    def note(self, path, table, rows):
        """Note that the newest versions of a branch show these rows."""
        head, known = table.refresh().version, self.seen[path]
        for version in range(max(known) + 1, head):
            known[version] = known[version - 1]  # holds and marks
        known.setdefault(head, set(rows))

    def step(self):
        path = self.chance.choice([*self.seen])
        known = self.seen[path]
        self.before = self.after = known[max(known)]
        act = self.chance.choice([self.add, self.replace, self.back, self.fork, self.fork])
        others = [self.sweep, self.compact, self.remove, self.unhold]
        act = self.chance.choice([act, act, act, *others])
        dies = self.deaths and self.chance.random() < 0.5
        how = self.chance.choice(["before", "lost", "half"])
        self.process = MortalStore(self.store, self.chance.randint(1, 14) if dies else 0, how)
        try:
            act(path, self.open(path, self.process))
        except ENDS:
            self.settle(path)
        if path in self.seen:
            self.note(path, self.open(path), self.after)

    def settle(self, path):
        """Find out what a program did that died: all of it, or nothing that anybody sees."""
        for above in [path[:-1], path] if path else [path]:
            for name in "abc" if above in self.seen else "":
                fork = fork_of(self.open(above).store, name)
                if fork is None:
                    self.seen.pop((*above, name), None)
                elif (*above, name) not in self.seen:
                    self.note(above, self.open(above), self.before)
                    self.begin((*above, name), fork.version)
        if path in self.seen:
            shown = readers.scan(self.open(path)).to_table().column("name").to_pylist()
            rows = {int(name.removeprefix("row ")) for name in shown}
            assert rows in (self.before, self.after)
            self.after = rows

    def begin(self, path, fork):
        """Note that a branch was made."""
        self.seen[path] = {v: rows for v, rows in self.seen[path[:-1]].items() if v <= fork}

    def fresh(self, count):
        self.rows += count
        return range(self.rows - count, self.rows)

    def add(self, path, table):
        new = self.fresh(self.chance.randint(1, 4))
        self.after = self.before | set(new)
        append(table, events(len(new), first=new.start, days=3))

    def replace(self, path, table):
        start, end = self.chance.choice(DAYS)
        first, last = int(start[-2:]) - 1, int(end[-2:]) - 1
        new = self.fresh(1)
        kept = {n for n in self.before if not first <= self.day_of[n] < last}
        self.day_of[new.start] = first
        self.after = kept | set(new)
        overwrite(table, events(1, first=new.start, day=first), start=start, end=end)

    def back(self, path, table):
        known = self.seen[path]
        version = self.chance.choice([*known])
        floor = max(table.refresh().meta.horizon, held_from(table.store.forks))
        if version < floor:
            with pytest.raises(errors.VersionVacuumed):
                table.restore(version)
            return
        self.after = known[version]
        table.restore(version)

    def fork(self, path, table):
        known, name = self.seen[path], self.chance.choice("abc")
        at = self.chance.choice([None, None, *known])
        floor = max(table.refresh().meta.horizon, held_from(table.store.forks))
        if at is not None and at < floor and (*path, name) not in self.seen:
            with pytest.raises(errors.VersionVacuumed):
                table.branch(name, at)
            return
        if (*path, name) in self.seen:
            with pytest.raises(errors.AlreadyExists):
                table.branch(name, at)
            return
        try:
            made = table.branch(name, at)
        except errors.AlreadyExists:  # what a deletion has left that died
            assert self.deaths
            table.delete_branch(name)
            made = table.branch(name, at)
        self.note(path, table, self.before)
        self.begin((*path, name), made.session.head().version)

    def remove(self, path, table):
        if not path or self.chance.random() < 0.5:
            return
        *above, name = path
        if any(other[: len(path)] == path and other != path for other in self.seen):
            with pytest.raises(errors.InvalidInput):
                self.open(above, self.process).delete_branch(name)
            return
        self.open(above, self.process).delete_branch(name)
        del self.seen[path]

    def unhold(self, path, table):
        """Give up what a branch has of its parent's holds, so that its own horizon may rise."""
        own = "branch:" + "/".join(path) + "/" if path else "branch:"
        for name in table.refresh().meta.pins:
            if path and not name.startswith(own):
                table.break_pin(name)

    def sweep(self, path, table):
        nothing = timedelta(0)
        vacuum(table, dry_run=False, retention=nothing, staging=nothing)

    def compact(self, path, table):
        run(table, policy=COMPACTION)

    def check(self):
        for path, known in self.seen.items():
            table = self.open(path)
            head = table.refresh()
            self.note(path, table, known[max(known)])  # holds, after a deletion below
            floor = max(head.meta.horizon, held_from(table.store.forks))
            for version, rows in known.items():
                expected = sorted(f"row {n}" for n in rows)
                allowed = (errors.VersionVacuumed,) if version < floor else ()
                with suppress(*allowed):
                    found = readers.scan(self.open(path), version=version).to_table()
                    assert sorted(found.column("name").to_pylist()) == expected, (path, version)
            assert fsck(self.open(path), checksums=True).errors == 0, path
            check_sound(table.store)
            names = {other[-1] for other in self.seen if other and other[:-1] == path}
            found = table.branches()
            assert {b.name for b in found if not b.unfinished} == names
            assert self.deaths or not any(b.unfinished for b in found)
            assert all(b.held for b in found if not b.unfinished)

    @property
    def day_of(self):
        return _Days(self.__dict__.setdefault("days", {}))


class _Days:
    """The day of a row: `events` spreads rows over three days, unless they were put elsewhere."""

    def __init__(self, known):
        self.known = known

    def __getitem__(self, number):
        return self.known.get(number, number % 3)

    def __setitem__(self, number, day):
        self.known[number] = day


@pytest.mark.parametrize("deaths", [False, True], ids=["", "with deaths"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_version_of_every_branch_stays_as_it_was(seed, deaths):
    tree = Tree(seed, deaths=deaths)
    for n in range(STEPS):
        tree.step()
        if n % 20 == 19:
            tree.check()
