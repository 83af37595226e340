"""The difference between two versions, computed by comparing their trees.

Key frames share leaves as git trees share subtrees, so the cost is proportional to the change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format import places, segments
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Drop, Segment


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference between two versions.

    Attributes:
        added: the segments that are live only in the second version.
        dropped: the segments that are live only in the first version.
    """

    added: list[Segment]
    dropped: list[Segment]


def diff(a: Snapshot, b: Snapshot) -> Diff:
    """Return the segments live in `b` but not in `a`, and in `a` but not in `b`.

    A leaf that both key frames share is read only if a drop refers to one of its segments.

    Raises:
        Corrupt: neither a key frame nor the commits before it give the entries.
    """
    shared = _shared_leaves(a, b)
    keep = lambda leaf: leaf.sha256 not in shared  # noqa: E731
    in_a, in_b = a.entries(keep=keep), b.entries(keep=keep)
    added, dropped = _minus(in_b, in_a), _minus(in_a, in_b)
    only_b = [d for i, d in b.delta.drops.items() if i not in a.delta.drops]
    only_a = [d for i, d in a.delta.drops.items() if i not in b.delta.drops]
    gone = {s.id: s for s in dropped} | {
        i: s for i, s in a.live(only_b).items() if b.live([_named(s)]).get(i) != s
    }
    new = {s.id: s for s in added} | {
        i: s for i, s in b.live(only_a).items() if a.live([_named(s)]).get(i) != s
    }
    return Diff(_ordered(new.values()), _ordered(gone.values()))


def _shared_leaves(a: Snapshot, b: Snapshot) -> set[str]:
    if a.base is None or b.base is None:
        return set()
    return {leaf.sha256 for leaf in a.base.leaves} & {leaf.sha256 for leaf in b.base.leaves}


def _minus(left: pa.Table, right: pa.Table) -> list[Segment]:
    known = right.column("hash").combine_chunks()
    return segments.to_segments(left.filter(pc.invert(pc.is_in(left.column("hash"), known))))


def _named(segment: Segment) -> Drop:
    return Drop(segment.id, segment.chunk, "")


def _ordered(unordered: Iterable[Segment]) -> list[Segment]:
    return sorted(unordered, key=lambda s: places.entry_key(s.chunk, s.id))
