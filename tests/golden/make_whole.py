"""Write the golden table `whole`: every object and every action in one table, and what is void.

    .venv/bin/python tests/golden/make_whole.py

Like the other tables it is written once a format (`make.py` says why). Three of its commits are no
release's work: they hold transactions that take no effect, one for each rule that says so.
"""

import datetime as dt
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from golden import make

from eventlog import Ms, Table
from eventlog.clock import ManualClock
from eventlog.commit.proposal import propose
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.model.actions import (
    Ack,
    Action,
    Add,
    Assess,
    Attach,
    Break,
    ChunkChange,
    Detach,
    Fence,
    Horizon,
    PropertyChange,
    Release,
    Renew,
    Replace,
    Restore,
    SameSegments,
    SetClock,
    SetGranularity,
    SetLayout,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    TakeClaim,
    Unchanged,
    Unpin,
)
from eventlog.model.entries import Analysed, ChunkState, ColumnStats, Schema, Sweep, Tail
from eventlog.model.records import App, Token, Transaction
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.state import fold
from eventlog.state.delta import drop_of
from eventlog.writers import append, overwrite

NAME = "whole"
DAY_MS = 86_400_000
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("n", pa.int64()),
        ("name", pa.string()),
        ("celsius", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
    ]
)
HASH = "ab" * 32
# Which rule voids a transaction stands in its `info`, for tests of other implementations.
RULE = "void by"


