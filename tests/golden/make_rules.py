"""Write the golden table `rules`: what decides between readings of the rules of the fold.

    .venv/bin/python tests/golden/make_rules.py

Metadata only: no segment has an object. Like the other tables it is written once a format. Most of
its commits are no release's work: they hold several transactions, accepted and void ones.
"""

import sys
from unittest.mock import patch

import msgspec
import pyarrow as pa
from golden import make, make_whole

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format.frames import entry_columns
from eventlog.model.actions import (
    Ack,
    Action,
    Add,
    Assess,
    Attach,
    ChunkChange,
    Drop,
    Fence,
    Horizon,
    PropertyChange,
    Release,
    Replace,
    Restore,
    SetClock,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    Unchanged,
)
from eventlog.model.columns.ids import TOP, added_id
from eventlog.model.entries import (
    Analysed,
    ChunkState,
    Column,
    ColumnStats,
    Schema,
    Segment,
    Spill,
    Sweep,
)
from eventlog.model.records import App, Token, Transaction
from eventlog.state import fold
from eventlog.state.delta import add_of, drop_of

NAME = "rules"
DAY = make_whole.DAY_MS
HASH = make_whole.HASH
SCHEMA = pa.schema(
    [pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False), ("n", pa.int64())]
)
claim, put, void, fresh = make_whole.claim, make_whole.put, make_whole.void, make_whole._add


def good(t: Table, *actions: Action, **fields: object) -> Transaction:
    """Return a transaction that takes effect."""
    made = t.transaction(fields.pop("operation", "change"), actions)
    return Transaction(**{f: getattr(made, f) for f in made.__struct_fields__} | fields)


def own(t: Table, add: Add, partition: int) -> Segment:
    """Return the entry that an add of the next commit becomes."""
    return fold.segment_of(add, t.session.head().version + 1, partition)


def claims(t: Table) -> list[Transaction]:
    """Claims: the same group again, taken ids, shared ones, on segments, revoked ones."""
    first = claim(t, group="one")
    shared = [claim(t, 5 * DAY, 6 * DAY, kind="shared", group=g) for g in ("two", "three")]
    low, high = (claim(t, 5 * DAY, 6 * DAY, group="four", priority=priority) for priority in (0, 1))
    ids = sorted(t.clock.random_id() for _ in range(3))
    named = [claim(t, 20 * DAY, 21 * DAY, segments=(i,), group="five") for i in ids[:2]]
    both = claim(t, 30 * DAY, 31 * DAY, segments=tuple(ids[1:]), group="six")
    again = {"group": "one", "owner": "another"}
    token = Token(shared[0].id, t.session.head().version + 1)
    return [
        good(t, first),
        good(t, claim(t, priority=-1, **again)),  # R13.3: of the same group, without effect
        good(t, claim(t, id=first.id, **again)),  # before a taken id is looked at
        void(t, "R13.4", [claim(t, **{**again, "owner": ""})]),  # after the form
        void(t, "R13.2", [claim(t, **again, kind="shared")]),  # another kind is another claim
        void(t, "R13.2", [claim(t, 0, DAY - 1, **again)]),  # and so is another range
        void(t, "R13.4", [claim(t, 10 * DAY, 11 * DAY, id=first.id)]),
        good(t, claim(t, DAY, 2 * DAY)),  # begins where the first one ends
        *(good(t, one) for one in shared),
        good(t, fresh(t, chunk="1970-02-01"), claim=token),
        void(t, "R13.2", [low]),
        good(t, high),  # revokes both
        void(t, "R13.2", [claim(t, 4 * DAY, 6 * DAY, group="seven")]),  # of lower priority
        void(t, "F8", [fresh(t)], claim=token),
        void(t, "R13.5", [Release(shared[1].id, token.token)]),
        *(good(t, one) for one in named),
        void(t, "R13.2", [both]),
        void(t, "R13.2", [claim(t, 20 * DAY, 21 * DAY)]),  # the range against segments in it
        good(t, Release(named[1].id, token.token), both),  # in one transaction
        void(t, "R13.4", [claim(t, 40 * DAY, 41 * DAY, segments=tuple(ids[1::-1]))]),
        void(t, "R13.4", [claim(t, 40 * DAY, 41 * DAY, segments=(ids[0], ids[0]))]),
    ]


