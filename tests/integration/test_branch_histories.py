"""Random histories of a table and its branches, beside dictionaries of what each version shows."""

import random
from contextlib import suppress
from datetime import timedelta

import pytest
from support.builders import START_MS, check_sound, create, events
from support.crashes import COMPACTION, HOUR_MS, quick

from eventlog import Table, errors, readers
from eventlog.clock import ManualClock
from eventlog.compaction import run, vacuum
from eventlog.fsck.check import fsck
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import held_from
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

STEPS = 40
SEEDS = [pytest.param(n, marks=[pytest.mark.long] if n > 0 else []) for n in range(80)]
DAYS = [("1970-01-01", "1970-01-02"), ("1970-01-02", "1970-01-03"), ("1970-01-01", "1970-01-04")]


@pytest.fixture(scope="module", autouse=True)
def in_turn():
    with quick():
        yield


class Tree:
    """A table, its branches by the names on the way, and the rows of each version of each."""

    def __init__(self, seed):
        self.chance = random.Random(f"branches {seed}")
        self.store = MemoryStore()
        self.seed, self.rows = 0, 0
        create(self.store, properties={"keyframe_commits": str(self.chance.choice([1, 3, 64]))})
        self.seen = {(): {0: set()}}

    def open(self, path):
        """A handle of a process of its own, an hour after the one before."""
        self.seed += 1
        store = self.store
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
        table, known = self.open(path), self.seen[path]
        now = known[max(known)]
        act = self.chance.choice([self.add, self.replace, self.back, self.fork, self.fork])
        act = self.chance.choice(
            [act, act, act, self.sweep, self.compact, self.remove, self.unhold]
        )
        rows = act(path, table, now)
        if path in self.seen:
            self.note(path, table, now if rows is None else rows)

    def fresh(self, count):
        self.rows += count
        return range(self.rows - count, self.rows)

    def add(self, path, table, now):
        new = self.fresh(self.chance.randint(1, 4))
        append(table, events(len(new), first=new.start, days=3))
        return now | set(new)

    def replace(self, path, table, now):
        start, end = self.chance.choice(DAYS)
        first, last = int(start[-2:]) - 1, int(end[-2:]) - 1
        new = self.fresh(1)
        overwrite(table, events(1, first=new.start, day=first), start=start, end=end)
        kept = {n for n in now if not first <= self.day_of[n] < last}
        self.day_of[new.start] = first
        return kept | set(new)

    def back(self, path, table, now):
        known = self.seen[path]
        version = self.chance.choice([*known])
        floor = max(table.refresh().meta.horizon, held_from(table.store.forks))
        if version < floor:
            with pytest.raises(errors.VersionVacuumed):
                table.restore(version)
            return None
        table.restore(version)
        return known[version]

    def fork(self, path, table, now):
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
        made = table.branch(name, at)
        self.note(path, table, now)
        fork = made.head().version
        self.seen[*path, name] = {v: rows for v, rows in known.items() if v <= fork}

    def remove(self, path, table, now):
        if not path or self.chance.random() < 0.5:
            return
        *above, name = path
        if any(other[: len(path)] == path and other != path for other in self.seen):
            with pytest.raises(errors.InvalidInput):
                self.open(above).delete_branch(name)
            return
        parent = self.open(above)
        parent.delete_branch(name)
        del self.seen[path]
        known = self.seen[tuple(above)]
        self.note(tuple(above), parent, known[max(known)])

    def unhold(self, path, table, now):
        """Give up what a branch has of its parent's holds, so that its own horizon may rise."""
        own = "branch:" + "/".join(path) + "/" if path else "branch:"
        for name in table.refresh().meta.pins:
            if path and not name.startswith(own):
                table.break_pin(name)

    def sweep(self, path, table, now):
        nothing = timedelta(0)
        vacuum(table, dry_run=False, retention=nothing, staging=nothing)

    def compact(self, path, table, now):
        run(table, policy=COMPACTION)

    def check(self):
        for path, known in self.seen.items():
            table = self.open(path)
            head = table.refresh()
            assert head.version == max(known), path
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
            assert {b.name for b in found} == names
            assert all(b.held and not b.unfinished for b in found)

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


@pytest.mark.parametrize("seed", SEEDS)
def test_every_version_of_every_branch_stays_as_it_was(seed):
    tree = Tree(seed)
    for n in range(STEPS):
        tree.step()
        if n % 20 == 19:
            tree.check()
