"""Checks of a version's entries against their hashes, its delta and its header.

Cheap checks run whenever entries are read. Those that cost as much as reading the entries run only
where a result depends on them (FORMAT.md R9.8).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format import codec
from eventlog.format.frames import entry_columns
from eventlog.model.actions import Drop
from eventlog.model.entries import deleted_rows, inline_among
from eventlog.model.records import Header, KeyFrame, Meta, Totals, pieces_in
from eventlog.state.delta import Delta, drop_of


def check_sums(header: Header, meta: Meta, base: KeyFrame | None, delta: Delta) -> None:
    """Check that key frame, delta and small state add up to a header (FORMAT.md R9.6).

    A drop records neither rows nor bytes, so these are compared only if the delta has no drops.
    With drops, `check_totals` compares them when all entries are read.

    Args:
        header: the header of the version.
        meta: the small state at the version.
        base: the key frame that the delta starts from; None is the empty state.
        delta: the delta since the key frame.

    Raises:
        Corrupt: they do not add up.
    """
    if base is not None and base.table != header.table:
        raise Corrupt("the key frame belongs to another table", version=header.version)
    added = [codec.entry_hash(segment) for segment in delta.adds.values()]
    dropped = [codec.parse_hash(drop.hash) for drop in delta.drops.values()]
    if not set(added).isdisjoint(dropped):
        raise Corrupt("the delta drops a segment that it adds", version=header.version)
    total = codec.parse_hash(base.state_hash) if base else 0
    total += codec.meta_hash_change(base.state if base else Meta(), meta)
    total += sum(added) - sum(dropped)
    count = (base.totals.segments if base else 0) + len(added) - len(dropped)
    totals = header.totals
    inline = inline_among(delta.adds.values())
    known = (count, totals.rows, totals.bytes, totals.deleted, totals.inline)
    if not dropped:
        before = base.totals if base else Totals()
        deleted = 0 if isinstance(before.deleted, UnsetType) else before.deleted
        deleted += sum(deleted_rows(segment.vector) for segment in delta.adds.values())
        inline += 0 if isinstance(before.inline, UnsetType) else before.inline
        rows, size = (_sum(base, delta, name) for name in ("live_rows", "bytes"))
        known = (count, rows, size, deleted or UNSET, inline or UNSET)
    # against state-hash-not-compared
    if codec.hex_hash(total) != header.state_hash or count < 0 or Totals(*known) != totals:
        raise Corrupt("key frame and delta do not add up to the state hash", version=header.version)


def undropped(entries: pa.Table, drops: Mapping[str, Drop]) -> pa.Table:
    """Return the entries of a key frame that no drop names. Drops and entries match by hash.

    Args:
        entries: entries from leaves, or from the root itself.
        drops: the drops of the delta, by id.

    Raises:
        Corrupt: a drop has the hash of an entry but another id or chunk, or the hash stored with
            the entry is not its own.
    """
    if not drops or not entries.num_rows:
        return entries
    gone = pa.array([bytes.fromhex(drop.hash) for drop in drops.values()], pa.binary(32))
    named = pc.is_in(entries.column("hash"), gone)
    for segment in entry_columns.to_segments(entries.filter(named)):
        if drops.get(segment.id) != drop_of(segment):
            raise Corrupt(f"a drop has the hash of segment {segment.id} but another id or chunk")
    return entries.filter(pc.invert(named))


def check_hashes(entries: pa.Table, base: KeyFrame | None) -> None:
    """Check the entries that come from leaves of `base` against the hashes stored with them.

    Raises:
        Corrupt: an entry does not match its hash.
    """
    if base is None or not pieces_in(base) or not entries.num_rows:
        return
    stored = entries.filter(pc.less_equal(entries.column("version"), base.version))
    if not entry_columns.hashes_hold(stored):
        raise Corrupt("an entry of the key frame does not match its hash", version=base.version)


def check_totals(entries: pa.Table, header: Header) -> None:
    """Check all live entries of a version against the totals in its header.

    Raises:
        Corrupt: the number of entries, their rows or their bytes differ.
    """
    rows, size = (pc.sum(entries.column(name), min_count=0).as_py() for name in ("rows", "bytes"))
    deleted = entry_columns.deleted_sum(entries)
    inline = entry_columns.inline_count(entries)
    found = Totals(entries.num_rows, rows - deleted, size, deleted or UNSET, inline or UNSET)
    if found != header.totals:
        raise Corrupt("the live segments do not add up to the totals", version=header.version)


def _sum(base: KeyFrame | None, delta: Delta, name: str) -> int:
    start: int = getattr(base.totals, name.removeprefix("live_")) if base else 0
    return start + sum(int(getattr(segment, name)) for segment in delta.adds.values())