def drops(t: Table) -> list[Transaction]:
    """Adds and drops of one commit: what later transactions of it see."""
    live = {s.id: s for s in entry_columns.to_segments(t.session.head().entries())}
    old = min(live.values(), key=lambda s: (s.version, s.partition))
    adds = [fresh(t, chunk=f"1970-03-0{n + 1}") for n in range(4)]
    one, two, _, four = (own(t, add, n) for n, add in enumerate(adds))
    again = drop_of(two)
    late = good(t, fresh(t, chunk="1970-03-05"))
    early = void(t, "F6", [fresh(t, schema=99)], id=late.id)
    self_made = fresh(t)
    return [
        early,
        good(t, *adds[:3], operation="append"),
        void(t, "F5", [adds[3], drop_of(four)]),  # not its own adds
        good(t, again),
        void(t, "F5", [again]),
        void(t, "F6", [adds[1]]),  # added in the commit, though no longer live
        void(t, "F5", [Drop(one.id, "1970-03-02", drop_of(one).hash)]),
        good(t, drop_of(old)),
        void(t, "F5", [drop_of(old)]),
        void(t, "F6", [add_of(old)]),
        void(t, "F6", [self_made, self_made]),
        late,  # its id was void before
        void(t, "F1", [], id=late.id),
    ]


def back_again(t: Table) -> list[Transaction]:
    """Add an id again that the key frame has and that was dropped since; ranges of `unchanged`."""
    head = t.session.head()
    (gone,) = [s for s in entry_columns.to_segments(t.snapshot(1).entries()) if s.epoch == 0][:1]
    newer = max(entry_columns.to_segments(head.entries()), key=lambda s: (s.version, s.partition))
    start = make_whole.fold.parse_chunk(newer.chunk).start
    before = head.version - 1
    hour = 3_600_000
    inside = [Unchanged(start + hour, start + hour), Unchanged(start + 2 * hour, start + hour)]
    return [
        good(t, add_of(gone)),
        good(t, fresh(t, chunk="1970-05-05")),
        good(t, Unchanged(120 * DAY, 130 * DAY), fresh(t)),  # looks at what was before the commit
        *(void(t, "F7", [one], read_version=before) for one in inside),
        good(t, Unchanged(start, start), read_version=before),  # not inside of the chunk
        good(t, drop_of(newer)),
        void(t, "F7", [Unchanged(start, start + 1)], read_version=before),  # live before the commit
    ]


def schemas(t: Table) -> list[Transaction]:
    """Successors of a schema, and what is none."""
    at, n = t.session.head().stored_schema.columns
    required = Column(at.id, at.name, at.type, True)
    number = lambda name: added_id(TOP, name, ())
    new = Column(number("added"), "added", "string", True)
    change = msgspec.structs.replace
    nested: object = "int64"
    for _ in range(16):
        nested = {"list": {"id": 9, "type": nested}}
    parts = {"id": added_id(new.id, "element", ()), "type": "int64"}
    no_successors = [
        Schema(3, (at, n, new)),
        Schema(2, (at, n), ()),
        Schema(2, (at, n, Column(number("N"), "N", "string", True))),
        Schema(2, (at, n, change(new, nullable=False))),
        Schema(2, (at, n, change(new, id=3))),
        Schema(2, (at, n, change(new, id=2))),
        Schema(2, (at, n, change(new, id=0))),
        Schema(2, (at, n, change(new, id=new.id + 1))),
        Schema(2, (at, change(n, nullable=False))),
        Schema(2, (at, change(n, type="int32"))),
        Schema(2, (at, change(n, name="m"))),
        Schema(2, (at, n, change(new, type="uint64"))),
        Schema(2, (at, n, change(new, type={"set": parts}))),
        Schema(2, (at, n, change(new, type={"list": parts, "map": []}))),
        Schema(2, (at, n, change(new, type={"list": "int64"}))),
        Schema(2, (at, n, change(new, type={"list": parts | {"id": parts["id"] + 1}}))),
        Schema(2, (at, n, change(new, type=nested))),
    ]
    stats = (ColumnStats(new.id, "a", "b", 0),)
    return [
        *(void(t, "F4", [SetSchema(schema)]) for schema in no_successors),
        void(t, "F6", [fresh(t, schema=2)]),
        # The add is judged by the schema of its own transaction, wherever that stands.
        good(t, fresh(t, schema=2, stats=stats), SetSchema(Schema(2, (n, new, required)))),
        void(t, "F4", [SetSchema(Schema(3, (n, new, at)))]),  # required again
        void(t, "F4", [SetSchema(Schema(3, (n, new, required, Column(7, "x", "bool", True))))]),
    ]


