"""All verbs that change rows and columns of a table without a key, under the scheduler.

Writers append, delete, update, overwrite, merge, add, rename and drop columns by the public
functions, on Parquet; compactions, vacuums and restores run beside them, and everybody dies and
meets accidents. After every commit `simulation.row_book` compares what it did to the rows with what
its writer asked for.
"""

import gc
import random
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta

import pyarrow as pa
from simulation.harsh import ALL, HarshStore, Late, Weather
from simulation.row_book import Asked, RowBook
from simulation.scheduler import Scheduler, WaitingClock
from simulation.simulate import stored_vectors
from support.builders import Crash

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.inline.inline_objects import forget_objects
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, merge, overwrite, update

NOW = timedelta(0)
HOUR_US = 3_600_000_000
HOURS = 40
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64())]
)
AT, ID, V, W = range(1, 5)  # the ids of these columns
VALUES = {V: 10, W: 3}  # columns that are compared and changed, and how many values they have
SHARED = 12  # rows with numbers below are added by merges alone
# What each does is the method of that name.
ROLES = (
    "appender", "deleter", "deleter", "updater", "updater", "mover", "overwriter", "merger",
    "merger", "widener", "renamer", "dropper", "compactor", "compactor", "worker", "vacuum",
    "restorer", "reader",
)  # fmt: skip
# How often in 1,000 runs it is done at least.
IN_1000 = dict.fromkeys(ROLES, 100) | {
    "crash": 200, "task done": 100, "rows deleted by position": 500, "rows updated": 500,
    "rows merged": 500, "rows deleted during a rewrite": 10, "versions vacuumed": 300,
    "columns changed": 300,
}  # fmt: skip
ENOUGH_TO_TELL = 150
ATTEMPTS = 4
# What a program may meet by no fault of its own.
EXPECTED = (
    errors.Unavailable,
    errors.CommitUnknown,
    errors.CommitConflict,
    errors.ClaimLost,
    errors.VersionVacuumed,
    errors.TableNotFound,  # a stale listing
)
CHANGES = ("deleter", "updater", "mover", "overwriter", "merger")


class Watched(MemoryStore):
    """A store that calls its owner after each commit, and before it deletes."""

    def put_if_absent(self, key, body):
        created = super().put_if_absent(key, body)
        if created and key.startswith(keys.LOG_PREFIX) and "keyframe" not in key:
            self.follow()
        return created

    def delete(self, keys):
        self.follow()
        super().delete(keys)


class Handle(Table):
    """A handle that keeps the version that a verb starts at, and enters what it asks for."""

    begun = None
    asked = None

    def refresh(self):
        snapshot = super().refresh()
        if self.begun is None:
            self.begun = snapshot
        return snapshot


