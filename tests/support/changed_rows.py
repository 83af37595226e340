"""Random histories of a table without a key: after every commit it has the rows of a dictionary.

Writers append, delete, update, overwrite, merge and restore; compactions, key frames and vacuums
run beside them. Between what a writer found and its commit others do the same, and others between
those.
All is drawn from a seed.
"""

import random
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from unittest import mock

import pyarrow as pa

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, perform, plan, vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import count, scan
from eventlog.session.session import Session
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, merge, overwrite, update

START_MS = 1_700_000_000_000
HOUR_US = 3_600_000_000
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("v", pa.int64()), ("s", pa.string())]
)
DEEPEST = 2  # writers that wait for each other in the middle
POLICIES = [
    Policy(target_bytes=size, claim_bytes=claim, backoff_s=1)
    for size in (2**12, 2**20)
    for claim in (0, 2**40)
]
VERBS = ("append", "append", "delete", "delete", "update", "update", "overwrite", "merge",
         "compact", "compact", "move", "drop_day", "frame", "vacuum", "restore")  # fmt: skip
# How often a history has it at least, on average: one that never meets others proves nothing.
LEAST = {
    "checks": 4, "append": 0.8, "delete": 0.8, "update": 0.8, "overwrite": 0.3, "merge": 0.3,
    "move": 0.3, "compacted": 0.15, "vacuum": 0.2, "restore": 0.1, "drop_day": 0.2, "frame": 0.2,
    "met": 0.5, "versions": 2,
}  # fmt: skip
ENOUGH_TO_TELL = 100


def hour_of(number):
    """The hour of a row as it comes; `move` changes it."""
    return number * 7 % 40


def rows_of(items):
    """Rows, by number: (value, hour)."""
    at = [hour * HOUR_US + number for number, (_, hour) in items.items()]
    values = [value for value, _ in items.values()]
    return pa.table([at, [*items], values, [f"s{n % 3}" for n in items]], schema=SCHEMA)