def published(t: Table) -> list[Transaction]:
    """What may be published."""
    head = t.session.head()
    version = head.version + 1
    held = {claim.group: (i, claim.token) for i, claim in head.meta.claims.items()}
    (one, token), (six, sixth) = held["one"], held["six"]
    old = min(entry_columns.to_segments(head.entries()), key=lambda s: s.version)
    until = version + 8
    lease = Token(one, token)
    rewrite = [Replace(head.version, 0), drop_of(old), fresh(t, rows=old.rows)]
    return [
        void(t, "F3", [fresh(t)], until=until, claim=lease),
        void(t, "F3", [fresh(t), SetProperties(())], until=until),
        void(t, "F3", [drop_of(old)], until=until),
        void(t, "F3", [Release(one, token)], until=until),
        good(t, until=until),  # no action at all
        good(t, fresh(t), until=version + 64),
        good(t, *rewrite, Release(one, token), Release(six, sixth), until=version, claim=lease),
        void(t, "F8", [], claim=lease),  # it is released
    ]


def settings(t: Table) -> list[Transaction]:
    """Properties, app marks, notes, each after another in one commit; a clock ahead by little."""
    head = t.session.head()
    version, time_ms = head.version + 1, head.header.time + 1
    change = PropertyChange
    noted = Analysed(version - 1, HASH)
    old = min(entry_columns.to_segments(head.entries()), key=lambda s: (s.version, s.partition))
    state = ChunkState("deferred", version - 1, 1, 2, 5)
    return [
        good(t, SetProperties((change("user.a", None, "1"), change("user.a", "1", "2")))),
        void(t, "F4", [SetProperties((change("user.a", "2", "3"), change("user.a", "2", "4")))]),
        good(t, app=App("loader", 5)),
        void(t, "F2", [], app=App("loader", 5)),
        good(t, app=App("loader", 6)),
        good(t, Assess(None, noted, (ChunkChange("1970", state), ChunkChange("all", None)))),
        void(t, "R14.6", [Assess(noted, None, (ChunkChange("1971", None),) * 2)]),
        void(
            t, "R14.6", [Assess(noted, None, (ChunkChange("all", None), ChunkChange("1971", None)))]
        ),
        void(t, "R10.3", [SetClock(head.version, head.header.time, time_ms)]),
        good(t, drop_of(old)),
    ]


def corrections(t: Table, time_ms: int) -> list[Transaction]:
    """A commit that sets the clock back, once."""
    head = t.session.head()
    one = SetClock(head.version, head.header.time, time_ms)
    return [
        void(t, "R10.3", [one, one]),
        void(t, "R10.3", [SetClock(head.version, head.header.time, time_ms + 1)]),
        void(t, "R10.3", [SetClock(head.version - 1, head.header.time, time_ms)]),
        good(t, one),
        void(t, "R10.3", [one]),
    ]


