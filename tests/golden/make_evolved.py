"""Write the golden table `evolved`: columns and fields that were changed in every way.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_evolved.py

Void schemas of which each breaks one condition of FORMAT.md R7.2, R7.11 or R7.12 alone stand
between the changes.
"""

import datetime as dt
import sys
from decimal import Decimal

import msgspec
import pyarrow as pa
from golden import make
from golden.make_whole import put, void

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import SetSchema
from eventlog.model.columns import evolution
from eventlog.model.columns.ids import added_id
from eventlog.model.entries import Column, Schema
from eventlog.model.records import Transaction
from eventlog.writers import append

NAME = "evolved"
INNER = pa.struct([("x", pa.int8()), ("y", pa.float32())])
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("n", pa.int8(), nullable=False),
        ("single", pa.float32()),
        ("price", pa.decimal128(5, 2)),
        ("place", pa.struct([("a", pa.int16()), ("in", INNER)])),
        ("many", pa.list_(INNER)),
        ("named", pa.map_(pa.string(), INNER)),
        ("gone", pa.string()),
        ("day", pa.date32()),
    ]
)
change = msgspec.structs.replace


def rows(schema: pa.Schema, first: int, count: int) -> pa.Table:
    """Rows in which each column has a value that its number decides."""

    def value(kind: pa.DataType, n: int) -> object:
        if pa.types.is_struct(kind):
            return {f.name: value(f.type, n) for f in kind} if n % 4 else None
        if pa.types.is_map(kind):
            return [(f"k{n}", value(kind.item_type, n)), ("none", None)]
        if pa.types.is_list(kind):
            return [value(kind.value_type, n), None][: n % 3]
        if pa.types.is_date(kind):
            return dt.date(1970, 1, n)
        if pa.types.is_timestamp(kind):
            zone = None if kind.tz is None else dt.UTC
            return dt.datetime(2013, 1, 1 + n % 2, tzinfo=zone)
        if pa.types.is_string(kind):
            return f"größe {n}"
        if pa.types.is_binary(kind):
            return bytes([n])
        if pa.types.is_boolean(kind):
            return n % 2 == 0
        return Decimal(n) / 4 if pa.types.is_decimal(kind) else n

    made = [{f.name: value(f.type, n) for f in schema} for n in range(first, first + count)]
    return pa.Table.from_pylist(made, schema=schema)


def voids(t: Table) -> list[Transaction]:
    """Return transactions with schemas that cannot follow."""
    old = t.session.head().stored_schema
    columns = {column.name: column for column in old.columns}

    def of(which: str, **fields: object) -> Schema:
        new = [change(c, **fields) if c.name == which else c for c in old.columns]
        return evolution.successor(old, new)

    def at_once(schema: Schema, **fields: object) -> Schema:
        return change(schema, **fields)

    def typed(name: str, old_text: str, new_text: str) -> Schema:
        text = msgspec.json.encode(columns[name].type).decode()
        assert old_text in text
        return of(name, type=msgspec.json.decode(text.replace(old_text, new_text, 1)))

    fewer = evolution.successor(old, [c for c in old.columns if c.name != "gone"])
    renamed, single = of("n", name="m"), columns["single"].id
    new = Column(added_id(0, "new", ()), "new", "int8", True)
    with_new = lambda column: change(old, id=old.id + 1, columns=(*old.columns, column), by_id=True)
    x = columns["place"].type["struct"][0]["id"]  # type: ignore[index]
    cases = [
        at_once(fewer, retired=msgspec.UNSET),
        at_once(fewer, retired=(columns["gone"].id, columns["gone"].id)),
        at_once(fewer, retired=(single, columns["gone"].id)),
        at_once(renamed, by_id=msgspec.UNSET),
        at_once(of("gone", name="N"), by_id=True),
        at_once(renamed, retired=()),
        of("n", type="uint16"),
        of("day", type="timestamp"),
        of("day", type="int32"),
        of("single", type="int32"),
        of("single", type="decimal(5,2)"),
        of("price", type="decimal(4,2)"),
        of("price", type="decimal(9,3)"),
        of("gone", type="binary"),
        of("place", type="string"),
        typed("place", '"name":"a","type":"int16"', '"name":"a","type":"int8"'),
        typed("place", '"name":"a"', '"name":"In"'),
        typed("place", f'"id":{x}', f'"id":{columns["n"].id}'),
        typed("many", '{"list":{"id":', '{"list":{"id":1'),
        typed("named", '"type":"string"', '"type":"binary"'),
        with_new(change(new, nullable=False)),
        with_new(change(new, initial=128)),
        with_new(change(new, write="1")),
        with_new(change(new, initial=True)),
        with_new(change(new, type="float32", initial=1)),
        with_new(change(new, type="decimal(3,0)", initial="1000")),
        with_new(change(new, type="binary", initial="0")),
        with_new(change(new, type="date", initial=1)),
        of("single", initial=0),
        evolution.successor(old, [c for c in old.columns if c.name != "at"]),
        evolution.successor(
            old, [c for c in old.columns if c.name != "n"]
        ),  # rows are sorted by it
    ]
    return [void(t, "F4", [SetSchema(schema)]) for schema in cases]


def make_evolved(clock: ManualClock) -> None:
    """Each kind of change of a column and of a field, with rows of before and after it."""
    t = make.open_at(NAME, SCHEMA, clock, order_by="n", properties={"keyframe_commits": "6"})
    append(t, rows(SCHEMA, 1, 6))
    put(t, voids(t))
    t.rename_column("n", "number")
    t.widen_column("number", pa.int32())
    t.widen_column("single", pa.float64())
    t.widen_column("price", pa.decimal128(20, 2))
    t.widen_column("day", pa.timestamp("us"))
    append(t, rows(t.session.head().schema, 7, 3))
    plain = [("n", pa.int64()), ("flag", pa.bool_()), ("double", pa.float64()), ("d", pa.date32())]
    t.add_columns(
        pa.schema(plain), {"n": -7, "flag": True, "double": -0.0, "d": dt.date(2013, 1, 7)}
    )
    more = [("word", pa.string()), ("units", pa.decimal128(9, 3)), ("raw", pa.binary())]
    t.add_columns(
        pa.schema(more),
        {
            "word": {"initial": "größe", "write": "new"},
            "units": {"initial": Decimal("-0.125")},
            "raw": {"write": b"\xff"},
        },
    )
    t.drop_columns(["gone", ["place", "in", "y"]])
    t.add_columns([pa.field("gone", pa.int8())])
    append(t, rows(t.session.head().schema, 10, 3).drop_columns(["n", "word", "units", "raw"]))
    t.rename_column(["many", "element", "x"], "z")
    t.widen_column(["named", "value", "y"], pa.float64())
    t.add_columns([pa.field("x", pa.string())], within=["many", "element"])
    t.reorder_columns(["x", "y"], within=["many", "element"])
    t.reorder_columns(["number", "gone"])
    t.relax_columns(["number"])
    t.widen_column("d", pa.timestamp("us"))
    append(t, rows(t.session.head().schema, 13, 3))


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_evolved(ManualClock(make.START_MS, seed=2032))
    return 0


if __name__ == "__main__":
    sys.exit(main())
