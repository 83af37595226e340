"""Actors that delete, update and overwrite rows by their positions, beside all others.

They run the production code that commits what was found and finds it again where others have moved
it (`eventlog.writers.changing.landing`). Only Parquet is replaced: rows are searched by their names
in the objects of segments. What each of them asked for is compared with what its commit does
(`simulation.contents.Contents`).
"""

import random
from dataclasses import dataclass, replace
from zlib import crc32

from pyroaring import BitMap64
from simulation import actors, plans
from simulation.contents import Change, name_of, rows_in, updated
from simulation.harsh import FAIR
from simulation.simulate import run
from simulation.world import added_bytes, bytes_of

from eventlog import errors
from eventlog.format import keys
from eventlog.model.actions import Update
from eventlog.model.records import App
from eventlog.segments.segment_object import missing_error
from eventlog.writers.batch import skipped
from eventlog.writers.changing.finding import Hits, Search
from eventlog.writers.changing.landing import Request, land

MEMORY = 2**20
WHERE = "name = 'x'"  # statistics do not decide it: each segment is searched
EVER = -(2**40), 2**45
# How often in 1,000 runs it is done at least.
IN_1000 = {
    "op delete_rows": 400, "op update_rows": 200, "op overwrite_rows": 100, "did delete_rows": 300,
    "did update": 200, "rows changed": 1500, "rows deleted during a rewrite": 30, "crash": 200,
    "task done": 100, "did restore": 30, "did fence": 60, "objects deleted by vacuum": 100,
}  # fmt: skip
ENOUGH_TO_TELL = 500


@dataclass(frozen=True)
class NamedRows(Search):
    """A search in segments whose objects list their rows by name."""

    holds: object = None

    def _search(self, snapshot, segments, vectors, room):
        found = {}
        for segment in segments:
            gone = vectors.deleted(segment)
            rows = enumerate(read(self.t, segment, snapshot.version))
            some = [n for n, row in rows if n not in gone and self.holds(row)]
            found[segment.id, segment.version] = Hits(BitMap64(some))
        return found


def read(table, segment, version):
    """Return the rows of a segment, deleted ones among them.

    Raises:
        DataLoss, VersionVacuumed: as readers of segments do.
    """
    key = keys.key_of(segment)
    try:
        return rows_in(bytes_of(table.store, segment))
    except errors.KeyNotFound:
        table_id = table.session.head().header.table
        raise missing_error(table.store, key, version, table_id) from None


def drawn(me):
    """Draw a predicate: on what rows keep, or on what their updates change."""
    share, kind = me.random.choice((1, 2, 3, 5)), me.random.choice(("name", "name", "form"))
    rest = me.random.randrange(share)
    if kind == "name":
        return lambda row: crc32(name_of(row).encode()) % share == rest
    return lambda row: forms(row) % 2 == rest % 2


def forms(row):
    """Return how often a row was updated."""
    return int(row.partition(":")[2] or 0)


def change(me, operation, *, updates=False, new=0, arrivals="ignore"):
    """Change rows as one unit of work, or as none; repeat it while its end is not known."""
    app = None
    if me.random.random() < 0.5:
        app = App(f"{me.name} rows", me.unit)
        me.unit += 1
    holds = drawn(me)
    for _ in range(actors.ATTEMPTS):
        try:
            return attempt(me, operation, holds, app, updates=updates, new=new, arrivals=arrivals)
        except errors.CommitUnknown:
            if app is None:  # a repetition would be another change
                raise
            me.world.done["handed in again"] += 1
        finally:
            me.table.change = None
    return None


def attempt(me, operation, holds, app, *, updates, new, arrivals):
    table = me.table
    start = table.refresh()
    if skipped(table, start, app) is not None:
        return
    request = Request(operation, WHERE, EVER, arrivals, app, MEMORY)
    search = NamedRows(table, WHERE, MEMORY, holds)
    adds, rows = [], []
    if new:
        adds = [me.add(new)]
        rows = rows_in(added_bytes(table.store, adds[0]))
    staged = updating(me) if updates else lambda _: (adds, None)
    if me.random.random() < 0.3:  # others may have changed everything since
        table.refresh()
    table.change = Change(start.version, holds, updates, tuple(rows))
    try:
        land(table, request, start, search, staged)
    except errors.CommitConflict:
        me.world.done[f"conflict of {operation}"] += 1
        raise


def updating(me):
    """Return a function that stages the next forms of the rows that were found."""
    table = me.table

    def staged(found):
        adds = []
        for one in found.selected:
            rows = read(table, one.segment, found.snapshot.version)
            gone = found.vectors.deleted(one.segment)
            wanted = one.positions
            if wanted is None:
                wanted = [n for n in range(len(rows)) if n not in gone]
            names = [updated(rows[n]) for n in wanted]
            adds.append(me.world.stage(table, one.segment.chunk, names))
        return adds, Update(found.rows, paired=True) if adds else None

    return staged


def delete_rows(me):
    change(me, "delete")


def delete_exactly(me):
    """Delete, unless rows were added meanwhile."""
    change(me, "delete", arrivals="refuse")


def update_rows(me):
    change(me, "update", updates=True)


def overwrite_rows(me):
    change(me, "overwrite", new=me.random.randint(1, 3))


ROLES = {
    "deleter": [delete_rows, delete_rows, delete_rows, delete_exactly],
    "updater": [update_rows, update_rows, delete_rows],
    "row overwriter": [overwrite_rows, update_rows, actors.append],
}
plans.REGISTRY.update(ROLES)
BESIDE = ("runner", "runner", "worker", "compactor", "vacuum", "restorer", "appender", "marker")


def draw(seed):
    """Return a plan whose actors change rows, beside those that move them and some others."""
    chance = random.Random(f"row changes {seed}")
    plan = plans.draw(seed)
    some = [chance.choice([*ROLES]) for _ in range(chance.randint(2, 4))]
    some += chance.choices(BESIDE, k=chance.randint(1, 3))
    roles = [(role, chance.randint(2, 4)) for role in some]
    return replace(
        plan,
        roles=(*roles, *plan.roles[: chance.randrange(2)]),
        weather=chance.choice((plan.weather, FAIR)),
        segments=chance.randint(1, 4),
        rows=chance.choice((1, 4, 12)),
        stored=chance.random() < 0.5,
    )


def play(seed):
    """Run a plan and check all promises; return the world."""
    return run(draw(seed))


def rare(done, runs):
    """What was done too rarely in so many runs."""
    if runs < ENOUGH_TO_TELL:
        return {}
    return {name: done[name] for name, least in IN_1000.items() if done[name] * 1000 < least * runs}
