"""Keyed tables under the scheduler: fixed seeds. `make simulate` has fresh ones."""

from collections import Counter

import pytest
from simulation.keyed import play, rare
from simulation.scheduler import one_thread
from support.repeatable import EXAMPLES

SEEDS = (6, 12, 20, 27)
BLOCKS = 4
LONG = max(EXAMPLES, 400)


@pytest.fixture(autouse=True, scope="module")
def one_at_a_time():
    with one_thread():
        yield


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