class World:
    """A table, and what its writers asked for."""

    def __init__(self, seed):
        forget_objects()  # one seed is one run, whatever came before
        chance = self.chance = random.Random(seed)
        self.store = Watched()
        self.store.follow = lambda: None
        self.scheduler = Scheduler(seed, stay=chance.choice([0.0, 0.5, 0.9]), max_steps=50_000)
        self.late = Late(self.store)
        accidents = ALL - {"stale", "empty"} if chance.random() < 0.5 else ALL
        self.weather = Weather(chance.choice([0.0, 0.0, 0.05, 0.1]), frozenset(accidents))
        self.policy = Policy(
            target_bytes=chance.choice([1500, 2**20]),
            claim_bytes=chance.choice([0, 2**40, 2**40]),
            backoff_s=1,
            memory_bytes=2**20,
        )
        self.struck, self.done = Counter(), Counter()
        self.acknowledged, self.gone = [], []
        self.tokens, self.numbers, self.names = seed * 1000, SHARED, 0
        table = Table.create(
            self.store.uri,
            SCHEMA,
            store=self.store,
            clock=ManualClock(1_600_000_000_000, seed),
            time_column="at",
            granularity=chance.choice(["hour", "day", "day", "all"]),
            order_by=chance.choice([None, None, ["v"]]),
            properties={
                "combine_after": chance.choice(["0", "1"]),
                "keyframe_commits": chance.choice(["1", "4"]),
                "inline_bytes": chance.choice(["0", "16384"]),
            },
        )
        for _ in range(chance.randint(1, 3)):
            append(table, self.new(table.session.head(), chance.choice([2, 5, 12]))[0])
        self.book = RowBook(self.store)
        self.book.follow()
        self.store.follow = self.book.follow

    def open(self):
        self.tokens += 1
        store = HarshStore(
            self.store, self.scheduler, self.weather, late=self.late, struck=self.struck
        )
        table = Handle(store, WaitingClock(self.scheduler, self.tokens))
        commit = table.session.commit

        def noted(transaction):
            if table.asked is not None:
                asked = table.asked(table.begun or table.session.head())
                self.book.asked.setdefault(transaction.id, asked)
            return commit(transaction)

        table.session.commit = noted
        return table

    def new(self, snapshot, count, numbers=None):
        """Return new rows in the columns of a snapshot, and as the book has them."""
        if numbers is None:
            numbers = range(self.numbers, self.numbers + count)
            self.numbers += count
        chance, rows = self.chance, []
        for number in numbers:
            row = {AT: (number * 7 % HOURS) * HOUR_US + number, ID: number}
            row |= {column: chance.randrange(most) for column, most in VALUES.items()}
            rows.append(row)
        return as_table(snapshot, rows), rows


def as_table(snapshot, rows):
    """Return rows of the book as a table of Arrow; other columns are null."""
    columns = {c.name: c.id for c in snapshot.stored_schema.columns}
    fields = [f for f in snapshot.schema if columns[f.name] in (AT, ID, *VALUES)]
    data = [[row[columns[field.name]] for row in rows] for field in fields]
    return pa.table(data, schema=pa.schema(fields))


