"""The place of a segment in the slices of a keyed table: its buckets, and its span of versions.

When the buckets of a table are split, bucket b becomes 2b and 2b + 1. Segments and merges record
after how many splits their buckets were numbered; `reach` gives the newest numbers.
"""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from eventlog.errors import Corrupt
from eventlog.keyed.rule import splits_of
from eventlog.model.actions import Add, Merge, Restore
from eventlog.model.entries import Segment, Slice
from eventlog.model.records import Transaction


def slice_of(entry: Segment | Add) -> Slice:
    """Return the place of a segment of a keyed table.

    Raises:
        Corrupt: it has none.
    """
    if isinstance(entry.slice, UnsetType):
        raise Corrupt(f"segment {entry.id} of a keyed table has no slice")
    return entry.slice


def span(entry: Segment) -> tuple[int, int]:
    """Return the first and the last version whose rows a segment has."""
    place = slice_of(entry)
    if place.low is None or place.high is None:
        raise Corrupt(f"segment {entry.id} has no span of versions")
    return place.low, place.high


def reach(entry: Segment | Add, splits: int) -> tuple[int, int]:
    """Return the first and the last bucket that a segment may have rows of.

    Args:
        entry: the segment.
        splits: after how many splits of the table's buckets they are numbered.

    Raises:
        Corrupt: it has no place in slices, or one in buckets that the table does not have yet.
    """
    place = slice_of(entry)
    more = splits - splits_of(place)
    if more < 0:
        raise Corrupt(f"segment {entry.id} lies in buckets that the table does not have")
    return finer(place.first, place.last, more)


def finer(first: int, last: int, splits: int) -> tuple[int, int]:
    """Return a range of buckets, from first to last, as it is numbered after so many splits."""
    return first << splits, ((last + 1) << splits) - 1  # against children-left-behind


def meet(one: Segment, other: Segment) -> bool:
    """Return whether two segments may have rows of one bucket, in one chunk."""
    splits = max(splits_of(slice_of(one)), splits_of(slice_of(other)))
    (first, last), (low, high) = reach(one, splits), reach(other, splits)
    return one.chunk == other.chunk and first <= high and low <= last


def applied(segment: Segment) -> tuple[int, int, int, int, str]:
    """Return the place of a segment in the order in which those of a slice are applied."""
    kinds = {"base": 0, "late": 1, "log": 2}
    place, (low, high) = slice_of(segment), span(segment)
    return low, high, kinds[place.kind], place.ordinal or 0, segment.id


def placed(add: Add, version: int, partition: int) -> Slice | UnsetType:
    """Return the place of an add that takes effect in a version.

    Args:
        add: the action.
        version: the version.
        partition: its number among the adds that take effect in the commit.
    """
    place = add.slice
    if isinstance(place, UnsetType):
        return place
    if place.low is None:
        place = msgspec.structs.replace(place, low=version, high=version)
    return place if place.ordinal is not None else msgspec.structs.replace(place, ordinal=partition)


def set_back(txn: Transaction) -> list[Add]:
    """Return the adds of new rows that lie at a version before their commit: an overwrite's."""
    if any(isinstance(action, Merge | Restore) for action in txn.actions):
        return []
    adds = [action for action in txn.actions if isinstance(action, Add)]
    return [a for a in adds if not isinstance(a.slice, UnsetType) and a.slice.low is not None]
