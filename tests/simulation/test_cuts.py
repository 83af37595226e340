"""Cuts of the log under the scheduler: fixed seeds. `make simulate` has fresh ones."""

from collections import Counter

import pytest
from simulation.cuts import play, rare
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = (2, 3, 20, 21, 22, 25)
BLOCKS = 4
LONG = max(EXAMPLES, 400)


def played(seeds):
    done = Counter()
    for seed in seeds:
        done.update({n: c for n, c in play(seed).done.items() if isinstance(c, int)})
    return done


@pytest.mark.hazard("W20")
def test_cuts_beside_everybody_whom_they_may_meet():
    done = played(SEEDS)
    assert {"stubs", "cuts", "slept", "crash", "units of sources"} <= set(+done)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_schedules_with_cuts(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    assert rare(played(seeds), len(seeds)) == {}