class Actor:
    """Programs of one role, one after another."""

    def __init__(self, world, number, role):
        self.world, self.name, self.role = world, f"{role} {number}", role
        self.chance = random.Random(f"{world.tokens} {number}")
        self.table = world.open()

    def __call__(self):
        for seq in range(3):
            state = self.chance.getstate()
            for _ in range(ATTEMPTS):
                self.chance.setstate(state)  # a unit of work is the same at every attempt
                self.table.begun = self.table.asked = None
                try:
                    getattr(self, self.role)(f"{self.name} {seq}")
                except Crash:
                    self.world.done["crash"] += 1
                    self.table = self.world.open()
                except EXPECTED as error:
                    self.judge(error)
                except errors.InvalidInput as error:
                    if "column" not in error.message or not self.renamed():
                        raise
                    self.world.done["column renamed"] += 1
                else:
                    self.world.done[self.role] += 1
                    break

    def renamed(self):
        return bool(self.world.book.schemas)

    def judge(self, error):
        """No change of rows is in conflict with another one, but with columns and restores."""
        self.world.done[type(error).__name__] += 1
        refused = isinstance(error, errors.CommitConflict) and self.role in CHANGES
        due = ("columns were changed", "restored rows")
        if refused and not any(why in error.message for why in due) and not fenced(error):
            raise AssertionError(f"{self.name} met a conflict") from error

    def ask(self, make):
        """Note what the next commit is asked to do: a function of the snapshot that it began at."""
        self.table.asked = make

    def columns(self):
        """Return the names of the columns of the newest version that the handle has, by id."""
        return {c.id: c.name for c in self.table.session.head().stored_schema.columns}

    def where(self):
        """Return a predicate by the names that columns have now, and as a function of a row."""
        names, chance = self.columns(), self.chance
        column = chance.choice([ID, ID, V, W])
        if column not in names:
            column = ID
        least = chance.randrange(VALUES.get(column, self.world.numbers))
        if column == ID and chance.random() < 0.5:
            step, rest = chance.choice([(2, 0), (3, 1), (5, 2)])
            numbers = [*range(rest, SHARED + 60, step)]
            sql = f"{names[ID]} in ({', '.join(map(str, numbers))})"
            return sql, lambda row: row[ID] in numbers
        if chance.random() < 0.5:
            return f"{names[column]} >= {least}", lambda row: at_least(row.get(column), least)
        return f"{names[column]} = {least}", lambda row: row.get(column) == least

    # --------------------------------------------------------------------------------- the roles

    def appender(self, app):
        data, rows = self.world.new(self.table.refresh(), self.chance.choice([1, 3]))
        self.ask(lambda start: Asked("append", start.version, new=rows))
        self.told(app, append(self.table, data, app_id=app, app_seq=1))

    def deleter(self, app):
        self.table.refresh()
        sql, holds = self.where()
        self.table.begun = None
        self.ask(lambda start: Asked("delete", start.version, holds))
        self.told(app, delete(self.table, where=sql, app_id=app, app_seq=1))

    def updater(self, app):
        self.table.refresh()
        sql, holds = self.where()
        names, plus = self.columns(), self.chance.randint(1, 3)
        column = self.chance.choice([n for n in VALUES if n in names] or [ID])
        if column == ID:
            return

        def changed(row):
            value = row.get(column)
            return row | {column: None if value is None else value + plus}

        self.table.begun = None
        self.ask(lambda start: Asked("update", start.version, holds, changed))
        given = {names[column]: f"{names[column]} + {plus}"}
        self.told(app, update(self.table, given, sql, app_id=app, app_seq=1))

    def mover(self, app):
        """Update the time, so that rows move to other chunks."""
        self.table.refresh()
        sql, holds = self.where()
        at = self.chance.randrange(HOURS) * HOUR_US
        self.table.begun = None
        self.ask(lambda start: Asked("update", start.version, holds, lambda row: row | {AT: at}))
        moment = pa.scalar(at, SCHEMA.field("at").type).as_py()
        self.told(app, update(self.table, {"at": moment}, sql, app_id=app, app_seq=1))

    def overwriter(self, app):
        head = self.table.refresh()
        names, column = self.columns(), self.chance.choice([V, W])
        if column not in names:
            return
        value = self.chance.randrange(VALUES[column])
        _, rows = self.world.new(head, self.chance.choice([1, 2]))
        rows = [row | {column: value} for row in rows]
        self.table.begun = None

        def asked(start):  # null is meant where the rows lack columns
            nulls = dict.fromkeys(c.id for c in start.stored_schema.columns)
            new = [nulls | {n: v for n, v in row.items() if n in nulls} for row in rows]
            return Asked("overwrite", start.version, lambda row: row.get(column) == value, new=new)

        self.ask(asked)
        data, sql = as_table(head, rows), f"{names[column]} = {value}"
        self.told(
            app, overwrite(self.table, data, where=sql, missing="null", app_id=app, app_seq=1)
        )

    def merger(self, app):
        head = self.table.refresh()
        numbers = self.chance.sample(range(SHARED), self.chance.randint(1, 4))
        data, rows = self.world.new(head, 0, numbers)
        matched = self.chance.choice(["update", "update", "delete", "ignore"])
        inserts = self.chance.choice(["insert", "insert", "ignore"])
        others = self.chance.choice(["ignore", "ignore", "ignore", "delete"])
        self.table.begun = None
        how, named = (matched, inserts, others), self.columns()

        def asked(start):  # columns of the source are those that have its names at the start
            ids = {c.name: c.id for c in start.stored_schema.columns}
            there = {n: ids[name] for n, name in named.items() if name in ids}
            new = [{there[n]: v for n, v in row.items() if n in there} for row in rows]
            return Asked("merge", start.version, new=new, how=how)

        self.ask(asked)
        version = merge(
            self.table,
            data,
            "id",
            when_matched=matched,
            when_not_matched=inserts,
            when_not_matched_by_source=others,
            app_id=app,
            app_seq=1,
        )
        self.told(app, version)

    def widener(self, app):
        self.world.names += 1
        field = pa.field(f"d{self.world.names}", pa.int64())
        default = self.chance.choice([None, {field.name: 7}])
        self.table.add_columns([field], default)

    def renamer(self, app):
        self.table.refresh()
        self.world.names += 1
        names = self.columns()
        column = self.chance.choice(sorted(names.keys() - {AT, ID}) or [ID])
        if column != ID:
            self.table.rename_column(names[column], f"n{self.world.names}")

    def dropper(self, app):
        self.table.refresh()
        names = self.columns()
        free = sorted(names.keys() - {AT, ID, V})
        if free:
            self.table.drop_columns([names[self.chance.choice(free)]])

    def compactor(self, app):
        for outcome in compaction.run(self.table, policy=self.world.policy).outcomes:
            self.world.done[f"task {outcome.status}"] += 1

    def worker(self, app):
        """Performs some of the tasks that were planned at some version, in any order."""
        head = self.table.refresh()
        version = self.chance.randrange(head.meta.horizon, head.version + 1)
        tasks = compaction.plan(self.table, self.world.policy, version=version).tasks
        for task in self.chance.sample(tasks, len(tasks)):
            outcome = compaction.perform(self.table, task, self.world.policy)
            self.world.done[f"task {outcome.status}"] += 1

    def vacuum(self, app):
        vacuum(self.table, dry_run=False, retention=NOW, staging=NOW)

    def restorer(self, app):
        head = self.table.refresh()
        self.table.restore(self.chance.randrange(head.meta.horizon, head.version + 1))

    def reader(self, app):
        version = self.table.refresh().version
        try:
            rows = scan(self.table, ["id"], version=version).to_table().column("id").to_pylist()
        except (errors.VersionVacuumed, errors.DataLoss):
            self.world.gone.append(version)
            return
        assert sorted(rows) == sorted(self.world.book.at[version]), version

    def told(self, app, version):
        self.world.acknowledged.append((app, int(version)))


