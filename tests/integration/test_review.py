"""What a review found: ids that come back, key frames that lie, logs without their end."""

from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest
from builders import (
    LateStore,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
    replace_object,
    replaced,
    row_names,
)

from compaction import vacuum
from eventlog import Table, codec, errors, fold, keyframe, keys, proposal, segments
from eventlog.delta import add_of
from eventlog.fsck import fsck
from eventlog.memory import MemoryStore
from eventlog.model import PropertyChange, SetProperties, Sweep, Swept
from eventlog.restoration import restoration
from eventlog.wrappers import CountingStore
from readers import scan
from writers import append, overwrite

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}


def test_an_id_that_is_live_is_refused_in_a_later_epoch_too():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    append(table, events(1, first=5))
    table = reopen(table.store)
    first = live(table.head())[0]
    again = replaced(add_of(first), epoch=table.head().version)
    with pytest.raises(errors.CommitConflict, match="live already"):
        commit(table, again)
    assert fsck(Table(table.store)).ok


def test_an_append_of_fresh_ids_still_reads_no_leaf(monkeypatch):
    monkeypatch.setattr("eventlog.keyframe.INLINE_SEGMENTS", 2)
    counting = CountingStore(MemoryStore())
    table = create(counting, properties={"keyframe_commits": "4"})
    for n in range(9):
        append(table, events(1, first=n))
    counting.reset()
    append(table, events(1, first=50))
    assert (counting.counts.get, counting.counts.put) == (0, 2)


def forged(table, change):
    """Replace the newest key frame by one whose leaves `change` made of the entries."""
    version = table.head().version
    root = codec.decode_keyframe(table.store.get(keys.keyframe_key(version)), version)
    entries = segments.concat([table.log.leaf(leaf) for leaf in root.leaves])
    leaves = []
    for rows, alter in change(entries):
        body = segments.to_parquet(rows)
        leaves.append(alter(keyframe._leaf(rows, body)))
        table.store.put_if_absent(keys.frame_key(leaves[-1].sha256), body)
    forgery = msgspec.structs.replace(root, leaves=tuple(leaves), segments=())
    replace_object(table.store, keys.keyframe_key(version), codec.encode_keyframe(forgery))


def days_of_rows():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(150, days=150))
    assert table.head().base.leaves
    return table


def test_leaves_that_overlap_hide_no_live_segment_from_a_vacuum():
    table = days_of_rows()
    table.clock.advance(10**9)
    vacuum(table, dry_run=False, **NOW)
    append(table, events(1, day=120, first=900))  # the one that stands in the wrong leaf
    (mine,) = (s for s in live(table.head()) if s.version == table.head().version)

    def overlapping(entries):
        ids = [i.hex() for i in entries.column("id").to_pylist()]
        at = ids.index(mine.id)
        first, victim = entries.slice(0, 75), entries.slice(at, 1)
        rest = segments.concat([entries.slice(75, at - 75), entries.slice(at + 1)])
        return [(segments.concat([first, victim]), lambda leaf: leaf), (rest, lambda leaf: leaf)]

    forged(table, overlapping)
    table.clock.advance(10**9)
    report = vacuum(Table(table.store, table.clock), dry_run=False, **NOW)
    assert report.gone["unnamed"].objects == 0
    assert len(row_names(reopen(table.store))) == 151


def test_wrong_bounds_of_a_leaf_are_found():
    table = days_of_rows()

    def narrow(leaf):
        stats = tuple(
            msgspec.structs.replace(s, max=s.min) if s.column == 3 else s for s in leaf.stats
        )
        return msgspec.structs.replace(leaf, stats=stats)

    forged(table, lambda entries: [(entries, narrow)])
    assert not fsck(Table(table.store)).ok
    assert scan(reopen(table.store)).to_table().num_rows == 150  # stepped over


def test_entries_out_of_order_in_a_leaf_are_found():
    table = days_of_rows()
    order = [0, 2, 1, *range(3, 150)]
    forged(table, lambda entries: [(entries.take(pa.array(order)), lambda leaf: leaf)])
    assert not fsck(Table(table.store)).ok
    assert scan(reopen(table.store)).to_table().num_rows == 150


