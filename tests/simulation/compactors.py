"""Actors that compact, and their rivals: challengers, breakers, changers of granularity.

They perform the steps of `eventlog.compaction.execute` on segments without Parquet: claim, plan on
a snapshot, read the inputs, stage, and replace the inputs in one transaction.
"""

from dataclasses import dataclass

from msgspec import structs
from simulation import actors
from simulation.world import CHUNKS, CUTS, drop_of, live

from eventlog import Ms, errors
from eventlog.model.actions import Assess, ChunkChange, Release, Replace
from eventlog.model.chunks import chunk_of, parse_chunk
from eventlog.model.entries import Analysed, ChunkState, Segment
from eventlog.table.stage_again import commit_staged

SILENCES_S = (0, 0, 0.01, 2.5)


@dataclass(frozen=True)
class Task:
    """The rewrite of a range: its segments as of a version, and the new granularity."""

    version: int
    start: int
    end: int
    granularity: str
    inputs: tuple[Segment, ...]


def task_of(snapshot, start, end, granularity):
    """Return the task of a range, with the segments that are completely within it."""
    inputs = tuple(s for s in live(snapshot, start, end) if within(s, start, end))
    return Task(snapshot.version, start, end, granularity, inputs)


def within(segment, start, end):
    chunk = parse_chunk(segment.chunk)
    return start <= chunk.start and chunk.end <= end


def drawn(me, snapshot):
    """Return a task around a random segment, mostly at the table's granularity, or None."""
    found = live(snapshot)
    if not found:
        return None
    chunk = parse_chunk(me.random.choice(found).chunk)
    granularity = snapshot.layout.granularity
    if me.random.random() < 0.3:
        granularity = me.random.choice(sorted(CUTS))
    span = max(chunk, chunk_of(chunk.start, granularity), key=lambda c: c.end - c.start)
    return task_of(snapshot, span.start, span.end, granularity)


def compact(me):
    """One task from plan to commit; most have a claim, some of which are not released."""
    task = drawn(me, me.table.refresh())
    if task is None:
        actors.append(me)
        return
    lease = None
    if me.random.random() < 0.6:
        lease = claimed(me, task.start, task.end, priority=me.random.choice((0, 0, 1)))
        if me.random.random() < 0.5:
            task = task_of(me.table.refresh(), task.start, task.end, task.granularity)
    if task.inputs:
        rewrite(me, task, lease)
    if lease is not None and me.random.random() < 0.7:
        lease.release()


def claimed(me, start, end, **fields):
    """Claim a range; a repeated request by the same group gets the same claim."""
    again = me.random.random() < 0.4
    lease = me.table.claim(
        Ms(start), Ms(end), group=f"{me.name} {start}" if again else None, owner=me.name, **fields
    )
    me.kept["lease"] = lease
    return lease


def rewrite(me, task, lease=None):
    """Read the inputs, stage the outputs, and commit, correctly or with a mistake."""
    gone = me.world.done["fetch in vain"]
    rows = me.world.fetch(me.table, task.version, task.inputs)
    if me.world.done["fetch in vain"] > gone:  # replaced, below the horizon and deleted since
        return
    mistake = me.random.random() < 0.1 and len(rows) > 1
    left_out = int(mistake or (len(rows) > 1 and me.random.random() < 0.1))
    outputs = cut(task, rows[left_out:])
    if lease is not None and me.random.random() < 0.3:
        lease.renew()
    adds = [me.world.stage(me.table, chunk, part) for chunk, part in outputs]
    actions = [Replace(task.version, 0 if mistake else left_out), *map(drop_of, task.inputs), *adds]
    transaction = me.table.transaction(
        "mistake" if mistake else "compact",
        actions,
        read_version=task.version,
        claim=None if lease is None else lease.token,
    )
    if lease is not None and me.random.random() < 0.3:
        give_up = Release(lease.id, lease.claim.token)
        transaction = structs.replace(transaction, actions=(*actions, give_up))
        commit(me, transaction)
        lease.forget()
    else:
        commit(me, transaction)


def cut(task, rows):
    """Spread rows over the first and the last chunk of the task's range, in order."""
    ends = dict.fromkeys(chunk_of(ms, task.granularity).name for ms in (task.start, task.end - 1))
    half = (len(rows) + 1) // len(ends)
    parts = zip(ends, (rows[:half], rows[half:]), strict=False)
    return [(chunk, part) for chunk, part in parts if part]


def commit(me, transaction):
    if me.random.random() < 0.5:
        return me.insist(transaction)
    for _ in range(actors.ATTEMPTS):
        try:
            return commit_staged(me.table.session, transaction)
        except errors.CommitUnknown:
            me.world.done["handed in again"] += 1
    return None


def hold(me):
    """Take a claim and keep it across operations, until it is lost or its holder crashes."""
    chunk = parse_chunk(me.random.choice(CHUNKS))
    claimed(me, chunk.start, chunk.end, priority=me.random.randrange(2))


def renew_held(me):
    if "lease" not in me.kept:
        hold(me)
    me.kept["lease"].renew()


def work_held(me):
    """Compact under the kept claim; the plan may be older or newer than the claim."""
    if "lease" not in me.kept:
        hold(me)
    lease = me.kept["lease"]
    granularity = me.table.session.head().layout.granularity
    task = task_of(me.table.session.head(), lease.claim.start, lease.claim.end, granularity)
    if task.inputs:
        rewrite(me, task, lease)
    if me.random.random() < 0.3:
        me.kept.pop("lease").release()


def forsake(me):
    """Crash with the claim, which remains until it is broken."""
    if me.kept.pop("lease", None) is not None:
        me.world.done["claim forsaken"] += 1
    me.restart()


def challenge(me):
    """Claim another actor's range with a higher priority, and work there."""
    there = sorted(me.table.claims().items())
    if not there:
        compact(me)
        return
    _, claim = me.random.choice(there)
    lease = claimed(me, claim.start, claim.end, priority=claim.priority + 1)
    task = task_of(
        me.table.session.head(), claim.start, claim.end, me.table.session.head().layout.granularity
    )
    if task.inputs:
        rewrite(me, task, lease)
    if me.random.random() < 0.8:
        me.kept.pop("lease").release()


def break_silent(me):
    """Watch a claim for a while, and break it if it was not renewed."""
    there = sorted(me.table.claims())
    if there:
        try:
            me.table.break_claim(me.random.choice(there), silent_s=me.random.choice(SILENCES_S))
        except errors.InvalidInput as error:  # it is gone since
            if "claim" not in error.message:
                raise


def regranulate(me):
    me.table.set_granularity(me.random.choice(sorted(CUTS)))


def assess(me):
    """Record an analysis of some chunks, as of this handle's head."""
    head = me.table.refresh() if me.random.random() < 0.7 else me.table.session.head()
    names = me.random.sample(CHUNKS, me.random.randint(0, 2))
    changes = []
    for name in sorted(names):
        chunk = parse_chunk(name)
        found = live(head, chunk.start, chunk.end)
        state = ChunkState(
            me.random.choice(("stable", "unstable", "deferred")),
            max((s.version for s in found), default=0),
            len(found),
            me.random.randrange(3),
            0,
        )
        changes.append(ChunkChange(name, state if found else None))
    policy = f"{me.random.randrange(3):064x}"
    analysed = Analysed(head.version, policy) if me.random.random() < 0.9 else None
    me.commit("assess", [Assess(head.meta.analysed, analysed, tuple(changes))])
