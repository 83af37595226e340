"""Random histories of a table that is forked: copies take writes of their own and are merged.

A history copies a small table, lets each copy append, overwrite, delete, compact, restore, vacuum,
change columns and properties, and merges them in any direction; some merges die at any call of a
store and are done again, some run at once. In the end all are merged both ways and must be equal.
Everything is drawn from a seed.
"""

import io
import itertools
import random
from collections import Counter
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from support.builders import DAY_US, SCHEMA, START_MS, create, live
from support.crashes import ENDS, MortalStore, quick
from support.keyed_tables import DAY, model_of, ordered, properties_of, row_of, rule_at, runs_of
from support.keyed_tables import SCHEMA as KEYED_SCHEMA
from support.keyed_tables import merged as merged_run

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.keyed import placement
from eventlog.log import spills
from eventlog.merging import commits
from eventlog.model.actions import Replace
from eventlog.model.records import origins_of
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.state.delta import drop_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, upsert
from eventlog.writers.batch import stage

DAYS = 3
MOST_CALLS = 40
ENOUGH_TO_TELL = 100
HOWS = ("before", "after", "lost", "refused")
BESIDE = ("append", "compact", "job", "merge", "vacuum", "write")
EXTRA = ("one", "two", "three")
# How often a history has it at least, on average.
LEAST = {
    "converged": 0.3,
    "conflict": 0.02,
    "deaths": 0.2,
    "pauses": 0.1,
    "declined": 0.1,
    "skipped": 0.5,
    "compact": 0.3,
    "overwrite": 0.05,
    "third": 0.02,
    "units done twice": 0.05,
    "rows checked": 0.2,
}

BRANCHED_LEAST = {
    "converged": 0.2,
    "published": 0.5,
    "deaths": 0.2,
    "skipped": 0.5,
    "third": 0.02,
    "rows checked": 0.1,
}


class Side:
    """One copy of the table."""

    def __init__(self, number, store, branch=None):
        self.number, self.store, self.branch = number, store, branch
        self.handles = 0
        self.now_ms = START_MS

    def handle(self, store=None):
        self.handles += 1
        self.now_ms += 1000
        clock = ManualClock(self.now_ms, self.number * 10_000 + self.handles)
        store = self.store if store is None else store
        return Table.open(store.uri, store=store, clock=clock, branch=self.branch)

    def names(self):
        return sorted(scan(self.handle()).to_table().column("name").to_pylist())


def copied(store, *name):
    found = MemoryStore(*name)
    for row in store.list(""):
        found.put_if_absent(row.key, store.get(row.key))
    return found


