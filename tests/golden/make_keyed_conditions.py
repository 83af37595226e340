"""Write the golden table `keyed_conditions`: what a single condition decides in a keyed table.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_keyed_conditions.py

As `make_conditions.py` for FORMAT.md F11 and R15.16. Each chunk has a letter, for the conditions
that are tried in it.
"""

import hashlib
import string
import sys

import pyarrow as pa
from golden import make, make_whole
from golden.make_conditions import live
from golden.make_rules import good
from msgspec.structs import replace

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import (
    Action,
    Add,
    DeleteRows,
    Drop,
    Merge,
    PropertyChange,
    Release,
    Replace,
    Restore,
    SetBuckets,
    SetOrigin,
    SetProperties,
)
from eventlog.model.entries import Segment, Slice, StoredBitmap, Vector
from eventlog.model.records import Transaction
from eventlog.state.delta import drop_of

NAME = "keyed_conditions"
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
    ]
)
CHUNKS = {letter: f"1970-01-{n + 1:02}" for n, letter in enumerate(string.ascii_uppercase)}
# In which versions a chunk gets a log of buckets 0 to 3.
LOGS = {
    1: "ABCEHIJKLPQTUVWX",
    2: "ABEGHIJKLPQSTU",
    3: "AEGPQRTU",
    4: "AEFGPQRT",
}
ROWS = 2  # of each log
void, put, HASH = make_whole.void, make_whole.put, make_whole.HASH
VECTOR = Vector(1, stored=StoredBitmap(0, HASH[:32], 4, 42, HASH))


def log(t: Table, letter: str, first: int = 0, last: int = 3, **fields: object) -> Add:
    """Return an add of rows as they are written; `at` is the version that they are placed at."""
    at, id_, rows = fields.pop("at", None), fields.pop("id", t.clock.random_id()), ROWS
    place = replace(Slice("log", first, last, at, at, 0), **fields)
    return make_whole._add(t, id=id_, chunk=CHUNKS[letter], rows=rows, slice=place)


def of(t: Table, letter: str) -> list[Segment]:
    """Return the live segments of a chunk, in the order of their versions."""
    return [s for s in live(t) if s.chunk == CHUNKS[letter]]


def drops(t: Table, letter: str, versions: int = 4) -> list[Drop]:
    """Return drops of what a chunk has from the first versions."""
    return [drop_of(s) for s in of(t, letter) if s.slice.low <= versions]


def merge(
    t: Table,
    letter: str,
    span: tuple[int, int],
    buckets: tuple[int, int] = (0, 3),
    *,
    kind: str = "base",
    rows: int | None = None,
    **fields: object,
) -> list[Action]:
    """Return a merge of what a chunk has live of these buckets and versions, and its output."""
    (low, high), (first, last) = span, buckets
    run = [
        s
        for s in of(t, letter)
        if s.slice.low <= high
        and low <= s.slice.high
        and s.slice.first <= last
        and first <= s.slice.last
    ]
    total = sum(s.rows for s in run)
    rows = total if rows is None else rows
    level = max((s.slice.level for s in run), default=0) + 1
    named = tuple(sorted(s.id for s in run))
    made = Merge(4, CHUNKS[letter], first, last, low, high, named, rows, 0)
    place = Slice(kind, first, last, low, high, level)
    out = make_whole._add(t, chunk=CHUNKS[letter], rows=rows, slice=place)
    return [replace(made, **fields), out]


