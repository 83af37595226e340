"""The rules of the fold about deletion vectors: R20.2 to R20.5."""

import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import (
    HASH,
    SCHEMA,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    fold_all,
    live,
    reopen,
    replaced,
    view_of,
)
from support.deleting import vector_at

from eventlog import Segment, Table
from eventlog.errors import CommitConflict, Corrupt
from eventlog.format import codec
from eventlog.format.wellformed import check_header
from eventlog.model.actions import DeleteRows, Fence, Replace, Restore, SameSegments, Update
from eventlog.model.entries import Vector
from eventlog.model.records import Totals, Transaction
from eventlog.state import fold
from eventlog.state.delta import add_of
from eventlog.writers import upsert

CHUNK = "2013-01-07"


@pytest.fixture
def table():
    """A table of two segments of 10 rows, of the versions 1 and 2."""
    t = create()
    commit(t, add(t, CHUNK, rows=10))
    commit(t, add(t, CHUNK, rows=10))
    return t


def vector(rows: int = 3, epoch: int = 0, **changes: object) -> Vector:
    """A vector whose bitmap is never read: stored, unless it is given."""
    made = vector_at(rows, epoch)
    return Vector(rows, **changes) if "bitmap" in changes else stored_with(made, **changes)


def stored_with(made: Vector, **changes: object) -> Vector:
    """The vector with other fields of its own, or of where it is stored."""
    own = {name: changes.pop(name) for name in ("rows", "stored") if name in changes}
    return replaced(made, **({"stored": replaced(made.stored, **changes)} | own))


def delete(segment: Segment, rows: int = 3, **changes: object) -> DeleteRows:
    """The action that gives a segment a vector of so many rows."""
    digest = codec.hex_hash(codec.entry_hash(segment))
    return DeleteRows(segment.id, segment.chunk, digest, vector(rows, **changes))


def judged(table: Table, *actions: object, others: tuple = (), read: int = 2) -> str | None:
    """The reason why a transaction is void on top of a table, or None: by both views of it."""
    transaction = Transaction("a" * 32, "test", "test", read, actions=actions)
    earlier = [
        Transaction(f"{n:032x}", "test", "test", read, actions=done)
        for n, done in enumerate(others)
    ]
    state = fold_all(table.store)[-1][0]
    on_state = fold.judge([*earlier, transaction], state, state.header.time + 1)
    view = view_of(table, *earlier, transaction)
    assert fold.judge([*earlier, transaction], view, state.header.time + 1) == on_state
    assert not {one.id for one in earlier} & {*on_state.void}
    return on_state.void.get("a" * 32)


def segments(table: Table) -> list[Segment]:
    """The live segments in the order of their versions."""
    return sorted(live(table.refresh()), key=lambda s: (s.version, s.partition))


def test_an_entry_keeps_its_place_and_gets_the_vector(table):
    before, other = segments(table)
    commit(table, delete(before), operation="delete")
    head = table.refresh().header
    assert segments(table) == [replaced(before, vector=vector()), other]
    assert (head.totals.rows, head.totals.deleted, head.totals.segments) == (17, 3, 2)
    assert (head.changes.vectors, head.changes.adds, head.changes.drops) == (1, 0, 0)
    assert (head.changes.rows, head.changes.bytes) == (-3, 0)
    assert head.features == ("vectors",)
    check_sound(table.store)


def test_the_feature_lasts_as_long_as_there_are_deleted_rows(table):
    first, _ = segments(table)
    commit(table, delete(first))
    assert table.refresh().header.features == ("vectors",)
    commit(table, drop_of(segments(table)[0]))
    head = table.refresh().header
    assert (head.features, head.totals) == ((), Totals(1, 10, 1000))
    assert head.changes.vectors is UNSET
    check_sound(table.store)


def test_a_version_without_the_feature_of_its_vectors_is_refused(table):
    commit(table, delete(segments(table)[0]))
    head = table.refresh().header
    for features in ((), ("keyed",)):
        with pytest.raises(Corrupt, match="deleted rows"):
            check_header(replaced(head, features=features), head.version)
    plain = table.snapshot(2).header
    with pytest.raises(Corrupt, match="deleted rows"):
        check_header(replaced(plain, features=("vectors",)), plain.version)
    for broken in (
        replaced(head, totals=replaced(head.totals, deleted=0)),
        replaced(head, changes=replaced(head.changes, vectors=0)),
    ):
        with pytest.raises(Corrupt):
            check_header(broken, head.version)