class ForkedHistory:
    """A table and its copies.

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        properties = {"keyframe_commits": chance.choice(["1", "3", "64"])}
        first = create(properties=properties, seed=seed + 1)
        self.counts = Counter()
        self.number = 0
        self.added, self.removed = set(), set()
        self.exact = True  # whether the book knows what the rows are
        self.calm = chance.random() < 0.5  # only one side rewrites, and none drops rows
        origin = Side(9, first.store)
        for _ in range(chance.randrange(1, 4)):
            self.append(origin)
        count = 3 if chance.random() < 0.25 else 2
        self.sides = [Side(n, copied(first.store)) for n in range(count)]

    # ------------------------------------------------------------------------------- operations

    def rows(self, t, count):
        """New rows, with some of the columns of the table."""
        numbers = range(self.number, self.number + count)
        self.number += count
        days = [self.chance.randrange(DAYS) for _ in numbers]
        data = {
            "at": [day * DAY_US + n for n, day in zip(numbers, days, strict=True)],
            "name": [f"row {n}" for n in numbers],
            "value": [None] * count,
        }
        fields = [*SCHEMA]
        for name in t.session.head().schema.names[len(SCHEMA) :]:
            fields.append(t.session.head().schema.field(name))
            data[name] = [self.chance.choice([None, 1]) for _ in numbers]
        return pa.table(data, pa.schema(fields)), set(data["name"])

    def append(self, side):
        t = side.handle()
        rows, names = self.rows(t, self.chance.randrange(1, 5))
        append(t, rows)
        self.added |= names

    def job(self, side):
        """A unit of work is delivered to one side, or to two."""
        t = side.handle()
        rows, names = self.rows(t, self.chance.randrange(1, 4))
        rows = rows.select(SCHEMA.names)
        number = self.number
        append(t, rows, app_id="job", app_seq=number)
        self.added |= names
        if self.chance.random() < 0.5:
            other = self.chance.choice(self.sides)
            before = other.handle().session.head().version
            append(other.handle(), rows, app_id="job", app_seq=number)
            self.counts["units done twice"] += other.handle().session.head().version > before

    def overwrite(self, side):
        if self.calm:
            return
        day = self.chance.randrange(DAYS)
        t = side.handle()
        gone = set(self.names_of(t, day))
        rows, names = self.rows(t, self.chance.randrange(3))
        at = pa.array([day * DAY_US + n for n in range(rows.num_rows)], SCHEMA.field("at").type)
        rows = rows.set_column(0, SCHEMA.field("at"), at)
        start = day * DAY_US // 1000
        moment = lambda ms: f"1970-01-0{ms // 86_400_000 + 1}"
        try:
            overwrite(t, rows, start=moment(start), end=moment(start + 86_400_000))
        except errors.InvalidInput:  # a month reaches over the day
            return
        self.removed |= gone
        self.added |= names

    def names_of(self, t, day):
        entries = live(t.session.head(), day * 86_400_000, (day + 1) * 86_400_000)
        return [n for s in entries for n in self.read(t, s).column("name").to_pylist()]

    def read(self, t, segment):
        return pq.read_table(io.BytesIO(t.store.get(keys.key_of(segment))))

    def delete(self, side):
        """Rewrite one segment without its first row."""
        if not self.calm:
            self.rewrite(side, deletes=1)

    def compact(self, side):
        if not self.calm or side.number == 0:
            self.rewrite(side)

    def rewrite(self, side, deletes=0):
        t = side.handle()
        chunks = sorted({s.chunk for s in live(t.session.head())})
        if not chunks:
            return
        chunk = self.chance.choice(chunks)
        inputs = [s for s in live(t.session.head()) if s.chunk == chunk]
        most = 1 if deletes else len(inputs)
        inputs = self.chance.sample(inputs, self.chance.randrange(1, most + 1))
        parts = [self.read(t, s) for s in inputs]
        rows = pa.concat_tables(parts, promote_options="default")
        gone = set(rows.slice(0, deletes).column("name").to_pylist())
        kept = rows.slice(deletes)
        wide = {n: i for i, n in enumerate(t.session.head().schema.names)}
        kept = kept.select(sorted(kept.schema.names, key=wide.get))
        pieces = [kept] if self.chance.random() < 0.7 else [kept.slice(0, 1), kept.slice(1)]
        adds = [a for p in pieces if p.num_rows for a in stage(t, t.session.head(), p, 2**29)]
        actions = [Replace(t.session.head().version, len(gone)), *map(drop_of, inputs), *adds]
        t.commit(t.transaction("compact", actions))
        self.removed |= gone

    def restore(self, side):
        if self.calm or self.chance.random() < 0.6:
            return
        t = side.handle()
        held = [fork.held for fork in t.store.forks] if side.branch else []
        versions = range(max(t.session.head().meta.horizon, *held, 0), t.session.head().version)
        if versions:
            t.restore(self.chance.choice(versions))
            self.exact = False

    def vacuum(self, side):
        hours = timedelta(hours=self.chance.choice([0, 0, 1]))
        side.now_ms += 2 * 3_600_000
        vacuum(side.handle(), dry_run=False, retention=hours, staging=hours)

    def property(self, side):
        name = self.chance.choice(["x", "y", f"own{side.number}"])
        value = self.chance.choice(["1", "2", None]) if name.startswith("own") else "1"
        t = side.handle()
        if self.chance.random() < 0.1 and not self.calm:
            value = str(side.number)
        if t.session.head().properties.get(f"user.{name}") != value:
            t.set_properties({f"user.{name}": value})

    def column(self, side):
        t = side.handle()
        name = self.chance.choice(EXTRA)
        if name not in t.session.head().schema.names:
            kind = pa.int32() if self.chance.random() < 0.05 and not self.calm else pa.int64()
            t.add_columns(t.session.head().schema.append(pa.field(name, kind)))

    def granularity(self, side):
        if not self.calm and self.chance.random() < 0.3:
            t = side.handle()
            wanted = self.chance.choice(["day", "month"])
            if t.session.head().layout.granularity != wanted:
                t.set_granularity(wanted)

    def merge(self, side):
        """Merge another one into this; perhaps dying on the way, perhaps beside others."""
        chance = self.chance
        source = chance.choice([s for s in self.sides if s is not side])
        fate = chance.random()
        if fate < 0.35:
            store = MortalStore(side.store, chance.randrange(1, MOST_CALLS), chance.choice(HOWS))
            try:
                self.merged(source, side, store)
            except ENDS:
                self.counts["deaths"] += 1
            if chance.random() < 0.5:
                self.merged(source, side)
        elif fate < 0.6:
            act = getattr(self, chance.choice([n for n in BESIDE if n in self.CHOICES]))

            def meanwhile():
                self.counts["pauses"] += 1
                act(side)

            pause = chance.randrange(1, MOST_CALLS)
            self.merged(source, side, MortalStore(side.store, pause=pause, meanwhile=meanwhile))
        else:
            self.merged(source, side)

    def merged(self, source, target, store=None):
        try:
            done = merge(source.handle(), target.handle(store))
        except errors.CommitConflict as conflict:
            self.counts["conflict"] += 1
            raise Stuck(str(conflict)) from conflict
        except errors.InvalidInput as apart:
            if "nothing in common in the versions" not in str(apart):
                raise
            # A follower began above what they shared.
            raise Stuck(str(apart)) from apart
        except errors.VersionVacuumed as gone:
            self.counts["gone"] += 1
            raise Stuck(str(gone)) from gone
        self.counts["declined"] += done.declined
        self.counts["skipped"] += done.skipped
        self.counts["third"] += len(origins_of(target.handle().session.head().meta)) > 1
        return done

    CHOICES = {  # noqa: RUF012 - never changed
        "append": 5,
        "job": 2,
        "overwrite": 0.7,
        "delete": 0.7,
        "compact": 3,
        "restore": 0.5,
        "vacuum": 0.5,
        "property": 1,
        "column": 0.7,
        "granularity": 0.3,
        "merge": 4,
    }

    # --------------------------------------------------------------------------------- the course

    def play(self, steps):
        try:
            for _ in range(steps):
                name = self.chance.choices([*self.CHOICES], [*self.CHOICES.values()])[0]
                self.counts[name] += 1
                getattr(self, name)(self.chance.choice(self.sides))
                if name == "merge":
                    self.check_once()
            self.converge()
        except Stuck as stuck:
            self.counts["stuck"] += 1
            self.why = str(stuck)
            told = (
                "third log",
                "shares more",
                "several logs",
                "nothing in common",
                "vacuum",
                "--take",
            )
            assert not self.calm or any(part in self.why for part in told), self.why
        self.check_once()
        self.counts["histories"] += 1

    def converge(self):
        """Merge everything into everything until nothing is left; then all are equal."""
        for _ in range(2 * len(self.sides)):
            done = [self.merged(a, b).commits for a in self.sides for b in self.sides if a is not b]
            if not any(done):
                break
        assert not any(done), "merging again still commits something"
        first, *others = [s.names() for s in self.sides]
        for other in others:
            assert other == first
        heads = [s.handle().session.head() for s in self.sides]
        for head in heads[1:]:
            assert set(head.schema) == set(heads[0].schema)
            assert head.layout == heads[0].layout
            assert user_properties(head) == user_properties(heads[0])
        if self.exact:
            assert set(first) == self.added - self.removed
            self.counts["rows checked"] += 1
        self.counts["converged"] += 1

    def check_once(self):
        """No row is there twice, wherever one looks."""
        for side in self.sides:
            names = side.names()
            assert len(set(names)) == len(names)


class BranchedHistory(ForkedHistory):
    """A table and branches of it, made at one version or one after the other, that are published.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = ForkedHistory.CHOICES | {"publish": 2, "restore": 0.1}

    def __init__(self, seed):
        super().__init__(seed)
        parent = self.sides[0]
        self.sides = [parent]
        at = parent.handle().session.head().version if self.chance.random() < 0.7 else None
        for number in range(1, self.chance.choice([2, 3, 4])):
            parent.handle().branch(f"b{number}", at=at)
            self.sides.append(Side(number, parent.store, f"b{number}"))
            if self.chance.random() < 0.3:
                self.append(parent)

    def publish(self, side):
        parent = self.sides[0]
        if side is parent:
            return
        fate, store = self.chance.random(), None
        if fate < 0.3:
            store = MortalStore(
                parent.store, self.chance.randrange(1, 30), self.chance.choice(HOWS)
            )
        try:
            parent.handle(store).merge(side.branch)
            self.counts["published"] += 1
        except ENDS:
            self.counts["deaths"] += 1
        except errors.CommitConflict as conflict:
            self.check_once()
            self.told(str(conflict))
        except errors.VersionVacuumed:
            self.counts["gone"] += 1

    def merge(self, side):
        try:
            super().merge(side)
        except Stuck as stuck:  # others may go on
            self.told(str(stuck))

    def told(self, why):
        self.counts["refused"] += 1
        told = ("third log", "shares more", "several logs", "vacuum")
        assert not self.calm or any(part in why for part in told), why

    def converge(self):
        """Merge by all ways: what one is refused comes by another, or nothing moves any more."""
        for _ in range(3 * len(self.sides)):
            done, refused = 0, []
            for a, b in ((a, b) for a in self.sides for b in self.sides if a is not b):
                try:
                    done += self.merged(a, b).commits
                except Stuck as stuck:
                    refused.append(str(stuck))
            if not done:
                break
        assert not done, "merging again still commits something"
        if refused:
            raise Stuck(refused[0])
        super().converge()


