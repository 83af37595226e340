"""Copies under the scheduler: fixed seeds. `make simulate` has fresh ones."""

from collections import Counter

import pytest
from simulation.copies import play, rare
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = range(12)
BLOCKS = 4
LONG = max(EXAMPLES, 800)


def played(seeds):
    done = Counter()
    for seed in seeds:
        done.update({n: c for n, c in play(seed).done.items() if isinstance(c, int)})
    return done


@pytest.mark.verify
@pytest.mark.hazard("G1")
@pytest.mark.hazard("G5")
def test_copies_beside_writers_vacuums_and_accidents():
    done = played(SEEDS)
    assert {"copied", "copied a part", "attached"} <= set(+done)


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_schedules_with_copies(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    assert rare(played(seeds), len(seeds)) == {}
