"""Actors that hold, read, follow and clean up: claims, pins, replicas, readers, vacuum."""

from datetime import timedelta

from simulation import actors
from simulation.world import CHUNKS, live

from eventlog import compaction
from eventlog.errors import CommitConflict
from eventlog.model.actions import (
    Ack,
    Attach,
    Break,
    Detach,
    Fence,
    Horizon,
    Release,
    Renew,
    TakeClaim,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import Token

sweep = compaction.vacuum  # replaced by negative controls


def take_claim(me):
    """Claim a chunk, or some of its segments; keep the token, as the holder does."""
    head = me.table.refresh()
    chunk = parse_chunk(me.random.choice(CHUNKS))
    there = [s.id for s in live(head, chunk.start, chunk.end)]
    some = me.random.random() < 0.3
    action = TakeClaim(
        id=me.table.clock.random_id(),
        start=chunk.start,
        end=chunk.end,
        segments=tuple(there[:2]) if some else (),
        kind=me.random.choice(("exclusive", "exclusive", "shared")),
        priority=me.random.randrange(3),
        group=me.name if me.random.random() < 0.5 else "everybody",
        owner=me.name,
    )
    me.commit("claim", [action])
    for name, claim in me.table.refresh().meta.claims.items():
        if claim.group == action.group and claim.start == action.start:
            me.kept["claim"] = Token(name, claim.token)


def under_claim(me):
    if "claim" not in me.kept:
        take_claim(me)
    if "claim" in me.kept:
        actors.replace(me, claim=me.kept["claim"])
        me.world.done["replaced under a claim"] += 1


def renew(me):
    if "claim" not in me.kept:
        take_claim(me)
        return
    token = me.kept["claim"]
    me.commit("renew", [Renew(token.id, token.token)])


def release(me):
    if "claim" in me.kept:
        token = me.kept.pop("claim")
        me.commit("release", [Release(token.id, token.token)])


def _break(me, kind, there):
    name = me.random.choice(sorted(there))
    renewed = there[name].renewed if kind == "claim" else 0
    if me.random.random() < 0.5:
        me.table.refresh()
    me.commit("break", [Break(kind, name, there[name].token, renewed)])


def break_any(me):
    meta = me.table.refresh().meta
    kinds = [("claim", meta.claims), ("pin", meta.pins), ("replica", meta.replicas)]
    kinds = [(kind, there) for kind, there in kinds if there]
    if kinds:
        _break(me, *me.random.choice(kinds))


def pin(me):
    head = me.table.refresh()
    version = me.random.randint(head.meta.horizon, head.version)
    name = f"{me.name}/{me.random.randrange(2)}"
    me.table.pin(name, version if me.random.random() < 0.7 else None, owner=me.name)


def unpin(me):
    mine = sorted(n for n, p in me.table.refresh().meta.pins.items() if p.owner == me.name)
    if mine:
        try:
            me.table.unpin(me.random.choice(mine), owner=me.name)
        except actors.errors.InvalidInput as error:  # it is gone since
            if "pin" not in error.message:
                raise


def follow(me):
    """A replica: attach, acknowledge a version, detach."""
    head = me.table.refresh()
    mine = head.meta.replicas.get(me.name)
    if mine is None:
        acked = me.random.randint(head.meta.horizon, head.version)
        me.commit("attach", [Attach(me.name, acked, me.name)])
    elif me.random.random() < 0.2 or mine.acked >= head.version:
        me.commit("detach", [Detach(me.name, mine.token)])
    else:
        to = me.random.randint(mine.acked + 1, head.version)
        me.commit("ack", [Ack(me.name, mine.token, to)])


def look(me):
    me.world.look(me.table)


def open_version(me):
    """Open a version and keep its segments, to fetch them after other actors have run."""
    head = me.world.look(me.table, entries=False)
    least = max(0, head.meta.horizon - 1)
    wanted = me.random.randint(least, head.version)
    snapshot = me.table.snapshot(wanted)
    me.kept["open"] = wanted, live(snapshot)


def fetch(me):
    if "open" not in me.kept:
        open_version(me)
    me.world.fetch(me.table, *me.kept.pop("open"))


def pinned_read(me):
    """Pin, open, and fetch: no segment may be missing, whatever happens meanwhile."""
    name = f"{me.name}/{me.random.randrange(1000)}"
    version = me.table.pin(name, owner=me.name)
    found = live(me.table.snapshot(version))
    me.attempt(actors.keyframe)  # takes time
    me.world.fetch(me.table, version, found)
    me.attempt(unpin)


def restore(me):
    head = me.table.refresh()
    least = max(0, head.meta.horizon - (me.random.random() < 0.1))
    me.table.restore(me.random.randint(least, head.version))


def fence(me):
    head = me.table.refresh()
    if head.version > head.meta.fence:
        me.commit("fence", [Fence(me.random.randint(head.meta.fence + 1, head.version))])


def horizon(me):
    head = me.table.refresh()
    if head.version > head.meta.horizon + 1:
        me.commit("horizon", [Horizon(me.random.randint(head.meta.horizon + 1, head.version - 1))])


def vacuum(me):
    """The production vacuum, with short times because the run is short."""
    ages = [timedelta(milliseconds=me.random.choice((0, 0, 0, 0, 2, 20))) for _ in range(2)]
    before = me.world.store.deleted
    full = me.random.random() < 0.2
    try:
        sweep(me.table, dry_run=False, retention=ages[0], staging=ages[1], full=full)
    except CommitConflict:
        assert me.world.store.deleted >= before
        raise


def dry_vacuum(me):
    sweep(me.table, dry_run=True, retention=timedelta(0), staging=timedelta(0))
