"""Steps of versions that deleted or updated rows by their positions."""

from msgspec import UNSET, structs
from support.builders import HASH

from eventlog.model.entries import Segment, Vector
from eventlog.readers.changefeed.change_steps import Exchanged, Updated, only_deletes, update_steps


def segment(name, *, rows=10, deleted=0, version=1, day=1):
    vector = Vector(deleted, b"bitmap") if deleted else UNSET
    chunk = f"2013-01-0{day}"
    return Segment(name, chunk, 0, version, 0, rows, 100, HASH, 1, vector=vector)


def test_rows_cancel_out_only_where_some_are_added_or_come_back():
    old, left = segment("a"), segment("a", deleted=2)
    assert only_deletes(Exchanged(3, (old, segment("b")), (left,)))
    assert not only_deletes(Exchanged(3, (old,), (left, segment("c", version=3))))
    back = structs.replace(old, version=3)
    assert not only_deletes(Exchanged(3, (left,), (back,)))


def test_a_paired_update_is_cut_where_old_and_new_rows_are_equally_many():
    old = [segment("c", day=3), segment("a"), segment("b", rows=1, version=2)]
    left = [segment("a", deleted=3), segment("c", deleted=4)]
    new = [segment("z", rows=4, version=5, day=3), segment("y", rows=4, version=5)]
    a, b, c = old[1], old[2], old[0]
    assert update_steps(5, old, left, new) == [
        Updated(5, (a, b), (left[0],), (new[1],)),
        Updated(5, (c,), (left[1],), (new[0],)),
    ]
    one = segment("x", rows=8, version=5)
    assert update_steps(5, old, left, [one]) == [Updated(5, (a, b, c), tuple(left), (one,))]