def horizons(t: Table) -> list[Transaction]:
    """Fence, horizon, a vacuum's record, and what may be at them."""
    version = t.session.head().version + 1
    horizon = version - 3
    pending = Spill("none", 0, 0, 0)
    record = Swept(Sweep(2, horizon, version - 2))
    return [
        void(t, "F6", [fresh(t, epoch=1), Fence(2)]),  # the fence of the same transaction
        void(t, "R12.6", [record, Fence(2), Horizon(horizon)]),  # before they are there
        void(t, "R12.6", [Fence(2), Horizon(horizon), Swept(Sweep(2, 0, 1, pending))]),
        good(t, Fence(2), Horizon(horizon), record),
        void(t, "R12.6", [record]),
        void(t, "R12.6", [Swept(Sweep(1, horizon, version - 1))]),
        void(t, "R12.6", [Swept(Sweep(2, horizon - 1, version - 1))]),
        void(t, "R12.6", [Swept(Sweep(2, horizon, version))]),
        void(t, "R12.6", [Swept(Sweep(3, horizon, version - 1))]),  # above the fence
        void(t, "R12.6", [Swept(Sweep(2, horizon + 1, version - 1))]),
        void(t, "R12.1", [Horizon(horizon)]),
        void(t, "R12.2", [SetPin("below", horizon - 1, "golden")]),
        good(t, SetPin("at", horizon, "golden"), Attach("at", horizon, "golden")),
        void(t, "R12.2", [SetPin("future", version, "golden")]),
        void(t, "R12.2", [Ack("at", version, horizon)]),
        good(t, Ack("at", version, horizon + 1)),
        void(t, "R12.2", [Ack("at", version, horizon + 1)]),
        void(t, "R12.3", [Restore(version)]),
        void(t, "R12.3", [Restore(horizon - 1)]),
    ]


def restored(t: Table) -> list[Transaction]:
    """A restore from the horizon, of epochs below the fence; a fence at the version itself."""
    head = t.session.head()
    horizon = head.meta.horizon
    then = entry_columns.to_segments(t.snapshot(horizon).entries())
    now = {s.id for s in entry_columns.to_segments(head.entries())}
    back = [add_of(s) for s in then if s.id not in now]
    assert min(add.epoch for add in back) < head.meta.fence
    return [
        void(t, "F6", back),
        good(t, Restore(horizon), *back),
        void(t, "F4", [Fence(head.version + 2)]),
        good(t, Fence(head.version + 1)),
        void(t, "F6", [fresh(t)]),
    ]


def replicas(t: Table) -> list[Transaction]:
    """As many replicas as there may be, and one more."""
    version = t.session.head().version
    more = [
        Attach(f"r{n:02}", version, "o") for n in range(100 - len(t.session.head().meta.replicas))
    ]
    return [
        void(t, "R12.2", [*more, Attach("one more", version, "o")]),
        good(t, *more),
        void(t, "R12.2", [Attach("one more", version, "o")]),
    ]


def make_rules(clock: ManualClock) -> None:
    """One commit for each of these."""
    t = make.open_at(NAME, SCHEMA, clock, properties={"keyframe_commits": "1000"})
    first = good(t, *(fresh(t, chunk=f"1970-01-0{n}", epoch=0) for n in (1, 2, 3)))
    # Names and texts that look like the end of an object.
    names = [PropertyChange("app", None, "x"), PropertyChange("digest", None, HASH)]
    info = {"app": '"}', "digest": HASH}
    put(t, [first, good(t, SetProperties(tuple(names)), info=info)])
    t.write_keyframe()
    put(t, claims(t))
    put(t, drops(t))
    with patch("eventlog.log.spills.SPILL_BYTES", 500):
        put(t, drops(t))  # its delta is a spill, in which the commit's adds have a gap
        put(t, [good(t, fresh(t, chunk="1970-03-09"), fresh(t, chunk="1970-03-09"))])
    put(t, back_again(t))
    put(t, schemas(t))
    put(t, published(t))
    t.write_keyframe()
    put(t, settings(t))
    put(
        t,
        corrections(t, t.session.head().header.time - 40 * DAY),
        t.session.head().header.time - 40 * DAY,
    )
    put(t, horizons(t), t.session.head().header.time + 1)
    put(t, restored(t), t.session.head().header.time + 1)
    put(t, replicas(t), t.session.head().header.time + 1)
    t.write_keyframe()


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_rules(ManualClock(make.START_MS, seed=2017))
    return 0


if __name__ == "__main__":
    sys.exit(main())
