"""The rows of the target while a merge is planned, and those that are repeated above others.

No I/O. What the upper log did comes after what the lower log did: where the target is the upper
log, copies of its own segments are added above the source's (MERGING.md R19.8 item 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from eventlog.keyed.placement import meet, slice_of
from eventlog.merging.log_acts import Act
from eventlog.merging.planning.carried import Carried
from eventlog.merging.planning.forms import object_place
from eventlog.model.entries import Segment


class PlannedRows:
    """The target's segments after the transactions that are planned so far.

    Args:
        chunks: the target's live segments, for the chunks in which the source drops segments.
        added: the segments that the target added since the fork point, by id.
        renamed: returns the id under which a segment of the target is added once more.

    Attributes:
        later: planned adds above which the target's own rows may have to come.
    """

    def __init__(
        self,
        chunks: Mapping[str, Sequence[Segment]],
        added: Mapping[str, Segment],
        renamed: Callable[[str], str],
    ) -> None:
        self._chunks = {name: list(entries) for name, entries in chunks.items()}
        self._added, self._renamed = added, renamed
        self.later: list[Segment] = []
        self._placed: set[str] = set()  # the target's own segments whose place is decided
        self._again: dict[str, Segment] = {}  # copies of the target's segments, by new id

    def live(self, chunk: str) -> Sequence[Segment]:
        """Return the live segments of a chunk in which the source drops segments."""
        return self._chunks.get(chunk, ())

    def add(self, segments: Iterable[Segment]) -> None:
        """Add segments of the source as new rows."""
        for segment in segments:
            if segment.chunk in self._chunks:
                self._chunks[segment.chunk].append(segment)
            self.later.append(segment)

    def drop(self, chunk: str, gone: Collection[str]) -> None:
        """Drop these segments of a chunk."""
        self._chunks[chunk] = [s for s in self.live(chunk) if s.id not in gone]
        self.later = [s for s in self.later if s.id not in gone]
        for name in gone:
            self._again.pop(name, None)

    def repeat(
        self, act: Act, mine: Sequence[Segment], is_lost: Callable[[Segment, Act], bool]
    ) -> Carried:
        """Return copies of the target's segments that must be applied after the merged ones.

        Args:
            act: a transaction of one of the two logs.
            mine: the target's segments with the rows of this transaction.
            is_lost: whether the transaction dropped the rows of a segment that was to be repeated.
        """
        gone = {drop.chunk for drop in act.drops} if not act.merges_slices else set()
        # against repeated-rows-dropped-with-others
        drops = [
            (i, s.chunk) for i, s in self._again.items() if s.chunk in gone and is_lost(s, act)
        ]
        for name, chunk in drops:
            del self._again[name]
            if chunk in self._chunks:
                self._chunks[chunk] = [s for s in self._chunks[chunk] if s.id != name]
        adds, copies = [], {}
        for segment in mine:
            ours = self._added.get(segment.id)
            if ours is None or segment.id in self._placed or slice_of(ours).level:
                continue
            self._placed.add(segment.id)
            if not any(meet(segment, later) for later in self.later):
                continue
            new = as_new_rows(msgspec.structs.replace(ours, id=self._renamed(segment.id)))
            adds.append(new)
            self.add([new])
            self._again[new.id] = new
            places = [object_place(ours, mine=True)]
            if segment is not ours:
                places.append(object_place(segment))
            copies[new.id] = tuple(places)
        repeated = Carried(act.version, "", tuple(adds), tuple(drops))
        return replace(repeated, copies=copies, still=frozenset(s.chunk for s in adds))


def as_new_rows(entry: Segment) -> Segment:
    """Return an entry as one of new rows: the commit that adds it determines their version."""
    new = msgspec.structs.replace(slice_of(entry), low=None, high=None, level=0, ordinal=None)
    return msgspec.structs.replace(entry, slice=new)
