"""Keyed tables under the scheduler: fixed seeds. `make simulate` has fresh ones."""

from collections import Counter

import pytest
from simulation.keyed import play, rare
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = (6, 12, 20, 27)
BLOCKS = 4
LONG = max(EXAMPLES, 400)


def played(seeds):
    done, struck = Counter(), Counter()
    for seed in seeds:
        world = play(seed)
        done.update({name: n for name, n in world.done.items() if isinstance(n, int)})
        struck.update(world.struck)
    return done, struck


def test_writers_of_the_same_keys_under_merges_and_accidents():
    done, struck = played(SEEDS)
    assert {"writer", "compactor", "worker", "vacuum", "task done", "crash"} <= set(done)
    assert struck


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_schedules(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    done, struck = played(seeds)
    assert struck["stale"]
    assert struck["lost"]
    assert rare(done, len(seeds)) == {}
