"""Which segments of a version share a manifest. No I/O.

A manifest describes a leaf of the key frame that the version's commit names, the segments that one
commit since then added, or what is left of either. So versions share manifests as they share
leaves, each version follows from its key frame and its commit alone, and a key that stands for what
a manifest has is known before the manifest is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.format import codec
from eventlog.format.deletion_vectors import vector_hash
from eventlog.format.entry_order import entry_key
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment
from eventlog.model.records import KeyFrame, Leaf
from eventlog.state.delta import Delta


class Group(NamedTuple):
    """Segments that are described together.

    Attributes:
        key: stands for what the group has: equal for equal segments, vectors aside.
        segments: the segments; None for those of `leaf` that are not in `without`.
        added: whether the group has only segments that one version added.
        leaf: the leaf.
        without: ids of the leaf's segments that the version dropped.
    """

    key: str
    segments: tuple[Segment, ...] | None
    added: bool = False
    leaf: Leaf | None = None
    without: frozenset[str] = frozenset()


def revectored(base: KeyFrame | None, delta: Delta) -> dict[str, Segment]:
    """Return the entries of the key frame's segments of which only the vector is another, by id.

    Such a segment keeps its version (FORMAT.md R20.3), which no later add of it does.
    """
    if base is None:
        return {}
    return {
        number: segment
        for number, segment in delta.adds.items()
        if number in delta.drops and segment.version <= base.version
    }


def lost(base: KeyFrame | None, delta: Delta) -> list[Drop]:
    """Return the drops of the key frame's segments, without those that only got a vector."""
    kept = revectored(base, delta)
    return [drop for number, drop in delta.drops.items() if number not in kept]


def data_groups(
    base: KeyFrame | None,
    leaves: Sequence[Leaf],
    delta: Delta,
    gone: Mapping[str, frozenset[str]],
    unread: Collection[str] = (),
) -> list[Group]:
    """Return the groups of the live segments of a version that show rows.

    Args:
        base: the key frame that the version's commit names; None: there is none.
        leaves: its leaves.
        delta: what changed since then.
        gone: by the sha256 of a leaf the ids of its segments that are `lost` or unread; absent if
            none.
        unread: the ids of live segments no row of which is shown.
    """
    groups = []
    for leaf in leaves:
        without = gone.get(leaf.sha256, frozenset())
        if len(without) < leaf.segments:
            key = "/".join(["leaf", leaf.sha256, *sorted(without)])
            groups.append(Group(key, None, leaf=leaf, without=without))
    if base is not None:
        dropped = {drop.id for drop in lost(base, delta)}.union(unread)
        groups += _group("inline", (s for s in base.segments if s.id not in dropped))
    versions: dict[int, list[Segment]] = {}
    changed = revectored(base, delta)
    for number, segment in delta.adds.items():
        if number not in changed and number not in unread:
            versions.setdefault(segment.version, []).append(segment)
    for version in sorted(versions):
        groups += _group("added", versions[version], added=True)
    return groups


def vector_group(segments: Iterable[Segment]) -> Group | None:
    """Return the group of those segments that have deletion vectors; None if there are none."""
    found = _in_order(s for s in segments if not isinstance(s.vector, UnsetType))
    if not found:
        return None
    named = [
        f"{s.id}:{s.version}:{vector_hash(s.vector)}"
        for s in found
        if not isinstance(s.vector, UnsetType)
    ]
    return Group("/".join(["vectors", *named]), found)


def hidden_group(name: str, segments: Iterable[Segment]) -> Group:
    """Return the group of the segments of one time chunk of which rows may be hidden.

    Args:
        name: stands for which rows are, so that it is known before they are.
        segments: the segments.
    """
    return Group(f"hidden/{name}", _in_order(segments))


def by_spec(group: Group, specs: Sequence[int]) -> list[tuple[int, Group]]:
    """Return the parts of a group by partition spec: a manifest has files of one spec.

    Args:
        group: with its segments.
        specs: the spec of each segment.
    """
    assert group.segments is not None  # noqa: S101
    parts: dict[int, list[Segment]] = {}
    for segment, spec in zip(group.segments, specs, strict=True):
        parts.setdefault(spec, []).append(segment)
    if len(parts) == 1:
        return [(specs[0], group)]
    return [
        (spec, group._replace(key=f"{group.key}/spec {spec}", segments=tuple(parts[spec])))
        for spec in sorted(parts)
    ]


def _group(kind: str, segments: Iterable[Segment], *, added: bool = False) -> list[Group]:
    found = _in_order(segments)
    if not found:
        return []
    hashes = (
        codec.hex_hash(codec.entry_hash(msgspec.structs.replace(segment, vector=UNSET)))
        for segment in found
    )
    return [Group("/".join([kind, *hashes]), found, added=added)]


def _in_order(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    return tuple(sorted(segments, key=lambda s: entry_key(s.chunk, s.id)))
