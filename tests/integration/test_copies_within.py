"""Publishing and merging where S3 copies the segments by itself: no row passes through here."""

import pytest
from support.builders import SCHEMA, events, live, row_names

from eventlog import Table, errors, replication
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.store.branching.branch import stored_place
from eventlog.store.s3.adapter import S3Store
from eventlog.writers import append

ROWS = 12_000
MOST = 30_000  # bytes of the log alone, less than those of the segment


@pytest.fixture
def root(bucket):
    return f"s3://{bucket}/table"


@pytest.fixture
def branch(root):
    """A branch with a segment that is much larger than its log."""
    table = Table.create(root, SCHEMA, time_column="at")
    append(table, events(1))
    branch = table.branch("audit")
    append(branch, events(ROWS, first=10))
    assert own(branch).bytes > MOST
    return branch


def own(branch):
    (segment,) = (s for s in live(branch.refresh()) if s.rows == ROWS)
    return segment


def replaced(store, key, body):
    place, key = stored_place(store, key)
    place.delete([key])
    place.put_if_absent(key, body)


@pytest.mark.verify
def test_a_branch_is_published_and_merged_within_its_bucket(s3, root, branch):
    """Into its parent, from the parent into another branch, and that one into the first."""
    table = Table.open(root)
    other = table.branch("other", at=1)
    append(other, events(1, first=50_000))
    for act in (
        lambda: table.merge(branch),
        lambda: replication.merge(table, other),
        lambda: replication.follow(branch, f"{root}-copy"),
    ):
        with s3.measure() as counts:
            act()
        assert 0 < counts.bytes_written < MOST
    assert len(row_names(table)) == ROWS + 1
    assert len(row_names(other)) == ROWS + 2
    for place in (root, f"{root}/_branches/other", f"{root}-copy"):
        assert fsck(Table.open(place), checksums=True).findings == ()
    table.delete_branch("audit")
    assert len(row_names(Table.open(root))) == ROWS + 1


def test_a_damaged_segment_is_not_published(root, branch):
    segment, table = own(branch), Table.open(root)
    key = keys.key_of(segment)
    body = branch.store.get(key)
    replaced(branch.store, key, b"x" * len(body))
    with pytest.raises(errors.DataLoss, match="other bytes") as caught:
        table.merge(branch)
    assert caught.value.key == key
    # Mended, but what the store has copied lies in the way.
    replaced(branch.store, key, body)
    with pytest.raises(errors.DataLoss, match="delete this object there") as caught:
        table.merge(branch)
    assert caught.value.table == table.uri
    table.store.delete([caught.value.key])
    assert table.merge(branch).commits == 1
    assert fsck(Table.open(root), checksums=True).errors == 0


@pytest.mark.long
def test_where_s3_does_not_copy_the_bytes_pass_through(root, branch, monkeypatch):
    monkeypatch.setattr(S3Store, "copy_if_absent", lambda *_: None)
    assert Table.open(root).merge(branch).commits == 1
    assert fsck(Table.open(root), checksums=True).findings == ()
