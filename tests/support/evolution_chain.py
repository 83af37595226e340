"""Random chains of changes of columns beside a model that knows rows by columns of its own."""

import datetime as dt
import random
from decimal import Decimal
from itertools import pairwise
from operator import itemgetter

import pyarrow as pa

from eventlog import compaction
from eventlog.readers import count, scan
from eventlog.writers import append

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
WIDER = {
    **dict(pairwise(_INTEGERS)),
    pa.float32(): pa.float64(),
    pa.decimal128(5, 2): pa.decimal128(12, 2),
    pa.decimal128(12, 2): pa.decimal128(30, 2),
}
KINDS = [pa.int8(), pa.int16(), pa.float32(), pa.string(), pa.decimal128(5, 2), pa.bool_()]
START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)


class Part:
    """A column, or a field of a struct: an object of its own, whatever it is called."""

    def __init__(self, name, kind, initial=None, write=None, parts=None):
        self.name, self.kind, self.parts = name, kind, parts
        self.initial, self.write = initial, write

    @property
    def arrow(self):
        if self.parts is None:
            return self.kind
        return pa.struct([(part.name, part.arrow) for part in self.parts])

    def shown(self, row):
        """The value of a row; rows have the values of parts by identity."""
        if self not in row:
            return self.initial
        value = row[self]
        if self.parts is None or value is None:
            return value
        return {part.name: value.get(part) for part in self.parts}


class Chain:
    """A table, and what it must show at each version.

    Args:
        table: without rows, of the columns `at` and `row`.
        seed: of the chain.
    """

    def __init__(self, table, seed):
        self.table, self.random, self.names = table, random.Random(seed), 0
        self.at, self.row = Part("at", pa.timestamp("us", "UTC")), Part("row", pa.int64())
        self.columns, self.rows, self.at_version = [self.at, self.row], [], {}
        self.note()

    def note(self):
        """Keep what the newest version must show."""
        shown = [{c.name: c.shown(row) for c in self.columns} for row in self.rows]
        fields = [(c.name, c.arrow) for c in self.columns]
        self.at_version[self.table.refresh().version] = fields, shown

    def step(self):
        """Do one random thing."""
        acts = [
            self.append,
            self.append,
            self.add,
            self.drop,
            self.rename,
            self.widen,
            self.reorder,
            self.add_field,
            self.drop_field,
            self.rename_field,
            self.widen_field,
        ]
        if self.random.random() < 0.08:
            acts = [self.compact]
        self.random.choice(acts)()
        self.note()

    # What is done.

    def append(self):
        given = [c for c in self.columns if c in (self.at, self.row) or self.random.random() < 0.7]
        made = []
        for _ in range(self.random.randrange(1, 4)):
            row = {c: self.value(c) for c in given}
            row |= {c: c.write for c in self.columns if c not in given}
            row[self.at] = START + dt.timedelta(hours=self.random.randrange(60))
            row[self.row] = len(self.rows) + len(made)
            made.append(row)
        self.rows += made
        schema = pa.schema([(c.name, c.arrow) for c in given])
        rows = [{c.name: c.shown(row) for c in given} for row in made]
        append(self.table, pa.Table.from_pylist(rows, schema=schema))

    def compact(self):
        compaction.run(self.table, policy=compaction.Policy(target_bytes=2**20))

    def add(self):
        if self.random.random() < 0.25:
            parts = []
            for _ in range(self.random.randrange(1, 4)):
                parts.append(self.part([part.name for part in parts]))
            column, defaults = Part(self.name(), None, parts=parts), None
        else:
            column = self.part()
            if self.random.random() < 0.5:
                column.initial, column.write = (
                    self.value(column) if self.random.random() < 0.7 else None for _ in range(2)
                )
            both = {"initial": column.initial, "write": column.write}
            defaults = {column.name: both}
        self.columns.append(column)
        self.table.add_columns([pa.field(column.name, column.arrow)], defaults)

    def drop(self):
        column = self.other()
        if column:
            self.columns.remove(column)
            self.table.drop_columns([column.name])

    def rename(self):
        column = self.random.choice(self.columns)
        old, column.name = column.name, self.name()
        self.table.rename_column(old, column.name)

    def widen(self):
        column = self.other()
        if column and column.kind in WIDER:
            column.kind = WIDER[column.kind]
            self.table.widen_column(column.name, column.kind)

    def reorder(self):
        some = self.random.sample(self.columns, self.random.randrange(1, len(self.columns) + 1))
        self.columns = [*some, *(c for c in self.columns if c not in some)]
        self.table.reorder_columns([c.name for c in some])

    def add_field(self):
        if column := self.struct():
            column.parts.append(self.part())
            new = column.parts[-1]
            self.table.add_columns([pa.field(new.name, new.arrow)], within=column.name)

    def drop_field(self):
        column = self.struct()
        if column and len(column.parts) > 1:
            part = column.parts.pop(self.random.randrange(len(column.parts)))
            self.table.drop_columns([[column.name, part.name]])

    def rename_field(self):
        if column := self.struct():
            part = self.random.choice(column.parts)
            old, part.name = part.name, self.name()
            self.table.rename_column([column.name, old], part.name)

    def widen_field(self):
        if column := self.struct():
            part = self.random.choice(column.parts)
            if part.kind in WIDER:
                part.kind = WIDER[part.kind]
                self.table.widen_column([column.name, part.name], part.kind)

    # What it is done with.

    def name(self, but=()):
        """A name that is free now; one that was dropped comes back now and then."""
        taken = {*but, *(c.name for c in self.columns)}
        taken |= {part.name for c in self.columns for part in c.parts or ()}
        self.names += 1
        free = [name for name in "abcdefghijklmnopqrstuvwxyz" if name not in taken]
        return self.random.choice(free or [f"n{self.names}"])

    def part(self, but=()):
        return Part(self.name(but), self.random.choice(KINDS))

    def other(self):
        rest = [c for c in self.columns if c not in (self.at, self.row)]
        return self.random.choice(rest) if rest else None

    def struct(self):
        rest = [c for c in self.columns if c.parts]
        return self.random.choice(rest) if rest else None

    def value(self, part):
        if self.random.random() < 0.15 and part not in (self.at, self.row):
            return None
        if part.parts is not None:
            return {inner: self.value(inner) for inner in part.parts}
        kind, number = part.kind, self.random.randrange(-9, 9)
        if pa.types.is_string(kind):
            return f"v{number}"
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
        for version, (fields, expected) in self.at_version.items():
            found = scan(self.table, version=version).to_table()
            assert found.schema == pa.schema(fields), version
            key = itemgetter(next(name for name, _ in fields if self.is_row(version, name)))
            assert sorted(found.to_pylist(), key=key) == sorted(expected, key=key), version
            for name, kind in fields:
                values = [row[name] for row in expected]
                some = next((v for v in values if v is not None), None)
                if pa.types.is_integer(kind) and some is not None:
                    where = f'"{name}" >= {some}'
                    right = sum(v is not None and v >= some for v in values)
                elif pa.types.is_string(kind) and some is not None:
                    where, right = f"\"{name}\" = '{some}'", values.count(some)
                elif not pa.types.is_nested(kind):
                    where, right = f'"{name}" IS NULL', values.count(None)
                else:
                    continue
                assert count(self.table, where, version=version) == right, (version, where)

    def is_row(self, version, name):
        """Whether a name is that of the column of row numbers, at a version."""
        stored = self.table.snapshot(version).stored_schema
        return any(c.id == 2 and c.name == name for c in stored.columns)