def user_properties(head):
    return {n: v for n, v in head.properties.items() if n.startswith("user.")}


class Stuck(Exception):
    """The sides cannot be merged any more."""


def played(kind, seed, steps=14):
    """Play a history of a kind and return it."""
    with quick():
        history = kind(seed)
        history.play(steps)
    return history


def play_forks(seed):
    """Play a history and return it."""
    with mock.patch.object(spills, "SPILL_BYTES", spills.SPILL_BYTES if seed % 5 else 700):
        return played(ForkedHistory, seed)


def play_branches(seed):
    """Play a history of branches and return it."""
    return played(BranchedHistory, seed)


def rare_branched(counts):
    """What happened too rarely in so many histories of branches."""
    return rare(counts, BRANCHED_LEAST)


def rare(counts, least_of=LEAST):
    """What happened too rarely in so many histories, and how often."""
    if counts["histories"] < ENOUGH_TO_TELL:
        return {}
    wanted = {name: round(counts["histories"] * least) for name, least in least_of.items()}
    return {name: counts[name] for name, least in wanted.items() if counts[name] < least}


# ----------------------------------------------------------------------------------- with a key

RULES = ("last", "last", "partial", "groups", "sums", "first", "aggregate")
SUMS = {"a": "sum", "b": "max", "c": "min", "g": "max", "o": "max", "at": "max"}
KEYED_CHOICES = {
    "write": 6,
    "erase": 2,
    "replace_chunk": 0.5,
    "compact": 2,
    "merge_run": 1,
    "clean": 0.3,
    "column": 0.3,
    "split": 0.3,
    "merge": 4,
}
KEYED_LEAST = {
    "converged": 0.4,
    "deaths": 0.1,
    "pauses": 0.1,
    "declined": 0.2,
    "repeated": 0.1,
    "replace_chunk": 0.1,
    "rows checked": 0.2,
    "united rows checked": 0.02,
}


