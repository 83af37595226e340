"""Whether a horizon rises, and which commits are vacuums' own."""

import pytest
from support.builders import replaced

from eventlog.model.records import CommitChanges
from eventlog.recovery.garbage import Dropped, is_of_vacuum, is_worth_raising

OF_VACUUM = CommitChanges("vacuum", "writer", 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("dropped", "deleted", "published", "rises"),
    [
        ((), 0, False, False),
        ((3, 8), 0, False, False),  # given up already, and still kept
        ((4,), 0, False, True),
        ((8, 7), 0, False, True),
        ((), 2, False, True),
        ((), -2, False, True),
        ((), 0, True, True),
    ],
)
def test_a_horizon_rises_where_that_frees_or_hides_something(dropped, deleted, published, rises):
    objects = [Dropped(f"key {version}", version, 1) for version in dropped]
    assert is_worth_raising(3, 7, objects, deleted, published=published) == rises


def test_a_commit_is_of_a_vacuum_if_it_changes_neither_rows_nor_segments():
    assert is_of_vacuum(OF_VACUUM)
    others = (
        {"operation": "append"},
        {"transactions": 2},
        {"adds": 1},
        {"drops": 1},
        {"vectors": 1},
    )
    for other in others:
        assert not is_of_vacuum(replaced(OF_VACUUM, **other)), other
