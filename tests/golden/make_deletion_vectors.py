"""Write the golden table `deletion_vectors`: deletes of rows by position, and what is void of them.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_deletion_vectors.py

Like the other tables it is written once a format. One of its commits is no release's work: it holds
transactions that take no effect, one for each condition of R20.2 to R20.5.
"""

import sys
from collections.abc import Iterable
from unittest.mock import patch

import pyarrow as pa
from golden import make, make_whole
from golden.make_rules import good
from msgspec import UNSET
from msgspec.structs import replace
from support.deleting import delete_rows, staged_deletes

from eventlog import Segment, Table
from eventlog.clock import ManualClock
from eventlog.format.frames import entry_columns
from eventlog.model.actions import (
    Action,
    Add,
    DeleteRows,
    Fence,
    Replace,
    Restore,
    SameSegments,
    Update,
)
from eventlog.model.entries import Vector
from eventlog.model.records import Transaction
from eventlog.state import fold
from eventlog.state.delta import add_of, drop_of
from eventlog.writers import append

NAME = "deletion_vectors"
DAY_US = make.DAY_US
MANY = 70_000  # rows of a segment whose vector has every kind of container
staged, void = make_whole.staged, make_whole.void


def rows(day: int, numbers: Iterable[int]) -> pa.Table:
    """Rows with these numbers, all at the start of a day of 1970."""
    numbers = list(numbers)
    return pa.table([[day * DAY_US] * len(numbers), numbers], schema=make.PLAIN)


def entries(t: Table) -> list[Segment]:
    """The live entries, in the order of their versions."""
    found = entry_columns.to_segments(t.refresh().entries())
    return sorted(found, key=lambda s: (s.version, s.partition))


def with_vector(one: Add | DeleteRows, **changes: object) -> Add | DeleteRows:
    """Return an action whose vector has other fields, of its own or of where it is stored."""
    assert isinstance(one.vector, Vector)
    rows = changes.pop("rows", one.vector.rows)
    return replace(one, vector=Vector(rows, stored=replace(one.vector.stored, **changes)))


def in_log(one: Add | DeleteRows, rows: int, bitmap: bytes) -> Add | DeleteRows:
    """Return an action whose vector has this bitmap."""
    return replace(one, vector=Vector(rows, bitmap))


def another(one: DeleteRows, **changes: str) -> DeleteRows:
    """Return an action that names another entry."""
    return replace(one, **changes)


def grown(t: Table, data: pa.Table, positions: Iterable[int]) -> Add:
    """Stage a segment, and a vector of some of its rows. Return the add that has both."""
    (add,) = staged(t, data)
    entry = fold.segment_of(add, t.session.head().version + 1, 0)
    (made,) = staged_deletes(t, {entry.id: positions}, of=[entry])
    return replace(add, vector=made.vector)


def voids(t: Table) -> list[Transaction]:
    """Return transactions that are void, and the accepted ones that make some of them so."""
    version = t.session.head().version + 1
    other, kept = entries(t)
    before = other.vector
    assert isinstance(before, Vector)
    (once,) = staged_deletes(t, {kept.id: [1]})
    (more,) = staged_deletes(t, {other.id: [0]})
    (new,) = staged(t, rows(1, range(50, 54)))
    own = fold.segment_of(new, version, 0)
    (of_own,) = staged_deletes(t, {own.id: [0]}, of=[own])
    with_rows = grown(t, rows(1, range(60, 64)), [0])
    fence = t.session.head().meta.fence
    plan = Replace(version - 1, 0)
    two = [more, *staged(t, rows(2, range(70, 72)))]
    live = SameSegments(t.session.head().hash_sum())
    after = replace(kept, vector=once.vector)
    deletes: list[list[Action]] = [
        [another(more, hash=make_whole.HASH)],
        [another(more, chunk="1970-01-02")],
        [another(more, id=kept.id)],
        [with_vector(more, rows=before.rows)],  # it does not grow
        [with_vector(more, rows=other.rows)],  # all rows
        [with_vector(more, epoch=version)],
        [with_vector(more, epoch=fence - 1)],
        [with_vector(more, object="zz")],
        [with_vector(more, hash="none")],
        [with_vector(more, size=0)],
        [replace(more, vector=Vector(more.vector.rows))],
        [replace(more, vector=replace(more.vector, bitmap=b"bitmap"))],
        [in_log(more, before.rows, b"bitmap")],  # it does not grow
        [in_log(more, more.vector.rows, b"")],
        [more, more],
        [more, drop_of(other)],
    ]
    adds: list[list[Action]] = [
        [with_vector(with_rows, rows=with_rows.rows)],
        [with_vector(with_rows, epoch=version)],
        [with_vector(with_rows, epoch=fence - 1)],
        [with_vector(with_rows, object="zz")],
        [in_log(with_rows, 1, b"")],
        [in_log(with_rows, with_rows.rows, b"bitmap")],
    ]
    back, at = replace(add_of(other), vector=UNSET), Restore(version - 1)
    exchanges: list[list[Action]] = [
        [drop_of(other), back],  # no restore
        [at, drop_of(other), add_of(other)],  # the same vector
        [at, drop_of(other), replace(back, rows=other.rows + 1)],
        [at, back],  # it is not dropped
    ]
    updates: list[list[Action]] = [
        [Update(0, False), *two],
        [Update(2, False), *two],  # one row goes
        [Update(1, False), more],  # none comes
        [Update(1, True), *two],  # two come
        [Update(1, False), Update(1, False), *two],
        [Update(1, False), Restore(version - 1), *two],
        [Update(1, False), Replace(version - 1, other.live_rows - 2), drop_of(other), *two[1:]],
    ]
    return [
        *(void(t, "R20.3", actions) for actions in deletes),
        *(void(t, "F6", actions) for actions in (*adds, *exchanges)),
        *(void(t, "R20.5", actions) for actions in updates),
        void(t, "F10", [plan, drop_of(other), with_rows]),  # as many rows as their objects have
        void(t, "F10", [plan, drop_of(kept), *staged(t, rows(1, range(40, 44))), more]),
        void(t, "F3", [more], until=version + 8),
        good(t, new, operation="append"),
        void(t, "R20.3", [of_own]),  # added in this commit
        good(t, once, operation="delete"),
        void(t, "R20.3", [once]),
        void(t, "F5", [drop_of(kept)]),
        void(t, "F5", [drop_of(after)]),
        void(t, "F7", [live]),
        good(t, Update(1, False), more, *two[1:], operation="update"),
        good(t, with_rows, operation="append"),
    ]


