"""Random chains of changes of columns beside a model that knows rows by columns of its own."""

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from operator import itemgetter

import duckdb
import pyarrow as pa
from support.builders import START_MS, create

from eventlog import compaction
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, update, upsert

STEPS = 50
NTZ = pa.timestamp("us")
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
WIDER = {
    **dict(pairwise(_INTEGERS)),
    pa.float32(): pa.float64(),
    pa.decimal128(5, 2): pa.decimal128(12, 2),
    pa.decimal128(12, 2): pa.decimal128(30, 2),
    pa.date32(): NTZ,
}
KINDS = [
    pa.int8(), pa.int16(), pa.float32(), pa.string(), pa.decimal128(5, 2), pa.bool_(), pa.date32(),
    pa.binary(),
]  # fmt: skip
START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
MIDNIGHT = dt.time()
ENOUGH_TO_TELL = 50


class Part:
    """A column, or a field inside of one: an object of its own, whatever it is called.

    Args:
        name: its name now; of elements and values of maps the format's.
        kind: an Arrow type; None: it has parts.
        shape: `struct`, `list` or `map`, of a part with parts.
        parts: of a struct its fields, of the others the elements or the values alone.
    """

    def __init__(self, name, kind, shape=None, parts=None):
        self.name, self.kind, self.shape, self.parts = name, kind, shape, parts
        self.initial = self.write = None
        self.nullable = True

    @property
    def arrow(self):
        if self.shape is None:
            return self.kind
        if self.shape == "struct":
            return pa.struct([(part.name, part.arrow) for part in self.parts])
        inner = self.parts[0].arrow
        return pa.list_(inner) if self.shape == "list" else pa.map_(pa.string(), inner)

    def of_row(self, row):
        """The value of a row; rows have the values of columns by identity."""
        return self.shown(row.get(self, self.initial))

    def shown(self, value):
        """A value as a reader gets it now."""
        if value is None:
            return None
        if self.shape == "struct":
            return {part.name: part.shown(value.get(part)) for part in self.parts}
        if self.shape == "list":
            return [self.parts[0].shown(one) for one in value]
        if self.shape == "map":
            return [(key, self.parts[0].shown(one)) for key, one in value]
        if self.kind == NTZ and not isinstance(value, dt.datetime):
            return dt.datetime.combine(value, MIDNIGHT)
        return value

    def inside(self, path=()):
        """Yield this part and those inside of it, each with its path."""
        here = (*path, self.name)
        yield here, self
        for part in self.parts or ():
            yield from part.inside(here)