def start(t: Table) -> None:
    """Four versions of logs; merges and restores that the conditions need."""
    for version, letters in LOGS.items():
        adds = [log(t, letter) for letter in letters]
        if version == 1:
            adds += [log(t, "N"), log(t, "O", 0, 1), log(t, "R", 2, 3), log(t, "S", 2, 3)]
        if version == 2:
            adds += [log(t, "N", 2, 3), log(t, "O", 0, 1), log(t, "R", 2, 3)]
        if version == 3:
            begin = hashlib.sha256(b"repeated").hexdigest()
            again = begin[:8] + hashlib.sha256(begin[:8].encode()).hexdigest()[:8] + begin[16:32]
            adds.append(log(t, "X", id=again))
        put(t, [good(t, *adds)])
    (late,) = (s for s in of(t, "P") if s.version == 4)
    put(
        t,
        [
            good(t, *merge(t, "G", (2, 3)), *drops(t, "G", 3)),
            good(t, *merge(t, "O", (1, 2), (1, 1), rows=1)),
            good(t, *merge(t, "T", (3, 4), kind="log")),
            good(t, *merge(t, "R", (3, 4), (0, 1), rows=1)),
            good(t, *merge(t, "S", (2, 2), (0, 1), rows=1)),
            good(t, Restore(4), drop_of(late)),
        ],
    )
    back = make_whole._add(
        t, id=late.id, chunk=late.chunk, rows=ROWS, epoch=late.epoch, slice=late.slice
    )
    put(t, [good(t, Restore(4), back), good(t, make_whole.claim(t))])


def added(t: Table) -> list[Transaction]:
    """What is added without a merge: places, ordinals, and what an overwrite leaves."""
    version = t.session.head().version + 1
    (only,) = of(t, "C")
    four = {"read_version": 4}
    return [
        good(t, log(t, "Y", ordinal=0)),
        void(t, "F11", [log(t, "Y", ordinal=0)]),  # its ordinal is 1
        void(t, "F11", [Replace(4, 0), drop_of(only), log(t, "C")]),
        void(t, "R20.3", [DeleteRows(only.id, only.chunk, drop_of(only).hash, VECTOR)]),
        void(t, "F6", [replace(log(t, "A"), vector=VECTOR)]),
        void(t, "F11", [log(t, "A", low=None, high=version)]),
        void(t, "F11", [log(t, "A", low=version, high=None)]),
        void(t, "F11", [Restore(4), log(t, "A", low=3, high=2)]),
        void(t, "F11", [Restore(4), log(t, "A", low=3, high=version + 1)]),
        void(t, "F11", [log(t, "D", at=1)], **four),
        void(t, "F11", [log(t, "D", low=4, high=version)], **four),
        void(t, "F11", [*drops(t, "A", 3), log(t, "A")], **four),  # what was read, too
        void(t, "F11", [log(t, "F", at=4)], **four),
        void(t, "F11", [log(t, "G", at=1)], read_version=1),  # below a base
        good(t, log(t, "D", at=4), log(t, "A"), read_version=4),
        good(t, *drops(t, "E", 3), log(t, "E", at=3), read_version=3),
    ]


