"""Branches and merges under the scheduler: fixed seeds, and thousands in long runs."""

from collections import Counter

import pytest
from simulation.branching import play, rare
from simulation.scheduler import one_thread
from support.repeatable import EXAMPLES

SEEDS = (6, 18, 35, 59)
BLOCKS = 4
LONG = max(EXAMPLES, 2000)


@pytest.fixture(autouse=True, scope="module")
def one_at_a_time():
    with one_thread():
        yield


def played(seeds):
    done = Counter()
    for seed in seeds:
        done.update({n: c for n, c in play(seed).done.items() if isinstance(c, int)})
    return done


@pytest.mark.verify
@pytest.mark.hazard("G3")
def test_branches_and_merges_beside_writers_and_accidents():
    done = played(SEEDS)
    assert {"published rows", "merged rows", "crash"} <= set(+done)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_thousands_of_schedules_with_branches(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    assert rare(played(seeds), len(seeds)) == {}
