"""The bitmaps of deletion vectors: which rows of a segment are deleted (FORMAT.md section 2.11).

A bitmap is a 64-bit Roaring bitmap, in its portable format, of the positions, from 0, of deleted
rows. It stands in the entry of its segment, or in an object with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UnsetType
from pyroaring import BitMap64

from eventlog.errors import DataLoss
from eventlog.format.codec import sha256
from eventlog.model.entries import StoredBitmap, Vector, stored_bitmap

# A bitmap in the log is written again with each commit up to the next key frame: up to this size it
# takes no more there than the rest of its entry does.
_MOST_BYTES = 256
# If the bitmaps of a commit take more than this, only those stand there that take no more than the
# name of their place would.
_MOST_OF_COMMIT = 64 * 2**10
_NAME_BYTES = 96


def encode_bitmap(positions: BitMap64) -> bytes:
    """Return the bytes of the bitmap of some positions: of equal positions the same bytes."""
    compact = positions.copy()
    compact.run_optimize()
    return compact.serialize()


def most_in_log(bitmaps: Sequence[bytes]) -> int:
    """Return the size up to which the bitmaps of one commit stand in the log."""
    small = sum(len(bitmap) for bitmap in bitmaps if len(bitmap) <= _MOST_BYTES)
    # against many-vectors-in-the-log
    return _MOST_BYTES if small <= _MOST_OF_COMMIT else _NAME_BYTES


def join_bitmaps(
    epoch: int, object_id: str, bitmaps: Iterable[bytes]
) -> tuple[bytes, list[StoredBitmap]]:
    """Return the bytes of an object of bitmaps, and where each of them is.

    Args:
        epoch: the epoch of the object.
        object_id: its id.
        bitmaps: the bytes of each.
    """
    body, places = bytearray(), list[StoredBitmap]()
    for bitmap in bitmaps:
        places.append(StoredBitmap(epoch, object_id, len(body), len(bitmap), sha256(bitmap)))
        body += bitmap
    return bytes(body), places


def decode_vector(bitmap: bytes, vector: Vector, rows: int) -> BitMap64:
    """Return the positions that a vector deletes.

    Args:
        bitmap: the bytes of its bitmap, wherever it stands.
        vector: as the segment's entry describes it.
        rows: the number of rows of the segment.

    Raises:
        DataLoss: they are not the bytes that the entry describes, or no bitmap of such a segment.
    """
    stored = stored_bitmap(vector)
    if stored is not None and not _is_bitmap(bitmap, stored):  # against vector-not-compared
        raise DataLoss("the deletion vector is not the one that the entry describes")
    try:
        positions = BitMap64.deserialize(bitmap)
    except (ValueError, IndexError) as error:  # IndexError of no bytes at all
        raise DataLoss(f"the deletion vector does not decode: {error}") from None
    if len(positions.serialize()) != len(bitmap):  # against bytes-behind-a-bitmap
        raise DataLoss("the deletion vector has bytes behind its bitmap")
    # against vector-of-another-segment
    if len(positions) != vector.rows or positions.max() >= rows:
        raise DataLoss(
            f"the deletion vector has {len(positions)} positions, not {vector.rows} of {rows} rows"
        )
    return positions


def positions_in_entry(vector: Vector, rows: int) -> BitMap64:
    """Return the positions that a vector deletes whose bitmap stands in the entry.

    Args:
        vector: as the segment's entry describes it.
        rows: the number of rows of the segment.

    Raises:
        DataLoss: it is no bitmap of such a segment.
    """
    bitmap = vector.bitmap
    return decode_vector(b"" if isinstance(bitmap, UnsetType) else bitmap, vector, rows)


def has_bitmaps(body: bytes, stored: Iterable[StoredBitmap]) -> bool:
    """Return whether an object has these bitmaps, as the entries that name it describe them."""
    return all(_is_bitmap(body[one.offset : one.offset + one.size], one) for one in stored)


def vector_hash(vector: Vector) -> str:
    """Return the sha256 of the bitmap of a vector, hexadecimal, wherever it stands."""
    if isinstance(vector.bitmap, UnsetType):
        stored = stored_bitmap(vector)
        return "" if stored is None else stored.hash
    return sha256(vector.bitmap)


def _is_bitmap(found: bytes, stored: StoredBitmap) -> bool:
    return len(found) == stored.size and sha256(found) == stored.hash
