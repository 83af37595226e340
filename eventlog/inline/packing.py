"""Which packs a key frame has: those of the key frame before, less what was dropped, and new ones.

What a key frame's packs are is a function of the key frame before, the delta and the bytes of the
segments, so two writers of one version with one Parquet library write the same (FORMAT.md R21.5).
A pack is derived: where one is missing, readers find the bytes in the commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog.format import codec, keys
from eventlog.inline import inline_objects, pack_bytes
from eventlog.inline.pack_bytes import Indexed
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.model.records import KeyFrame, Pack, packs_of
from eventlog.state.delta import Delta
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

PACK_BYTES = 4 * 2**20  # a pack of this many bytes of objects does not grow any more


class Packs(NamedTuple):
    """The packs of a key frame.

    Attributes:
        packs: for the root; UNSET if there are none.
        objects: the bytes of the new ones, by key.
    """

    packs: tuple[Pack, ...] | UnsetType
    objects: dict[str, bytes]


def packs_at(store: ObjectStore, base: KeyFrame | None, delta: Delta, version: int) -> Packs:
    """Return the packs of the key frame of a version.

    Args:
        store: of the table.
        base: the key frame that the delta starts from; None is the empty state.
        delta: the complete delta.
        version: the version.

    Raises:
        Unavailable: the store does not answer.
    """
    before = packs_of(base)
    new = [s for s in delta.adds.values() if not isinstance(s.inline, UnsetType)]
    kept, joined = _divided(before, sum(segment.bytes for segment in new))
    start = -1 if base is None else base.version
    # Segments that were live before may be in a pack that stays, if their bytes stand where they
    # did: those that were added again with their bytes are in no pack yet.
    again = {s.id for s in new if not isinstance(s.inline, UnsetType) and s.inline <= start}
    gone = delta.drops.keys() - again  # against pack-of-another-commit
    read = before if gone or again else joined
    opened = dict(zip(read, each(lambda p: _open(store, p), read), strict=True))
    lessened = [p for p in kept if _has(opened.get(p), gone)]
    parts: list[_Part] = []
    for old in (*lessened, *joined):
        parts += _parts_of(opened[old], gone)
    kept = [p for p in kept if p not in lessened and opened.get(p, True)]
    there = {part.entry.id for part in parts} | _ids(kept, opened)
    parts += _new_parts(store, [s for s in new if s.id not in there])
    made = _made(parts, version)
    packs = sorted([*kept, *(p for p, _ in made)], key=lambda p: (p.last, p.sha256))
    objects = {keys.pack_key(p.last, p.sha256): body for p, body in made}
    return Packs(tuple(packs) or UNSET, objects)


class _Part(NamedTuple):
    """One segment for a pack: its element of the index, and its rows."""

    entry: Indexed
    rows: pa.Table


def _divided(before: Sequence[Pack], size: int) -> tuple[list[Pack], list[Pack]]:
    """Return the packs that stay, and those that become one with new segments of `size` bytes.

    From the newest on those join that are no larger than what they join: so each byte is written
    a few times, and there are few packs.
    """
    kept, joined = list(before), list[Pack]()
    while kept and kept[-1].bytes <= min(size, PACK_BYTES - 1):
        joined.insert(0, kept.pop())
        size += joined[0].bytes
    return kept, joined


def _open(store: ObjectStore, one: Pack) -> pack_bytes.Packed | None:
    body = inline_objects.get_pack(store, one)
    return None if body is None else pack_bytes.open_pack(body)


def _has(opened: pack_bytes.Packed | None, gone: AbstractSet[str]) -> bool:
    return opened is not None and not gone.isdisjoint(entry.id for entry in opened.segments)


def _ids(kept: Sequence[Pack], opened: Mapping[Pack, pack_bytes.Packed | None]) -> set[str]:
    """Return the ids of the segments in those packs that were read."""
    found = [one for p in kept if (one := opened.get(p)) is not None]
    return {entry.id for one in found for entry in one.segments}


def _parts_of(opened: pack_bytes.Packed | None, gone: AbstractSet[str]) -> list[_Part]:
    """Return the segments of a pack that are still live."""
    rows = None if opened is None else pack_bytes.pack_columns(opened)
    if rows is None or opened is None:
        return []
    parts, at = list[_Part](), 0
    for entry in opened.segments:
        if entry.id not in gone:
            parts.append(_Part(entry, rows.slice(at, entry.rows)))
        at += entry.rows
    return parts


def _new_parts(store: ObjectStore, new: Sequence[Segment]) -> list[_Part]:
    """Return the segments whose bytes their commits have, in the order of a scan."""
    found = inline_objects.fetch_objects(store, new)
    parts = list[_Part]()
    for one in sorted(new, key=_place):
        body = found.get(one.checksum)
        rows = None if body is None else pack_bytes.object_rows(body, one.rows)
        if rows is not None and not isinstance(one.inline, UnsetType):
            parts.append(_Part(Indexed(one.id, one.rows, one.bytes, one.inline), rows))
    return parts


def _place(segment: Segment) -> tuple[int, int, int, int]:
    chunk = parse_chunk(segment.chunk)
    return (chunk.start, chunk.end, segment.version, segment.partition)


def _made(parts: Sequence[_Part], version: int) -> list[tuple[Pack, bytes]]:
    """Return a pack for the segments of each schema, with its bytes."""
    groups: list[list[_Part]] = []
    for part in parts:
        group = next((g for g in groups if pack_bytes.same_schema(g[0].rows, part.rows)), None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    made = []
    for group in groups:
        index = [part.entry for part in group]
        body = pack_bytes.encode_pack(index, [part.rows for part in group])
        digest, first = codec.sha256(body), min(entry.inline for entry in index)
        size = sum(entry.bytes for entry in index)
        inline_objects.remember_pack(digest, body)
        made.append((Pack(first, version, digest, len(body), len(index), size), body))
    return made
