"""Random histories of keyed tables: after every commit the table is what the book says.

A history is a sequence of operations on a small table: writers of every kind, merges of any run,
tasks planned at any older version, restores, vacuums, columns added. Some wait in the middle while
others run, some die at any call of the store, and are done again. Everything is drawn from a seed.
"""

import itertools
import random
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from unittest import mock

import pyarrow as pa
from support.crashes import ENDS, MortalStore, quick
from support.keyed_book import HOUR_MS, Book
from support.keyed_tables import (
    DAY,
    KINDS,
    SCHEMA,
    merged,
    ordered,
    predicate,
    properties_of,
    row_of,
    rule_at,
    runs_of,
)

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.keyed import placement
from eventlog.log import spills
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import App
from eventlog.readers import count, scan
from eventlog.staging import stager
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash, Fault, FaultyStore
from eventlog.table.stage_again import commit_staged
from eventlog.writers import append, delete, overwrite, upsert
from eventlog.writers.batch import stage
from eventlog.writers.overwriting import overwrite_actions, range_drops

START_MS = 1_700_000_000_000
DAYS = 2
MOST_CALLS = 16  # of an operation, before which it may wait or die
MEMORY = 2**20
MOST_BUCKETS = 64  # that are split
ADDED = (pa.field("d", pa.int64()), pa.field("e", pa.string()))
HOWS = ("before", "after", "lost", "refused", "half")
# How often a history has it at least, on average: one that never merges proves nothing.
LEAST = {
    "checks": 7,
    "merges to a base": 1,
    "merges to a log": 0.02,
    "tombstones forgotten": 0.05,
    "deaths": 0.15,
    "lost calls": 0.1,
    "pauses": 0.3,
    "restore": 0.1,
    "vacuum": 0.1,
    "versions vacuumed": 0.02,
    "schema": 0.03,
    "split": 0.1,
    "adds over a split": 0.05,
    "merges over a split": 0.005,
    "overwrite": 0.1,
    "overwrites below others": 0.03,
    "delete": 0.3,
    "published": 0.05,
    "task superseded": 0.002,
    "undone under a task": 0.02,
    "conflicts": 0.001,
    **{f"merge={kind}": 0.1 for kind in KINDS},
}
ENOUGH_TO_TELL = 100
# What refers to rows that are there may come too late; a row that is written may not.
MAY_CONFLICT = ("overwrite", "stage_overwrite", "merge", "land", "restore", "add_columns", "vacuum",
                "rewind", "split")  # fmt: skip


