"""Leaves of key frames that overlap, lie about their bounds, or are out of order."""

from datetime import timedelta

import msgspec
import pyarrow as pa
from support.builders import (
    create,
    events,
    live,
    reopen,
    replace_object,
    row_names,
)

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.state import keyframe
from eventlog.writers import append

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
