"""A keyed table under the scheduler: writers of the same keys, merges and a vacuum, with accidents.

Each actor is a program that may die and come again, on a handle that may be far behind. Nobody who
writes rows may be refused but for a fence, and every version that is kept must be what the log's
transactions say, in their order (`support.keyed_book`).
"""

import gc
import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
from simulation.harsh import ALL, HarshStore, Late, Weather
from simulation.scheduler import Scheduler, WaitingClock
from support.builders import Crash
from support.keyed_book import Book
from support.keyed_tables import (
    KINDS,
    SCHEMA,
    WITH_OP,
    ordered,
    predicate,
    properties_of,
    row_of,
    rule_at,
)

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, vacuum
from eventlog.fsck.check import fsck
from eventlog.inline.inline_objects import forget_objects
from eventlog.keyed import slices
from eventlog.model.records import App
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.table.stage_again import commit_staged
from eventlog.writers import delete, overwrite, upsert
from eventlog.writers.batch import stage

NOW = timedelta(0)
MEMORY = 2**20
MOST_BUCKETS = 16  # that are split
WIDER = pa.field("d", pa.int64())
# What each does is the method of that name.
ROLES = (
    "writer", "writer", "writer", "deleter", "finder", "slow_writer", "compactor", "compactor",
    "worker", "worker", "vacuum", "vacuum", "reader", "seeker", "restorer", "overwriter", "widener",
    "splitter",
)  # fmt: skip
# How often in 1,000 runs it is done at least.
IN_1000 = dict.fromkeys(ROLES, 40) | {
    "crash": 200, "task done": 300, "task superseded": 5, "tombstones forgotten": 20,
    "versions vacuumed": 300, "merges to a base": 300, "adds over a split": 40,
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
WRITERS = ("writer", "deleter", "finder", "slow_writer")


class Watched(MemoryStore):
    """A store that tells its owner before it deletes, who may still have to read something."""

    def delete(self, keys):
        self.before_delete()
        super().delete(keys)


class World:
    """A keyed table, and what its writers handed in."""

    def __init__(self, seed):
        forget_objects()  # one seed is one run, whatever came before
        chance = self.chance = random.Random(seed)
        self.store = Watched()
        self.scheduler = Scheduler(seed, stay=chance.choice([0.0, 0.5, 0.9]), max_steps=50_000)
        self.late = Late(self.store)
        accidents = ALL - {"stale", "empty"} if chance.random() < 0.5 else ALL
        self.weather = Weather(chance.choice([0.0, 0.05, 0.1]), frozenset(accidents))
        self.policy = Policy(
            target_bytes=4096,
            claim_bytes=chance.choice([0, 2**40, 2**40]),
            backoff_s=1,
            memory_bytes=2**20,
        )
        self.struck, self.done = Counter(), Counter()
        self.acknowledged, self.seen, self.gone = [], [], []
        self.tokens = seed * 1000
        kind = chance.choice(KINDS)
        order = chance.choice([None, "o", "o"])
        properties = {
            "combine_after": chance.choice(["0", "1"]),
            "keyframe_commits": chance.choice(["1", "4"]),
            "bucket_bytes": chance.choice(["1024", "8388608"]),
            "tombstone_hours": chance.choice(["0", "168"]),
            "inline_bytes": chance.choice(["0", "16384"]),
            **properties_of(kind, ("k", order)),
        }
        if kind == "aggregate" and order is None:
            properties["merge.o"] = "min"
        table = Table.create(
            self.store.uri,
            SCHEMA,
            store=self.store,
            clock=ManualClock(1_600_000_000_000, seed),
            time_column="at",
            key="k",
            order_by=order,
            buckets=chance.choice([1, 4]),
            properties=properties,
        )
        self.rule = rule_at(table.session.head())
        self.book = Book(self.store, lambda row: "all")
        self.store.before_delete = self.book.follow

    def open(self):
        self.tokens += 1
        store = HarshStore(
            self.store, self.scheduler, self.weather, late=self.late, struck=self.struck
        )
        return Table(store, WaitingClock(self.scheduler, self.tokens))


class Actor:
    """Programs of one role, one after another."""

    def __init__(self, world, number, role):
        self.world, self.name, self.role = world, f"{role} {number}", role
        self.chance = random.Random(f"{world.tokens} {number}")
        self.table = world.open()

    def __call__(self):
        for seq in range(3):
            for _ in range(ATTEMPTS):
                try:
                    getattr(self, self.role)(f"{self.name} {seq}")
                except Crash:
                    self.world.done["crash"] += 1
                    self.table = self.world.open()
                except EXPECTED as error:
                    self.judge(error)
                except errors.InvalidInput as error:
                    if "missing='null'" not in error.message:  # for a column added meanwhile
                        raise
                    self.world.done["too narrow"] += 1
                else:
                    self.world.done[self.role] += 1
                    break

    def judge(self, error):
        """No writer is in conflict with another: only a fence may have passed what it staged."""
        self.world.done[type(error).__name__] += 1
        refused = isinstance(error, errors.CommitConflict) and self.role in WRITERS
        if refused and "deleted it" not in str(error):
            raise AssertionError(f"{self.name} met a conflict") from error

    def given(self, app, form):
        """What is handed in as a unit of work: the same at every attempt."""
        given = self.world.book.given
        if app not in given:
            given[app] = form()
        return given[app][-1]

    def mixed(self):
        rule, rows = self.world.rule, []
        for _ in range(self.chance.randrange(1, 5)):
            row = row_of(self.chance) | {"_op": "u"}
            if rule.kind != "aggregate" and self.chance.random() < 0.2:
                row.update(dict.fromkeys(("g", "a", "b", "c")), _op="d")
                if not rule.ordered_deletes:
                    row["o"] = None
            rows.append(row)
        return "rows", rows

    def data(self, app):
        return self.as_table(self.given(app, self.mixed))

    def as_table(self, rows):
        """Return rows with the columns that the handle has seen: the widener's are null."""
        wide = WIDER.name in self.table.session.head().schema.names
        return pa.Table.from_pylist(rows, schema=NULLABLE.append(WIDER) if wide else NULLABLE)

    def told(self, app, version):
        self.world.acknowledged.append((app, version))

    # --------------------------------------------------------------------------------- the roles

    def writer(self, app):
        self.told(app, upsert(self.table, self.data(app), app_id=app, app_seq=1))

    def slow_writer(self, app):
        head = self.table.session.head()
        adds = stage(self.table, head, self.data(app), MEMORY)
        for _ in range(self.chance.choice((0, 5, 20))):
            self.table.clock.sleep(0.001)  # other actors run first
        made = self.table.transaction("upsert", adds, read_version=head.version, app=App(app, 1))
        self.told(app, commit_staged(self.table.session, made))

    def deleter(self, app):
        if self.world.rule.kind == "aggregate":
            self.writer(app)
            return
        blank = dict.fromkeys(SCHEMA.names)
        some = self.chance.sample(range(6), 2)
        rows = self.given(app, lambda: ("rows", [blank | {"k": k, "_op": "d"} for k in some]))
        keys = pa.table({"k": [row["k"] for row in rows]})
        self.told(app, delete(self.table, keys=keys, app_id=app, app_seq=1))

    def finder(self, app):
        """Deletes what a predicate selects, in the newest version that it can see."""
        if self.world.rule.kind == "aggregate":
            self.writer(app)
            return
        sql, holds = predicate(self.chance)
        seen = self.world.book.given.get(app)
        if seen is None:
            self.world.book.given[app] = ("where", holds)
            self.world.done[app] = sql
        where = self.world.done[app]
        self.told(app, delete(self.table, where=where, app_id=app, app_seq=1))

    def overwriter(self, app):
        data = self.as_table(self.given(app, lambda: ("overwrite", None, self.mixed()[1])))
        self.told(app, overwrite(self.table, data, app_id=app, app_seq=1))

    def restorer(self, app):
        head = self.table.refresh()
        self.table.restore(self.chance.randrange(head.meta.horizon, head.version + 1))

    def widener(self, app):
        schema = self.table.refresh().schema
        if len(schema) == len(SCHEMA):
            self.table.add_columns(schema.append(WIDER))

    def splitter(self, app):
        buckets = rule_at(self.table.refresh()).buckets
        if buckets < MOST_BUCKETS:
            try:
                self.table.set_buckets(2 * buckets)
            except errors.InvalidInput:  # another has split them further meanwhile
                assert rule_at(self.table.refresh()).buckets > 2 * buckets

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

    def reader(self, app):
        self.look(None, lambda row: True)

    def seeker(self, app):
        self.look(*predicate(self.chance))

    def look(self, where, holds):
        version = self.table.refresh().version
        try:
            rows = scan(self.table, SCHEMA.names, where, version=version).to_table().to_pylist()
        except (errors.VersionVacuumed, errors.DataLoss):
            self.world.gone.append(version)
            return
        self.world.seen.append((version, holds, ordered(rows)))


NULLABLE = pa.schema([field.with_nullable(True) for field in WITH_OP])


def check(world):
    """Compare every kept version with the book, and reach a state without logs."""
    book = world.book
    book.follow()
    landed = {}
    for version, transaction in book.taken:
        if transaction.app is not None:
            assert transaction.app.id not in landed, f"{transaction.app} took effect twice"
            landed[transaction.app.id] = version
    for app, version in world.acknowledged:
        assert landed[app] <= version
    for version, holds, shown in world.seen:
        wanted = [row for row in book.answer(version) if holds(row) is True]
        assert shown == ordered([{n: row[n] for n in SCHEMA.names} for row in wanted])
    assert all(version < book.horizon for version in world.gone)
    table = Table.open(
        world.store.uri, store=world.store, clock=ManualClock(max(book.times.values()), 10**6)
    )
    check_kept(table, book)
    for claim in table.claims():  # of the dead
        table.break_claim(claim, silent_s=0)
    for _ in range(6):
        report = compaction.run(table, policy=world.policy)
        assert all(outcome.ok for outcome in report.outcomes), report.outcomes
        if not report.planned:
            break
    assert not report.planned
    splits = rule_at(table.refresh()).splits
    assert not slices.ineffective(table.session.head().segments(), splits)
    last = book.version
    book.follow()
    assert ordered(book.answer(book.version)) == ordered(book.answer(last))
    assert ordered(scan(table).to_table().to_pylist()) == ordered(book.answer(last))
    assert fsck(table).ok
    world.done.update(book.counts, **{"versions vacuumed": book.horizon})


def check_kept(table, book):
    for version in book.kept:
        found = scan(table, version=version).to_table().to_pylist()
        assert ordered(found) == ordered(book.answer(version)), version


def play(seed):
    """Run and check the world of a seed."""
    world = World(seed)
    roles = [*world.chance.sample(ROLES, 5), "writer"]
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