class History:
    """A keyed table, its book, and those who work on it.

    Args:
        seed: of all that is drawn.
        store: where the table is created; a new one in memory if None.
    """

    def __init__(self, seed, store=None):
        chance = self.chance = random.Random(seed)
        self.seeds = itertools.count(1)
        self.now_ms = START_MS
        self.store = MemoryStore() if store is None else store
        kind = chance.choice(KINDS)
        self.days = chance.choice([1, 1, 1, DAYS])
        timed_key = chance.random() < 0.2
        key = chance.choice([("k",), ("k", "s"), ("s", "k")]) + (("at",) if timed_key else ())
        order = chance.choice([None, "o", "o"] if timed_key else [None, "o", "o", "at"])
        self.flushed = chance.random() < 0.1
        self.policy = compaction.Policy(
            target_bytes=4096,
            max_task_bytes=chance.choice([2**14, 2**20]),
            claim_bytes=chance.choice([0, 2**40, 2**40]),
            backoff_s=1,
        )
        # A key that is only unique in a chunk stands in all of them where its day varies.
        self.table = Table.create(
            self.store.uri,
            SCHEMA,
            store=self.store,
            clock=self.clock(),
            time_column="at",
            granularity="all" if self.days == 1 else "day",
            key=key,
            order_by=order,
            buckets=chance.choice([1, 2, 5, 16]),
            properties=self.properties(kind, key, order),
        )
        self.rule = rule_at(self.table.session.head())
        self.book = Book(self.store, self.chunk_of)
        self.book.follow()
        self.counts = Counter([f"merge={kind}"])
        self.waiting = []  # (handle, transaction) of those who have staged and not committed
        self.depth = 0

    def properties(self, kind, key, order):
        chance = self.chance
        found = {
            "keyframe_commits": chance.choice(["1", "3", "64"]),
            "bucket_bytes": chance.choice(["1024", "8388608"]),
            "segment_bytes": "1024",
            "combine_after": "1",
            "tombstone_hours": chance.choice(["0", "0", "24", "168"]),
            **properties_of(kind, (*key, order)),
        }
        if kind == "aggregate" and order is None and "o" not in key:
            found["merge.o"] = chance.choice(["sum", "min", "last", "first"])
        return found

    def clock(self):
        return ManualClock(self.now_ms, next(self.seeds))

    def handle(self, store=None, *, crowded=False):
        """A handle like that of another process."""
        store = self.store if store is None else store
        table = Table.open(store.uri, store=store, clock=self.clock())
        table.session.committer.writer.contention.expected = 8 if crowded else 0
        return table

    # ------------------------------------------------------------------------------------ rows

    def chunk_of(self, row):
        return "all" if self.days == 1 else row["at"].strftime("%Y-%m-%d")

    def row(self, names=SCHEMA.names):
        row = row_of(self.chance, days=self.days)
        # Rows of some length fill a segment, which is then written by itself.
        if self.flushed:
            row["b"] = row["b"] and row["b"] * 600
        if "d" in names:
            row["d"] = self.chance.choice([None, 1, 2])
        if "e" in names:
            row["e"] = self.chance.choice([None, "", "z"])
        return row

    def mixed(self, count, names=SCHEMA.names):
        rows = [self.row(names) | {"_op": "u"} for _ in range(count)]
        for row in rows if self.rule.kind != "aggregate" else ():
            if self.chance.random() < 0.3:
                row.update(dict.fromkeys(set(row) & {"g", "a", "b", "c", "d", "e"}), _op="d")
                order = self.rule.order or "o"
                placed = self.rule.ordered_deletes and self.chance.random() < 0.7
                # In small chunks a delete needs its event time, whatever that orders.
                if not placed and not (order == "at" and self.days > 1):
                    row[order] = None
        return rows

    def arrow(self, rows):
        """The rows as a stream of small batches, each of which may be flushed by itself."""
        fields = [f.with_nullable(True) for f in (*SCHEMA, *ADDED) if f.name in rows[0]]
        table = pa.Table.from_pylist(rows, pa.schema([*fields, pa.field("_op", pa.string())]))
        return pa.RecordBatchReader.from_batches(
            table.schema, table.to_batches(max_chunksize=2 if self.flushed else None)
        )

    def app(self, *what):
        """An app id; the book knows what comes under it."""
        name = f"w{len(self.book.given)}"
        self.book.given[name] = what
        return name

    def fresh_rows(self, most):
        columns = self.book.columns[self.book.version]
        if self.chance.random() < 0.3:
            columns = SCHEMA.names  # a writer that does not know of the new ones
        return self.mixed(self.chance.randrange(1, most), columns)

    # ------------------------------------------------- operations: each returns what a handle does

    def write(self):
        rows = self.fresh_rows(7)
        app, verb = self.app("rows", rows), self.chance.choice([upsert, append])
        given = {"app_id": app, "app_seq": 1, "memory_bytes": MEMORY, "missing": "null"}
        return lambda t: verb(t, self.arrow(rows), **given)

    def stage_rows(self):
        """Stage now, commit later."""
        rows = self.fresh_rows(7)
        app = App(self.app("rows", rows), 1)

        def act(t):
            head = t.refresh()
            adds = stage(t, head, self.arrow(rows), MEMORY, "null")
            late = t.transaction("upsert", adds, read_version=head.version, app=app)
            self.waiting.append((t, late))

        return act

    def publish(self):
        """A writer dies after it published; the next one takes its rows along."""
        rows = self.fresh_rows(5)
        app = App(self.app("rows", rows), 1)
        after = self.write()

        def act(_):
            faulty = FaultyStore(self.store, [Fault("put", "crash_after", keys.INTENTS_PREFIX)])
            t = self.handle(faulty, crowded=True)
            adds = stage(t, t.session.head(), self.arrow(rows), MEMORY, "null")
            try:
                t.commit(t.transaction("upsert", adds, app=app))
            except Crash:
                self.counts["published"] += 1
            after(self.handle(crowded=True))

        return act

    def delete_keys(self):
        rule, chance = self.rule, self.chance
        if rule.kind == "aggregate":
            return self.write()
        rows = [self.row() for _ in range(chance.randrange(1, 4))]
        names = [*rule.key]
        if self.days > 1 and "at" not in names:
            names.append("at")
        if rule.ordered_deletes and rule.order not in names and chance.random() < 0.6:
            names.append(rule.order)
        keep = [{n: r[n] for n in names} for r in rows]
        given = pa.Table.from_pylist(keep, pa.schema([SCHEMA.field(n) for n in names]))
        blank = dict.fromkeys(SCHEMA.names)
        app = self.app("rows", [blank | row | {"_op": "d"} for row in keep])
        return lambda t: delete(t, keys=given, app_id=app, app_seq=1)

    def delete_where(self):
        if self.rule.kind == "aggregate":
            return self.write()
        sql, holds = predicate(self.chance)
        app = self.app("where", holds)
        return lambda t: delete(t, where=sql, app_id=app, app_seq=1)

    def overwrite(self, *, late=False):
        day = DAY + timedelta(days=self.chance.randrange(DAYS))
        start, end = (None, None) if self.days == 1 else (day, day + timedelta(days=1))
        rows = [r for r in self.mixed(self.chance.randrange(1, 6)) if self.days == 1 or
                start <= r["at"] < end]  # fmt: skip
        within = None if start is None else {start.strftime("%Y-%m-%d")}
        app = self.app("overwrite", within, rows)
        # Half of them were computed from a version that is not the newest.
        newest = self.book.version
        seen = self.chance.choice([v for v in self.book.kept if v >= newest - 6])
        old = seen if self.chance.random() < 0.5 else None
        given = lambda: self.arrow(rows) if rows else SCHEMA.empty_table()

        def act(t):
            unit = {"app_id": app, "app_seq": 1, "missing": "null"}
            overwrite(t, given(), start=start, end=end, read_version=old, **unit)

        def stage_it(t):
            head = t.refresh()
            low, high = MIN_MS, MAX_MS
            if start is not None:
                low, high = (int(b.timestamp() * 1000) for b in (start, end))
            actions = overwrite_actions(
                stage(t, head, given(), MEMORY, "null"), range_drops(head, low, high), low, high,
                isolation="carry", read_version=head.version,
            )  # fmt: skip
            late = t.transaction("overwrite", actions, read_version=head.version, app=App(app, 1))
            self.waiting.append((t, late))

        return stage_it if late else act

    def stage_overwrite(self):
        return self.overwrite(late=True)

    def land(self):
        """Someone who has staged commits."""

        def act(_):
            if self.waiting:
                at = self.chance.randrange(len(self.waiting))
                t, transaction = self.waiting.pop(at)
                try:
                    commit_staged(t.session, transaction)
                except ENDS:
                    assert isinstance(t.store, Mortal)
                    assert t.store.struck
                except errors.CommitConflict as conflict:
                    if transaction.operation == "upsert" and "deleted it" not in str(conflict):
                        raise AssertionError(conflict) from None

        return act

    def merge(self):
        """Merge a run of slices by hand, at once or when others have committed."""
        chance = self.chance

        def act(t):
            head = t.refresh()
            runs = runs_of(head)
            if not runs:
                return
            # The one of two with more in it.
            run = max(chance.choices(runs, k=2), key=lambda found: len(found.segments))
            spans = sorted({placement.span(s) for s in run.segments})
            first = chance.randrange(len(spans)) if chance.random() < 0.7 else 0
            last = chance.randrange(first, len(spans))
            low, high = spans[first][0], spans[last][1]
            buckets = chance.choice(
                [(run.first, run.last)] * 2 + [(run.first,) * 2, (0, rule_at(head).buckets - 1)]
            )
            wide = chance.random() < 0.5
            try:
                made = merged(t, head, run.chunk, *buckets, low, high, wide=wide)
            except errors.KeyNotFound as gone:  # as a reader says it
                if head.version < self.handle().refresh().meta.horizon:
                    raise errors.VersionVacuumed("a vacuum passed it") from gone
                raise
            if made is None:
                return
            if chance.random() < 0.4:
                self.waiting.append((t, made))
            else:
                t.commit(made)

        return act

    def compact(self):
        """Perform some of the tasks that were planned at a version of before, in any order."""
        chance = self.chance
        version = chance.choice(self.book.kept) if chance.random() < 0.5 else None

        def act(t):
            tasks = compaction.plan(t, self.policy, version=version).tasks
            for task in chance.sample(tasks, chance.randrange(len(tasks) + 1)):
                outcome = compaction.perform(t, task, self.policy)
                self.counts[f"task {outcome.status}"] += 1
                if outcome.status == "failed":
                    self.failed_task(t, outcome)

        return act

    def failed_task(self, t, outcome):
        """Only who was cut off, came too late for a vacuum, or met an overwrite below it, fails."""
        cut_off = isinstance(t.store, MortalStore) and t.store.struck
        cut_off |= "makes a base where nothing lies below it" in outcome.error
        assert cut_off or "deleted it" in outcome.error or "Vacuumed" in outcome.error, outcome

    def run_all(self):
        """Let a runner decide."""

        def act(t):
            for outcome in compaction.run(t, policy=self.policy).outcomes:
                self.counts[f"task {outcome.status}"] += 1
                if outcome.status == "failed":
                    self.failed_task(t, outcome)

        return act

    def restore(self):
        version = self.chance.choice(self.book.kept)
        return lambda t: t.restore(version)

    def rewind(self):
        """A task is planned on a version that was restored, which is undone while it runs."""
        version = self.chance.choice(self.book.kept)
        pause = self.chance.randrange(1, MOST_CALLS)

        def act(_):
            self.now_ms += self.chance.choice([1, 25 * HOUR_MS])
            t = self.handle()
            before = t.session.head().version
            t.restore(version)
            tasks = compaction.plan(t, self.policy).tasks
            undo = lambda: self.handle().restore(before)
            if not tasks:
                undo()
                return
            store = Mortal(self.store, pause=pause, meanwhile=undo)
            outcome = compaction.perform(self.handle(store), self.chance.choice(tasks), self.policy)
            self.counts["undone under a task"] += 1
            if outcome.status == "failed":
                self.failed_task(t, outcome)

        return act

    def pin(self):
        version = self.chance.choice(self.book.kept)
        name = f"p{next(self.seeds)}"
        return lambda t: t.pin(name, version)

    def vacuum(self):
        hours = self.chance.choice([0, 0, 1, 30])
        staging = timedelta(hours=self.chance.choice([0, 1, 1000]))

        def act(t):
            compaction.vacuum(t, dry_run=False, retention=timedelta(hours=hours), staging=staging)

        return act

    def add_columns(self):
        def act(t):
            schema = t.refresh().schema
            if len(schema) < len(SCHEMA) + len(ADDED):
                t.add_columns(schema.append(ADDED[len(schema) - len(SCHEMA)]))

        return act

    def split(self):
        times = self.chance.choice([2, 2, 4])

        def act(t):
            buckets = rule_at(t.refresh()).buckets
            if buckets >= MOST_BUCKETS:
                return
            try:
                t.set_buckets(times * buckets)
            except errors.InvalidInput:  # another has split them further meanwhile
                assert rule_at(t.refresh()).buckets > times * buckets

        return act

    # --------------------------------------------------------------------------------- the course

    CHOICES = {  # noqa: RUF012 - never changed
        "write": 6,
        "stage_rows": 2,
        "land": 3,
        "publish": 0.5,
        "delete_keys": 2,
        "delete_where": 1,
        "overwrite": 1,
        "stage_overwrite": 0.5,
        "merge": 4,
        "compact": 5,
        "run_all": 1,
        "restore": 2,
        "pin": 0.2,
        "vacuum": 0.8,
        "add_columns": 0.4,
        "rewind": 0.7,
        "split": 0.7,
    }

    def step(self):
        """One operation, and what goes on beside it; all versions are checked that come of it."""
        chance = self.chance
        if chance.random() < 0.6:
            self.now_ms += chance.choice(
                [1, 1, HOUR_MS // 2, 2 * HOUR_MS, 25 * HOUR_MS, 170 * HOUR_MS]
            )
        self.book.follow()
        name = chance.choices([*self.CHOICES], [*self.CHOICES.values()])[0]
        act = getattr(self, name)()
        fate = chance.random()
        if fate < 0.2:
            at, how = chance.randrange(1, MOST_CALLS), chance.choice(HOWS)
            store = Mortal(self.store, at, how)
            done = self.attempt(name, act, lambda: self.handle(store), store)
            if store.struck:
                self.counts["deaths" if store.dead else "lost calls"] += 1
            if not done and chance.random() < 0.6:
                self.attempt(name, act, self.handle)  # as who is started again does
        elif fate < 0.4 and not self.depth:
            store = Mortal(
                self.store, pause=chance.randrange(1, MOST_CALLS), meanwhile=self.meanwhile
            )
            self.attempt(name, act, lambda: self.handle(store))
        elif fate < 0.7:
            self.attempt(name, act, lambda: self.table)
        else:
            self.attempt(name, act, self.handle)
        self.check_new()

    def meanwhile(self):
        self.counts["pauses"] += 1
        self.depth += 1
        for _ in range(self.chance.randrange(1, 4)):
            self.step()
        self.depth -= 1

    def attempt(self, name, act, handle, store=None):
        """Whether an operation came to its end. Others than the expected errors are findings."""
        try:
            act(handle())
        except ENDS as end:
            if not (store and store.struck):
                raise AssertionError(f"{name} was cut off by nothing") from end
            return False
        except errors.CommitConflict as conflict:
            if "deleted it" not in str(conflict) and name not in MAY_CONFLICT:
                raise AssertionError(f"{name} met a conflict") from conflict
            self.counts["conflicts"] += 1
        except errors.VersionVacuumed:
            assert self.counts["vacuums"] or self.book.counts["vacuum"] or self.depth
            self.counts["vacuumed under it"] += 1
        return True

    # ------------------------------------------------------------------------------------- checks

    def check_new(self):
        for version in self.book.follow():
            # Those that change no rows are read in the end, as all others are once more.
            if version >= self.book.horizon and version in self.book.changed:
                self.check(version)

    def check(self, version, table=None):
        self.counts["checks"] += 1
        wanted = ordered(self.book.answer(version))
        if table is None:
            table = self.table if self.chance.random() < 0.5 else self.handle()
        assert ordered(scan(table, version=version).to_table().to_pylist()) == wanted
        if self.chance.random() < 0.04:
            assert count(table, version=version) == len(wanted)
            self.check_predicate(table, version, wanted)

    def check_predicate(self, table, version, wanted):
        sql, holds = predicate(self.chance)
        names = self.chance.sample(SCHEMA.names, self.chance.randrange(4))
        passing = [row for row in wanted if holds(row) is True]
        found = scan(table, names, sql, version=version)
        rows = found.to_table()
        assert rows.schema.names == names
        assert rows.num_rows == found.count() == len(passing), sql
        expected = [{n: row[n] for n in names} for row in passing]
        if names:
            assert ordered(rows.to_pylist()) == ordered(expected), sql

    def finish(self):
        """Let all land, merge what there is to merge, and read every version that is kept."""
        while self.waiting:
            self.attempt("land", self.land(), self.handle)
        self.check_new()
        table = self.handle()
        for claim in table.claims():  # of the dead
            table.break_claim(claim, silent_s=0)
        for _ in range(8):
            report = compaction.run(table, policy=self.policy)
            for outcome in report.outcomes:
                self.counts[f"task {outcome.status}"] += 1
                assert outcome.status != "failed", outcome
            if not report.planned:
                break
        assert not report.planned
        self.check_new()
        for version in self.book.kept:
            self.check(version, table)
        self.counts["histories"] += 1
        self.counts["versions vacuumed"] += self.book.horizon
        self.counts.update(self.book.counts)


class Mortal(MortalStore):
    """As `MortalStore`; knows whether the call that was to fail was made."""

    @property
    def struck(self):
        return self.dead or 0 < self._at <= self.calls


@contextmanager
def settings(seed):
    """Let a sixth of the histories store their adds and drops in objects of their own."""
    small = spills.SPILL_BYTES if seed % 6 else 700
    with ExitStack() as stack:
        stack.enter_context(quick())
        stack.enter_context(mock.patch.multiple(stager, _ARRAY_BYTES=2**16))
        stack.enter_context(mock.patch.object(spills, "SPILL_BYTES", small))
        yield


def play(seed, store=None, steps=6):
    """Play a history and return it."""
    with settings(seed):
        history = History(seed, store)
        for _ in range(steps):
            history.step()
        history.finish()
    return history


def rare(counts):
    """What happened too rarely in so many histories, and how often."""
    if counts["histories"] < ENOUGH_TO_TELL:
        return {}
    wanted = {name: round(counts["histories"] * least) for name, least in LEAST.items()}
    return {name: counts[name] for name, least in wanted.items() if counts[name] < least}
