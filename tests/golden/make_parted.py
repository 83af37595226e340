"""Write golden tables of merges: copies that both took writes, and a branch that was published.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_parted.py

`parted` and `rejoined` share their versions up to 2. Each is merged into the other, `rejoined`
first, so that both have the same rows again (MERGING.md section 16); `parted_keys` and
`rejoined_keys` are the same with a key. `chosen` and `yielded`, and these two with a key, are made
one by their states, since somebody chose (R19.10). `published` has a branch whose commits it has as
one. Like the other tables they are written once a format, and once more where the rules of merging
change.
"""

import sys
from functools import cache
from itertools import count

import pyarrow as pa
from golden import make
from golden.make_whole import put, staged, void
from support.keyed_tables import merged

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format.frames.entry_columns import to_segments
from eventlog.model.chunks import parse_chunk
from eventlog.replication import follow, merge
from eventlog.state.delta import drop_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, upsert
from eventlog.writers.overwriting import overwrite_actions

NAMES = (
    "parted",
    "rejoined",
    "parted_keys",
    "rejoined_keys",
    "published",
    "chosen",
    "yielded",
    "chosen_keys",
    "yielded_keys",
)
ITEMS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("name", pa.string()),
    ]
)


ALL = (parse_chunk("all").start, parse_chunk("all").end)
DAY = {"start": "1970-01-01", "end": "1970-01-02"}


@cache
def store_of(name: str) -> MemoryStore:
    """Return the store of a table: its root is in the log of what was merged from it."""
    return MemoryStore(f"memory://{name}")


def created(name: str, schema: pa.Schema, clock: ManualClock, **options: object) -> Table:
    """Create one of the tables."""
    options = {"granularity": "day", "time_column": "at"} | options
    options["properties"] = {"keyframe_commits": "3"}
    store = store_of(name)
    return Table.create(store.uri, schema, store=store, clock=clock, **options)


def rows(*numbers: int) -> pa.Table:
    """Rows of two days of 1970."""
    at = [n % 2 * make.DAY_US + n for n in numbers]
    return pa.table([at, numbers], schema=make.PLAIN)


def make_parted(clock: ManualClock) -> None:
    """Appends, an overwrite of a day, a unit of work and a property; then both ways."""
    parted, rejoined = NAMES[:2]
    one = created(parted, make.PLAIN, clock)
    append(one, rows(0, 1), app_id="loader", app_seq=1)
    append(one, rows(2, 3))
    two = Table(store_of(rejoined), clock=clock)
    follow(one, two, clock=clock)
    clock.advance(1000)
    append(one, rows(10, 11), app_id="loader", app_seq=2)
    overwrite(one, rows(20), **DAY)
    one.set_properties({"user.note": "of the one"})
    clock.advance(1000)
    append(two, rows(31, 33))
    append(two, rows(35), app_id="other", app_seq=7)
    append(two, rows(37))
    merge(one, two, clock=clock)
    append(one, rows(40))
    merge(two, one, clock=clock)
    merge(one, two, clock=clock)


def items(name: str, *numbers: int) -> pa.Table:
    """Rows of a keyed table, each at the moment of its number."""
    return pa.table([numbers, numbers, [f"{name} {n}" for n in numbers]], schema=ITEMS)


def make_keys(clock: ManualClock) -> bool:
    """Upserts and deletes of the same keys on both sides; then both ways.

    Returns:
        Whether the last merge has repeated rows: the hashes of the logs decide which one does.
    """
    parted, rejoined = NAMES[2:4]
    one = created(parted, ITEMS, clock, granularity="all", key="id", buckets=2)
    upsert(one, items("first", *range(6)))
    delete(one, where="id = 5")
    two = Table(store_of(rejoined), clock=clock)
    follow(one, two, clock=clock)
    clock.advance(1000)
    upsert(one, items("of one", 0, 1, 10))
    clock.advance(1000)
    upsert(two, items("of two", 1, 2, 20))
    delete(two, where="id = 0")
    merge(one, two, clock=clock)
    upsert(one, items("later", 2, 11))
    merge(two, one, clock=clock)
    merge(one, two, clock=clock)
    seen = one.session.head().version
    if len(one.session.log.read(seen)[0].transactions[0].actions) < 3:
        return False
    overwrite_late(one, seen - 1)
    one.commit(merged(one, one.session.head(), "all", 0, 1, seen, seen))
    overwrite_late(one, seen - 1)
    return True


