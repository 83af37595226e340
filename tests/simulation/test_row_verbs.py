"""All verbs that change rows and columns under the scheduler: fixed seeds."""

from collections import Counter

import pytest
from simulation.row_verbs import play, rare
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = (306, 318, 321, 322, 325, 326)  # the fewest that have every verb often enough
BLOCKS = 4
LONG = max(EXAMPLES, 400)


def played(seeds):
    done = Counter()
    for seed in seeds:
        world = play(seed)
        done.update({name: n for name, n in world.done.items() if isinstance(n, int)})
    return done


@pytest.mark.verify
@pytest.mark.hazard("K7")
def test_all_verbs_beside_compaction_vacuum_and_changes_of_columns():
    done = played(SEEDS)
    assert {"deleter", "updater", "merger", "overwriter", "renamer", "compactor"} <= set(done)
    assert done["rows deleted by position"] > 20
    assert done["rows updated"] > 10
    assert done["rows merged"] > 10
    assert done["columns changed"] > 10


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_schedules_of_all_verbs(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    assert rare(played(seeds), len(seeds)) == {}
