"""drop_segments: rows that are lost for good disappear from a new version on, and from no older."""

import re
from pathlib import Path

import pytest
from support import builders
from support.builders import live
from support.replacements import rewrite

from eventlog import Table
from eventlog.errors import CommitConflict, DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import append, overwrite, upsert

TESTS = Path(__file__).parents[2]


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


@pytest.fixture
def loads():
    """Three loads of two days each, of which the second one is wrong."""
    made = builders.create()
    for first in (0, 10, 20):
        append(made, builders.events(2, first=first, days=2))
    return made


def names(table):
    return sorted(scan(table).to_table()["name"].to_pylist())


def test_a_wrong_load_is_undone_and_later_ones_stay(loads):
    right = names(loads)
    append(loads, builders.events(4, days=2))  # the first file once more, longer
    append(loads, builders.events(2, first=30, days=2))
    loads.delete("name = 'row 0'")
    before = names(loads)
    added = loads.added_by(4)
    assert loads.drop_segments(added, reason="loaded twice") == 7
    assert sum(segment.live_rows for segment in added) == len(before) - len(names(loads))
    assert names(loads) == sorted({*right, "row 30", "row 31"} - {"row 0"})
    assert fsck(loads).ok


@pytest.mark.parametrize("version", [0, 4])
def test_a_version_that_added_nothing_is_no_load(loads, version):
    loads.pin("audit")
    with pytest.raises(InvalidInput, match=f"version {version} added no segment"):
        loads.added_by(version)


def test_what_replaced_rows_cannot_be_undone_by_a_drop(loads):
    overwrite(loads, builders.events(2, days=2))
    with pytest.raises(InvalidInput, match=r"also took rows away.*restore version 3"):
        loads.added_by(4)
    loads.update({"value": "value + 1"})
    with pytest.raises(InvalidInput, match=r"also took rows away.*restore version 4"):
        loads.added_by(5)


def test_a_load_that_was_rewritten_is_not_dropped_in_part(loads):
    loads.commit(rewrite(loads, live(loads.snapshot())[:1]))
    moved = next(v for v in (1, 2, 3) if sum(s.version == v for s in live(loads.refresh())) == 1)
    with pytest.raises(InvalidInput, match=r"2 segments, and 1 of them are not live.*blame"):
        loads.added_by(moved)


def test_writers_that_share_a_commit_are_told_apart_by_ids():
    table = Table.open(TESTS / "golden" / "tables" / "deletion_vectors")
    with pytest.raises(InvalidInput, match="4 writers shared the commit") as refused:
        table.added_by(12)
    ids = set(re.findall("[0-9a-f]{32}", str(refused.value)))
    assert ids == {segment.id for segment in table.diff(11, 12).added if segment.version == 12}


def test_a_load_of_a_keyed_table_is_not_dropped():
    table, _ = keyed()
    with pytest.raises(InvalidInput, match="in a keyed table"):
        table.added_by(1)


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
