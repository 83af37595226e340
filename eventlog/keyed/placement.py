"""The place of a segment in the slices of a keyed table: its buckets, and its span of versions.

When the buckets of a table are split, bucket b becomes 2b and 2b + 1. A segment records after how
many splits its buckets were numbered. `place` gives them the numbers that the table has now. It is
called once for each segment, at the border; code that plans, reads or judges slices uses `Placed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import UnsetType

from eventlog.errors import Corrupt
from eventlog.keyed.rule import splits_of
from eventlog.model.actions import Add, Merge, Restore
from eventlog.model.entries import Segment, Slice, SliceKind
from eventlog.model.records import Transaction

_RANKS: dict[SliceKind, int] = {"base": 0, "late": 1, "log": 2}


class Placed(NamedTuple):
    """A segment and its place in slices.

    Attributes:
        segment: the segment.
        kind: whether it is a base, a late segment or a log.
        first: the first bucket that it may have rows of, as the table numbers them now.
        last: the last one.
        low: the first version whose rows it has.
        high: the last one.
        level: how many merges its rows went through.
        ordinal: orders the segments of one span.
    """

    segment: Segment
    kind: SliceKind
    first: int
    last: int
    low: int
    high: int
    level: int
    ordinal: int

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last version whose rows it has."""
        return self.low, self.high

    def bytes_in(self, buckets: int) -> float:
        """Return its bytes in some of its buckets, if each of its buckets has an equal share."""
        return self.segment.bytes / (self.last - self.first + 1) * buckets


def place(segment: Segment, splits: int) -> Placed:
    """Return a segment with its place.

    Args:
        segment: the segment.
        splits: how many times the table's buckets were split.

    Raises:
        Corrupt: it has no place in slices, or one in buckets that the table does not have yet.
    """
    entry = slice_of(segment)
    first, last = _buckets(segment, entry, splits)
    low, high = _versions(segment, entry)
    return Placed(segment, entry.kind, first, last, low, high, entry.level, entry.ordinal or 0)


def in_order(placed: Iterable[Placed]) -> list[Placed]:
    """Return the segments in the order in which those of a slice are applied."""
    return sorted(
        placed, key=lambda one: (one.low, one.high, _RANKS[one.kind], one.ordinal, one.segment.id)
    )


def applied(segment: Segment) -> tuple[int, int, int, int, str]:
    """Return the place of a segment in that order, as a sort key."""
    entry = slice_of(segment)
    low, high = _versions(segment, entry)
    return low, high, _RANKS[entry.kind], entry.ordinal or 0, segment.id


def slice_of(entry: Segment | Add) -> Slice:
    """Return the entry of a segment of a keyed table that records its place.

    Raises:
        Corrupt: it has none.
    """
    if isinstance(entry.slice, UnsetType):
        raise Corrupt(f"segment {entry.id} of a keyed table has no slice")
    return entry.slice


def span(entry: Segment) -> tuple[int, int]:
    """Return the first and the last version whose rows a segment has."""
    return _versions(entry, slice_of(entry))


def _versions(segment: Segment, entry: Slice) -> tuple[int, int]:
    if entry.low is None or entry.high is None:
        raise Corrupt(f"segment {segment.id} has no span of versions")
    return entry.low, entry.high


def reach(entry: Segment | Add, splits: int) -> tuple[int, int]:
    """Return the first and the last bucket that a segment may have rows of.

    Args:
        entry: the segment.
        splits: after how many splits of the table's buckets they are numbered.

    Raises:
        Corrupt: it has no place in slices, or one in buckets that the table does not have yet.
    """
    return _buckets(entry, slice_of(entry), splits)


def _buckets(segment: Segment | Add, entry: Slice, splits: int) -> tuple[int, int]:
    more = splits - splits_of(entry)
    if more < 0:
        raise Corrupt(f"segment {segment.id} lies in buckets that the table does not have")
    return finer(entry.first, entry.last, more)


def finer(first: int, last: int, splits: int) -> tuple[int, int]:
    """Return a range of buckets, from first to last, as it is numbered after more splits."""
    return first << splits, ((last + 1) << splits) - 1  # against children-left-behind


def meet(one: Segment, other: Segment) -> bool:
    """Return whether two segments may have rows of one bucket, in one chunk."""
    splits = max(splits_of(slice_of(one)), splits_of(slice_of(other)))
    (first, last), (low, high) = reach(one, splits), reach(other, splits)
    return one.chunk == other.chunk and first <= high and low <= last


def slice_in(add: Add, version: int, partition: int) -> Slice | UnsetType:
    """Return the place of an add that takes effect in a version.

    Args:
        add: the action.
        version: the version.
        partition: its number among the adds that take effect in the commit.
    """
    entry = add.slice
    if isinstance(entry, UnsetType):
        return entry
    if entry.low is None and entry.high is None:
        entry = msgspec.structs.replace(entry, low=version, high=version)
    return entry if entry.ordinal is not None else msgspec.structs.replace(entry, ordinal=partition)


def set_back(txn: Transaction) -> list[Add]:
    """Return the adds of new rows that lie at a version before their commit: an overwrite's."""
    if any(isinstance(action, Merge | Restore) for action in txn.actions):
        return []
    adds = [action for action in txn.actions if isinstance(action, Add)]
    return [a for a in adds if not isinstance(a.slice, UnsetType) and a.slice.low is not None]