def overwrite_late(t: Table, seen: int) -> None:
    """Commit a void overwrite of what was live before a merge repeated some of its rows."""
    gone = to_segments(t.snapshot(seen).entries())
    adds = staged(t, items("instead", 0))
    actions = overwrite_actions(
        adds, [drop_of(s) for s in gone], *ALL, isolation="carry", read_version=seen
    )
    put(t, [void(t, "F11", actions, read_version=seen)])


def make_published(clock: ManualClock) -> None:
    """A branch of two commits, while its parent goes on."""
    t = created(NAMES[4], make.PLAIN, clock)
    append(t, rows(0, 1))
    audit = t.branch("audit")
    append(audit, rows(10, 11))
    overwrite(audit, rows(20), **DAY)
    append(t, rows(3))
    t.merge("audit")
    append(t, rows(5))


def make_chosen(clock: ManualClock) -> None:
    """A day and a property that both changed, units that both forgot; the first is chosen."""
    chosen, yielded = NAMES[5:7]
    one = created(chosen, make.PLAIN, clock)
    for seq in (1, 2, 3):
        append(one, rows(2 * seq, 2 * seq + 1), app_id="loader", app_seq=seq)
    two = Table(store_of(yielded), clock=clock)
    follow(one, two, clock=clock)
    clock.advance(1000)
    one.restore(2, forget_units=True)
    append(one, rows(20, 21), app_id="loader", app_seq=3)
    overwrite(one, rows(30), **DAY)
    one.set_properties({"user.note": "of the one"})
    clock.advance(1000)
    two.restore(1, forget_units=True)
    append(two, rows(40), app_id="loader", app_seq=2)
    append(two, rows(51), app_id="other", app_seq=7)
    two.set_properties({"user.note": "of the two"})
    merge(one, two, take="source", clock=clock)
    merge(two, one, clock=clock)
    merge(one, two, clock=clock)


def make_chosen_keys(clock: ManualClock) -> None:
    """Overwrites on both sides between upserts; the second is chosen."""
    chosen, yielded = NAMES[7:9]
    two = created(chosen, ITEMS, clock, granularity="all", key="id", buckets=2)
    upsert(two, items("first", *range(6)))
    one = Table(store_of(yielded), clock=clock)
    follow(two, one, clock=clock)
    for name, side in (("of one", one), ("of two", two)):
        clock.advance(1000)
        upsert(side, items(name, 0, 1, 10))
        overwrite(side, items(f"instead {name}", 2, 3))
        upsert(side, items(f"later {name}", 3, 4))
    merge(one, two, take="target", clock=clock)
    merge(two, one, clock=clock)
    upsert(one, items("last", 4))
    merge(one, two, clock=clock)


def main() -> int:
    """Write the tables."""
    with make.writing(*NAMES):
        make_parted(ManualClock(make.START_MS, seed=2029))
        seeds = count(2030)
        while not make_keys(ManualClock(make.START_MS, seed=next(seeds))):
            for name in NAMES[2:4]:
                store_of(name).delete([found.key for found in store_of(name).list("")])
        make_published(ManualClock(make.START_MS, seed=2031))
        make_chosen(ManualClock(make.START_MS, seed=2032))
        make_chosen_keys(ManualClock(make.START_MS, seed=2033))
    for name in NAMES:
        for found in store_of(name).list(""):
            path = make.TABLES / name / found.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store_of(name).get(found.key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