def rows(first: int, count: int, *, days: int = 1) -> pa.Table:
    """Rows over so many days of 1970; every fifth has nulls."""
    made = []
    for n in range(first, first + count):
        at = dt.datetime(1970, 1, 1 + n % days, 6, n % 60, tzinfo=dt.UTC)
        row = {
            "at": at,
            "n": n,
            "name": f"größe {n} " + "long " * (n % 6 // 5 * 5),
            "flag": n % 2 == 0,
        }
        more = {"celsius": -n / 4, "price": Decimal(n) / 8 * 2}
        made.append({"at": at} if n % 5 == 4 else row | more)
    return pa.Table.from_pylist(made, schema=SCHEMA)


def staged(t: Table, data: pa.Table) -> tuple[Add, ...]:
    """Store rows as segments at the head that the handle knows."""
    with Stager(t.store, t.clock, Recipe.of(t.session.head())) as stager:
        for batch in data.to_batches():
            stager.write(batch)
        return tuple(stager.finish())


def void(t: Table, rule: str, actions: Sequence[Action], **fields: object) -> Transaction:
    """Return a transaction that takes no effect, and says by which rule."""
    options = {"read_version": t.session.head().version, "info": {RULE: rule}, **fields}
    more = {name: options.pop(name) for name in ("until", "id") if name in options}
    made = t.transaction("void", actions, **options)
    return Transaction(**{f: getattr(made, f) for f in made.__struct_fields__} | more)


def put(t: Table, transactions: Sequence[Transaction], time_ms: int | None = None) -> None:
    """Commit transactions whatever the fold says of them, as no writer may."""
    # Another handle, which knows nothing of the ids that were drawn here.
    other = Table.open(t.uri, store=t.store, clock=t.clock)
    head, view = other.session.log.load_view(other.session.head(), transactions)
    time_ms = max(t.clock.now_ms(), head.header.time + 1) if time_ms is None else time_ms
    effect = fold.judge(transactions, view, time_ms)
    made = propose(head, transactions, effect, table_id=t.id, time_ms=time_ms, log=t.session.log)
    for key, body in made.objects.items():
        t.store.put_if_absent(key, body)
    assert t.store.put_if_absent(keys.commit_key(head.version + 1), made.body)
    t.refresh()


def claim(t: Table, start: int = 0, end: int = DAY_MS, **fields: object) -> TakeClaim:
    """Return the action that takes a claim."""
    known = {"kind": "exclusive", "priority": 0, "group": "another", "owner": "golden"}
    known |= {"id": t.clock.random_id(), "segments": ()} | fields
    return TakeClaim(start=start, end=end, **known)


def voids_of_segments(t: Table) -> list[Transaction]:
    """Return transactions that F1 to F8 and F10 void, after one that takes effect."""
    head = t.session.head()
    version = head.version + 1
    live = entry_columns.to_segments(head.entries())
    one, two, late = live[0], live[1], max(live, key=lambda s: s.version)
    fresh = lambda **f: _add(t, **f)
    good = t.transaction("append", staged(t, rows(60, 2)))
    done = next(iter(head.meta.published))
    columns = head.stored_schema.columns
    shorter = Schema(head.stored_schema.id + 1, columns[:-1])
    changed = SetProperties((PropertyChange("user.note", "not this", "new"),))
    wrong = drop_of(one)
    wrong = type(wrong)(wrong.id, wrong.chunk, HASH)
    planned = Replace(head.version, 0)
    twice = void(t, "F1", [fresh()], id=good.id)
    return [
        good,
        twice,
        void(t, "F2", [fresh()], app=App("loader", 1)),
        void(t, "F3", [fresh()], until=version - 1),
        void(t, "F3", [fresh()], until=version + 65),
        void(t, "F3", [fresh()], until=version + 8, id=done),
        void(t, "F3", [drop_of(one), fresh()], until=version + 8),
        void(t, "F4", [SetLayout(head.state.stored_layout)]),
        void(t, "F4", [SetSchema(head.stored_schema)]),
        void(t, "F4", [SetSchema(shorter)]),
        void(t, "F4", [changed]),
        void(t, "F4", [Fence(0)]),
        void(t, "F4", [Fence(version + 1)]),
        void(t, "F5", [wrong]),
        void(t, "F5", [drop_of(one), drop_of(one)]),
        void(t, "F5", [drop_of(s) for s in [_entry(t)]]),
        void(t, "F6", [fresh(epoch=version)]),
        void(t, "F6", [fresh(schema=99)]),
        void(t, "F6", [fresh(id="zz")]),
        void(t, "F6", [fresh(chunk="1970-02-30")]),
        void(t, "F6", [fresh(checksum="none")]),
        void(t, "F6", [fresh(tail=Tail(1_000_000, HASH))]),
        void(t, "F6", [fresh(stats=(ColumnStats(2, 1, 1, 0), ColumnStats(1, 1, 1, 0)))]),
        void(t, "F6", [fresh(stats=(ColumnStats(99, 1, 1, 0),))]),
        void(t, "F6", [fresh(stats=(ColumnStats(2, "a", "b", 0),))]),
        void(t, "F6", [fresh(id=one.id, chunk=one.chunk)]),
        void(t, "F6", [drop_of(one), fresh(id=one.id, chunk=one.chunk)]),
        void(t, "F6", [fresh(id=good.actions[0].id)]),
        void(t, "F7", [Unchanged(0, 40 * DAY_MS), fresh()], read_version=0),
        void(t, "F7", [SameSegments(HASH), fresh()]),
        void(t, "F7", [SameSegments(head.hash_sum()), fresh()]),
        void(t, "F8", [fresh()], claim=Token("0" * 32, 1)),
        void(t, "F10", [planned, planned, drop_of(one), fresh(rows=one.rows)]),
        void(t, "F10", [planned, fresh()]),
        void(t, "F10", [Replace(version, 0), drop_of(one), fresh(rows=one.rows)]),
        void(t, "F10", [Replace(late.version - 1, 0), drop_of(late), fresh(rows=late.rows)]),
        void(t, "F10", [planned, drop_of(one), drop_of(two), fresh(rows=one.rows + two.rows + 1)]),
    ]


def voids_of_marks(t: Table) -> list[Transaction]:
    """Return transactions that the fold voids, and one that takes effect at the end."""
    head = t.session.head()
    version, meta = head.version + 1, head.meta
    pin, (held, lease) = meta.pins["first"], next(iter(meta.claims.items()))
    token = meta.replicas["mirror"].token
    state = ChunkState("stable", version, 1)
    known = meta.analysed
    return [
        void(t, "F6", [_add(t, epoch=meta.fence - 1)]),
        void(t, "R10.3", [SetClock(head.version, head.header.time, 5)]),
        void(t, "R12.1", [Horizon(meta.horizon)]),
        void(t, "R12.1", [Horizon(version)]),
        void(t, "R12.1", [Horizon(pin.version + 1)]),
        void(t, "R12.2", [SetPin("first", head.version, "golden")]),
        void(t, "R12.2", [SetPin("early", meta.horizon - 1, "golden")]),
        void(t, "R12.2", [SetPin("", head.version, "golden")]),
        void(t, "R12.2", [Unpin("first", "another", pin.token)]),
        void(t, "R12.2", [Unpin("first", "golden", pin.token + 1)]),
        void(t, "R12.2", [Attach("mirror", head.version, "golden")]),
        void(t, "R12.2", [Ack("mirror", token, version)]),
        void(t, "R12.2", [Detach("mirror", token + 1)]),
        void(t, "R12.2", [Break("claim", held, lease.token, lease.renewed - 1)]),
        void(t, "R12.3", [Restore(meta.horizon - 1), _add(t)]),
        void(t, "R12.6", [Swept(Sweep(meta.fence + 1, 0, head.version))]),
        void(t, "R13.2", [claim(t, lease.start, lease.end, group="third")]),
        void(t, "R13.4", [claim(t, 5, 5)]),
        void(t, "R13.4", [claim(t, 0, 1, segments=("zz",))]),
        void(t, "R13.5", [Renew(held, lease.token + 1)]),
        void(t, "R13.5", [Release("0" * 32, 1)]),
        void(t, "R14.4", [SetGranularity("hour", "all")]),
        void(t, "R14.6", [Assess(None, known, ())]),
        void(t, "R14.6", [Assess(known, Analysed(version, HASH), ())]),
        void(t, "R14.6", [Assess(known, Analysed(0, "none"), ())]),
        void(t, "R14.6", [Assess(known, known, (ChunkChange("1970-01-01", state),))]),
        t.transaction("append", staged(t, rows(70, 1))),
    ]


def _add(t: Table, **fields: object) -> Add:
    """Return an add of a segment that has no object."""
    known = {
        "id": t.clock.random_id(),
        "chunk": "1970-01-01",
        "epoch": t.session.head().version,
        "rows": 1,
    }
    known |= {"bytes": 1000, "checksum": HASH, "schema": 1, "stats": (), "tail": None} | fields
    return Add(**known)


def _entry(t: Table) -> object:
    """Return an entry that is not live."""
    add = _add(t)
    return fold.segment_of(add, 1, 0)


def make_whole(clock: ManualClock) -> None:
    """Every object and every action, and transactions that are void."""
    properties = {"keyframe_commits": "8", "stats_columns": "celsius,at", "user.note": "größe"}
    t = make.open_at(NAME, SCHEMA, clock, properties=properties)
    append(t, rows(0, 6, days=3), app_id="loader", app_seq=1)
    make.publish(t, rows(6, 2))
    make.publish(t, rows(8, 1))
    append(t, rows(10, 2))  # takes them along
    several = [SetPin("first", 2, "golden"), Attach("mirror", 2, "golden"), claim(t)]
    t.commit(t.transaction("marks", several))
    t.add_columns(SCHEMA.append(pa.field("added", pa.string())))
    wide = rows(12, 4, days=4).append_column("added", pa.array([f"x{n}" for n in range(4)]))
    with patch("eventlog.log.spills.SPILL_BYTES", 1000):
        append(t, wide)
    put(t, voids_of_segments(t))
    read = [
        s for s in entry_columns.to_segments(t.session.head().entries()) if s.chunk == "1970-01-01"
    ]
    planned = t.session.head().version
    # A claim of the same group on the same range is the one that stands.
    lease = t.claim(Ms(0), Ms(DAY_MS), group="another", owner="golden")
    lease.renew()
    again = rows(0, sum(s.rows for s in read) - 1)  # one row is deleted
    rewrite = [Replace(planned, 1), *map(drop_of, read), *staged(t, again)]
    t.commit(t.transaction("compact", rewrite, read_version=planned, claim=lease.token))
    second = {"start": "1970-01-02", "end": "1970-01-03", "missing": "null"}
    overwrite(t, rows(1, 1, days=2), isolation="serializable", **second)
    clock.advance(-40 * DAY_MS)
    t.set_clock()
    clock.advance(2 * DAY_MS)
    t.commit(
        t.transaction("ack", [Ack("mirror", t.session.head().meta.replicas["mirror"].token, 9)])
    )
    _keep(t, clock)


def _keep(t: Table, clock: ManualClock) -> None:
    """Vacuum, restore, note an analysis; then what is void by the marks that this left."""
    unpin = Unpin("first", "golden", t.session.head().meta.pins["first"].token)
    t.commit(t.transaction("pin", [unpin, SetPin("first", 9, "golden")]))
    head = t.session.head().version
    vacuum(t, dry_run=False, retention=dt.timedelta(hours=1), staging=dt.timedelta(hours=1))
    assert t.session.head().version == head + 2
    overwrite(t, rows(5, 1, days=3), start="1970-01-03", end="1970-01-06", missing="null")
    t.restore(t.session.head().version - 1)
    noted = Analysed(t.session.head().version, "cd" * 32)
    state = ChunkState("unstable", 9, 2, 1, make.START_MS)
    t.commit(t.transaction("assess", [Assess(None, noted, (ChunkChange("1970-01-01", state),))]))
    put(t, voids_of_marks(t))
    granular = SetGranularity("day", "month")
    note = PropertyChange("user.note", t.session.head().properties["user.note"], None)
    t.commit(t.transaction("settings", [granular, SetProperties((note,))]))
    append(t, rows(80, 3, days=3), app_id="loader", app_seq=2)
    t.break_claim(next(iter(t.claims())))
    clock.advance(DAY_MS)
    vacuum(t, dry_run=False, retention=dt.timedelta(hours=12), staging=dt.timedelta(hours=12))
    append(t, rows(90, 1))


def main() -> int:
    """Write the table."""
    leaves = {"INLINE_SEGMENTS": 5, "LEAF_TARGET": 4, "LEAF_SMALL": 2, "LEAF_MAX": 10}
    tails = patch("eventlog.limits.WHOLE_BYTES", 1600)  # so that some objects have tails
    with make.writing(NAME, **leaves), tails:
        make_whole(ManualClock(make.START_MS, seed=2016))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
