"""What a publisher of Delta puts, decided from what lies in the Delta log."""

import pytest

from eventlog.errors import InvalidInput
from eventlog.publishing.delta.delta_listing import DeltaListing
from eventlog.publishing.delta.delta_plan import DeltaPlan, VersionPuts, check_beginning


def listing(commits=(), checkpoints=(), hinted=None):
    return DeltaListing(tuple(commits), frozenset(checkpoints), hinted=hinted)


def test_a_new_publication_begins_with_a_checkpoint_before_its_commit():
    plan = DeltaPlan.of(listing(), 7)
    assert (plan.known, plan.reached, plan.first_step(9)) == (None, 6, 7)
    assert plan.puts(7) == VersionPuts(commit=True, checkpoint="before")
    assert plan.puts(8) == VersionPuts(commit=True, checkpoint=None)
    assert plan.puts(100) == VersionPuts(commit=True, checkpoint="after")
    assert DeltaPlan.of(listing(), 0).puts(0) == VersionPuts(commit=True, checkpoint=None)


def test_the_newest_published_version_is_compared_and_later_ones_are_put():
    plan = DeltaPlan.of(listing(range(7, 10), [7], 7), 7)
    assert (plan.known, plan.first_step(12), plan.first_step(8)) == (9, 9, 8)
    assert plan.puts(9) == VersionPuts(commit=False, checkpoint=None)
    assert plan.puts(10) == VersionPuts(commit=True, checkpoint=None)
    assert plan.puts(7) == VersionPuts(commit=False, checkpoint=None)


@pytest.mark.parametrize(
    ("checkpoints", "hinted", "put"),
    [([], None, "after"), ([100], None, "after"), ([100], 50, "after"), ([100], 100, None)],
)
def test_a_checkpoint_that_a_killed_publisher_left_out_is_put(checkpoints, hinted, put):
    plan = DeltaPlan.of(listing(range(101), checkpoints, hinted), 0)
    assert plan.puts(100) == VersionPuts(commit=False, checkpoint=put)


def test_a_publication_that_ends_before_its_beginning_is_a_new_one():
    plan = DeltaPlan.of(listing(range(5)), 7)
    assert (plan.known, plan.reached, plan.first_step(9)) == (None, 6, 7)


def test_a_publication_is_behind_if_all_of_it_lies_below_the_horizon():
    assert not listing().is_behind(9)
    assert listing(range(5)).is_behind(5)
    assert not listing(range(5)).is_behind(4)
    assert listing(checkpoints=[3]).is_behind(4)


@pytest.mark.parametrize(
    ("commits", "checkpoints", "horizon", "lost"),
    [
        ([], [], 5, False),
        (range(9), [], 0, False),
        (range(1, 9), [], 0, True),
        (range(1, 150), [100], 0, True),
        (range(3, 9), [3], 0, False),
        (range(4, 9), [3], 0, False),
        (range(5, 9), [3], 0, True),
        (range(3, 9), [5], 5, False),  # as a vacuum that was killed leaves it
        (range(3, 9), [5], 4, True),
        (range(3, 9), [], 9, False),  # begins again at the horizon
        ([3, 4, 11, 12], [11], 10, False),
    ],
)
def test_readers_begin_at_the_first_version_or_at_a_checkpoint(commits, checkpoints, horizon, lost):
    assert listing(commits, checkpoints).lacks_beginning(horizon) == lost


def test_a_beginning_above_what_is_asked_for_is_refused():
    check_beginning(3, 3, 3, "s3://b/t")
    check_beginning(3, None, 4, "s3://b/t")
    with pytest.raises(InvalidInput, match=r"begins at version 3.*publish delta .* --from 2`"):
        check_beginning(3, 2, 4, "s3://b/t")
    with pytest.raises(InvalidInput, match="version 2 cannot be the last one"):
        check_beginning(3, 3, 2, "s3://b/t")
