"""Branches and merges under the scheduler: fixed seeds, and thousands in long runs."""

from collections import Counter

import pytest
from simulation.branching import play, rare
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = (6, 18, 35, 59)
BLOCKS = 4
LONG = max(EXAMPLES, 2000)


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
