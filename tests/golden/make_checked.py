"""Write the golden table `checked`: checks, and rows of before and after each of them.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_checked.py

Void transactions of which each breaks one condition of FORMAT.md R7.13 alone stand in version 5.
"""

import datetime as dt
import sys

import msgspec
import pyarrow as pa
from golden import make
from golden.make_whole import put, void

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import Drop, Replace, Restore, SameSegments, SetSchema
from eventlog.model.columns import evolution
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.entries import Check, CheckColumn, Schema
from eventlog.model.records import Transaction
from eventlog.readers import scan
from eventlog.state.delta import drop_of
from eventlog.writers import append, delete
from eventlog.writers.batch import stage

MEMORY = 2**24
NAME = "checked"
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("n", pa.int64()),
        ("single", pa.float32()),
    ]
)
change = msgspec.structs.replace


def rows(names: list[str], *numbers: int | None) -> pa.Table:
    """One row of 2013-01-01 for each number."""
    at = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    columns = [[at] * len(numbers), [*numbers], [None if n is None else n / 2 for n in numbers]]
    typed = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, names=names)


def voids_of_schemas(t: Table) -> list[Transaction]:
    """Return transactions with checks that cannot follow."""
    old, sums = t.session.head().stored_schema, SameSegments(t.session.head().hash_sum())
    low, positive = checks_of(old)
    number, single = low.columns
    after = evolution.successor(old, old.columns)
    new = Check("mean", "single < 9", (single,), after.id)

    def having(*checks: Check, schema: Schema = after) -> Schema:
        return change(schema, checks=checks)

    def with_new(**fields: object) -> Schema:
        return having(low, change(new, **fields), positive)

    fewer = evolution.successor(old, [c for c in old.columns if c.id != number.id])
    wider = [change(c, type="float64") if c.id == single.id else c for c in old.columns]
    many = (change(new, name=f"mean {n:03}") for n in range(99))
    cases = [
        having(),
        having(low, *many, positive),
        having(change(low, name="Mean"), new),
        having(low, positive, new),
        with_new(name=""),
        having(low, change(new, name="m" * 256), positive),
        with_new(expression=""),
        with_new(expression="x" * 4097),
        with_new(columns=()),
        with_new(columns=(single, number)),
        with_new(columns=(single, single)),
        with_new(columns=(CheckColumn(99, "single"),)),
        with_new(columns=(number, CheckColumn(single.id, number.name.upper()))),
        with_new(schema=0),
        with_new(schema=old.id),
        with_new(schema=after.id + 1),
        having(change(low, expression="n > 0"), positive),
        having(low, positive, schema=fewer),
        having(low, positive, schema=evolution.successor(old, wider)),
    ]
    judged = [void(t, "F4", [sums, SetSchema(schema)]) for schema in cases]
    return [*judged, void(t, "R7.13", [SetSchema(with_new())])]


def voids_of_rows(t: Table) -> list[Transaction]:
    """Return transactions that add rows of before a check."""
    head = t.session.head()
    (fresh,) = stage(t, head, rows(["at", "number", "single"], 7), MEMORY)
    older = change(fresh, schema=1)
    live = head.segments()[0]
    other = t.clock.random_id()
    return [
        void(t, "F6", [older]),
        void(t, "F6", [Restore(1), change(older, id=other)]),
        void(t, "F6", [drop_of(live), older]),
    ]


def replacement(t: Table) -> Transaction:
    """Return a rewrite of all rows by a program that has read an older version."""
    head, planned = t.session.head(), t.snapshot(4)
    read = scan(t, version=head.version).to_table()
    adds = stage(t, planned, read, MEMORY)
    drops: list[Drop] = [drop_of(segment) for segment in head.segments()]
    return t.transaction("compact", [Replace(head.version, 0), *drops, *adds])


def make_checked(clock: ManualClock) -> None:
    """Checks in the first schema and in later ones, and each way that rows come under them."""
    t = make.open_at(
        NAME,
        SCHEMA,
        clock,
        properties={"keyframe_commits": "4"},
        checks={"low": "n > -100 AND single < 1e30"},
    )
    append(t, rows(SCHEMA.names, 1, 2, None))
    t.add_check("positive", "n > 0")
    t.rename_column("n", "number")
    append(t, rows(t.session.head().schema.names, 3, 4))
    put(t, [*voids_of_schemas(t), *voids_of_rows(t)])
    delete(t, where="number = 3 OR number = 1")
    t.add_check("m" * 255, "single < 9" + " " * 4086)
    t.restore(4)
    t.commit(replacement(t))
    t.drop_check("low")
    append(t, rows(t.session.head().schema.names, 5))


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_checked(ManualClock(make.START_MS, seed=2033))
    return 0


if __name__ == "__main__":
    sys.exit(main())