class Chain:
    """A table, and what it must show at each version.

    Args:
        seed: of the chain.
        store: of the table.
        keyed: whether the table has a key.
    """

    def __init__(self, seed, store=None, *, keyed=False):
        self.random, self.keyed, self.counts = random.Random(seed), keyed, Counter()
        kinds = [pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), pa.date32(), NTZ]
        self.at, self.row = Part("at", self.random.choice(kinds)), Part("row", pa.int32())
        self.at.nullable = self.row.nullable = False
        self.columns, self.rows, self.at_version = [self.at, self.row], {}, {}
        self.made, self.names = 0, 0
        options = {"key": "row", "buckets": 2, "granularity": "all"} if keyed else {}
        if not keyed:
            options["granularity"] = self.random.choice(["day", "day", "month", "all"])
        self.table = create(
            MemoryStore() if store is None else store,
            schema=pa.schema([pa.field(c.name, c.arrow, c.nullable) for c in self.columns]),
            clock=ManualClock(START_MS, seed),
            properties={"keyframe_commits": self.random.choice(["3", "64"])},
            **options,
        )
        self.note()

    def note(self):
        """Keep what the newest version must show."""
        shown = [{c.name: c.of_row(row) for c in self.columns} for row in self.rows.values()]
        schema = pa.schema([pa.field(c.name, c.arrow, c.nullable) for c in self.columns])
        self.at_version[self.table.refresh().version] = schema, shown, self.row.name

    def step(self):
        """Do one random thing."""
        acts = [
            self.append, self.append, self.add, self.drop, self.rename, self.widen, self.reorder,
            self.relax, self.add_field, self.drop_field, self.rename_field, self.widen_field,
            self.delete, self.update,
        ]  # fmt: skip
        chance = self.random.random()
        if chance < 0.1:
            acts = [self.compact, self.frame, self.vacuum] if chance < 0.03 else [self.compact]
        act = self.random.choice(acts)
        if act():
            self.counts[act.__name__] += 1
        self.note()

    # What is done. Each returns whether it did something.

    def append(self):
        given = [c for c in self.columns if c in (self.at, self.row) or self.random.random() < 0.7]
        made = []
        for _ in range(self.random.randrange(1, 4)):
            row = {c: self.value(c) for c in given}
            row |= {c: c.write for c in self.columns if c not in given}
            row[self.at] = self.moment(self.at.kind)
            row[self.row] = self.made
            if self.keyed and self.rows and self.random.random() < 0.5:
                row[self.row] = self.random.choice([*self.rows])
            self.made += 1
            made.append(row)
        schema = pa.schema([(c.name, c.arrow) for c in given])
        rows = [{c.name: c.of_row(row) for c in given} for row in made]
        given_rows = pa.Table.from_pylist(rows, schema=schema)
        if self.keyed:
            upsert(self.table, given_rows, missing="null")
        else:
            append(self.table, given_rows)
        self.rows |= {row[self.row]: row for row in made}
        return True

    def delete(self):
        some = self.some_rows()
        if not some:
            return False
        if self.keyed and self.random.random() < 0.5:
            delete(self.table, keys=pa.table({self.row.name: pa.array(some, self.row.kind)}))
        else:
            delete(self.table, where=self.where(some))
        for number in some:
            del self.rows[number]
        return True

    def update(self):
        column, some = self.other(), self.some_rows()
        if self.keyed or column is None or column.shape or not some:
            return False
        value = self.value(column)
        text = isinstance(value, str)
        update(self.table, {column.name: f"'{value}'" if text else value}, self.where(some))
        for number in some:
            self.rows[number][column] = value
        return True

    def compact(self):
        compaction.run(self.table, policy=compaction.Policy(target_bytes=2**20))
        return True

    def frame(self):
        self.table.write_keyframe()
        return True

    def vacuum(self):
        self.check()
        self.table.clock.advance(7_200_000)
        hours = dt.timedelta(0)
        vacuum(self.table, dry_run=False, retention=hours, staging=hours)
        kept = self.table.refresh().meta.horizon
        self.at_version = {v: one for v, one in self.at_version.items() if v >= kept}
        return True

    def add(self):
        column, defaults = self.part(), None
        if column.shape is None and self.random.random() < 0.5:
            column.initial, column.write = (
                self.value(column) if self.random.random() < 0.7 else None for _ in range(2)
            )
            defaults = {column.name: {"initial": column.initial, "write": column.write}}
        self.columns.append(column)
        self.table.add_columns([pa.field(column.name, column.arrow)], defaults)
        return True

    def drop(self):
        column = self.other()
        if column is None:
            return False
        self.columns.remove(column)
        self.table.drop_columns([column.name])
        return True

    def rename(self):
        column = self.random.choice(self.columns)
        old, column.name = column.name, self.name()
        self.table.rename_column(old, column.name)
        return True

    def widen(self):
        column = self.random.choice(self.columns)
        if column.kind not in WIDER:
            return False
        column.kind = WIDER[column.kind]
        self.table.widen_column(column.name, column.kind)
        return True

    def reorder(self):
        some = self.random.sample(self.columns, self.random.randrange(1, len(self.columns) + 1))
        self.columns = [*some, *(c for c in self.columns if c not in some)]
        self.table.reorder_columns([c.name for c in some])
        return True

    def relax(self):
        if self.keyed or self.row.nullable:  # a key and the time column stay required
            return False
        self.row.nullable = True
        self.table.relax_columns([self.row.name])
        return True

    def add_field(self):
        path, struct = self.inner("struct")
        if struct is None:
            return False
        new = self.part(depth=len(path))
        self.table.add_columns([pa.field(new.name, new.arrow)], within=path)
        struct.parts.append(new)
        return True

    def drop_field(self):
        path, struct = self.inner("struct")
        if struct is None or len(struct.parts) < 2:
            return False
        part = struct.parts.pop(self.random.randrange(len(struct.parts)))
        self.table.drop_columns([[*path, part.name]])
        return True

    def rename_field(self):
        path, struct = self.inner("struct")
        if struct is None:
            return False
        part = self.random.choice(struct.parts)
        old, part.name = part.name, self.name()
        self.table.rename_column([*path, old], part.name)
        return True

    def widen_field(self):
        found = [
            (path, part)
            for column in self.columns
            for path, part in column.inside()
            if len(path) > 1 and part.kind in WIDER
        ]
        if not found:
            return False
        path, part = self.random.choice(found)
        part.kind = WIDER[part.kind]
        self.table.widen_column([*path], part.kind)
        return True

    # What it is done with.

    def name(self):
        """A name that is free now; one that was dropped comes back now and then."""
        taken = {part.name for column in self.columns for _, part in column.inside()}
        self.names += 1
        free = [name for name in "abcdefghijklmnopqrstuvwxyz" if name not in taken]
        return self.random.choice(free or [f"n{self.names}"])

    def part(self, depth=0):
        """A new column, or a field at a depth."""
        shape = self.random.choice(["struct", "list", "map"]) if self.random.random() < 0.3 else ""
        return self.named_part(self.name(), shape if depth < 4 else "")

    def named_part(self, name, shape):
        if not shape:
            return Part(name, self.random.choice(KINDS))
        if shape == "struct":
            names = self.random.sample("abcdefghijklmnopqrstuvwxyz", self.random.randrange(1, 4))
            return Part(name, None, shape, [Part(n, self.random.choice(KINDS)) for n in names])
        inner = self.random.choice(["", "", "struct"])
        end = "element" if shape == "list" else "value"
        return Part(name, None, shape, [self.named_part(end, inner)])

    def other(self):
        rest = [c for c in self.columns if c not in (self.at, self.row)]
        return self.random.choice(rest) if rest else None

    def inner(self, shape):
        """A part of a shape, and its path."""
        parts = [one for column in self.columns for one in column.inside() if one[1].shape == shape]
        path, part = self.random.choice(parts) if parts else ((), None)
        return [*path], part

    def some_rows(self):
        return self.random.sample([*self.rows], min(len(self.rows), self.random.randrange(1, 3)))

    def where(self, numbers):
        return f'"{self.row.name}" in ({", ".join(map(str, numbers))})'

    def moment(self, kind):
        found = START + dt.timedelta(hours=self.random.randrange(60))
        if kind == pa.date32():
            return found.date()
        return found.replace(tzinfo=None) if kind == NTZ else found

    def value(self, part):
        if self.random.random() < 0.15 and part not in (self.at, self.row):
            return None
        if part.shape == "struct":
            return {inner: self.value(inner) for inner in part.parts}
        if part.shape == "list":
            return [self.value(part.parts[0]) for _ in range(self.random.randrange(3))]
        if part.shape == "map":
            keys = self.random.sample("xyz", self.random.randrange(3))
            return [(key, self.value(part.parts[0])) for key in keys]
        return self.scalar(part.kind)

    def scalar(self, kind):
        number = self.random.randrange(-9, 9)
        if pa.types.is_temporal(kind):
            return self.moment(kind)
        if pa.types.is_string(kind):
            return f"v{number}"
        if pa.types.is_binary(kind):
            return bytes([number % 256])
        if pa.types.is_boolean(kind):
            return number > 0
        if pa.types.is_decimal(kind):
            return Decimal(number) / 4
        if pa.types.is_floating(kind):
            return number / 2
        return number * (10 ** (kind.bit_width // 16))

    # What is checked.

    def check(self):
        """Read each version back, and count by a predicate of each column that has one."""
        for version, (schema, expected, row) in self.at_version.items():
            found = scan(self.table, version=version).to_table()
            assert found.schema == schema, version
            assert_same_rows(found.to_pylist(), expected, row, version)
            for name, kind in zip(schema.names, schema.types, strict=True):
                where, right = self.condition(name, kind, [one[name] for one in expected])
                assert count(self.table, where, version=version) == right, (version, where)

    def check_in_duckdb(self):
        """Read each version through a stream of Arrow in DuckDB."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for version, (_, expected, row) in self.at_version.items():
                rows = scan(self.table, version=version).to_reader()  # noqa: F841 - DuckDB reads it
                found = connection.sql("SELECT * FROM rows").to_arrow_table()
                assert_same_rows(found.to_pylist(), expected, row, version)

    def condition(self, name, kind, values):
        """A predicate of a column, and the number of rows that pass it."""
        some = next((v for v in values if v is not None), None)
        if some is None or pa.types.is_nested(kind) or pa.types.is_binary(kind):
            if pa.types.is_nested(kind):
                return "TRUE", len(values)
            return f'"{name}" IS NULL', values.count(None)
        if pa.types.is_boolean(kind):
            return f'"{name}" = {some}', values.count(some)
        quoted = pa.types.is_string(kind) or pa.types.is_temporal(kind)
        literal = f"'{some}'" if quoted else str(some)
        return f'"{name}" >= {literal}', sum(v is not None and v >= some for v in values)


def assert_same_rows(found, expected, row, version):
    """Check rows, which a column numbers, whatever their order."""
    key = itemgetter(row)
    assert sorted(found, key=key) == sorted(expected, key=key), version


def play_columns(seed, store=None, *, keyed=False, steps=STEPS):
    """Play one chain, check it at every version, and return it.

    Raises:
        AssertionError: a version is not what the model says.
    """
    chain = Chain(seed, store, keyed=keyed)
    for _ in range(steps):
        chain.step()
    chain.check()
    chain.check_in_duckdb()
    found = fsck(chain.table, checksums=True, keys=keyed).findings
    assert not [one for one in found if one.severity == "error"], found
    chain.compact()
    chain.note()
    chain.check()
    chain.counts |= {"versions": len(chain.at_version), "chains": 1}
    return chain


def play_keyed_columns(seed):
    """Play one chain of a keyed table."""
    return play_columns(seed, keyed=True)


def rare_columns(counts):
    """What many chains had too rarely to prove anything."""
    played = counts["chains"]
    least = dict.fromkeys(
        ("append", "add", "drop", "rename", "widen", "reorder", "delete", "compact"), 0.5
    )
    least |= dict.fromkeys(("add_field", "drop_field", "rename_field", "widen_field"), 0.1)
    least |= {"relax": 0.2, "vacuum": 0.05, "frame": 0.05}
    if played < ENOUGH_TO_TELL:
        return {}
    return {name: counts[name] for name, few in least.items() if counts[name] < few * played}
