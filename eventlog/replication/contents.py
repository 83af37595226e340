"""The objects of a version, which a replica needs before it may have the commit.

No I/O (MERGING.md R17.2).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from hashlib import blake2b

from msgspec import UnsetType

from eventlog.copying.copier import Item
from eventlog.format import keys
from eventlog.model.actions import Restore, Swept
from eventlog.model.entries import Segment, StoredBitmap, Sweep, stored_bitmap
from eventlog.model.records import Commit, KeyFrame, Pack, Piece, packs_of

_LOW = 2**64 - 1


class Listed:
    """The objects of a listing, in 16 bytes each, since there may be millions.

    Args:
        objects: the keys and sizes of the objects.
    """

    def __init__(self, objects: Iterable[tuple[str, int]]) -> None:
        ordered = sorted(_digest(key, size) for key, size in objects)
        self._high = array("Q", (number >> 64 for number in ordered))
        self._low = array("Q", (number & _LOW for number in ordered))

    def __contains__(self, wanted: tuple[str, int]) -> bool:
        number = _digest(*wanted)
        at = bisect_left(self._high, number >> 64)
        while at < len(self._high) and self._high[at] == number >> 64:
            if self._low[at] == number & _LOW:
                return True
            at += 1
        return False


def _digest(key: str, size: int) -> int:
    return int.from_bytes(blake2b(f"{key} {size}".encode(), digest_size=16).digest(), "big")


def of_commit(
    commit: Commit,
    entries: Collection[Segment],
    changed: Collection[Segment] = (),
    *,
    late: bool = False,
) -> list[Item]:
    """Return the objects that a commit needs: segments, vectors and spills that are new with it.

    Args:
        commit: the commit.
        entries: the entries that it made live.
        changed: the entries that it gave deletion vectors; the target has their segments.
        late: whether the target was started above versions that it did not have.
    """
    version = commit.header.version
    # A restore makes segments live again, which the target has from earlier versions, unless it
    # was started above them: then nothing has compared the objects that it has under these keys.
    restores = any(isinstance(a, Restore) for t in commit.transactions for a in t.actions)
    items = [
        # against restored-taken-for-a-copy
        segment_item(entry, version, maybe_there=restores, unnamed=restores and late)
        for entry in entries
    ]
    items += vector_items([*entries, *changed], version, maybe_there=restores)
    spills = [t.spill for t in commit.transactions if t.spill is not None]
    if commit.delta.spill is not None:
        spills.append(commit.delta.spill)
    items += [
        Item(keys.frame_key(spill.sha256), "frame", version, spill.size, spill.sha256)
        for spill in {spill.sha256: spill for spill in spills}.values()
    ]
    for action in (a for t in commit.transactions for a in t.actions if isinstance(a, Swept)):
        items += of_sweep(action.sweep, version)
    return items


def of_sweep(sweep: Sweep, version: int) -> list[Item]:
    """Return the record of a vacuum, which a version names, if there is one."""
    record = sweep.pending
    if record is None:
        return []
    key = keys.frame_key(record.sha256)
    return [Item(key, "pending", version, record.size, record.sha256, maybe_there=True)]


def segment_item(entry: Segment, version: int, *, maybe_there: bool, unnamed: bool = False) -> Item:
    """Return the item to copy for a segment."""
    key, stands = keys.key_of(entry), entry.inline
    return Item(
        key,
        "segment",
        version,
        entry.bytes,
        entry.checksum,
        maybe_there,
        unnamed,
        inline=None if isinstance(stands, UnsetType) else stands,
    )


def vector_items(entries: Iterable[Segment], version: int, *, maybe_there: bool) -> list[Item]:
    """Return the items to copy for the stored vectors of entries, one for each object."""
    named: dict[str, list[StoredBitmap]] = {}
    for entry in entries:
        stored = stored_bitmap(entry.vector)
        if stored is not None:  # against vectors-not-copied
            named.setdefault(keys.vectors_key(stored), []).append(stored)
    return [
        Item(
            key,
            "vectors",
            version,
            max(stored.offset + stored.size for stored in bitmaps),
            "",
            maybe_there,
            vectors=tuple(bitmaps),
        )
        for key, bitmaps in named.items()
    ]


def of_pieces(
    pieces: Iterable[Piece], version: int, but: Collection[str] = (), *, maybe_there: bool
) -> list[Item]:
    """Return the items to copy for leaves and stems of a key frame.

    Args:
        pieces: the leaves and stems.
        version: that of the key frame.
        but: keys of objects to leave out.
        maybe_there: whether the target may have them.
    """
    named = {keys.piece_key(piece): piece for piece in pieces}
    return [
        Item(key, "leaf", version, piece.size, piece.sha256, maybe_there=maybe_there)
        for key, piece in named.items()
        if key not in but
    ]


def of_packs(root: KeyFrame, known: Collection[Pack] | None) -> list[Item]:
    """Return the packs of a key frame that the target lacks. Like leaves they may be missing.

    Args:
        root: the key frame.
        known: packs that the target has; None: unknown.
    """
    return [
        Item(
            keys.pack_key(pack.last, pack.sha256),
            "leaf",
            root.version,
            pack.size,
            pack.sha256,
            maybe_there=known is None,
        )
        for pack in packs_of(root)
        if pack not in (known or ())
    ]
