"""Write the golden tables `inline` and `inline_keys`, whose small segments stand in commits.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_inline.py

Void transactions of which each breaks one condition of FORMAT.md F6 about their bytes alone stand
in version 5 of `inline`.
"""

import sys
from unittest.mock import patch

import msgspec
import pyarrow as pa
from golden import make
from golden.make_timeless import SCHEMA, change_keys, rows
from golden.make_whole import put, staged, void
from msgspec import UNSET, UnsetType

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import Add, Replace
from eventlog.model.entries import Tail
from eventlog.model.records import Transaction
from eventlog.readers import scan
from eventlog.state.delta import drop_of
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, overwrite

NAMES = ("inline", "inline_keys")


def created(name: str, clock: ManualClock, **options: object) -> Table:
    """Create one of the tables."""
    store = LocalStore(make.TABLES / name, ManualClock(seed=1))  # names of temporary files
    options["properties"] = {"keyframe_commits": "4", "inline_bytes": "2000"}
    return Table.create("", SCHEMA, store=store, clock=clock, **options)


def voids(t: Table) -> list[Transaction]:
    """Return transactions whose bytes are not what they need to be, after one that is right."""
    fresh = lambda **fields: msgspec.structs.replace(
        staged(t, rows(t.session.head().schema.names, x=1))[0], **fields
    )
    head, good = t.session.head(), fresh()
    assert not isinstance(good.parquet, UnsetType)
    return [
        t.transaction("append", [good]),
        void(t, "F6", [fresh(parquet=b"PAR1")]),
        void(t, "F6", [fresh(bytes=good.bytes + 1)]),
        void(t, "F6", [fresh(tail=Tail(1, good.checksum))]),
        void(t, "F6", [fresh(inline=1)]),
        void(t, "F6", [fresh(parquet=UNSET, inline=1)]),
        void(t, "F6", [fresh(parquet=UNSET, inline=head.version + 1)]),
    ]


def large() -> pa.Table:
    """Return rows that take too many bytes for a commit."""
    codes = [f"{number:032x}" for number in range(100)]
    return pa.table([codes, [None] * 100], schema=SCHEMA)


def make_inline(clock: ManualClock) -> None:
    """Appends, a delete by position, a change of columns, a rewrite and a restore."""
    t = created("inline", clock)
    append(t, rows(SCHEMA.names, ams=1, ber=2))
    append(t, rows(SCHEMA.names, cph=None, osl=4), app_id="loader", app_seq=1)
    append(t, large())
    delete(t, where="n = 2")
    put(t, voids(t))
    t.rename_column("n", "number")
    overwrite(t, rows(t.session.head().schema.names, osl=5), where="code = 'osl'")
    t.add_columns({"more": "string"})
    append(t, pa.table({"code": ["sto"], "number": [7], "more": ["new"]}))
    append(t, pa.table({"code": ["got"], "number": [8], "more": ["newer"]}))
    head = t.session.head()
    live = head.segments()
    adds = [_stored(t, add) for add in staged(t, scan(t, version=head.version).to_table())]
    actions = [Replace(head.version, 0), *(drop_of(segment) for segment in live), *adds]
    t.commit(t.transaction("compact", actions))
    append(t, pa.table({"code": ["mmx"], "number": [9], "more": [None]}))
    t.write_keyframe()
    with patch("eventlog.log.spills.SPILL_BYTES", 100):
        t.restore(head.version)
    append(t, pa.table({"code": ["cdg"], "number": [10], "more": [None]}))
    t.write_keyframe()
    append(t, pa.table({"code": ["orl"], "number": [11], "more": ["last"]}))
    version = t.session.head().version
    t.restore(version - 1)
    t.restore(version)


def _stored(t: Table, add: Add) -> Add:
    """Store the object of a segment, as the results of rewrites are."""
    if isinstance(add.parquet, UnsetType):
        return add
    key = f"data/{add.epoch:012d}/{add.chunk}/{add.id}.parquet"
    assert t.store.put_if_absent(key, add.parquet)
    return msgspec.structs.replace(add, parquet=UNSET)


def make_inline_keys(clock: ManualClock) -> None:
    """Rows of keys, in two buckets."""
    change_keys(created("inline_keys", clock, key="code", buckets=2))


def main() -> int:
    """Write the tables."""
    leaves = {"INLINE_SEGMENTS": 5, "LEAF_TARGET": 3, "LEAF_SMALL": 1, "LEAF_MAX": 4}
    with make.writing(*NAMES, **leaves):
        make_inline(ManualClock(make.START_MS, seed=2051))
        make_inline_keys(ManualClock(make.START_MS, seed=2052))
    return 0


if __name__ == "__main__":
    sys.exit(main())
