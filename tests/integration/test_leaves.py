"""Leaves of key frames that overlap, lie about their bounds, or are out of order."""

from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest
from support import builders, replacements
from support.builders import (
    create,
    drop_of,
    events,
    live,
    reopen,
    replace_object,
    row_names,
)

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.state import keyframe
from eventlog.writers import append, delete

NOW = {"retention": timedelta(0), "staging": timedelta(0)}


def forged(table, change):
    """Replace the newest key frame by one whose leaves `change` made of the entries."""
    version = table.session.head().version
    root = codec.decode_keyframe(table.store.get(keys.keyframe_key(version)), version)
    entries = entry_columns.concat(
        [table.session.log.key_frames.leaf(leaf) for leaf in root.leaves]
    )
    leaves = []
    for rows, alter in change(entries):
        body = frame_bytes.to_parquet(rows)
        leaves.append(alter(keyframe._leaf(rows, body)))
        table.store.put_if_absent(keys.frame_key(leaves[-1].sha256), body)
    forgery = msgspec.structs.replace(root, leaves=tuple(leaves), segments=())
    replace_object(table.store, keys.keyframe_key(version), codec.encode_keyframe(forgery))


def days_of_rows():
    table = create(properties={"keyframe_commits": "1"}, granularity="day")
    append(table, events(150, days=150))
    assert table.session.head().base.leaves
    return table


def test_leaves_that_overlap_hide_no_live_segment_from_a_vacuum():
    table = days_of_rows()
    table.clock.advance(10**9)
    vacuum(table, dry_run=False, **NOW)
    append(table, events(1, day=120, first=900))  # the one that stands in the wrong leaf
    (mine,) = (s for s in live(table.session.head()) if s.version == table.session.head().version)

    def overlapping(entries):
        ids = [i.hex() for i in entries.column("id").to_pylist()]
        at = ids.index(mine.id)
        first, victim = entries.slice(0, 75), entries.slice(at, 1)
        rest = entry_columns.concat([entries.slice(75, at - 75), entries.slice(at + 1)])
        return [
            (entry_columns.concat([first, victim]), lambda leaf: leaf),
            (rest, lambda leaf: leaf),
        ]

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


def has_statistics(plan):
    return any(name.startswith("nulls_") for name in plan.entries.column_names)


def test_a_scan_of_everything_decodes_no_statistics_and_asks_for_them_where_they_count():
    table = reopen(days_of_rows().store)
    whole = scan(table)
    assert not has_statistics(whole.plan)
    assert whole.to_table().num_rows == whole.count() == 150
    # The same handle has the leaves now, and still answers what needs statistics.
    assert has_statistics(scan(table, where="value > 1").plan)
    named = {s.id: s for s in table.session.head().segments()}
    assert all(segment.stats for segment in named.values())
    assert {s.id for s in whole.plan.segments()} == named.keys()
    assert not has_statistics(scan(reopen(table.store), ["name"]).plan)


def test_a_scan_compares_what_was_dropped_and_what_has_a_vector_since_the_leaves_were_written():
    table = create(properties={"keyframe_commits": "1"}, granularity="day")
    append(table, events(300, days=150))
    table.set_properties({"keyframe_commits": "100"})
    gone, *_ = live(table.session.head())
    table.commit(table.transaction("drop", [drop_of(gone)]))
    delete(table, where="name = 'row 140'")
    assert table.session.head().delta.drops
    found = scan(reopen(table.store))
    assert found.count() == found.to_table().num_rows == 297
    table.write_keyframe()  # now a leaf has the vector
    found = scan(reopen(table.store))
    assert found.count() == found.to_table().num_rows == 297


def test_a_lost_segment_of_a_leaf_is_replaced_by_its_sources():
    table = days_of_rows()
    append(table, events(5, first=200))
    old = [s for s in live(table.session.head()) if s.chunk == "1970-01-01"]
    version = replacements.replace(table, old)
    table.write_keyframe()
    (made,) = (s for s in live(table.session.head()) if s.version == version)
    table.store.delete([keys.key_of(made)])
    with pytest.raises(errors.DataLoss, match="fallback=True"):
        scan(reopen(table.store)).to_table()
    assert scan(reopen(table.store), fallback=True).to_table().num_rows == 155


def test_of_many_leaves_that_are_checked_together_the_wrong_one_is_named():
    table = create(properties={"keyframe_commits": "1"}, granularity="day")
    days = [f"{2000 + n // 12:04d}-{n % 12 + 1:02d}-01" for n in range(2000)]
    table.commit(table.transaction("append", [builders.add(table, day) for day in days]))
    leaves = table.session.head().base.leaves
    tables = [table.session.log.key_frames.leaf(leaf) for leaf in leaves]
    keyframe.check_decoded(leaves, tables)
    keyframe.check_decoded(leaves[::-1], tables[::-1])  # not in the order of the root
    assert len(leaves) > 2
    for change in ({"rows": 1}, {"end": 1}, {"hash_sum": "0" * 64}, {"segments": 1, "bytes": 2}):
        wrong = msgspec.structs.replace(leaves[1], **change)
        with pytest.raises(errors.Corrupt) as caught:
            keyframe.check_decoded([leaves[0], wrong, *leaves[2:]], tables)
        assert caught.value.key == keys.frame_key(wrong.sha256)
    swapped = tables[1].take(pa.array([1, 0, *range(2, tables[1].num_rows)]))
    with pytest.raises(errors.Corrupt) as caught:
        keyframe.check_decoded(leaves, [tables[0], swapped, *tables[2:]])
    assert caught.value.key == keys.frame_key(leaves[1].sha256)


def test_leaves_that_scattered_appends_rewrite_are_twice_as_large(monkeypatch):
    for name, value in (("LEAF_TARGET", 10), ("LEAF_SMALL", 2), ("SCATTERED", 5)):
        monkeypatch.setattr(f"eventlog.state.keyframe.{name}", value)
    table = create(properties={"keyframe_commits": "1"}, granularity="day")
    days = [f"2020-{n % 12 + 1:02d}-{n // 12 + 1:02d}" for n in range(120)]

    def leaves_after(chosen):
        adds = [builders.add(table, day) for day in chosen]
        table.commit(table.transaction("append", adds))
        return [leaf.segments for leaf in table.session.head().base.leaves]

    assert leaves_after(days) == [8] * 15  # one commit brought all of them
    scattered = leaves_after(sorted(days)[4::8])
    assert scattered == [15] * 9
    # A day alone rewrites its own leaf, which has the ordinary size again.
    assert leaves_after([min(days)]) == [7, 6, 3, *scattered[1:]]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 64, 257])
def test_the_sum_of_hashes_is_that_of_their_numbers(count):
    numbers = [2**256 - 1 - n * 7**80 % 2**256 for n in range(count)]
    column = pa.array([n.to_bytes(32, "big") for n in numbers], pa.binary(32))
    parts = pa.chunked_array([column.slice(0, 2), column.slice(2)], pa.binary(32))
    assert entry_columns.hash_sum(pa.table({"hash": parts})) == sum(numbers) % 2**256
