"""Write the golden table `conditions`: what a single condition of the fold decides.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_conditions.py

Each transaction that is void here would take effect if one condition of its rule were missing, and
each that takes effect stands at the edge of one. The void transactions of other tables often break
several conditions at once. Metadata only: no segment has an object.
"""

import sys

from golden import make, make_whole
from golden.make_rules import SCHEMA, good
from msgspec.structs import replace

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format.frames import entry_columns
from eventlog.model.actions import (
    Ack,
    AppReset,
    AppRise,
    Assess,
    Attach,
    Break,
    ChunkChange,
    Detach,
    Fence,
    Horizon,
    Merge,
    Release,
    Renew,
    Replace,
    Restore,
    SameSegments,
    SetBuckets,
    SetClock,
    SetOrigin,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    Unchanged,
    Unpin,
)
from eventlog.model.columns.ids import TOP, added_id
from eventlog.model.entries import (
    Analysed,
    ChunkState,
    Column,
    ColumnStats,
    Schema,
    Slice,
    Spill,
    Sweep,
    Tail,
)
from eventlog.model.records import App, Token, Transaction
from eventlog.state.delta import drop_of

NAME = "conditions"
DAY, YEAR = make_whole.DAY_MS, 365 * make_whole.DAY_MS
HASH = make_whole.HASH
LONG = "ö" * 255  # characters are counted, not bytes
ONE, TWO = "3c" * 32, "4d" * 32  # names of origins
BEGIN, END = -62_135_596_800_000, 253_402_300_800_000  # of the years 1 to 9999
DECADE = 3653 * DAY
claim, put, void, fresh = make_whole.claim, make_whole.put, make_whole.void, make_whole._add


def live(t: Table) -> list:
    """Return the live segments, in the order of their commits."""
    found = entry_columns.to_segments(t.session.head().entries())
    return sorted(found, key=lambda s: (s.version, s.partition))


def pins(t: Table) -> list[Transaction]:
    """Pins and replicas, each alone: what holds a horizon, lengths, names, tokens, versions."""
    version = t.session.head().version + 1
    pin = lambda name="p", at=1, owner="o": SetPin(name, at, owner)
    attach = lambda name="r", at=1, owner="o": Attach(name, at, owner)
    lengths = [
        kind(**{field: text})
        for kind in (pin, attach)
        for field in ("name", "owner")
        for text in ("", LONG + "o")
    ]
    return [
        good(t, attach()),
        void(t, "R12.1", [Horizon(2)]),  # only a replica holds it
        void(t, "R12.2", [Ack("r", version + 1, 2)]),
        void(t, "R12.2", [Ack("another", version, 2)]),
        void(t, "R12.2", [Detach("another", version)]),
        void(t, "R12.2", [Break("replica", "r", version + 1, 0)]),
        void(t, "R12.2", [Break("pin", "r", version, 0)]),
        good(t, Detach("r", version)),
        good(t, pin()),
        void(t, "R12.1", [Horizon(2)]),  # only a pin holds it
        void(t, "R12.2", [Unpin("another", "o", version)]),
        void(t, "R12.2", [Break("pin", "p", version + 1, 0)]),
        good(t, Unpin("p", "o", version)),
        void(t, "R12.1", [Horizon(version)]),
        *(void(t, "R12.2", [one]) for one in lengths),
        good(t, pin(LONG, owner=LONG), attach(LONG, owner=LONG)),
        good(t, Unpin(LONG, LONG, version), Detach(LONG, version)),
        void(t, "R12.2", [attach(at=version)]),
        good(t, attach(at=version - 1), Detach("r", version)),
        good(t, attach(at=0), Detach("r", version)),  # at the horizon
    ]


def many(t: Table) -> list[Transaction]:
    """As many pins and states of chunks as there may be, and one more."""
    version = t.session.head().version + 1
    named = [SetPin(f"p{n:03}", 1, "o") for n in range(1000)]
    noted, state = Analysed(version - 1, HASH), ChunkState("stable", 1, 1)
    chunks = [ChunkChange(f"{1970 + n}", state) for n in range(501)]
    return [
        void(t, "R12.2", [*named, SetPin("one more", 1, "o")]),
        good(t, *named),
        void(t, "R12.2", [SetPin("one more", 1, "o")]),
        good(t, *(Unpin(pin.name, "o", version) for pin in named)),
        void(t, "R14.6", [Assess(None, noted, tuple(chunks))]),
        good(t, Assess(None, noted, tuple(chunks[:500]))),
        void(t, "R14.6", [Assess(noted, noted, (chunks[500],))]),
        void(t, "R14.6", [Assess(noted, noted, (ChunkChange("1970-13", None),))]),
        good(t, Assess(noted, None, tuple(ChunkChange(one.chunk, None) for one in chunks[:500]))),
        good(t, Assess(None, noted, ())),
        good(t, Assess(noted, None, ())),
    ]


