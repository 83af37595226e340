"""Exhaustive schedules of few actors with few preemptions, each run and checked."""

# ruff: noqa: T201 - counts are shown
import gc
from collections import Counter

import pytest
from msgspec import structs
from simulation import compactors, plans
from simulation.history import check
from simulation.ledger import Violation
from simulation.simulate import check_production, finish
from simulation.world import World
from support.builders import drop_of, live

from eventlog import Ms, errors
from eventlog.commit import rebase
from eventlog.model.actions import Fence, Horizon, Replace, SetPin, Unchanged
from eventlog.model.chunks import parse_chunk
from eventlog.state.small import claims

pytestmark = pytest.mark.usefixtures("in_turn")

PREEMPTIONS = 2


class Choices:
    """Follows a path of choices, then continues with the running actor; records alternatives."""

    def __init__(self, path):
        self.path = path
        self.made = []  # (chosen, possible, the running one if still possible)

    def __call__(self, waiting, last):
        possible = {actor.number: actor for actor in waiting}
        stays = last.number if last is not None and last.number in possible else None
        step = len(self.made)
        if step < len(self.path):
            number = self.path[step]
        else:
            number = min(possible) if stays is None else stays
        self.made.append((number, sorted(possible), stays))
        return possible[number]

    def others(self, bound):
        """Yield the paths that branch off from this one after its prefix, within the bound."""
        spent, path = 0, []
        for step, (number, possible, stays) in enumerate(self.made):
            for other in possible:
                costs = stays is not None and other != stays
                if step >= len(self.path) and other != number and spent + costs <= bound:
                    yield (*path, other)
            spent += stays is not None and number != stays
            path.append(number)


def explore(jobs_of, bound=PREEMPTIONS, **fields):
    """Run every schedule; return their number, and the logs in which they end."""
    pending, count, ends = [()], 0, set()
    while pending:
        choices = Choices(pending.pop())
        world = World(plans.Plan(seed=1, roles=(), segments=2, **fields))
        jobs = jobs_of(world)
        world.scheduler._choose = choices
        world.scheduler.run(*jobs)
        finish(world)
        check(world.record, world.store.objects(), world.store.ledger)
        if count % 20 == 0:
            check_production(world.store, world.store.ledger)
        pending += choices.others(bound)
        count += 1
        ends.add(tuple(tuple(step.accepted) for step in world.store.ledger.steps))
        if count % 500 == 0:
            gc.collect()
    return count, ends


def told(world, job):
    """Allow a job to raise a conflict; any other error is a finding."""

    def work():
        try:
            job()
        except errors.CommitConflict:
            world.done["conflict"] += 1

    return work


def commit(table, kind, actions, **fields):
    return lambda: table.commit(table.transaction(kind, actions, **fields))


def two_writers_and_a_compactor(world):
    jobs = []
    for name in ("writer 1", "writer 2"):
        table = world.open(name)
        jobs.append(commit(table, "append", [world.stage(table, "2013-01-07")]))
    table = world.open("compactor")
    found = live(table.session.head())
    added = world.stage(table, found[0].chunk, sum(s.rows for s in found))
    return [*jobs, commit(table, "replace", [*map(drop_of, found), added])]


def compacting(world, name, *, priority=0, seen=None):
    """Return a compactor under a claim, from plan to release; `seen` counts its outcomes."""
    table = world.open(name)
    chunk = parse_chunk("2013-01-07")

    def work():
        end = "claimed by another"
        try:
            lease = table.claim(Ms(chunk.start), Ms(chunk.end), priority=priority, owner=name)
            end = "lost"
            task = compactors.task_of(table.session.head(), chunk.start, chunk.end, "day")
            rows = world.fetch(table, task.version, task.inputs)
            added = world.stage(table, "2013-01-07", rows)
            actions = [Replace(task.version, 0), *map(drop_of, task.inputs), added]
            replace = table.transaction("compact", actions, claim=lease.token)
            table.commit(structs.replace(replace, read_version=task.version))
            end = "done"
            lease.release()
        except (errors.CommitConflict, errors.ClaimLost) as error:
            world.done[f"{end}: {type(error).__name__}"] += 1
        if seen is not None:
            seen[f"{name} {end}"] += 1

    table.session.head()
    return work


def two_writers_and_a_claim(world):
    jobs = []
    for name in ("writer 1", "writer 2"):
        table = world.open(name)
        jobs.append(commit(table, "append", [world.stage(table, "2013-01-07")]))
    return [*jobs, compacting(world, "compactor")]


def two_compactors_and_a_challenger(seen):
    """Two of one priority, and one of a higher priority that revokes their claims."""

    def jobs(world):
        return [
            compacting(world, "compactor 1", seen=seen),
            compacting(world, "compactor 2", seen=seen),
            compacting(world, "challenger", priority=1, seen=seen),
        ]

    return jobs


