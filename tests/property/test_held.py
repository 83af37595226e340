"""Random histories of failovers, branches and vacuums: what is kept never loses an object.

Tables follow each other in any direction, take over and follow back, and are vacuumed as much as is
allowed (`support.held_histories`). `make forks` runs as many as you like.
"""

from collections import Counter

import pytest
from support.held_histories import play_held, rare_held
from support.repeatable import EXAMPLES

SEEDS = (0, 2, 15)
LONG = max(EXAMPLES, 300)


@pytest.mark.sample(0, verify=1)
@pytest.mark.hazard("W11")
@pytest.mark.hazard("W18")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_kept_version_of_a_table_copy_or_branch_loses_an_object(seed):
    assert play_held(seed).counts["versions checked"] > 100


@pytest.mark.hazard("W11")
@pytest.mark.long
@pytest.mark.timeout(0)
def test_hundreds_of_histories_of_what_is_held():
    counts = Counter()
    for seed in range(1000, 1000 + LONG):
        counts.update(play_held(seed).counts)
    print(f"held: {dict(counts.most_common())}")  # noqa: T201
    assert rare_held(counts) == {}
