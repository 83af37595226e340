"""What a follower commits to the source about itself, decided from the source's small state."""

import pytest

from eventlog.errors import CommitConflict
from eventlog.model.actions import Ack, Attach, Detach
from eventlog.model.records import Meta, Replica
from eventlog.replication.attachment import acking, attaching

US = Replica(acked=7, owner="file:///us", token=3)


def attached(replica=None, horizon=0, *, having, start=0):
    meta = Meta(horizon=horizon, replicas={"us": replica} if replica else {})
    return attaching(meta, "us", "file:///us", having, start, table="file:///table")


def test_a_new_one_acknowledges_what_it_has_or_where_it_starts():
    assert attached(having=5) == (Attach("us", 5, "file:///us"),)
    assert attached(having=-1, start=4) == (Attach("us", 4, "file:///us"),)


def test_none_acknowledges_less_than_the_horizon():
    assert attached(horizon=6, having=5, start=6) == (Attach("us", 6, "file:///us"),)
    assert attached(horizon=9, having=-1, start=4) == (Attach("us", 9, "file:///us"),)


def test_one_that_is_attached_is_left_alone_unless_it_was_emptied():
    assert attached(US, having=7) == attached(US, having=9) == ()
    assert attached(US, having=-1) == (Detach("us", 3), Attach("us", 0, "file:///us"))


def test_the_name_of_another_is_refused():
    with pytest.raises(CommitConflict, match="belongs to the replica"):
        attached(Replica(acked=7, owner="file:///them", token=3), having=7)


@pytest.mark.parametrize(
    ("token", "version", "expected"),
    [(3, 8, (Ack("us", 3, 8),)), (3, 7, ()), (3, 6, ()), (2, 8, ())],
)
def test_only_news_of_the_same_attachment_are_acknowledged(token, version, expected):
    assert acking(Meta(replicas={"us": US}), "us", token, version) == expected
    assert acking(Meta(), "us", token, version) == ()
