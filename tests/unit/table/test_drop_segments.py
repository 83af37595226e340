"""drop_segments: rows that are lost for good disappear from a new version on, and from no older."""

import pytest
from support import builders

from eventlog.errors import CommitConflict, DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import append, upsert


@pytest.fixture
def table():
    """Two appends of two days each; the object of the first live segment is gone."""
    made = builders.create()
    append(made, builders.events(2, days=2))
    append(made, builders.events(2, day=5, days=2))
    made.store.delete([keys.key_of(made.snapshot().segments()[0])])
    return made


def test_afterwards_the_table_reads_again(table):
    lost, *rest = table.snapshot().segments()
    with pytest.raises(DataLoss):
        scan(table).to_table()
    version = table.drop_segments([lost, lost], reason="no copy left")
    assert version == 3
    assert table.snapshot().segments() == rest
    assert scan(table).to_table().num_rows == sum(segment.rows for segment in rest)
    assert fsck(table).ok
    (entry,) = table.history(limit=1)
    assert (entry.operation, entry.drops) == ("drop", 1)
    commit, _ = table.session.log.read(version)
    assert commit.transactions[0].info == {"reason": "no copy left"}
    with pytest.raises(DataLoss):  # an older version never hides the loss
        scan(table, version=version - 1).to_table()


def test_what_is_not_live_is_a_conflict(table):
    first, second, *_ = table.snapshot().segments()
    table.drop_segments([first], reason="gone")
    with pytest.raises(CommitConflict):
        table.drop_segments([second, first], reason="gone")
    assert second in table.snapshot().segments()


@pytest.mark.parametrize("segments", [[], ["0" * 32], [None]])
def test_only_segments_can_be_dropped(table, segments):
    with pytest.raises(InvalidInput, match="at least one segment"):
        table.drop_segments(segments, reason="gone")


@pytest.mark.parametrize("reason", ["", None, "x" * 300])
def test_a_reason_is_needed(table, reason):
    with pytest.raises(InvalidInput, match="reason"):
        table.drop_segments(table.snapshot().segments()[:1], reason=reason)
    assert table.refresh().version == 2


def keyed():
    """Three upserts of a keyed table, of which the second has lost its segment."""
    made = builders.create(key="name", granularity="all", buckets=1)
    for first in range(3):
        upsert(made, builders.events(2, first=first))
    lost = next(s for s in made.snapshot().segments() if s.version == 2)
    made.store.delete([keys.key_of(lost)])
    return made, lost


def test_a_lost_segment_of_a_keyed_table_goes_with_its_chunk_only():
    table, lost = keyed()
    whole = table.snapshot().segments()
    with pytest.raises(InvalidInput, match="restore the newest complete version") as refused:
        table.drop_segments([lost], reason="gone")
    assert "all segments of chunk all" in str(refused.value)
    assert table.refresh().version == 3
    assert table.drop_segments(whole, reason="gone") == 4
    assert scan(table).count() == 0
    assert fsck(table).ok
    with pytest.raises(CommitConflict):  # not live any more: as in any table
        table.drop_segments([lost], reason="gone")


def test_a_keyed_table_is_whole_again_once_it_was_restored_and_fed_again():
    table, _ = keyed()
    with pytest.raises(DataLoss):
        scan(table).to_table()
    table.restore(1)
    for first in (1, 2):
        upsert(table, builders.events(2, first=first))
    assert scan(table).to_table().num_rows == 4
    assert fsck(table).ok