def claims(t: Table) -> list[Transaction]:
    """Claims where no other is: ids, ranges, names; then beside one, and their tokens."""
    version = t.session.head().version + 1
    ids = sorted(t.clock.random_id() for _ in range(3))
    forms = [
        {"id": "0" * 31},
        {"id": "A" * 32},
        {"start": 5, "end": 5},
        {"start": 6, "end": 5},
        {"start": BEGIN - 1},
        {"end": END + 1},
        {"segments": ("zz",)},
        {"segments": (ids[1], ids[0])},
        {"segments": (ids[0], ids[0])},
        *({field: text} for field in ("group", "owner") for text in ("", LONG + "o")),
    ]
    whole = claim(t, BEGIN, END, group=LONG, owner=LONG)
    short = claim(t, group="g", owner="o")
    held = claim(t, 5 * DAY, 6 * DAY, group="held")
    beside = [claim(t, *at, group="beside") for at in ((DAY, 2 * DAY), (4 * DAY, 5 * DAY))]
    within = claim(t, 5 * DAY, 6 * DAY, group="within", segments=(ids[0],))
    return [
        *(void(t, "R13.4", [claim(t, **form)]) for form in forms),
        good(t, whole),
        good(t, Release(whole.id, version)),
        good(t, short, Release(short.id, version)),
        good(t, held),
        *(good(t, one) for one in beside),
        void(t, "R13.2", [within]),  # segments against a range
        void(t, "F8", [fresh(t)], claim=Token(held.id, version + 1)),
        void(t, "R13.5", [Renew("0" * 32, version)]),
        void(t, "R13.5", [Renew(held.id, version + 1)]),
        void(t, "R13.5", [Release(held.id, version + 1)]),
        void(t, "R12.2", [Break("claim", held.id, version + 1, version)]),
        good(t, *(Release(one.id, version) for one in (held, *beside))),
    ]


def sums(t: Table) -> list[Transaction]:
    """`same_segments` before anything else in its commit, and after a drop alone."""
    total = t.session.head().hash_sum()
    first, second = live(t)[:2]
    return [
        void(t, "F7", [SameSegments(HASH)]),
        good(t, SameSegments(total)),
        void(t, "F7", [drop_of(first), SameSegments(HASH)]),
        good(t, drop_of(first), SameSegments(total)),
        void(t, "F7", [SameSegments(total)]),
        good(t, drop_of(second)),
    ]


def segments(t: Table) -> list[Transaction]:
    """Adds and rewrites, and which chunks `unchanged` looks at."""
    head = t.session.head()
    late = live(t)[-1]
    begin = make_whole.fold.parse_chunk(late.chunk).start
    stats = ColumnStats(2, 1, 1, 0)
    here = Slice("log", 0, 0, None, None, 0)
    until = head.version + 9
    planned = Replace(head.version, 0)
    rewrite = [planned, drop_of(late), fresh(t, rows=late.rows)]
    seen = {"read_version": late.version - 1}
    return [
        void(t, "F6", [fresh(t, tail=Tail(10, "none"))]),
        void(t, "F6", [fresh(t, tail=Tail(1001, HASH))]),
        good(t, fresh(t, tail=Tail(1000, HASH))),
        void(t, "F6", [fresh(t, stats=(stats, stats))]),
        void(t, "F6", [fresh(t, tested=99)]),
        void(t, "F10", [planned]),
        void(t, "F10", [planned, fresh(t, rows=0)]),
        void(t, "F3", [*rewrite, SetProperties(())], until=until),
        void(t, "F11", [Merge(head.version, late.chunk, 0, 0, 1, 1, (late.id,), 0, 0)]),
        void(t, "F11", [fresh(t, slice=here)]),
        void(t, "F7", [Unchanged(begin + DAY - 1, begin + DAY)], **seen),
        good(t, Unchanged(begin + DAY, begin + 2 * DAY), **seen),
        good(t, Unchanged(begin + 2 * DAY, begin + 3 * DAY), **seen),
        void(t, "R15.16", [SetBuckets(1, 2)]),
    ]


def schemas(t: Table) -> list[Transaction]:
    """Schemas of which only the ids of columns are wrong; one that adds nothing."""
    at, n = t.session.head().stored_schema.columns
    one = added_id(TOP, "one", ())
    text = lambda number, name: Column(number, name, "string", True)
    return [
        void(t, "F4", [SetSchema(Schema(2, (at, text(2, "other"), n)))]),
        void(t, "F4", [SetSchema(Schema(2, (at, n, text(one, "one"), text(one, "two"))))]),
        void(t, "F4", [SetSchema(Schema(2, (at, n, text(one, "two"))))]),
        good(t, SetSchema(Schema(2, (n, at)))),
    ]


def restores(t: Table) -> list[Transaction]:
    """Sequences of apps that a restore changes, and origins that it names."""
    version = t.session.head().version + 1
    origin = lambda at, of=ONE, old=None: SetOrigin(of, old, at, HASH)
    reset = lambda old, new: {"loader": AppReset(old, new)}
    state = lambda at, of=ONE: Restore(at, origin=of)
    return [
        good(t, app=App("loader", 5)),
        good(t, app=App("stays", 5)),
        void(t, "R12.3", [Restore(version - 1, reset(4, 3))]),
        void(t, "R12.3", [Restore(version - 1, reset(None, 3))]),
        void(t, "R12.3", [Restore(version - 1, {"another": AppReset(1, None)})]),
        good(t, Restore(version - 1, reset(5, 3))),
        void(t, "R12.3", [origin(4), state(4, TWO)]),
        void(t, "R12.3", [origin(4), state(3)]),
        good(t, origin(4)),
        good(t, origin(5, old=4), state(5)),
    ]