def interleaved(one, two):
    """Yield the orders of two lists together in which each keeps its own."""
    size = len(one) + len(two)
    for places in map(set, itertools.combinations(range(size), len(one))):
        first, second = iter(one), iter(two)
        yield [next(first) if n in places else next(second) for n in range(size)]


class KeyedFork(ForkedHistory):
    """A keyed table and a copy of it; rows of one key often tie.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = KEYED_CHOICES

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        self.kind = chance.choice(RULES)
        order = chance.choice([None, "o", "o"])
        properties = properties_of(self.kind, ("k", "s")) if self.kind != "sums" else {}
        if self.kind == "sums":
            named = {f"merge.{n}": f for n, f in SUMS.items()}
            properties = {"merge": "aggregate", **named}
        store = MemoryStore()
        self.days = chance.choice([1, 1, 2])
        table = Table.create(
            store.uri,
            KEYED_SCHEMA,
            store=store,
            clock=ManualClock(START_MS, seed + 1),
            time_column="at",
            granularity="all" if self.days == 1 else "day",
            key=("k", "s"),
            buckets=chance.choice([1, 2, 5]),
            order_by=order,
            properties={
                "keyframe_commits": chance.choice(["1", "3", "64"]),
                "bucket_bytes": chance.choice(["1024", "8388608"]),
                "tombstone_hours": "876000",
                **properties,
            },
        )
        self.rule = rule_at(table.session.head())
        self.counts = Counter([f"merge={self.kind}"])
        self.given = {}
        self.exact = self.days == 1
        self.calm = False
        first = Side(9, store)
        for _ in range(chance.randrange(1, 4)):
            self.write(first)
        self.sides = [Side(n, copied(store)) for n in range(2)]

    def name(self, rows):
        name = f"w{len(self.given)}"
        self.given[name] = rows
        return {"app_id": name, "app_seq": 1}

    def keyed_rows(self, count):
        rows = []
        for _ in range(count):
            row = row_of(self.chance, keys_of=4, days=self.days) | {"_op": "u"}
            row["o"] = self.chance.randrange(3)
            if self.kind not in ("aggregate", "sums") and self.chance.random() < 0.25:
                row.update(dict.fromkeys(("g", "a", "b", "c")), _op="d")
                placed = self.rule.ordered_deletes and self.chance.random() < 0.6
                if not placed and self.rule.order:
                    row[self.rule.order] = None
            rows.append(row)
        return rows

    def write(self, side):
        rows = self.keyed_rows(self.chance.randrange(1, 6))
        fields = [f.with_nullable(True) for f in KEYED_SCHEMA] + [pa.field("_op", pa.string())]
        given = pa.Table.from_pylist(rows, pa.schema(fields))
        upsert(side.handle(), given, missing="null", **self.name(rows))

    def erase(self, side):
        if self.kind in ("aggregate", "sums"):
            return
        rows = [row_of(self.chance, keys_of=4, days=self.days) for _ in range(2)]
        names = ["k", "s", *(["at"] if self.days > 1 else [])]
        keep = [{n: r[n] for n in names} for r in rows]
        given = pa.Table.from_pylist(keep, pa.schema([KEYED_SCHEMA.field(n) for n in names]))
        blank = dict.fromkeys(KEYED_SCHEMA.names)
        delete(side.handle(), keys=given, **self.name([blank | r | {"_op": "d"} for r in keep]))

    def replace_chunk(self, side):
        if self.chance.random() < 0.5:
            return
        self.exact = False
        rows = [r for r in self.keyed_rows(2) if r["_op"] == "u"]
        bounds = {}
        if self.days > 1:
            bounds = {"start": DAY, "end": DAY + timedelta(days=1)}
            rows = [r for r in rows if r["at"] < DAY + timedelta(days=1)]
        bare = [{n: r[n] for n in KEYED_SCHEMA.names} for r in rows]
        given = pa.Table.from_pylist(bare, KEYED_SCHEMA)
        overwrite(side.handle(), given, **bounds, missing="null", **self.name(rows))

    def compact(self, side):
        policy = compaction.Policy(target_bytes=4096, max_task_bytes=2**14, backoff_s=1)
        compaction.run(side.handle(), policy=policy)

    def merge_run(self, side):
        t = side.handle()
        head = t.session.head()
        runs = runs_of(head)
        if runs:
            run = self.chance.choice(runs)
            spans = sorted({placement.span(s) for s in run.segments})
            first = self.chance.randrange(len(spans))
            made = merged_run(
                t, head, run.chunk, run.first, run.last, spans[first][0], spans[-1][1]
            )
            if made is not None:
                t.commit(made)

    def clean(self, side):
        side.now_ms += 3_600_000
        hour = timedelta(minutes=1)
        compaction.vacuum(side.handle(), dry_run=False, retention=hour, staging=hour)

    def split(self, side):
        t = side.handle()
        if t.session.head().layout.keyed.buckets < 8:
            t.set_buckets(2 * t.session.head().layout.keyed.buckets)

    def check_once(self):
        pass

    def rows_at(self, side):
        names = sorted(side.handle().session.head().schema.names)
        return ordered(scan(side.handle(), names).to_table().to_pylist())

    def converge(self):
        for _ in range(4):
            done = [self.merged(a, b).commits for a, b in (self.sides, self.sides[::-1])]
            if not any(done):
                break
        assert not any(done), "merging again still commits something"
        one, two = (self.rows_at(side) for side in self.sides)
        assert one == two
        self.counts["converged"] += 1
        if any(side.handle().session.log.starts.all() for side in self.sides):
            return
        logs = [self.acts(side) for side in self.sides]
        self.counts["repeated"] += any(len(a.adds) > 2 and a.carried for acts in logs for a in acts)
        plain = len(self.sides[0].handle().session.head().schema) == len(KEYED_SCHEMA)
        apart = [n for n, (a, b) in enumerate(zip(*logs, strict=False)) if a != b]
        if not (self.exact and plain and apart):
            return
        common = apart[0]
        heads = [self.first_hash(side, logs[0][common].version) for side in self.sides]
        lower = logs[heads.index(min(heads))]
        names = [name for act in lower for name in act.units]
        assert sorted(names) == sorted(self.given)
        united = any(act.is_state for acts in logs for act in acts)
        if united or any(len(act.units) > 1 for act in lower):
            self.check_united(one, logs, common)
            return
        assert one == self.wanted(names)
        self.counts["rows checked"] += 1

    def wanted(self, names):
        """The rows of the table if these units of work are done in this order."""
        rows = [row for name in names for row in self.given[name]]
        found = model_of(rows, self.rule).values() if rows else []
        return ordered([{n: r[n] for n in sorted(KEYED_SCHEMA.names)} for r in found])

    def check_united(self, rows, logs, common):
        """Each row is what some order of both logs' units gives, in which each keeps its own.

        Where two logs were united the order also depends on what each had then.
        """
        shared = [name for act in logs[0][:common] for name in act.units]
        own = [[n for a in acts[common:] if not a.carried for n in a.units] for acts in logs]
        assert sorted([*shared, *own[0], *own[1]]) == sorted(self.given)

        def key(row):
            return row["k"], row["s"]

        for wanted in {key(row) for given in self.given.values() for row in given}:
            some = [[n for n in names if wanted in map(key, self.given[n])] for names in own]
            possible = [
                [row for row in self.wanted([*shared, *order]) if key(row) == wanted]
                for order in interleaved(*some)
            ]
            assert [row for row in rows if key(row) == wanted] in possible
        self.counts["united rows checked"] += 1

    def acts(self, side):
        t = side.handle()
        return [
            a for s in commits.steps(t.session.log, 1, t.session.head().version) for a in s.acts
        ]

    def first_hash(self, side, version):
        t = side.handle()
        return t.session.log.hash_at(t.session.head(), version)


def play_keyed_forks(seed):
    """Play a history of a keyed table and return it."""
    return played(KeyedFork, seed)


def rare_keyed(counts):
    """What happened too rarely in so many histories of keyed tables."""
    return rare(counts, KEYED_LEAST)