def test_a_vector_only_grows(table):
    first, _ = segments(table)
    commit(table, delete(first, 3))
    (shrunk,) = [s for s in segments(table) if s.id == first.id]
    for rows in (1, 3):
        assert "3 are deleted already" in judged(table, delete(shrunk, rows))
    for rows in (10, 11):
        assert "of 10 rows" in judged(table, delete(shrunk, rows))
    assert judged(table, delete(shrunk, 4)) is None
    assert judged(table, delete(shrunk, 9)) is None
    commit(table, delete(shrunk, 9))
    assert table.refresh().totals == Totals(2, 11, 2000, 9)
    check_sound(table.store)


def test_rows_are_deleted_from_the_entry_that_the_action_names(table):
    first, second = segments(table)
    good = delete(first)
    for wrong in (
        replaced(good, hash=HASH),
        replaced(good, chunk="2013-01-08"),
        replaced(good, id=second.id),
        replaced(good, id="0" * 32),
    ):
        assert "no longer live" in judged(table, wrong)
    commit(table, good)
    assert "no longer live" in judged(table, good)  # its entry has a vector now
    assert "no longer live" in judged(table, drop_of(first))


def test_a_commit_touches_a_segment_once(table):
    first, second = segments(table)
    own = add(table, CHUNK, rows=10)
    entry = fold.segment_of(own, 3, 0)
    once = delete(first)
    assert judged(table, delete(second), others=((once,),)) is None
    assert "no longer live" in judged(table, once, delete(first, 4))
    assert "no longer live" in judged(table, once, others=((once,),))
    assert "no longer live" in judged(
        table, delete(replaced(first, vector=vector())), others=((once,),)
    )
    assert "no longer live" in judged(table, once, others=((drop_of(first),),))
    assert "no longer live" in judged(table, drop_of(first), others=((once,),))
    after = drop_of(replaced(first, vector=vector()))
    assert "no longer live" in judged(table, after, others=((once,),))
    assert "no longer live" in judged(table, once, drop_of(first))
    assert "no longer live" in judged(table, delete(entry), others=((own,),))


def test_only_what_was_staged_above_the_fence_and_read_before_the_commit_counts(table):
    first, _ = segments(table)
    commit(table, Fence(2))
    (first, _) = segments(table)
    assert "below the fence" in judged(table, delete(first, epoch=1))
    assert "not yet in the log" in judged(table, delete(first, epoch=4))
    for epoch in (2, 3):
        assert judged(table, delete(first, epoch=epoch)) is None
    grown = add(table, CHUNK, rows=10)
    assert "below the fence" in judged(table, replaced(grown, vector=vector(epoch=1)))
    assert "not yet in the log" in judged(table, replaced(grown, vector=vector(epoch=4)))
    assert judged(table, replaced(grown, vector=vector(epoch=3))) is None
    assert judged(table, Restore(2), replaced(grown, vector=vector(epoch=1))) is None
    in_log = vector(bitmap=b"bitmap")  # vacuum deletes no such bitmap
    assert judged(table, delete(first, bitmap=b"bitmap")) is None
    assert judged(table, replaced(grown, vector=in_log)) is None


@pytest.mark.parametrize(
    "broken",
    [
        *({"object": "C" * 32}, {"hash": "none"}, {"size": 0}, {"rows": 0}, {"rows": 10}),
        *({"bitmap": b""}, {"stored": UNSET}),
    ],
)
def test_a_vector_without_its_form_voids_its_transaction(table, broken):
    assert judged(table, replaced(add(table, CHUNK, rows=10), vector=vector(**broken)))
    assert judged(table, replaced(add(table, CHUNK, rows=10), vector=vector(9))) is None
    first, _ = segments(table)
    assert judged(table, replaced(delete(first), vector=vector(**broken)))