def replaced_meanwhile(t: Table, day: int) -> None:
    """Rewrite the segments of a day, of which a row is deleted while the rewrite runs."""
    planned = t.refresh().version
    read = [s for s in entries(t) if s.chunk == f"1970-01-{day + 1:02}"]
    assert sum(s.live_rows for s in read) == 5
    (add,) = staged(t, rows(day, (12, 13, 14, 20, 21)))
    delete_rows(t, {read[0].id: [2]})  # the first one that was left
    entry = fold.segment_of(add, t.session.head().version + 1, 0)
    (made,) = staged_deletes(t, {entry.id: [0]}, of=[entry])
    add = replace(add, vector=made.vector)
    gone = [drop_of(s) for s in entries(t) if s.id in {one.id for one in read}]
    t.commit(t.transaction("compact", [Replace(planned, 0), *gone, add], read_version=planned + 1))


def make_vectors(clock: ManualClock) -> None:
    """One commit for each of these."""
    t = make.open_at(NAME, make.PLAIN, clock, properties={"keyframe_commits": "1000"})
    append(t, pa.concat_tables([rows(day, range(10 * day, 10 * day + 6)) for day in range(3)]))
    first, second, third = entries(t)
    delete_rows(t, {first.id: [0, 3], second.id: [5]})
    t.write_keyframe()  # in the root
    delete_rows(t, {first.id: [1]}, in_log=True)
    new = staged(t, rows(1, (20, 21)))
    delete_rows(t, {second.id: [0, 1]}, *new, Update(2, True))
    t.commit(t.transaction("drop", [drop_of(s) for s in entries(t) if s.id == first.id]))
    t.restore(4)
    replaced_meanwhile(t, 1)
    append(t, rows(3, (n // 100 for n in range(MANY))))
    with patch("eventlog.state.keyframe.INLINE_SEGMENTS", 1):
        _in_leaves(t, first, third)
    append(t, rows(5, range(80, 86)))
    version = delete_rows(t, {entries(t)[-1].id: [2, 3, 4]})
    t.restore(version - 1)  # the entry has no vector again
    t.restore(version)
    delete_rows(t, {entries(t)[-1].id: [0]}, in_log=True)


def _in_leaves(t: Table, first: Segment, third: Segment) -> None:
    """Write key frames that have leaves, one after a spill, and what is void."""
    t.write_keyframe()
    many = [*range(0, 60_000, 3), *range(65_530, 66_000), MANY - 1]
    large = entries(t)[-1]
    with patch("eventlog.log.spills.SPILL_BYTES", 100):
        small = staged_deletes(t, {third.id: [4, 5]}, in_log=True)
        delete_rows(t, {large.id: many}, *small, Fence(3))
    gone = {large.id, first.id}
    t.commit(t.transaction("drop", [drop_of(s) for s in entries(t) if s.id in gone]))
    t.write_keyframe()
    make_whole.put(t, voids(t))
    shrunk = [s for s in entries(t) if isinstance(s.vector, Vector)]
    t.commit(t.transaction("drop", [drop_of(s) for s in shrunk]))
    t.write_keyframe()


def main() -> int:
    """Write the table."""
    leaves = {"INLINE_SEGMENTS": 3, "LEAF_TARGET": 2, "LEAF_SMALL": 1, "LEAF_MAX": 3}
    with make.writing(NAME, **leaves):
        make_vectors(ManualClock(make.START_MS, seed=2028))
    return 0


if __name__ == "__main__":
    sys.exit(main())
