"""The simulation: production code under a seeded scheduler; every run is checked in full.

EVENTLOG_SEEDS says how many seeds of each kind; `tests/simulation/run.py` is for longer runs.
"""

# ruff: noqa: T201 - seeds and counts are shown
import gc
import os
import random
from dataclasses import replace

import pytest
from simulation import plans
from simulation.scheduler import one_thread
from simulation.shrink import failure, told
from simulation.simulate import Sums, run, simulate, sums_of

SEEDS = int(os.environ.get("EVENTLOG_SEEDS", "150"))
BLOCKS = 10
FRESH = random.SystemRandom().randrange(10**9, 10**12)
SUMS = Sums()
# Seeds that fail without the fix of what once failed, each with what was wrong.
REGRESSIONS: dict[int, str] = {
    3689: "a restore called segments lost that a vacuum had taken since its look at the head",
    4083: "the same, of two segments",
}

# What must have happened, and how often at least in 1,000 runs.
OPERATIONS = (
    "append",
    "unit",
    "replace",
    "drop",
    "overwrite",
    "slow_end",
    "set_property",
    "keyframe",
    "take_claim",
    "under_claim",
    "renew",
    "release",
    "break_any",
    "pin",
    "unpin",
    "follow",
    "look",
    "open_version",
    "fetch",
    "pinned_read",
    "restore",
    "fence",
    "horizon",
    "vacuum",
    "dry_vacuum",
    "compact",
    "hold",
    "renew_held",
    "work_held",
    "forsake",
    "challenge",
    "break_silent",
    "regranulate",
    "assess",
    "compact_all",
    "deliver",
)
ACCIDENTS = {
    "refused": 500,
    "conflict": 50,
    "outage": 50,
    "lost": 50,
    "never": 50,
    "delayed": 50,
    "twice": 50,
    "stale": 50,
    "empty": 50,
    "halfway": 3,
    "crash halfway": 3,
    "crash before": 200,
    "crash after": 50,
    "crash delayed": 20,
    "clock": 100,
}
FIGURES = {
    "commits": 5000,
    "transactions": 5000,
    "commits of several transactions": 25,
    "crash": 500,
    "looks": 300,
    "fetch": 200,
    "objects deleted by vacuum": 300,
    "handed in again": 20,
    "found": 30,
    "refused slow": 15,
    "refused compact": 100,
    "refused mistake": 10,
    "rows rewritten": 1500,
    "task done": 60,
    "task superseded": 15,
    "task failed": 15,
    "fixed points": 60,
    # Actions of accepted transactions: an operation that raised nothing may have done nothing.
    "did drop": 300,
    "did unchanged": 30,
    "did same_segments": 15,
    "did restore": 15,
    "did claim": 100,
    "did renew": 20,
    "did release": 20,
    "did break": 30,
    "did pin": 100,
    "did unpin": 20,
    "did attach": 20,
    "did ack": 20,
    "did detach": 3,
    "did fence": 200,
    "did horizon": 200,
    "did swept": 100,
    "did set_properties": 50,
    "did replace": 500,
    "did set_granularity": 60,
    "did assess": 200,
}


@pytest.fixture(autouse=True, scope="module")
def one_at_a_time():
    with one_thread():
        yield


def play(seeds):
    for seed in seeds:
        if (
            error := failure(plans.draw(seed), lambda plan: SUMS.add(sums_of(run(plan))))
        ) is not None:
            raise AssertionError(told(seed)) from error
    gc.collect()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_fixed_seeds(block):
    play([*REGRESSIONS][block::BLOCKS])
    play(range(block, SEEDS, BLOCKS))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_fresh_seeds(block, capsys):
    with capsys.disabled():
        if block == 0:
            print(f"\nfresh seeds: {FRESH} to {FRESH + SEEDS - 1}")
    play(range(FRESH + block, FRESH + SEEDS, BLOCKS))


def test_everything_happened_and_often(capsys):
    play(range(SUMS.seeds, 300))  # where this test runs alone
    with capsys.disabled():
        print(f"\n{SUMS}")
    share = SUMS.seeds / 1000
    for operation in OPERATIONS:
        assert SUMS.done[f"op {operation}"] >= 40 * share, operation
    for accident, least in ACCIDENTS.items():
        assert SUMS.struck[accident] >= least * share, accident
    for figure, least in FIGURES.items():
        assert SUMS.done[figure] >= least * share, figure
    assert SUMS.done["void transactions"] == 0


def test_one_seed_is_one_run():
    def traced(seed):
        world = simulate(plans.draw(seed))
        return world.scheduler.trace, world.store.objects()

    traces = []
    for seed in range(12):
        assert traced(seed) == traced(seed)
        traces.append(str(traced(seed)[0]))
    assert len(set(traces)) == len(traces)


def test_a_plan_can_be_run_in_many_orders():
    plan = plans.draw(5)
    orders = {str(simulate(replace(plan, salt=salt)).scheduler.trace) for salt in range(5)}
    assert len(orders) == 5
