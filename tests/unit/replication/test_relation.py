"""Where two logs parted is found by a search that goes back in growing steps."""

import pytest

from eventlog.lineage.relation import last_common


def search(common, different, first=0):
    """The answer for logs that agree up to `common` and of which one begins at `first`."""
    asked = []

    def agree(version):
        asked.append(version)
        return None if version < first else version <= common

    return last_common(agree, different), asked


@pytest.mark.parametrize("common", range(-1, 40))
def test_the_last_common_version_is_found(common):
    assert search(common, 40)[0] == common


def test_a_young_fork_is_found_in_few_steps_and_an_old_one_by_bisection():
    assert len(search(999_998, 1_000_000)[1]) <= 3
    assert len(search(17, 1_000_000)[1]) <= 40


@pytest.mark.parametrize("first", range(1, 40))
def test_versions_that_one_lacks_are_no_difference(first):
    assert search(39, 40, first)[0] == 39
    assert search(first, 40, first)[0] == first
    assert search(first - 1, 40, first)[0] is None  # they differ wherever both can tell