class Changes:
    """A table and the rows that it must have, by number: (value, hour).

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        self.clock = ManualClock(START_MS, seed)
        self.store = MemoryStore()
        self.granularity = chance.choice(["hour", "day", "day", "all"])
        Table.create(
            self.store.uri,
            SCHEMA,
            store=self.store,
            clock=self.clock,
            time_column="at",
            granularity=self.granularity,
            order_by=chance.choice([None, None, ["v"], ["s", "id"]]),
            properties={
                "keyframe_commits": chance.choice(["1", "3", "64"]),
                "combine_after": chance.choice(["1", "64"]),
            },
        )
        self.tables = [self.open() for _ in range(DEEPEST + 1)]
        self.rows = {}
        # A row that comes back is another one. Births are counted.
        self.births, self.born = {}, 0
        self.next, self.depth = 0, 0
        self.coming = set()  # numbers of rows that are being appended
        self.moved = 0  # commits that may have put rows of others beside those that were found
        self.versions = {}
        self.counts = Counter()

    def open(self):
        return Table.open(self.store.uri, store=self.store, clock=self.clock)

    @property
    def table(self):
        return self.tables[self.depth]

    def step(self):
        """Do one thing, perhaps with others in the middle of it."""
        name = self.chance.choice(VERBS)
        if self.depth and name in ("vacuum", "restore", "frame", "drop_day"):
            name = "append"
        getattr(self, name)()
        self.counts[name] += 1
        if not self.depth:
            self.check()

    @contextmanager
    def others(self):
        """Let others commit before each commit of a writer."""
        commit = Session.commit

        def crossed(session, transaction):
            if self.depth < DEEPEST:
                self.depth += 1
                try:
                    while self.chance.random() < 0.35:
                        self.step()
                        self.counts["met"] += 1
                finally:
                    self.depth -= 1
            return commit(session, transaction)

        with mock.patch.object(Session, "commit", crossed):
            yield

    # What writers do.

    def append(self):
        numbers = range(self.next, self.next + self.chance.choice([1, 3, 30]))
        new = {n: (self.chance.randint(0, 9), hour_of(n)) for n in numbers}
        self.next += len(new)
        self.coming |= new.keys()
        append(self.table, rows_of(new))
        self.coming -= new.keys()
        self.bear(new)

    def delete(self):
        where, numbers = self.where()
        with self.finding(numbers) as found:
            delete(self.table, where=where)
        for number in found():
            del self.rows[number]

    def update(self):
        where, numbers = self.where()
        plus = self.chance.randint(1, 3)
        with self.finding(numbers, lambda row: (row[0] + plus, row[1])) as found:
            update(self.table, {"v": f"v + {plus}"}, where)
            self.moved += 1
        for number in found():
            value, hour = self.rows[number]
            self.rows[number] = value + plus, hour

    def move(self):
        """Update the time of rows, so that they move to other chunks."""
        where, numbers = self.where()
        hour = self.chance.randint(0, 60)
        with self.finding(numbers, lambda row: (row[0], hour)) as found:
            at = pa.scalar(hour * HOUR_US, SCHEMA.field("at").type).as_py()
            update(self.table, {"at": at}, where)
            self.moved += 1
        for number in found():
            self.rows[number] = self.rows[number][0], hour

    def overwrite(self):
        where, numbers = self.where()
        free = [n for n in numbers if n not in self.coming]
        some = self.chance.sample(free, min(len(free), self.chance.randint(0, 5)))
        new = {n: (self.chance.randint(10, 19), hour_of(n)) for n in some}
        births = dict(self.births)
        with self.finding(numbers) as found:
            overwrite(self.table, rows_of(new), where=where)
        if any(n in self.rows and self.births[n] != births.get(n) for n in new):
            raise Doubled  # others added them meanwhile
        for number in found():
            del self.rows[number]
        self.bear(new)

    def merge(self):
        known = [n for n in range(self.next + 3) if n not in self.coming]
        self.next += 3
        some = self.chance.sample(known, min(len(known), self.chance.randint(1, 8)))
        given = {n: (self.chance.randint(20, 29), hour_of(n)) for n in some}
        matched = self.chance.choice(["update", "update", "delete", "ignore", "add"])
        inserts = self.chance.choice(["insert", "ignore"])
        others = self.chance.choice(["ignore", "ignore", "ignore", "delete"])
        expressions = {"v": "v + source.v"} if matched == "add" else matched
        before = set(self.rows)
        merge(
            self.table, rows_of(given), "id", when_matched=expressions, when_not_matched=inserts,
            when_not_matched_by_source=others,
        )  # fmt: skip
        self.moved += 1
        if others == "delete":
            self.rows = {n: row for n, row in self.rows.items() if n in given}
        left = set()
        if matched == "ignore" and before & given.keys() - self.rows.keys():
            # What others delete meanwhile may count as matched, where it is left as it is.
            left = (before & given.keys()) - self.read(self.open()).keys()
        for number, new in given.items():
            if number not in self.rows:
                if inserts == "insert" and number not in left:
                    self.bear({number: new})
            elif matched == "delete":
                del self.rows[number]
            elif matched == "update":
                self.rows[number] = new
            elif matched == "add":
                value, hour = self.rows[number]
                self.rows[number] = value + new[0], hour

    def drop_day(self):
        if self.granularity == "all":
            return
        day = self.chance.choice([0, 1])
        before = {n: self.births[n] for n, row in self.rows.items() if row[1] // 24 == day}
        span = {"start": f"1970-01-0{day + 1}", "end": f"1970-01-0{day + 2}"}
        try:
            overwrite(self.table, SCHEMA.empty_table(), **span)
        except errors.CommitConflict:  # others replaced what it drops
            self.counts["conflicts"] += 1
            return
        for number, birth in before.items():
            if number in self.rows and self.births[number] == birth:
                del self.rows[number]

    def restore(self):
        kept = [v for v in self.versions if v >= self.table.refresh().meta.horizon]
        if kept:
            version = self.chance.choice(kept)
            try:
                self.table.restore(version)
            except errors.CommitConflict:  # others changed what it would drop
                self.counts["conflicts"] += 1
                return
            self.rows = {}
            self.bear(self.versions[version])

    def compact(self):
        table, policy = self.table, self.chance.choice(POLICIES)
        table.refresh()
        for task in plan(table, policy).tasks[:2]:
            outcome = perform(table, task, policy)
            assert outcome.status != "failed", outcome.error
            self.counts["compacted"] += outcome.status == "done"
            self.counts[outcome.status] += 1
            self.moved += 1

    def frame(self):
        self.table.write_keyframe()

    def vacuum(self):
        self.clock.advance(7_200_000)
        vacuum(
            self.table, dry_run=False, retention=timedelta(hours=self.chance.choice([0, 3])),
            staging=timedelta(0),
        )  # fmt: skip

    # What must come of it.

    def bear(self, new):
        self.rows.update(new)
        for number in new:
            self.born += 1
            self.births[number] = self.born

    def where(self):
        """A predicate, and the numbers that pass it, of rows that are there or may come."""
        chance, low = self.chance, self.chance.randint(0, self.next)
        kind = chance.choice(["some", "range", "range", "step"])
        if kind == "some":
            numbers = chance.sample(range(self.next), min(self.next, chance.randint(1, 4)))
        elif kind == "range":
            high = chance.randint(low, self.next)
            return f"id >= {low} and id < {high}", [*range(low, high)]
        else:
            numbers = [*range(low, self.next, chance.choice([2, 3, 5, 8]))]
        return f"id in ({', '.join(map(str, numbers or [-1]))})", numbers

    @contextmanager
    def finding(self, numbers, changed=None):
        """Yield a function that returns which rows a change reached, once it is done.

        Rows that came meanwhile are not searched; but where others moved rows into one segment with
        some that were found, either may be.
        """
        before = {n: self.births[n] for n in numbers if n in self.rows}
        moved = self.moved
        own = []

        def reached():
            there = [n for n in numbers if n in self.rows]
            sure = [n for n in there if before.get(n) == self.births[n]]
            other = [n for n in there if before.get(n) != self.births[n]]
            if self.moved - moved > len(own) and other:
                self.counts["either"] += 1
                now = self.read(self.open())
                for number in other:
                    old = self.rows[number]
                    new = None if changed is None else changed(old)
                    assert now.get(number) in (old, new)
                    if now.get(number) != old:
                        sure.append(number)
            return sure

        yield reached
        own += [1] * (changed is not None)

    def read(self, table, version=None):
        rows = scan(table, ["at", "id", "v"], version=version).to_table().to_pylist()
        found = {}
        for row in rows:
            hour = int(row["at"].timestamp()) // 3600
            assert found.setdefault(row["id"], (row["v"], hour)) == (row["v"], hour)
        assert len(found) == len(rows) == count(table, version=version)
        return found

    def check(self):
        """Compare the newest version, as a fresh handle reads it."""
        table = self.open()
        differ(self.read(table), self.rows)
        self.versions[table.session.head().version] = dict(self.rows)
        self.counts["checks"] += 1

    def finish(self):
        """Compare every version that is kept."""
        table = self.open()
        for version, rows in self.versions.items():
            if version >= table.session.head().meta.horizon:
                differ(self.read(table, version), rows)
                self.counts["versions"] += 1
        found = fsck(table, checksums=True)
        assert found.errors == 0, found.findings


class Doubled(BaseException):
    """A history ends here: a row came twice, which numbers cannot tell.

    It may be raised in the middle of a compaction, which reports other exceptions as its outcome.
    """


def differ(found, wanted):
    if found != wanted:
        extra = sorted(found.items() - wanted.items())[:5]
        lost = sorted(wanted.items() - found.items())[:5]
        raise AssertionError(f"{len(found)} rows for {len(wanted)}: {extra} for {lost}")


def play_changes(seed, steps=8):
    """Play one history, and return it.

    Raises:
        AssertionError: the table is not what the dictionary says.
    """
    history = Changes(seed)
    try:
        with history.others():
            for _ in range(steps):
                history.clock.advance(1000)
                history.step()
    except Doubled:
        history.counts["doubled"] += 1
        return history
    history.finish()
    return history


def rare_changes(counts):
    """What many histories had too rarely to prove anything."""
    played = counts["checks"] / 5
    if played < ENOUGH_TO_TELL:
        return {}
    return {name: counts[name] for name, least in LEAST.items() if counts[name] < least * played}
