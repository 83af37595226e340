"""Random changes of checks and columns of logs that merge each other, which must end up equal."""

import datetime as dt
import json
import random
import re
import shlex
from collections import Counter

import pyarrow as pa
from msgspec.structs import replace

from eventlog import Table, replication
from eventlog.clock import ManualClock
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.model.columns.named_checks import checks_of
from eventlog.readers import scan
from eventlog.writers import append

AT = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("n", pa.int64()),
        ("a", pa.int16()),
        ("b", pa.int16()),
        ("s", pa.struct([("u", pa.int8()), ("v", pa.int8())])),
    ]
)
# Five is a value that rows seldom have.
CHECKS = {"low": ["n > 0", "n > -1"], "high": ["n < 10", "n < 11"], "odd": ["n <> 5", "n + 1 <> 6"]}
NAMES = ["a", "b", "x", "y"]
FIELDS = ["u", "v", "w"]
SHAPES = ["copy", "branch", "copies", "branches", "mixed", "nested"]
ROUNDS = 6
STEPS = 14
MOST_CONFLICTS = 30
ENOUGH_TO_TELL = 50


class MergedSchemas:
    """Logs of one table, on which random things happen.

    Args:
        seed: of the history.
        shape: which logs there are.
        columns: whether columns change besides checks.
    """

    def __init__(self, seed, shape, *, columns):
        self.random, self.columns, self.counts = random.Random(seed), columns, Counter()
        self.clock, self.rows = ManualClock(1_357_000_000_000, seed), 0
        name = f"memory://schemas-{shape}-{columns}-{seed}"
        first = Table.create(name, SCHEMA, time_column="at", clock=self.clock)
        append(first, self.some(2))
        self.tables = [first]
        copy = shape in ("copy", "copies", "mixed")
        self.tables.append(self.copy(name) if copy else first.branch("b"))
        if shape == "copies":
            self.tables.append(self.copy(f"{name}-copy"))
        elif shape in ("branches", "mixed"):
            self.tables.append(first.branch("c"))
        elif shape == "nested":
            self.tables.append(self.tables[1].branch("c"))

    def copy(self, name):
        self.tables[0].refresh()
        replication.follow(self.tables[-1], f"{name}-copy")
        return Table.open(f"{name}-copy", clock=self.clock)

    def some(self, count, n=None):
        self.rows += count
        given = [self.random.choice([1, 2, 3]) if n is None else n for _ in range(count)]
        at = [AT + dt.timedelta(seconds=self.rows - k) for k in range(count)]
        return pa.table({"at": at, "n": given}, schema=pa.schema([SCHEMA.field(k) for k in (0, 1)]))

    def step(self):
        """Do one random thing to one of the logs, if it is possible there."""
        t, chance = self.random.choice(self.tables), self.random.random()
        if chance < 0.25:
            self.merge(*self.random.sample(self.tables, 2))
            return
        if chance < 0.4:
            act = self.append
        else:
            act = self.change_columns if self.columns and chance < 0.7 else self.change_checks
            act = self.change_fields if self.columns and chance < 0.45 else act
        t.refresh()
        try:
            act(t)
        except InvalidInput:
            return
        self.counts[act.__name__] += 1

    def append(self, t):
        rows = self.some(1, 5 if self.random.random() < 0.1 else None)
        others = [field for field in t.session.head().schema if pa.types.is_integer(field.type)]
        field = self.random.choice(others)
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.array([self.rows % 100], field.type))
        append(t, rows)

    def change_checks(self, t):
        name = self.random.choice([*CHECKS])
        if name in t.session.head().checks:
            t.drop_check(name)
        if self.random.random() < 0.6:
            t.add_check(name, self.random.choice(CHECKS[name]))

    def change_columns(self, t):
        schema = t.session.head().schema
        name = self.random.choice(NAMES)
        others = [one for one in schema.names if one not in ("at", "n", "s")]
        if name not in others:
            if others and self.random.random() < 0.5:
                t.rename_column(self.random.choice(others), name)
            else:
                kind = self.random.choice([pa.int16(), pa.int16(), pa.string()])
                default = (
                    {"write": 1} if kind == pa.int16() and self.random.random() < 0.3 else None
                )
                t.add_columns([pa.field(name, kind)], {name: default} if default else None)
            return
        chance = self.random.random()
        if chance < 0.3:
            t.drop_columns([name])
        elif chance < 0.5 and schema.field(name).type != pa.int64():
            wide = pa.int32() if schema.field(name).type == pa.int16() else pa.int64()
            t.widen_column(name, wide)
        elif chance < 0.7:
            t.reorder_columns(["at", *self.random.sample(schema.names[1:], len(schema) - 1)])
        elif chance < 0.85:
            t.rename_column(name, self.random.choice(NAMES))
        elif "free" not in t.session.head().checks:
            t.add_check("free", f"{name} IS NULL")
        else:
            t.drop_check("free")

    def change_fields(self, t):
        """Change the fields of a struct, or drop it with all of them."""
        schema, name = t.session.head().schema, self.random.choice(FIELDS)
        fields = [] if "s" not in schema.names else [f.name for f in schema.field("s").type]
        chance = self.random.random()
        if chance < 0.05:
            t.drop_columns(["s"])
        elif name not in fields:
            kind = self.random.choice([pa.int8(), pa.string()])
            t.add_columns([pa.field(name, kind)], within=["s"])
        elif chance < 0.3:
            t.drop_columns([["s", name]])
        elif chance < 0.4:
            t.widen_column(["s", name], pa.int16())
        else:
            t.rename_column(["s", name], self.random.choice(FIELDS))

    def merge(self, source, target):
        """Merge one log into another one; return whether that changed anything."""
        take = None
        for _ in range(MOST_CONFLICTS):
            source.refresh()
            target.refresh()
            try:
                done = replication.merge(source, target, take=take)
            except CommitConflict as error:
                self.counts["conflict"] += 1
                take = self.resolve(str(error), refused=take)
                continue
            except InvalidInput:
                self.allow_rows()
                continue
            self.counts["merge"] += bool(done.commits)
            return bool(done.commits or done.followed)
        raise AssertionError("rows that break a check, which no log has")

    def resolve(self, message, refused):
        """Do what the message of a conflict names; return the choice, if that is one."""
        commands = re.findall(r"`eventlog (columns [^`]*)`", message)
        choices = re.findall(r"--take (source|target)`", message)
        assert refused not in choices
        assert commands or choices, message
        if choices and (not commands or self.random.random() < 0.5):
            return self.random.choice(choices)
        self.counts["command"] += 1
        for command in commands:
            self.run(*shlex.split(command)[1:])
        return None

    def run(self, *words):
        """Change columns as `eventlog columns` does, at the time of the history."""
        *place, uri, act, name = words[:-1] if "rename" in words else words
        root = f"{uri}/_branches/{place[1]}" if place else uri
        (t,) = (one for one in self.tables if one.uri == root)
        t.refresh()
        path = json.loads(name) if name.startswith("[") else name
        if act == "rename":
            t.rename_column(path, words[-1])
        elif act == "uncheck":
            t.drop_check(name)
        else:
            t.drop_columns([path])

    def allow_rows(self):
        """Drop the checks that rows of a log break."""
        self.counts["breach"] += 1
        for t in self.tables:
            t.refresh()
            for name in ("odd", "free"):
                if name in t.session.head().checks:
                    t.drop_check(name)

    def end(self):
        """Merge all logs until nothing is left to merge, and return what each shows."""
        count = len(self.tables)
        pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
        for _ in range(ROUNDS):
            self.random.shuffle(pairs)
            done = [self.merge(self.tables[one], self.tables[other]) for one, other in pairs]
            if not any(done):
                return [self.shown(t) for t in self.tables]
        raise AssertionError("merges go on and on")

    def shown(self, t):
        """What a log shows: its columns and checks, and its rows."""
        schema = t.refresh().stored_schema
        checks = [replace(check, schema=0) for check in checks_of(schema)]
        rows = scan(t).to_table().sort_by("at").to_pylist()
        broken = [row for row in rows if "odd" in t.session.head().checks and row["n"] == 5]
        assert not broken
        return schema.columns, checks, rows


def play_schemas(seed):
    """Play one history, and return it.

    Raises:
        AssertionError: logs differ after all merges, or merges do not end.
    """
    history = MergedSchemas(seed, SHAPES[seed // 2 % len(SHAPES)], columns=bool(seed % 2))
    history.counts["histories"] += 1
    for _ in range(STEPS):
        history.step()
    first, *others = history.end()
    assert all(other == first for other in others), [first[:2], *(one[:2] for one in others)]
    return history


def rare_schemas(counts):
    """What many histories had too rarely to prove anything."""
    played = counts["histories"]
    least = {
        "merge": 2,
        "change_checks": 3,
        "change_columns": 1,
        "change_fields": 0.2,
        "append": 1,
        "conflict": 0.1,
        "command": 0.05,
    }
    if played < ENOUGH_TO_TELL:
        return {}
    return {name: counts[name] for name, few in least.items() if counts[name] < few * played}
