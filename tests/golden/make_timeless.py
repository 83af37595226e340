"""Write the golden tables `timeless` and `timeless_keys`, which have no time column.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_timeless.py

Void transactions of which each breaks one condition of FORMAT.md R7.14 alone stand in version 4 of
`timeless`.
"""

import sys

import msgspec
import pyarrow as pa
from golden import make
from golden.make_keyed import merged
from golden.make_whole import put, staged, void

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import Replace, SetGranularity
from eventlog.model.entries import Segment
from eventlog.model.records import Transaction
from eventlog.readers import scan
from eventlog.state.delta import drop_of
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, overwrite, upsert

NAMES = ("timeless", "timeless_keys")
SCHEMA = pa.schema([pa.field("code", pa.string(), nullable=False), ("n", pa.int64())])


def rows(names: list[str], **numbers: int | None) -> pa.Table:
    """A row for each number, with its name as the code."""
    columns = [[*numbers], [*numbers.values()]]
    typed = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, names=names)


def created(name: str, clock: ManualClock, **options: object) -> Table:
    """Create one of the tables."""
    store = LocalStore(make.TABLES / name, ManualClock(seed=1))  # names of temporary files
    options["properties"] = {"keyframe_commits": "4"}
    return Table.create("", SCHEMA, store=store, clock=clock, **options)


def voids(t: Table) -> list[Transaction]:
    """Return transactions that need a time column."""
    (fresh,) = staged(t, rows(SCHEMA.names, x=1))
    return [
        void(t, "F6", [msgspec.structs.replace(fresh, chunk="2013")]),
        void(t, "R14.4", [SetGranularity("all", "day")]),
        void(t, "R14.4", [SetGranularity("all", "all")]),
    ]


def make_timeless(clock: ManualClock) -> None:
    """Every change of rows, a renamed column, a rewrite and a restore."""
    t = created("timeless", clock)
    append(t, rows(SCHEMA.names, ams=1, ber=2))
    append(t, rows(SCHEMA.names, cph=None, osl=4), app_id="loader", app_seq=1)
    delete(t, where="n = 2")
    put(t, voids(t))
    t.rename_column("n", "number")
    overwrite(t, rows(t.session.head().schema.names, ams=5), where="code = 'ams'")
    head = t.session.head()
    live: list[Segment] = head.segments()
    adds = staged(t, scan(t, version=head.version).to_table())
    actions = [Replace(head.version, 0), *(drop_of(segment) for segment in live), *adds]
    t.commit(t.transaction("compact", actions))
    overwrite(t, rows(t.session.head().schema.names, osl=7))
    t.restore(head.version)
    append(t, rows(t.session.head().schema.names, sto=8))


def change_keys(t: Table) -> None:
    """Commit upserts, deletes and a merge of slices, and write a key frame."""
    upsert(t, rows(SCHEMA.names, ams=1, ber=2, cph=3))
    upsert(t, rows(SCHEMA.names, ber=4, osl=None))
    delete(t, keys=pa.table({"code": ["cph", "nowhere"]}))
    merged(t, "all", (0, 1), (1, t.session.head().version))
    upsert(t, rows(SCHEMA.names, cph=5, ams=6))
    t.write_keyframe()


def make_timeless_keys(clock: ManualClock) -> None:
    """Rows of keys, in two buckets."""
    change_keys(created("timeless_keys", clock, key="code", buckets=2))


def main() -> int:
    """Write the tables."""
    with make.writing(*NAMES):
        make_timeless(ManualClock(make.START_MS, seed=2034))
        make_timeless_keys(ManualClock(make.START_MS, seed=2035))
    return 0


if __name__ == "__main__":
    sys.exit(main())
