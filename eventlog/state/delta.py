"""The net change of the live segment set since a key frame.

Pure layer. In memory a delta is two maps by segment id; a commit stores it ordered (FORMAT.md
"Delta").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eventlog.format import codec, wellformed
from eventlog.model.records import Add, DeltaRecord, Drop, Segment


@dataclass(frozen=True, slots=True)
class Delta:
    """Segments added since the key frame and still live, and key frame segments dropped since."""

    adds: Mapping[str, Segment] = field(default_factory=dict)
    drops: Mapping[str, Drop] = field(default_factory=dict)

    def then(self, adds: Iterable[Segment], drops: Iterable[Segment]) -> Delta:
        """Return the delta after one more commit that adds and then drops these segments."""
        added, dropped = {s.id: s for s in adds}, dict[str, Drop]()
        for segment in drops:
            if added.get(segment.id) == segment:
                del added[segment.id]
            else:
                dropped[segment.id] = drop_of(segment)
        return self.compose(Delta(added, dropped))

    def compose(self, later: Delta) -> Delta:
        """Return the net change of this delta followed by `later`."""
        kept = {i: segment for i, segment in self.adds.items() if i not in later.drops}
        below = {i: drop for i, drop in later.drops.items() if i not in self.adds}
        return Delta({**kept, **later.adds}, {**self.drops, **below})

    def record(self) -> DeltaRecord:
        """Return the stored form: adds by (version, partition), drops by (chunk, id)."""
        return DeltaRecord(
            adds=tuple(sorted(self.adds.values(), key=lambda s: (s.version, s.partition))),
            drops=tuple(sorted(self.drops.values(), key=lambda d: (d.chunk, d.id))),
        )


def from_lists(
    adds: Sequence[Segment], drops: Sequence[Drop], base: int | None, version: int
) -> Delta:
    """Return the delta of stored adds and drops.

    Args:
        adds: as they stand in the commit of `version`, or in its spill.
        drops: likewise.
        base: the version of the key frame that they start from.
        version: of the commit.

    Raises:
        Corrupt: an entry is not of its form, out of order, or there twice.
    """
    wellformed.check_delta(adds, drops, base, version)
    return Delta({s.id: s for s in adds}, {d.id: d for d in drops})


def drop_of(segment: Segment) -> Drop:
    """Return the action that drops a segment."""
    return Drop(segment.id, segment.chunk, codec.hex_hash(codec.entry_hash(segment)))


def add_of(segment: Segment) -> Add:
    """Return the action that adds a segment again: its version and place are the commit's."""
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
    )
