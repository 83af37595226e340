"""Random histories of a table without a key: after every commit it has the rows of a dictionary.

All verbs run in the middle of each other, with compactions, key frames, restores and vacuums beside
them (`support.changed_rows`). `make rows` runs as many as you like.
"""

from collections import Counter

import pytest
from support.changed_rows import play_changes, rare_changes
from support.repeatable import EXAMPLES

# Short histories with much in them.
SEEDS = (13, 20, 26, 35, 36, 38)
LONG = max(EXAMPLES, 400)
BLOCKS = 4
ENOUGH = {
    "delete": 10, "update": 5, "move": 4, "overwrite": 3, "merge": 5, "compacted": 3, "restore": 2,
    "vacuum": 4, "met": 20, "versions": 15,
}  # fmt: skip


def test_every_version_has_the_rows_of_the_model():
    counts = Counter()
    for seed in SEEDS:
        counts.update(play_changes(seed).counts)
    assert {name: counts[name] for name in ENOUGH if counts[name] < ENOUGH[name]} == {}


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_histories(block):
    counts = Counter()
    for seed in range(1000 + block, 1000 + LONG, BLOCKS):
        counts.update(play_changes(seed).counts)
    assert rare_changes(counts) == {}
