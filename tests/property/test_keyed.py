"""Random histories of keyed tables: after every commit the table is what the model says.

The model (`support.keyed_model`) knows rows and their order only: no buckets, no segments, no
merges. The order of commits is taken from the log (`support.keyed_book`), and what happens from a
seed (`support.random_histories`). `make histories` runs as many as you like.
"""

from collections import Counter

import pytest
from support.random_histories import play, rare
from support.repeatable import EXAMPLES

from eventlog.fsck.check import fsck
from eventlog.store.location import open_store

# Long histories with much in them, one of each merge rule.
SEEDS = (37, 42, 67, 109, 138)
LONG = max(EXAMPLES, 1000)
BLOCKS = 5
ENOUGH = {
    "merges to a base": 3, "merges to a log": 1, "tombstones forgotten": 1, "deaths": 1,
    "pauses": 1, "restore": 1, "vacuum": 1, "split": 1, "adds over a split": 1,
    "merges over a split": 1,
}  # fmt: skip


@pytest.mark.verify
def test_every_version_is_what_the_model_says():
    counts = Counter()
    for seed in SEEDS:
        history = play(seed, steps=20)
        counts.update(history.counts)
        assert fsck(history.handle(), checksums=True).errors == 0
    assert {name: counts[name] for name in ENOUGH if counts[name] < ENOUGH[name]} == {}


def test_in_a_directory(tmp_path):
    play(101, open_store((tmp_path / "table").as_uri()), steps=5)


@pytest.mark.verify
def test_on_s3(bucket):
    history = play(102, open_store(f"s3://{bucket}/table"), steps=4)
    assert fsck(history.handle()).errors == 0


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_thousand_histories(block):
    counts = Counter()
    for seed in range(1000 + block, 1000 + LONG, BLOCKS):
        counts.update(play(seed).counts)
    print(f"keyed histories: {dict(counts.most_common())}")  # noqa: T201
    assert rare(counts) == {}
