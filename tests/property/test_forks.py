"""Random histories of copies that took writes of their own: merged both ways they are equal.

The copies append, compact, delete, restore, vacuum, and are merged in any direction, also by
programs that die (`support.forked_histories`). `make forks` runs as many as you like.
"""

from collections import Counter

import pytest
from support.builders import check_sound
from support.deep_histories import play_deep, rare_deep
from support.doubled_histories import play_doubled, rare_doubled
from support.forked_histories import play_forks, play_keyed_forks, rare, rare_keyed
from support.repeatable import EXAMPLES
from support.row_forks import (
    play_row_branches,
    play_row_deep,
    play_row_forks,
    play_row_united,
    rare_row_branches,
    rare_row_deep,
    rare_row_forks,
    rare_row_united,
)
from support.row_rings import play_rings, play_unit_rings, rare_rings, rare_unit_rings
from support.united_histories import (
    play_united,
    play_united_keyed,
    rare_united,
    rare_united_keyed,
)

from eventlog.fsck.check import fsck

SEEDS = (0, 9)
KEYED_SEEDS = (9,)
UNITED_SEEDS = (26, 39, 8319)  # the last: a unit that both did, known by way of a third copy
UNITED_KEYED_SEEDS = (1006, 193, 71039)  # the last settles although segments change places
# Each fails without one of the rules of units of work that both did.
DOUBLED_SEEDS = (7, 92, 248, 426, 9136, 400095, 700157)
# Deletes beside others in segments that one side alone changed; in rewrites of the same rows; and
# rows that a branch was published without, by a choice and without one.
RING_SEEDS = (1016, 1015, 6428728799, 412306081420)
# Two sides changed rows of a unit that each of them did, and both copies of them were there.
UNIT_RING_SEEDS = (96186, 96283, 637113273089, 637113273094)
SHORT_RING_SEEDS = (2015, 2025, 2029)  # of six steps: deletes, updates and overwrites united
LONG = max(EXAMPLES, 300)


@pytest.mark.hazard("G3")
def test_copies_that_were_merged_both_ways_have_the_same_rows():
    counts = Counter()
    for seed in SEEDS:
        history = play_forks(seed)
        counts.update(history.counts)
        for side in history.sides:
            assert fsck(side.handle(), checksums=True).errors == 0
    check_sound(history.sides[0].store)
    assert counts["converged"] >= 2
    assert counts["deaths"] + counts["pauses"] >= 1


@pytest.mark.verify
@pytest.mark.hazard("G4")
def test_keyed_copies_that_were_merged_both_ways_have_the_same_rows():
    counts = Counter()
    for seed in KEYED_SEEDS:
        history = play_keyed_forks(seed)
        counts.update(history.counts)
        for side in history.sides:
            assert fsck(side.handle(), checksums=True).errors == 0
    assert counts["converged"] == counts["repeated"] == len(KEYED_SEEDS)


@pytest.mark.sample(0, verify=2)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize(
    ("play", "seed"),
    [
        *(pytest.param(play_united, seed, id=f"{seed}") for seed in UNITED_SEEDS),
        *(pytest.param(play_united_keyed, seed, id=f"keyed-{seed}") for seed in UNITED_KEYED_SEEDS),
    ],
)
def test_copies_become_one_again_by_the_commands_that_messages_name(play, seed):
    history = play(seed)
    for side in history.sides:
        assert fsck(side.handle(), checksums=True).errors == 0
    assert history.counts["became one"] == 1


@pytest.mark.sample(2, verify=4)
@pytest.mark.hazard("G4")
@pytest.mark.parametrize("seed", DOUBLED_SEEDS)
def test_what_a_unit_of_work_has_replaced_at_one_of_several_copies_stays_replaced(seed):
    history = play_doubled(seed)
    for side in history.sides:
        assert fsck(side.handle(), checksums=True).errors == 0


@pytest.mark.sample(0, verify=1)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("seed", RING_SEEDS)
def test_a_merge_is_refused_where_two_sides_changed_one_row_and_nowhere_else(seed):
    assert play_rings(seed).counts["merged"] >= 1


@pytest.mark.sample(0, verify=1)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("seed", UNIT_RING_SEEDS)
def test_rows_of_units_that_several_sides_did_are_there_once(seed):
    assert play_unit_rings(seed).counts["units done twice"] >= 1


@pytest.mark.sample(1, verify=2)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("seed", SHORT_RING_SEEDS)
def test_rows_that_several_sides_changed_are_united_without_a_question(seed):
    counts = play_rings(seed, steps=6).counts
    assert counts["united"] >= 1
    assert not counts["conflict"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("play", "too_rare"),
    [
        (play_rings, rare_rings),
        (play_unit_rings, rare_unit_rings),
        (play_row_forks, rare_row_forks),
        (play_row_branches, rare_row_branches),
        (play_row_deep, rare_row_deep),
        (play_row_united, rare_row_united),
        (play_doubled, rare_doubled),
        (play_forks, rare),
        (play_keyed_forks, rare_keyed),
        (play_united, rare_united),
        (play_united_keyed, rare_united_keyed),
    ],
    ids=[
        "rings",
        "unit-rings",
        "rows",
        "row-branches",
        "row-deep",
        "row-united",
        "doubled",
        "",
        "keyed",
        "united",
        "united-keyed",
    ],
)
def test_hundreds_of_forks(play, too_rare):
    counts = Counter()
    for seed in range(1000, 1000 + LONG):
        counts.update(play(seed).counts)
    print(f"forks: {dict(counts.most_common())}")  # noqa: T201
    assert too_rare(counts) == {}


@pytest.mark.verify
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("seeds", [1, pytest.param(LONG, marks=pytest.mark.long)])
def test_no_merge_of_copies_of_copies_and_branches_of_branches_loses_a_row(seeds):
    counts = Counter()
    for seed in range(1003, 1003 + seeds):
        counts.update(play_deep(seed).counts)
    assert counts["rows compared"] >= seeds
    assert not rare_deep(counts)
