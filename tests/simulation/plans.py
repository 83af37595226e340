"""Plans: the meaning of a seed. A run depends only on its plan."""

import random
from dataclasses import dataclass, replace

from simulation import actors, compactors, keepers, runners
from simulation.harsh import ALL, FAIR, Weather

REGISTRY = {
    "appender": [actors.append, actors.append, actors.unit, actors.unit, actors.unit],
    "replacer": [actors.replace, actors.replace, actors.drop, actors.append],
    "overwriter": [actors.overwrite, actors.overwrite, actors.append],
    "slow writer": [actors.slow_begin, actors.slow_end, actors.slow_end, actors.litter],
    "claimer": [
        keepers.take_claim,
        keepers.under_claim,
        keepers.under_claim,
        keepers.renew,
        keepers.release,
        keepers.break_any,
    ],
    "pinner": [keepers.pin, keepers.pin, keepers.unpin, keepers.break_any],
    "replica": [keepers.follow],
    "framer": [actors.keyframe, actors.set_property],
    "reader": [
        keepers.look,
        keepers.open_version,
        keepers.fetch,
        keepers.fetch,
        keepers.pinned_read,
    ],
    "restorer": [keepers.restore, actors.drop],
    "vacuum": [keepers.vacuum, keepers.vacuum, keepers.vacuum, keepers.dry_vacuum],
    "marker": [keepers.fence, keepers.horizon],
    "compactor": [compactors.compact],
    "holder": [
        compactors.hold,
        compactors.hold,
        compactors.renew_held,
        compactors.renew_held,
        compactors.work_held,
        compactors.work_held,
        compactors.forsake,
    ],
    "challenger": [compactors.challenge, compactors.challenge, compactors.break_silent],
    "planner": [compactors.regranulate, compactors.assess, compactors.assess],
    "runner": [runners.compact_all],
    "worker": [runners.deliver, runners.deliver, actors.append],
}
# The sets of roles from which a plan draws its actors. Most plans have all roles; some combine
# those that rarely meet.
EVERYBODY = ("appender", "appender", "replacer", "reader", "vacuum", "vacuum", *REGISTRY)
THEMES = (
    EVERYBODY,
    EVERYBODY,
    EVERYBODY,
    ("appender", "appender", "appender", "slow writer", "vacuum", "marker", "framer"),
    ("restorer", "restorer", "vacuum", "vacuum", "marker", "pinner", "replacer", "reader"),
    ("claimer", "claimer", "replacer", "overwriter", "vacuum", "restorer"),
    ("compactor", "compactor", "compactor", "challenger", "appender", "planner", "vacuum"),
    ("runner", "worker", "worker", "challenger", "appender", "planner", "vacuum", "restorer"),
    ("compactor", "holder", "challenger", "challenger", "restorer", "slow writer", "planner"),
)


@dataclass(frozen=True)
class Plan:
    """One run: actors, faults, table and schedule.

    Attributes:
        seed: the seed of the actors' own draws.
        roles: (role, number of operations) of each actor.
        salt: with the seed, the seed of the schedule and the faults.
        stay: see `Scheduler`.
        told: whether the store provides the time; otherwise each writer's clock does.
        jumps: whether the actors' clocks jump.
        segments: number of segments at the start.
        stored: whether deletion vectors are in objects, instead of in the log.
        rows: rows of the first of them; each has one more than the one before.
    """

    seed: int
    roles: tuple[tuple[str, int], ...]
    weather: Weather = FAIR
    salt: int = 0
    stay: float = 0.0
    told: bool = False
    jumps: bool = False
    segments: int = 3
    rows: int = 1
    keyframe_commits: int = 3
    combine_after: int = 2
    leaves: bool = False
    stored: bool = False

    def __str__(self):
        lines = [f"seed {self.seed}, salt {self.salt}, stay {self.stay}"]
        lines += [
            f"  {number}: {role}, {n} operations" for number, (role, n) in enumerate(self.roles)
        ]
        rest = {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in SHOWN}
        lines += [f"  {name}: {value}" for name, value in rest.items()]
        accidents = sorted(self.weather.accidents) if self.weather.rate else []
        return "\n".join([*lines, f"  accidents: {self.weather.rate:.2f} of {accidents}"])


SHOWN = {"seed", "salt", "stay", "roles", "weather"}


def draw(seed):
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")
    count = rng.choice((3, 4, 4, 4, 5, 5, 6, 8))
    theme = rng.choice(THEMES)
    roles = tuple((rng.choice(theme), rng.randint(2, 4)) for _ in range(count))
    accidents = ALL
    if rng.random() < 0.4:
        accidents -= {"stale", "empty"}
    if rng.random() < 0.3:
        accidents -= {one for one in ALL if "crash" in one}
    rate = rng.choice((0.0, 0.02, 0.05, 0.1, 0.25))
    return Plan(
        seed=seed,
        roles=roles,
        weather=Weather(rate, frozenset(accidents)),
        stay=rng.choice((0.0, 0.3, 0.7, 0.9)),
        told=rng.random() < 0.3,
        jumps=rng.random() < 0.3,
        segments=rng.randint(0, 4),
        keyframe_commits=rng.randint(1, 5),
        combine_after=rng.choice((0, 1, 1, 2)),
        leaves=rng.random() < 0.1,
    )


def smaller(plan):
    """Yield smaller plans, the greatest reductions first."""
    roles = plan.roles
    for n in range(len(roles)):
        yield replace(plan, roles=roles[:n] + roles[n + 1 :])
    if plan.weather.rate:
        yield replace(plan, weather=FAIR)
    if plan.jumps:
        yield replace(plan, jumps=False)
    for one in sorted(plan.weather.accidents) if plan.weather.rate else ():
        kept = plan.weather.accidents - {one}
        yield replace(plan, weather=replace(plan.weather, accidents=kept))
    for n, (role, operations) in enumerate(roles):
        if operations > 1:
            yield replace(plan, roles=(*roles[:n], (role, operations - 1), *roles[n + 1 :]))
    if plan.leaves:
        yield replace(plan, leaves=False)
    if plan.stored:
        yield replace(plan, stored=False)
    if plan.segments > 1:
        yield replace(plan, segments=plan.segments - 1)
    if plan.rows > 1:
        yield replace(plan, rows=1)
    if plan.combine_after:
        yield replace(plan, combine_after=0)
    if plan.keyframe_commits < 1000:
        yield replace(plan, keyframe_commits=1000)
