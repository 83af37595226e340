"""Write the golden table `stems`. Run by hand, once a format, as `make.py`.

Its key frames have stems: leaves and stems are made small on purpose. The segments have no objects.
"""

import datetime as dt
import hashlib
import sys

import pyarrow as pa
from golden import make
from pyroaring import BitMap64

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format.deletion_vectors import encode_bitmap
from eventlog.format.frames import entry_columns
from eventlog.model.actions import Add, DeleteRows
from eventlog.model.entries import ColumnStats, Segment, Vector
from eventlog.state.delta import drop_of

NAME = "stems"
SMALL = {
    "INLINE_SEGMENTS": 2,
    "LEAF_TARGET": 2,
    "LEAF_SMALL": 1,
    "LEAF_MAX": 4,
    "ROOT_LEAVES": 6,
    "STEM_TARGET": 3,
    "STEM_SMALL": 2,
}


def staged(t: Table, clock: ManualClock, day: int, n: int = 0) -> Add:
    """Return an add of a day; some have no bounds of the second column, or no statistics of it."""
    low = day * make.DAY_US
    values = ColumnStats(2, n, 10 * day + n, n % 2) if day % 4 else ColumnStats(2, None, None, 8)
    stats = (ColumnStats(1, low, low + n, 0), values, ColumnStats(3, f"a{day}", None, 1))
    chunk = (dt.date(1970, 1, 1) + dt.timedelta(day)).isoformat()
    checksum = hashlib.sha256(f"{day} {n}".encode()).hexdigest()
    epoch = t.session.head().version
    return Add(clock.random_id(), chunk, epoch, 8, 900 + n, checksum, 1, stats[: 2 + day % 2])


def entries(t: Table) -> list[Segment]:
    """Return the live entries, in the order of leaves."""
    found = t.session.head().entries().sort_by(entry_columns.ORDER)
    return entry_columns.to_segments(found)


def make_stems(clock: ManualClock) -> None:
    """Stems that stay, that are cut again and that vanish, and leaves that the root has again."""
    schema = make.PLAIN.append(pa.field("text", pa.string()))
    t = make.open_at(NAME, schema, clock, properties={"keyframe_commits": "2"})

    def add(*days: int, each: int = 1) -> None:
        clock.advance(1000)
        adds = [staged(t, clock, day, n) for day in days for n in range(each)]
        t.commit(t.transaction("append", adds))

    def drop(first: int, last: int) -> None:
        clock.advance(1000)
        gone = [s for s in entries(t) if first <= int(s.stats[0].min or 0) // make.DAY_US <= last]
        t.commit(t.transaction("drop", [drop_of(segment) for segment in gone]))

    add(*range(1, 17), each=2)  # version 1 has a key frame of many leaves
    add(3)
    add(3, 12)  # of the stems some are cut again
    (first, *_) = entries(t)
    vector = Vector(2, encode_bitmap(BitMap64([1, 5])))
    deleted = DeleteRows(first.id, first.chunk, drop_of(first).hash, vector)
    t.commit(t.transaction("delete", [deleted]))
    add(30, each=5)
    add(31)
    drop(9, 15)  # a stem, or its leaves, vanish
    add(32)
    drop(2, 31)  # so few leaves are left that the root has them
    add(33)
    add(34)
    add(35)
    add(*range(40, 50), each=2)
    add(41)
    add(50)
    add(51)


def main() -> int:
    """Write the table."""
    with make.writing(NAME, **SMALL):
        make_stems(ManualClock(make.START_MS, seed=2041))
    return 0


if __name__ == "__main__":
    sys.exit(main())
