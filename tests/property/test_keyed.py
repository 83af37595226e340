"""Random histories of keyed tables: after every commit the table is what the model says.

The model (`support.keyed_model`) knows rows and their order only: no buckets, no segments, no
merges. The order of commits is taken from the log.
"""

import itertools
import os
import random
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pytest
from support.builders import Crash
from support.crashes import quick
from support.folds import advance
from support.keyed_tables import (
    DAY,
    KINDS,
    SCHEMA,
    WITH_OP,
    merged,
    model_of,
    ordered,
    predicate,
    properties_of,
    row_of,
    rule_at,
    runs_of,
)

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.model.records import App, Restore
from eventlog.readers import count, scan
from eventlog.staging import stager
from eventlog.state.keyed import slices
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.table.restage import commit_staged
from eventlog.writers import append, delete, overwrite, upsert
from eventlog.writers.batch import overwrite_actions, range_drops, stage

HISTORIES = 5
LONG = int(os.environ.get("EVENTLOG_EXAMPLES", "0")) or 1000
POLICY = compaction.Policy(target_bytes=4096, max_task_bytes=2**20, backoff_s=1)


class History:
    """A keyed table and the rows that it was given, in the order of its log."""

    def __init__(self, seed, store=None):
        chance = self.chance = random.Random(seed)
        self.seeds = itertools.count(1)
        self.store = MemoryStore() if store is None else store
        kind = chance.choice(KINDS)
        self.days = chance.choice([1, 1, 3])
        timed_key = chance.random() < 0.2
        key = chance.choice([("k",), ("k", "s"), ("s", "k")]) + (("at",) if timed_key else ())
        order = chance.choice([None, "o"] if timed_key or self.days > 1 else [None, "o", "at"])
        properties = {
            "keyframe_commits": chance.choice(["1", "3", "64"]),
            "bucket_bytes": chance.choice(["1024", "8388608"]),
            "segment_bytes": "1024",
            "combine_after": "1",
            **properties_of(kind, (*key, order)),
        }
        if kind == "aggregate" and order is None and "o" not in key:
            properties["merge.o"] = chance.choice(["sum", "min", "last", "first"])
        self.flushed = chance.random() < 0.4
        # A key that is only unique in a chunk stands in all of them where its day varies.
        self.settled = len(key) > 1 and "s" in key
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
            properties=properties,
        )
        self.rule = rule_at(self.table.head())
        self.given = {}  # rows by app id
        self.waiting = []
        self.state, self.folded = None, -1
        self.rows = []  # (chunk, version, row), in their order
        self.at = {}  # the rows of every version
        self.follow()

    def clock(self):
        return ManualClock(1_700_000_000_000, next(self.seeds))

    def handle(self, store=None, *, crowded=False):
        store = self.store if store is None else store
        table = Table.open(store.uri, store=store, clock=self.clock())
        table._committer.memory.contention.expected = 8 if crowded else 0
        return table

    # ------------------------------------------------------------------------------------ rows

    def chunk_of(self, row):
        return "all" if self.days == 1 else row["at"].strftime("%Y-%m-%d")

    def upserts(self, count):
        return [self.row() | {"_op": "u"} for _ in range(count)]

    def row(self):
        row = row_of(self.chance, days=self.days)
        # Rows of some length fill a segment, which is then written by itself.
        return row | {"b": row["b"] and row["b"] * 600} if self.flushed else row

    def mixed(self, count):
        rows = self.upserts(count)
        for row in rows if self.rule.kind != "aggregate" else ():
            if self.chance.random() < 0.3:
                row.update(dict.fromkeys(("g", "a", "b", "c")), _op="d")
                if not self.rule.ordered_deletes or self.chance.random() < 0.3:
                    row[self.rule.order or "o"] = None
        return rows

    def arrow(self, rows):
        """The rows as a stream of small batches, each of which may be flushed by itself."""
        table = pa.Table.from_pylist(rows, schema=self.with_op)
        return pa.RecordBatchReader.from_batches(
            table.schema, table.to_batches(max_chunksize=2 if self.flushed else None)
        )

    @property
    def with_op(self):
        return pa.schema([f.with_nullable(True) for f in WITH_OP])

    def app(self, rows, kind="rows"):
        name = f"w{len(self.given)}"
        self.given[name] = (kind, rows)
        return name

    # ---------------------------------------------------------------------------------- actions

    def write(self, table=None):
        rows = self.mixed(self.chance.randrange(1, 9))
        table = self.table if table is None else table
        verb = self.chance.choice([upsert, append])
        verb(table, self.arrow(rows), app_id=self.app(rows), app_seq=1, memory_bytes=2**20)

    def write_late(self):
        """Stage now, commit later."""
        rows = self.mixed(self.chance.randrange(1, 9))
        table = self.handle()
        head = table.head()
        adds = stage(table, head, self.arrow(rows), 2**20)
        app = App(self.app(rows), 1)
        self.waiting.append(
            (table, table.transaction("upsert", adds, read_version=head.version, app=app))
        )

    def land(self):
        if self.waiting:
            table, transaction = self.waiting.pop(self.chance.randrange(len(self.waiting)))
            try:
                commit_staged(table, transaction)
            except errors.CommitConflict:
                assert transaction.operation in ("compact", "overwrite")

    def publish(self):
        """A writer dies after it published; the next one takes its rows along."""
        rows = self.mixed(self.chance.randrange(1, 5))
        faulty = FaultyStore(self.store, [Fault("put", "crash_after", keys.INTENTS_PREFIX)])
        table = self.handle(faulty, crowded=True)
        adds = stage(table, table.head(), self.arrow(rows), 2**20)
        app = App(self.app(rows), 1)
        with pytest.raises(Crash):
            table.commit(table.transaction("upsert", adds, app=app))
        self.write(self.handle(crowded=True))

    def delete_keys(self):
        if self.rule.kind == "aggregate":
            with pytest.raises(errors.InvalidInput):
                delete(self.table, keys=pa.table({n: [None] for n in self.rule.key}))
            return
        rows = [self.row() for _ in range(self.chance.randrange(1, 4))]
        names = [*self.rule.key]
        if self.days > 1 and "at" not in names:
            names.append("at")
        order = self.rule.order
        if self.rule.ordered_deletes and order not in names and self.chance.random() < 0.4:
            names.append(order)
        keep = [{n: r[n] for n in names} for r in rows]
        schema = pa.schema([SCHEMA.field(n) for n in names])
        blank = dict.fromkeys(SCHEMA.names)
        deletes = [blank | row | {"_op": "d"} for row in keep]
        given = pa.Table.from_pylist(keep, schema=schema)
        delete(self.table, keys=given, app_id=self.app(deletes), app_seq=1)

    def delete_where(self):
        if self.rule.kind == "aggregate":
            return
        sql, holds = predicate(self.chance)
        self.table.refresh()
        self.follow()
        hit = [row for row in self.answer() if holds(row) is True]
        names = {*self.rule.key, *(["at"] if self.days > 1 else [])}
        blank = dict.fromkeys(SCHEMA.names)
        deletes = [blank | {n: row[n] for n in names} | {"_op": "d"} for row in hit]
        delete(self.table, where=sql, app_id=self.app(deletes), app_seq=1)

    def overwrite(self, *, late=False):
        table = self.handle()
        head = table.refresh()
        day = DAY + timedelta(days=self.chance.randrange(3))
        bounds = (None, None) if self.days == 1 else (day, day + timedelta(days=1))
        rows = self.mixed(self.chance.randrange(0, 6))
        rows = [r for r in rows if bounds[0] is None or bounds[0] <= r["at"] < bounds[1]]
        app = self.app(rows, ("overwrite", head.version, bounds))
        if not late:
            overwrite(
                table, self.arrow(rows), start=bounds[0], end=bounds[1], app_id=app, app_seq=1
            )
            return
        low, high = (-(2**60), 2**60)
        if bounds[0] is not None:
            low, high = (int(b.timestamp() * 1000) for b in bounds)
        if self.days == 1:
            from eventlog.model.chunks import MAX_MS, MIN_MS  # noqa: PLC0415

            low, high = MIN_MS, MAX_MS
        adds = stage(table, head, self.arrow(rows), 2**20)
        drops = range_drops(head, low, high)
        actions = overwrite_actions(adds, drops, low, high, isolation="carry")
        self.waiting.append(
            (
                table,
                table.transaction("overwrite", actions, read_version=head.version, app=App(app, 1)),
            )
        )

    def compact(self, *, late=False):
        """Merge a run of slices, at once or when others have committed."""
        table = self.handle()
        head = table.refresh()
        runs = runs_of(head)
        if not runs:
            return
        run = self.chance.choice(runs)
        spans = sorted({slices.span(s) for s in run.segments})
        first = self.chance.randrange(len(spans)) if self.chance.random() < 0.5 else 0
        last = self.chance.randrange(first, len(spans))
        low, high = spans[first][0], spans[last][1]
        buckets = (run.first, run.last)
        if self.chance.random() < 0.3:
            buckets = (run.first, run.first)
        if self.chance.random() < 0.3:
            buckets = (0, self.rule.buckets - 1)
        wide = self.chance.random() < 0.5
        transaction = merged(table, head, run.chunk, *buckets, low, high, wide=wide)
        if transaction is None:
            return
        if late:
            self.waiting.append((table, transaction))
            return
        try:
            table.commit(transaction)
        except errors.CommitConflict:
            if buckets != (0, self.rule.buckets - 1):  # of others the run may cut a segment
                raise

    def compact_all(self):
        """Let the planner decide."""
        report = compaction.run(self.handle(), policy=POLICY)
        assert all(outcome.ok for outcome in report.outcomes), report.outcomes

    def restore(self):
        table = self.handle()
        table.restore(self.chance.choice(list(self.at)))

    def pin(self):
        self.table.pin(f"p{len(self.given)}{self.folded}", self.chance.choice(list(self.at)))

    # ------------------------------------------------------------------------------------ model

    def follow(self):
        """Fold the commits that are new, and apply their rows."""
        log = Table(self.store).log
        newest = self.handle().refresh().version
        for version in range(self.folded + 1, newest + 1):
            commit, body = log.read(version)
            whole = spills.unpack(commit, log.spill)
            self.state, effect = advance(self.state, whole, codec.sha256(body))
            for transaction in effect.taken:
                self.apply(transaction, version)
            self.at[version] = list(self.rows)
            self.folded = version

    def apply(self, transaction, version):
        for action in transaction.actions:
            if isinstance(action, Restore):
                self.rows = list(self.at[action.version])
        if transaction.app is None:
            return
        kind, rows = self.given[transaction.app.id]
        if kind != "rows":
            _, read, bounds = kind
            self.rows = [
                (c, v, r)
                for c, v, r in self.rows
                if v > read or not (bounds[0] is None or c == bounds[0].strftime("%Y-%m-%d"))
            ]
        self.rows += [(self.chunk_of(row), version, row) for row in rows]

    def answer(self, version=None):
        rows = self.at[self.folded if version is None else version]
        chunks = dict.fromkeys(c for c, _, _ in rows)
        return [
            row
            for chunk in chunks
            for row in model_of([r for c, _, r in rows if c == chunk], self.rule).values()
        ]

    # ----------------------------------------------------------------------------------- checks

    def check(self, version=None):
        version = self.folded if version is None else version
        wanted = ordered(self.answer(version))
        table = self.table if self.chance.random() < 0.5 else self.handle()
        table.refresh()
        assert ordered(scan(table, version=version).to_table().to_pylist()) == wanted
        assert count(table, version=version) == len(wanted)
        for _ in range(2):
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

    def step(self):
        actions = {
            self.write: 5,
            self.write_late: 2,
            self.land: 3,
            self.publish: 1,
            self.delete_keys: 2,
            self.delete_where: 2,
            self.overwrite: 1,
            lambda: self.overwrite(late=True): 0.5,
            self.compact: 4,
            lambda: self.compact(late=True): 2,
            self.compact_all: 1,
            self.restore: 1,
            self.pin: 0.3,
        }
        action = self.chance.choices([*actions], [*actions.values()])[0]
        action()
        before = self.folded
        self.follow()
        return self.folded > before


def spilling(seed):
    """Let a third of the histories store their adds and drops in objects of their own."""
    small = spills.SPILL_BYTES if seed % 3 else 700
    return mock.patch.object(spills, "SPILL_BYTES", small)


def play(seed, store=None, steps=10):
    """Play a history, checking it after every commit."""
    with quick(), mock.patch.multiple(stager, _ARRAY_BYTES=2**16), spilling(seed):
        history = History(seed, store)
        for _ in range(steps):
            if history.step():
                history.check()
        for version in history.chance.sample(sorted(history.at), min(3, len(history.at))):
            history.check(version)
    return history


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_version_is_what_the_model_says(seed):
    history = play(seed)
    if seed % 3 == 0:
        assert fsck(history.handle(), checksums=True).findings == ()


def test_in_a_directory(tmp_path):
    play(101, open_store((tmp_path / "table").as_uri()), steps=5)


def test_on_s3(bucket):
    history = play(102, open_store(f"s3://{bucket}/table"), steps=5)
    assert fsck(history.handle()).findings == ()


@pytest.mark.long
def test_thousands_of_histories():
    for seed in range(1000, 1000 + LONG):
        play(seed, steps=16)