def test_rows_of_a_keyed_table_have_keys_instead():
    schema = pa.schema([field.with_nullable(field.name == "value") for field in SCHEMA])
    t = create(key=["name"], schema=schema)
    upsert(t, events(10).cast(schema))
    one = max(segments(t), key=lambda s: s.rows)
    assert "by their keys" in judged(t, delete(one, 1), read=1)
    again = replaced(add_of(one), id="b" * 32)
    assert "keyed" in judged(t, replaced(again, vector=vector(1)), read=1)


def test_a_rewrite_counts_the_rows_that_are_left(table):
    first, _ = segments(table)
    commit(table, delete(first, 3))
    shrunk = segments(table)[0]
    rewritten = add(table, CHUNK, rows=7)
    assert judged(table, Replace(2, 0), drop_of(shrunk), rewritten) is None
    assert judged(table, Replace(2, 0), drop_of(shrunk), replaced(rewritten, rows=10))
    later = replaced(rewritten, rows=10, vector=vector(3))
    assert judged(table, Replace(2, 0), drop_of(shrunk), later) is None
    assert judged(table, Replace(2, 2), drop_of(shrunk), replaced(rewritten, rows=5)) is None


def test_a_rewrite_deletes_no_rows_of_other_segments(table):
    first, second = segments(table)
    rewritten = add(table, CHUNK, rows=10)
    plan = (Replace(2, 0), drop_of(first), rewritten)
    assert judged(table, *plan) is None
    assert "does not drop" in judged(table, *plan, delete(second))


def test_an_update_counts_rows_that_go_and_rows_that_come(table):
    first, second = segments(table)
    new = add(table, CHUNK, rows=4)
    some = (delete(first, 3), new)
    for rows in (1, 3):
        assert judged(table, Update(rows, False), *some) is None
    assert "cannot be updated" in judged(table, Update(0, False), *some)
    assert "cannot be updated" in judged(table, Update(4, False), *some)
    assert "cannot be updated" in judged(table, Update(1, False), new)
    assert "cannot be updated" in judged(table, Update(1, False), delete(first, 3))
    assert "cannot be paired" in judged(table, Update(3, True), *some)
    fitting = replaced(new, rows=3)
    assert judged(table, Update(3, True), delete(first, 3), fitting) is None
    assert "cannot be paired" in judged(table, Update(2, True), delete(first, 3), fitting)
    whole = (drop_of(second), delete(first, 3), replaced(new, rows=13))
    assert judged(table, Update(13, True), *whole) is None
    assert "exactly one" in judged(table, Update(1, False), Update(1, False), *some)
    assert "exactly one" in judged(table, Update(1, False), Restore(1), *some)
    plan = (Replace(2, 0), drop_of(first), replaced(new, rows=10))
    assert judged(table, *plan) is None
    assert "exactly one" in judged(table, Update(1, False), *plan)


def test_a_shrunken_segment_is_not_the_same(table):
    first, _ = segments(table)
    held = SameSegments(table.session.head().hash_sum())
    assert judged(table, held) is None
    assert "meanwhile" in judged(table, held, others=((delete(first),),))
    commit(table, delete(first))
    assert "meanwhile" in judged(table, held)


@pytest.mark.parametrize("framed", [(), (1,), (2,), (3,), (1, 4), (5,), (2, 6)])
def test_every_version_is_the_same_over_every_key_frame(framed):
    t = create(properties={"keyframe_commits": "1000"})

    def done(*actions: object) -> None:
        commit(t, *actions)
        if t.session.head().version in framed:
            t.write_keyframe()

    done(add(t, CHUNK, rows=10), add(t, "2013-01-08", rows=5))
    done(delete(segments(t)[0], 2))
    done(delete(segments(t)[0], 4), add(t, CHUNK, rows=3))
    gone = segments(t)[0]
    done(drop_of(gone))
    done(Restore(3), add_of(gone))
    done(delete(segments(t)[-1], 5), drop_of(segments(t)[0]))
    done(drop_of(segments(t)[-1]))
    check_sound(t.store)


def test_a_drop_that_was_planned_before_a_delete_is_void(table):
    first, _ = segments(table)
    other = reopen(table.store)
    other.refresh()
    commit(table, delete(first))
    with pytest.raises(CommitConflict, match="no longer live"):
        commit(other, Replace(2, 0), drop_of(first), add(other, CHUNK, rows=10), read_version=2)