def merged(t: Table) -> list[Transaction]:
    """Merges: buckets, inputs, outputs, rows, and what lies above."""
    version = t.session.head().version
    whole, out = merge(t, "A", (1, 4))
    place = lambda **f: replace(out, id=t.clock.random_id(), slice=replace(out.slice, **f))
    named = lambda letter, *low: tuple(
        sorted(s.id for s in of(t, letter) if s.slice.low in low and s.slice.kind == "log")
    )
    pair = lambda letter: [
        merge(t, letter, (1, 2), buckets, rows=rows) for buckets, rows in (((0, 1), 1), ((2, 3), 3))
    ]
    beside, other = pair("H"), pair("I")
    (elsewhere, _) = of(t, "B")
    ((lease, held),) = t.session.head().meta.claims.items()
    below = {"inputs": named("P", 1, 2, 3)}
    return [
        void(t, "F11", [replace(whole, splits=1), out]),
        void(t, "F11", [replace(whole, first=2, last=1, rows=0)]),
        void(t, "F11", [*merge(t, "A", (1, 2)), *merge(t, "A", (3, 4), kind="log")]),
        void(t, "F11", [*beside[0], *merge(t, "H", (1, 2), (1, 3))]),  # bucket 1 twice
        void(t, "F11", [*merge(t, "H", (1, 2), (1, 3)), *beside[0]]),
        void(t, "F11", [whole, out, replace(place(high=3), rows=0)]),
        void(t, "F11", merge(t, "A", (1, 4), (10, 11))),  # of nothing
        void(t, "F11", merge(t, "G", (3, 4))),  # from within a base
        void(t, "F11", merge(t, "G", (2, 2))),
        void(t, "F11", merge(t, "A", (1, 4), kind="log")),
        void(t, "F11", [whole, place(last=2), replace(place(first=3, kind="log"), rows=0)]),
        void(t, "F11", merge(t, "N", (1, 2), rows=2 * ROWS - 1)),
        void(t, "F11", [whole, out, drop_of(elsewhere)]),
        void(t, "F3", [whole, out, SetProperties(())], until=version + 9),
        # P has its last log from a restore, after the version that these are planned at.
        void(t, "F11", merge(t, "P", (1, 3), version=4, **below)),
        void(t, "F11", merge(t, "P", (1, 3), version=5, **below)),
        void(t, "F11", merge(t, "R", (1, 2), version=version)),  # a base lies above
        good(
            t,
            *merge(t, "L", (1, 2)),
            *drops(t, "L"),
            Release(lease, held.token),
            until=version + 9,
        ),
        good(t, *merge(t, "P", (1, 4))),
        good(t, *merge(t, "Q", (1, 3))),
        good(t, *merge(t, "S", (1, 2), rows=ROWS)),
        good(t, *merge(t, "O", (1, 2), (0, 1), rows=2 * ROWS)),
        good(t, *beside[0], *beside[1]),
        good(t, *other[1], *other[0]),
        good(t, *merge(t, "J", (1, 2)), *merge(t, "K", (1, 2))),
    ]


def settings(t: Table) -> list[Transaction]:
    """A property that has no meaning; numbers of buckets."""
    change = lambda name: SetProperties((PropertyChange(name, None, "last"),))
    return [
        good(t, change("merged")),
        void(t, "R15.16", [SetBuckets(1024, 2048)]),
        good(t, SetBuckets(2048, 4096)),
        void(t, "R15.16", [SetBuckets(4096, 8192)]),
    ]


def above_origins(t: Table) -> None:
    """Overwrites of what was read before a merge of two logs, and rows that lie below its token."""
    origin = SetOrigin("5e" * 32, None, 1, HASH)
    put(t, [good(t, origin, log(t, "W"))])
    token = t.session.head().version
    put(t, [good(t, log(t, "W"), log(t, "V"))])
    put(t, [good(t, log(t, "V"))])
    planned = {"version": t.session.head().version, "kind": "log"}
    spans = {"W": (token, token + 1), "V": (token + 1, token + 2)}
    put(t, [good(t, *merge(t, letter, span, **planned)) for letter, span in spans.items()])
    old = {"read_version": 2}
    overwritten = lambda letter: [*drops(t, letter, 2), log(t, letter)]
    put(
        t,
        [
            void(t, "F11", overwritten("T"), **old),  # a merged log is left
            void(t, "F11", overwritten("W"), **old),
            void(t, "F11", overwritten("X"), **old),  # repeated rows are left
            good(t, *overwritten("U"), **old),
            good(t, *overwritten("V"), **old),
            good(t, replace(origin, old=1, version=2), *overwritten("T"), **old),
        ],
    )


def make_keyed_conditions(clock: ManualClock) -> None:
    """The conditions of each of these."""
    options = {"key": ["at", "id"], "buckets": 2048, "granularity": "day"}
    properties = {"keyframe_commits": "1000"}
    t = make.open_at(NAME, SCHEMA, clock, properties=properties, **options)
    start(t)
    put(t, added(t))
    put(t, merged(t))
    above_origins(t)
    put(t, settings(t))
    t.write_keyframe()


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_keyed_conditions(ManualClock(make.START_MS, seed=2023))
    return 0


if __name__ == "__main__":
    sys.exit(main())
