"""Changes of rows under the scheduler: fixed seeds. `make simulate` has fresh seeds."""

import pytest
from simulation import row_changes
from simulation.simulate import Sums, sums_of
from support.repeatable import EXAMPLES

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = range(15)
BLOCKS = 4
LONG = max(EXAMPLES, 800)


def played(seeds):
    sums = Sums()
    for seed in seeds:
        sums.add(sums_of(row_changes.play(seed)))
    return sums


@pytest.mark.verify
@pytest.mark.hazard("K7")
def test_changes_of_rows_beside_compaction_vacuum_and_accidents():
    sums = played(SEEDS)
    assert {"op delete_rows", "op update_rows", "did update", "did restore"} <= set(sums.done)
    assert sums.done["did delete_rows"] > 10
    assert sums.done["rows changed"] > 100
    assert sums.done["void transactions"] == 0


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_schedules_with_changes_of_rows(block):
    seeds = range(1000 + block, 1000 + LONG, BLOCKS)
    assert row_changes.rare(played(seeds).done, len(seeds)) == {}