def at_least(value, least):
    return value is not None and value >= least


def fenced(error):
    """Whether what was staged lies below a fence, and its objects are gone."""
    return "deleted it" in error.message


def check(world):
    """Compare every kept version with the book, and reach a state without anything to compact."""
    book = world.book
    book.follow()
    for app, version in world.acknowledged:
        assert book.units[app] <= version, f"{app} is in version {book.units.get(app)}"
    assert all(version < book.horizon for version in world.gone)
    table = Table.open(world.store.uri, store=world.store, clock=ManualClock(book.time, 10**6))
    for version in range(book.horizon, book.version + 1):
        wanted = book.shown(version)
        found = scan(table, version=version).to_table()
        assert found.num_rows == count(table, version=version) == len(wanted)
        assert ordered(found.to_pylist()) == ordered(wanted), version
    for claim in table.claims():  # of the dead
        table.break_claim(claim, silent_s=0)
    before = book.shown(book.version)
    for _ in range(6):
        report = compaction.run(table, policy=world.policy)
        assert all(outcome.ok for outcome in report.outcomes), report.outcomes
        if not report.planned:
            break
    assert not report.planned
    assert ordered(book.shown(book.version)) == ordered(before)
    audit = fsck(table, checksums=True)
    assert audit.ok, audit.findings
    world.done.update(book.counts, **{"versions vacuumed": book.horizon})


def ordered(rows):
    return sorted(([str(value) for value in row.values()] for row in rows), key=str)


def play(seed):
    """Run and check the world of a seed."""
    with stored_vectors() if seed % 2 else nullcontext():
        world = World(seed)
        roles = [*world.chance.sample(ROLES, 5), "deleter"]
        world.scheduler.run(*(Actor(world, n, role) for n, role in enumerate(roles)))
        world.late.land_all(world.scheduler.random)
        check(world)
    gc.collect()
    return world


def rare(done, runs):
    """What was done too rarely in so many runs."""
    if runs < ENOUGH_TO_TELL:
        return {}
    return {name: done[name] for name, least in IN_1000.items() if done[name] * 1000 < least * runs}
