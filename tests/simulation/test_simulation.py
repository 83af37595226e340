"""The simulation: production code under a seeded scheduler; every run is checked in full.

The seeds are fixed, so the tests are deterministic. `make simulate` uses fresh seeds and checks how
often events happen.
"""

import gc
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from simulation import events, plans
from simulation.shrink import failure, told
from simulation.simulate import Sums, run, simulate, sums_of

pytestmark = pytest.mark.usefixtures("in_turn")

BLOCKS = 10
SEEDS = 60
MOST_SEEDS = 3000  # the limit of seeds until each kind of event has happened
FREQUENT = 50  # what happens so often in 1,000 runs is not missing in the fixed seeds
PLAYED: dict[int, Sums] = {}
# Regression seeds: each fails without the fix of the bug that it names.
REGRESSIONS: dict[int, str] = {
    3689: "a restore called segments lost that a vacuum had taken since its look at the head",
    4083: "the same, of two segments",
}


def play(seeds):
    """Run and check the seeds that were not run yet."""
    for seed in seeds:
        if seed in PLAYED:
            continue
        sums = Sums()
        error = failure(plans.draw(seed), lambda plan, sums=sums: sums.add(sums_of(run(plan))))
        if error is not None:
            raise AssertionError(told(seed)) from error
        PLAYED[seed] = sums
    gc.collect()


@pytest.mark.sample(3, verify=6)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_fixed_seeds(block):
    play([*REGRESSIONS][block::BLOCKS])
    play(range(block, SEEDS, BLOCKS))


def test_what_is_frequent_happens_in_the_fixed_seeds():
    play(range(SEEDS))
    sums = Sums()
    for seed in range(SEEDS):
        sums.add(PLAYED[seed])
    least = {event: times for event, _, times in events.counted(sums)}
    assert not [event for event in events.missing(sums) if least[event] >= FREQUENT]
    assert sums.done["void transactions"] == 0


@pytest.mark.long  # hundreds of seeds, until the rarest event was there
def test_everything_happens():
    """Run more seeds until each kind of event has happened.

    Their number depends only on the code, and a change of the code needs no other seeds.
    """
    sums = Sums()
    for first in range(0, MOST_SEEDS, 10):
        some = range(first, first + 10)
        play(some)
        for seed in some:
            sums.add(PLAYED[seed])
        if not events.missing(sums):
            break
    assert not events.missing(sums), f"in {sums.seeds} runs"
    assert sums.done["void transactions"] == 0


def test_what_never_happened_is_told():
    sums = Sums(seeds=1000)
    assert set(events.OPERATIONS) <= {event.removeprefix("op ") for event in events.missing(sums)}
    for event, _, least in events.counted(Sums()):
        sums.done[event] = sums.struck[event] = least
    assert events.missing(sums) == events.rare(sums) == []
    sums.done["did pin"] -= 1
    assert (events.missing(sums), events.rare(sums)) == ([], ["did pin"])
    sums.struck["halfway"] = 0
    assert events.missing(sums) == ["halfway"]


def test_one_seed_is_one_run():
    def traced(seed):
        world = simulate(plans.draw(seed))
        return world.scheduler.trace, world.store.objects()

    traces = []
    for seed in range(12):
        assert traced(seed) == traced(seed)
        traces.append(str(traced(seed)[0]))
    assert len(set(traces)) == len(traces)


TRACES = """
import hashlib, sys
from simulation import plans
from simulation.scheduler import one_thread
from simulation.simulate import simulate
with one_thread():
    for seed in map(int, sys.argv[1:]):
        world = simulate(plans.draw(seed))
        said = repr((world.scheduler.trace, sorted(world.store.objects().items())))
        print(hashlib.sha256(said.encode()).hexdigest())
"""


@pytest.mark.verify
def test_a_seed_is_one_run_whatever_the_order_of_sets():
    def traces(hash_seed):
        done = subprocess.run(
            [sys.executable, "-c", TRACES, *map(str, range(2))],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONHASHSEED": hash_seed,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    found = traces("1")
    assert len(set(found)) == 2
    assert traces("2") == found


def test_a_plan_can_be_run_in_many_orders():
    plan = plans.draw(5)
    orders = {str(simulate(replace(plan, salt=salt)).scheduler.trace) for salt in range(5)}
    assert len(orders) == 5
