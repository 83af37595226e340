"""The net change of the live segment set since a key frame.

In memory a delta is two maps by segment id. A commit stores it as sorted lists (FORMAT.md
"Delta").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eventlog.format import codec, wellformed
from eventlog.model.actions import Add, Drop
from eventlog.model.entries import Segment
from eventlog.model.records import DeltaRecord


@dataclass(frozen=True, slots=True)
class Delta:
    """Segments added since the key frame and still live, and key frame segments dropped since then.

    Attributes:
        adds: the added segments, by id.
        drops: the drops of key frame segments, by id.
    """

    adds: Mapping[str, Segment] = field(default_factory=dict)
    drops: Mapping[str, Drop] = field(default_factory=dict)

    def then(
        self,
        adds: Iterable[Segment],
        drops: Iterable[Segment],
        deletes: Iterable[tuple[Segment, Segment]] = (),
    ) -> Delta:
        """Return the delta after one more commit, which first adds and then drops segments.

        Args:
            adds: the segments that the commit adds.
            drops: the segments that it drops.
            deletes: the entries, before and after, of segments of which it deletes rows.
        """
        added, dropped = {s.id: s for s in adds}, dict[str, Drop]()
        for segment in drops:
            if added.get(segment.id) == segment:
                del added[segment.id]
            else:
                dropped[segment.id] = drop_of(segment)
        for before, after in deletes:
            added[after.id], dropped[before.id] = after, drop_of(before)
        return self.compose(Delta(added, dropped))

    def compose(self, later: Delta) -> Delta:
        """Return the net change of this delta followed by `later`."""
        kept = {i: segment for i, segment in self.adds.items() if i not in later.drops}
        below = {i: drop for i, drop in later.drops.items() if i not in self.adds}
        return Delta({**kept, **later.adds}, {**self.drops, **below})

    def since(self, earlier: Delta) -> Delta:
        """Return the net change after an earlier delta: what `earlier.compose` makes this one of.

        Args:
            earlier: the delta at an earlier version, from the same key frame.
        """
        kept = {i for i, segment in earlier.adds.items() if self.adds.get(i) == segment}
        adds = {i: segment for i, segment in self.adds.items() if i not in kept}
        gone = {i: drop_of(segment) for i, segment in earlier.adds.items() if i not in kept}
        drops = {i: drop for i, drop in self.drops.items() if i not in earlier.drops}
        return Delta(adds, {**drops, **gone})

    def record(self) -> DeltaRecord:
        """Return the stored form: adds sorted by (version, partition), drops by (chunk, id)."""
        return DeltaRecord(
            adds=tuple(sorted(self.adds.values(), key=lambda s: (s.version, s.partition))),
            drops=tuple(sorted(self.drops.values(), key=lambda d: (d.chunk, d.id))),
        )


def from_lists(
    adds: Sequence[Segment], drops: Sequence[Drop], base: int | None, version: int
) -> Delta:
    """Return the delta of stored adds and drops.

    Args:
        adds: the adds, as listed in the commit of `version` or in its spill.
        drops: the drops, from the same place.
        base: the version of the key frame that the delta starts from; None is the empty state.
        version: the version of the commit.

    Raises:
        Corrupt: an entry is malformed, out of order, or listed twice.
    """
    wellformed.check_delta(adds, drops, base, version)
    return Delta({s.id: s for s in adds}, {d.id: d for d in drops})


def drop_of(segment: Segment) -> Drop:
    """Return the action that drops a segment."""
    return Drop(segment.id, segment.chunk, codec.hex_hash(codec.entry_hash(segment)))


def add_of(segment: Segment) -> Add:
    """Return the action that adds a segment again.

    An add has no version and no partition; the commit determines both.
    """
    return Add(
        id=segment.id,
        chunk=segment.chunk,
        epoch=segment.epoch,
        rows=segment.rows,
        bytes=segment.bytes,
        checksum=segment.checksum,
        schema=segment.schema,
        stats=segment.stats,
        tail=segment.tail,
        slice=segment.slice,
        vector=segment.vector,
        inline=segment.inline,
    )
