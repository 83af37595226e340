"""Actors that write rows: appenders, replacers, overwriters, slow writers; and their base."""

import random

from msgspec import structs
from simulation.world import CHUNKS, CUTS, Crash, drop_of, live

from eventlog import errors
from eventlog.model.actions import PropertyChange, SetProperties, Unchanged
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import App
from eventlog.table.stage_again import commit_staged

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
JUMPS_MS = (-YEAR_MS, -HOUR_MS, HOUR_MS, 24 * HOUR_MS, 40 * 24 * HOUR_MS, YEAR_MS, 11 * YEAR_MS)
ATTEMPTS = 4
# Errors that an operation may raise. Any other one is a finding.
EXPECTED = (
    errors.ClaimLost,
    errors.CommitConflict,
    errors.CommitUnknown,
    errors.Unavailable,
    errors.VersionVacuumed,
    errors.TableNotFound,  # a stale LIST may be empty
)


class Actor:
    """Successive programs on one machine: each crashes sometimes, and the next one continues."""

    def __init__(self, world, name, role, operations, registry):
        self.world = world
        self.name = name
        self.random = random.Random(f"{world.plan.seed}/{name}")
        self.unit = 0
        self.off_ms = 0
        self.kept = {}  # in-memory state for later operations
        self.table = None
        self._choices = registry[role]
        self._operations = operations

    def __call__(self):
        self.restart()
        for _ in range(self._operations):
            self.jump()
            operation = self.random.choice(self._choices)
            self.attempt(operation)

    def attempt(self, operation):
        name = operation.__name__
        try:
            operation(self)
        except Crash:
            self.world.done["crash"] += 1
            self.restart()
        except EXPECTED as error:
            self.world.done[f"{name}: {type(error).__name__}"] += 1
        except errors.InvalidInput as error:
            if "ten years" not in error.message:
                raise
            self.world.done["refused: clock"] += 1
            self.set_clock(0)
        else:
            self.world.done[f"op {name}"] += 1

    def restart(self):
        """Continue as another process, which has only its name and the state on disk."""
        self.kept.clear()
        while True:
            self.table = self.world.open(self.name, self.off_ms)
            try:
                self.table.session.head()
            except (errors.Unavailable, errors.TableNotFound):
                continue
            except Crash:
                self.world.done["crash"] += 1
                continue
            return

    def jump(self):
        if self.world.plan.jumps and self.random.random() < 0.15:
            self.world.struck["clock"] += 1
            self.set_clock(self.random.choice(JUMPS_MS))

    def set_clock(self, off_ms):
        self.off_ms = self.table.clock.off_ms = off_ms

    def add(self, rows=1, chunk=None):
        """Stage a segment, in a chunk of the granularity that this handle has."""
        chosen = self.random.choice(CUTS[self.table.session.head().layout.granularity])
        return self.world.stage(self.table, chunk or chosen, rows)

    def commit(self, kind, actions, app=None, claim=None, **fields):
        """Commit one transaction; after an unclear answer sometimes retry, sometimes not."""
        transaction = self.table.transaction(kind, actions, app=app, **fields)
        return self.insist(structs.replace(transaction, claim=claim))

    def insist(self, transaction):
        for _ in range(ATTEMPTS):
            try:
                version = self.table.commit(transaction)
            except errors.CommitUnknown:
                if self.random.random() < 0.3:
                    raise
                self.world.done["handed in again"] += 1
            else:
                if self.random.random() < 0.05:
                    self.ask(transaction)
                return version
            if self.random.random() < 0.5:
                self.ask(transaction)
        return self.table.commit(transaction)

    def ask(self, transaction):
        try:
            version = self.table.find_transaction(transaction.id)
        except errors.Unavailable:
            return
        if version is not None:  # None does not exclude a request in flight
            self.world.record.found.append((transaction.id, version))
            self.world.done["found"] += 1


def append(me):
    me.commit("append", [me.add(1 + n) for n in range(me.random.choice((1, 1, 2)))])


def unit(me):
    """One unit of a job: repeated from the start until it is known to be committed."""
    app = App(me.name, me.unit)
    me.unit += 1
    for _ in range(ATTEMPTS):
        try:
            me.commit("unit", [me.add()], app)
        except Crash:
            me.world.done["crash"] += 1
            me.restart()
        except errors.Unavailable:
            pass
        except (errors.CommitUnknown, errors.CommitConflict):
            me.world.done["unit again"] += 1
        else:
            return
    me.world.done["unit left"] += 1


def slow_begin(me):
    """Stage now, and commit much later, perhaps below the fence."""
    me.kept["slow"] = [me.add()]
    me.world.done["staged early"] += 1


def slow_end(me):
    if "slow" not in me.kept:
        slow_begin(me)
        return
    for _ in range(me.random.choice((0, 5, 20, 50))):
        me.table.clock.sleep(0.001)  # other actors run first
    transaction = me.table.transaction("slow", me.kept.pop("slow"))
    for _ in range(ATTEMPTS):
        try:
            commit_staged(me.table.session, transaction)
        except errors.CommitUnknown:
            me.world.done["handed in again"] += 1
        else:
            return


def litter(me):
    """Stage a segment that is never committed."""
    me.add()


def replace(me, **fields):
    """Drop some live segments, and add as many rows."""
    live_segments = live(me.table.refresh())
    if not live_segments:
        append(me)
        return
    chosen = me.random.sample(live_segments, min(len(live_segments), me.random.choice((1, 2, 3))))
    added = me.add(sum(s.rows for s in chosen), chosen[0].chunk)
    if me.random.random() < 0.5:  # others may have replaced them meanwhile
        me.table.refresh()
    me.commit("replace", [*(drop_of(s) for s in chosen), added], **fields)


def drop(me):
    live_segments = live(me.table.refresh())
    if live_segments:
        me.commit("drop", [drop_of(me.random.choice(live_segments))])


def overwrite(me):
    """Drop a chunk's segments of the version read; later ones are kept, or are a conflict."""
    read = me.table.refresh()
    chunk = parse_chunk(me.random.choice(CHUNKS))
    live_segments = live(read, chunk.start, chunk.end)
    guard = [Unchanged(chunk.start, chunk.end)] if me.random.random() < 0.6 else []
    added = me.add(1, me.random.choice([s.chunk for s in live_segments]) if live_segments else None)
    if me.random.random() < 0.5:
        me.table.refresh()
    actions = [*guard, *(drop_of(s) for s in live_segments), added]
    me.commit("overwrite", actions, read_version=read.version)


def set_property(me):
    old = me.table.refresh().properties.get("user.note")
    change = PropertyChange("user.note", old, str(me.random.randrange(100)))
    me.commit("property", [SetProperties((change,))])


def keyframe(me):
    me.table.write_keyframe()