def origins(t: Table) -> list[Transaction]:
    """The origin of an earlier commit; forms of origins; units at the edge of a sequence."""
    before = t.session.head().version
    none: dict[str, AppRise] = {}

    def origin(old: int | None, at: int, of: str = ONE, **more: object) -> SetOrigin:
        known = {"commit": HASH, "apps": none} | more
        return SetOrigin(of, old, at, **known)

    rise = lambda old, *runs, name="loader": {name: AppRise(old, runs)}
    return [
        void(t, "R12.3", [Restore(5, origin=ONE)]),  # it was recorded by an earlier commit
        void(t, "R19.1", [origin(5, 6, of="3C" * 32)]),
        void(t, "R19.1", [origin(None, 6, of="3C" * 32)]),
        void(t, "R19.1", [origin(None, 6, of=TWO[:-1])]),
        void(t, "R19.1", [origin(5, 6, commit=HASH[:-1])]),
        void(t, "R19.1", [origin(5, 6, commits=())]),
        void(t, "R19.1", [origin(5, 6, commits=((6, HASH), (6, "none")))]),
        void(t, "R19.1", [origin(5, 5)]),
        void(t, "R19.1", [origin(5, 6, apps=rise(3, (3, 3)))]),  # at the sequence, not looked for
        void(t, "R19.1", [origin(5, 6, apps=rise(3, (4, 4), (4, 5)))]),
        void(t, "R19.1", [origin(5, 6, checked=before + 1)]),
        void(t, "R19.1", [origin(None, 6, of=TWO, checked=before - 1)]),  # another is newer
        # The mark of an app that does not rise stays that of an earlier version.
        good(t, origin(5, 6, apps=rise(5, (4, 5), name="stays"), checked=before)),
        good(t, origin(6, 7, apps=rise(3, (4, 5), (6, 7)))),  # runs that adjoin
        good(t, origin(7, 8, apps=rise(None, (0, 0), name="another"), checked=before)),
    ]


def sweeps(t: Table) -> list[Transaction]:
    """Records of a vacuum that differ in one bound only."""
    version = t.session.head().version + 1
    one = Sweep(2, 1, version - 2)
    return [
        good(t, Fence(2), Horizon(1), Swept(one)),
        void(t, "R12.6", [Swept(replace(one, version=version - 1, fence=1))]),
        void(t, "R12.6", [Swept(replace(one, version=version - 1, horizon=0))]),
        void(t, "R12.6", [Swept(one)]),
        void(t, "R12.6", [Swept(replace(one, version=version))]),
        void(t, "R12.6", [Swept(replace(one, version=version - 1, pending=Spill("x", 0, 0, 0)))]),
        good(t, Swept(replace(one, version=version - 1))),  # fence and horizon stay
        void(t, "R12.2", [SetPin("below", 0, "o")]),
        void(t, "R12.3", [Restore(0)]),
        good(t, Restore(1)),
        void(t, "F4", [Fence(2)]),
    ]


def clocks(t: Table, time_ms: int) -> list[Transaction]:
    """Corrections of the clock by as much as is none, in a commit of this time."""
    head = t.session.head()
    times = (head.header.time, time_ms)
    return [*(void(t, "R10.3", [SetClock(head.version, old, time_ms)]) for old in times), good(t)]


def corrected(t: Table, time_ms: int) -> list[Transaction]:
    """A correction by a day more than a decade."""
    return [good(t, SetClock(t.session.head().version, t.session.head().header.time, time_ms))]


def make_conditions(clock: ManualClock) -> None:
    """One commit for each of these."""
    t = make.open_at(NAME, SCHEMA, clock, properties={"keyframe_commits": "1000"})
    put(t, [good(t, *(fresh(t, chunk=f"1970-01-0{n}", epoch=0) for n in (1, 2, 3)))])
    put(t, [good(t, fresh(t, chunk="1970-01-04", epoch=0), operation="append")])
    put(t, pins(t))
    put(t, many(t))
    put(t, claims(t))
    put(t, sums(t))
    put(t, [good(t, fresh(t, chunk="1970-01-05"))])
    put(t, segments(t))
    put(t, schemas(t))
    put(t, restores(t))
    put(t, origins(t))
    put(t, sweeps(t))
    for span in (1, DECADE):
        time_ms = t.session.head().header.time + span
        put(t, clocks(t, time_ms), time_ms)
    ahead = t.session.head().header.time + DECADE + 1
    put(t, corrected(t, ahead), ahead)
    t.write_keyframe()


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_conditions(ManualClock(make.START_MS, seed=2022))
    return 0


if __name__ == "__main__":
    sys.exit(main())