def test_a_transaction_that_may_still_arrive_is_not_called_absent():
    inner = MemoryStore()
    create(inner)
    late = LateStore(inner)
    table = reopen(late)
    late.stuck = True
    with pytest.raises(errors.CommitUnknown) as caught:
        append(table, events(1))
    late.stuck = False
    error = caught.value
    asking = reopen(inner, seed=5)
    with pytest.raises(errors.CommitUnknown, match="may still arrive"):
        asking.find_transaction(error.transaction, start=error.version, until=error.until)
    late.land()
    assert asking.find_transaction(error.transaction, start=error.version, until=error.until) == 1


def test_a_void_transaction_is_not_found():
    table = create()
    commit(table, add(table))
    head, (segment,) = table.head(), live(table.head())
    change = SetProperties((PropertyChange("user.a", None, "b"),))
    good = table.transaction("properties", [change])
    void = table.transaction("replace", [drop_of(segment), drop_of(segment)])
    effect = fold.judge([good, void], head, head.header.time + 1)
    assert void.id in effect.void
    made = proposal.propose(
        head,
        [good, void],
        effect,
        table_id=head.header.table,
        time_ms=head.header.time + 1,
        frames=table.log,
    )
    table.store.put_if_absent(keys.commit_key(2), made.body)
    other = reopen(table.store)
    assert other.find_transaction(good.id) == 2
    assert other.find_transaction(void.id) is None
    check_sound(table.store)


def test_nothing_is_deleted_by_a_log_that_lost_its_end():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.store.delete([keys.commit_key(2)])
    table.clock.advance(10**9)
    with pytest.raises(errors.Corrupt, match="commits were removed"):
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert len(list(table.store.list("data/"))) == 2


def test_vacuums_of_an_idle_table_come_to_rest():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    for _ in range(3):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    rest = table.refresh().version
    for _ in range(5):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    assert table.refresh().version == rest
    assert row_names(table) == ["row 1"]


def test_a_link_inside_a_directory_is_not_followed(tmp_path):
    outside = tmp_path / "outside" / "2013-01-01"
    outside.mkdir(parents=True)
    stranger = outside / ("a" * 32 + ".parquet")
    stranger.write_bytes(b"mine")
    uri = str(tmp_path / "t")
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    table = Table.create(uri, schema, time_column="at")
    append(table, pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}))
    append(table, pa.table({"at": pa.array([1], pa.timestamp("us", "UTC"))}))
    (tmp_path / "t" / "data" / "000000000000" / "x").mkdir()
    (tmp_path / "t" / "data" / "000000000000" / "2013-01-01").symlink_to(outside)
    vacuum(table, dry_run=False, full=True, **NOW)
    assert stranger.exists()


def pinned_and_vacuumed():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.pin("keep", 1)
    table.clock.advance(10**9)
    append(table, events(1, first=2, day=3))
    vacuum(table, dry_run=False, **NOW)
    assert table.refresh().meta.swept.pending is not None
    return table


def test_a_missing_segment_that_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    assert fsck(Table(table.store)).ok
    (held,) = live(table.snapshot(1))
    table.store.delete([keys.key_of(held)])
    (finding,) = fsck(Table(table.store)).findings
    assert "pin 'keep' holds" in finding.message


def test_a_record_that_lacks_what_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    head = table.head()
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, head.version)))
    report = fsck(Table(table.store))
    assert not report.ok
    assert "record lacks this segment" in report.findings[0].message


def test_restore_looks_for_what_it_brings_back():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    (old,) = live(table.snapshot(1))
    table.store.delete([keys.key_of(old)])
    before = table.head().version
    with pytest.raises(errors.DataLoss, match="1 of 1"):
        table.restore(1)
    assert table.refresh().version == before


def test_what_a_vacuum_took_since_is_not_called_lost():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    behind = reopen(table.store)
    actions = restoration(behind.head(), behind.snapshot(1))
    table.clock.advance(10**9)
    append(table, events(1, first=2))
    vacuum(table, dry_run=False, **NOW)
    with pytest.raises(errors.VersionVacuumed):
        behind.log.check_there(actions, 1)