def two_replacers_and_an_overwriter(world):
    jobs = []
    for name in ("replacer 1", "replacer 2", "overwriter"):
        table = world.open(name)
        found = live(table.session.head())
        actions = [*map(drop_of, found), world.stage(table, found[0].chunk)]
        if name == "overwriter":
            actions.insert(0, Unchanged(0, 2**45))
        jobs.append(told(world, commit(table, name, actions)))
    return jobs


def a_pin_a_vacuum_and_a_writer(world):
    writer, keeper, cleaner = (world.open(name) for name in ("writer", "keeper", "cleaner"))
    head = writer.session.head().version
    cleaner.session.head()
    keeper.session.head()
    staged = world.stage(writer, "2013-01-07")
    return [
        told(world, commit(writer, "append", [staged])),
        told(world, commit(keeper, "pin", [SetPin("mine", head - 1, "keeper")])),
        told(world, commit(cleaner, "vacuum", [Fence(head), Horizon(head - 1)])),
        told(world, commit(cleaner, "vacuum", [Horizon(head)])),
    ]


# Without combining, a second preemption can only lead to another rebase.
@pytest.mark.verify
@pytest.mark.parametrize(
    ("combine_after", "bound", "least"),
    [(0, 1, 30), (1, 1, 30), *(pytest.param(n, 2, 200, marks=pytest.mark.long) for n in (0, 1))],
)
def test_two_writers_and_a_compactor(combine_after, bound, least, capsys):
    count, ends = explore(
        two_writers_and_a_compactor, bound, combine_after=combine_after, keyframe_commits=3
    )
    with capsys.disabled():
        print(f"\n{count} schedules of 2 writers and a compactor, {len(ends)} different logs")
    assert count > least
    assert len(ends) >= 6  # each order of the three
    assert all(sum(map(len, end)) == 7 for end in ends)  # no actor fails


@pytest.mark.verify
@pytest.mark.hazard("K7")
def test_two_writers_and_a_compactor_under_a_claim(capsys):
    count, ends = explore(two_writers_and_a_claim, bound=1)
    with capsys.disabled():
        print(f"\n{count} schedules of 2 writers and a claim, {len(ends)} different logs")
    assert len(ends) >= 10
    assert all(sum(map(len, end)) == 9 for end in ends)  # claim, work and release: no actor fails


@pytest.mark.long
@pytest.mark.hazard("K2")
def test_two_compactors_with_claims_and_a_challenger(capsys):
    seen = Counter()
    count, ends = explore(two_compactors_and_a_challenger(seen), bound=1)
    with capsys.disabled():
        print(f"\n{count} schedules of 3 compactors with claims, {len(ends)} different logs")
    assert len(ends) >= 10
    assert seen["challenger done"] == count  # its claim cannot be revoked
    assert seen["compactor 1 lost"] > 0
    assert seen["compactor 2 lost"] > 0
    assert seen["compactor 2 claimed by another"] > 0
    assert seen["compactor 1 done"] > 0


@pytest.mark.verify
@pytest.mark.parametrize("bound", [1, pytest.param(2, marks=pytest.mark.long)])
def test_two_replacers_and_an_overwriter(bound, capsys):
    count, ends = explore(two_replacers_and_an_overwriter, bound)
    with capsys.disabled():
        print(f"\n{count} schedules of 2 replacers and an overwriter, {len(ends)} different logs")
    assert len(ends) >= 3
    assert all(sum(map(len, end)) == 5 for end in ends)  # one of the three succeeds


@pytest.mark.long
def test_a_pin_a_vacuum_and_a_writer(capsys):
    count, ends = explore(a_pin_a_vacuum_and_a_writer, bound=1)
    with capsys.disabled():
        print(f"\n{count} schedules of a pin, two marks and a writer, {len(ends)} different logs")
    assert len(ends) >= 8


def test_every_schedule_is_explored_once():
    """Three actors with two steps each, unbounded: all interleavings, each once."""
    seen = []
    pending = [()]
    while pending:
        choices = Choices(pending.pop())
        world = World(plans.Plan(seed=1, roles=(), segments=0))
        world.scheduler._choose = choices
        order = []

        def work(number, world=world, order=order):
            order.append(number)
            world.scheduler.park(("step",))
            order.append(number)

        world.scheduler.run(*(lambda n=n: work(n) for n in range(3)))
        seen.append(tuple(order))
        pending += choices.others(99)
    assert len(seen) == len(set(seen)) == 90  # 6! / (2! 2! 2!)


def test_a_planted_race_is_found(monkeypatch):
    """A writer that does not check which commit was first."""
    monkeypatch.setattr(rebase.fold, "_judge_drops", lambda drops, view, so_far: [])
    with pytest.raises(Violation):
        explore(two_replacers_and_an_overwriter)


def test_a_claim_that_revokes_nobody_is_found(monkeypatch):
    """Two compactors that both assume an exclusive claim."""
    monkeypatch.setattr(claims, "conflicts", lambda a, b: False)
    with pytest.raises(Violation, match=r"R13\.2|state hash"):
        explore(two_compactors_and_a_challenger(None), bound=1)
