"""The bytes of deletion vectors: Puffin files of `deletion-vector-v1` blobs (FORMAT.md R20.1).

They are those of Apache Iceberg's Puffin specification, so that Iceberg's metadata can name the
same objects. A vector is a 64-bit Roaring bitmap of the positions, from 0, of deleted rows.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec
from pyroaring import BitMap64

from eventlog.errors import DataLoss
from eventlog.format.codec import sha256
from eventlog.format.keys import parse_segment_key
from eventlog.model.entries import Vector

_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_NO_FLAGS = b"\0\0\0\0"
_ROW_POSITION = 2147483645  # Iceberg's field id of a row's position


def encode_vectors(
    epoch: int, object_id: str, vectors: Sequence[tuple[str, BitMap64]]
) -> tuple[bytes, list[Vector]]:
    """Return the bytes of an object of deletion vectors, and the entry's part for each of them.

    Args:
        epoch: the epoch of the object.
        object_id: its id.
        vectors: for each segment the key of its object, and the positions of its deleted rows: at
            least one.
    """
    return join_vectors(
        epoch, object_id, [(key, _encode_blob(rows), len(rows)) for key, rows in vectors]
    )


def join_vectors(
    epoch: int, object_id: str, encoded: Sequence[tuple[str, bytes, int]]
) -> tuple[bytes, list[Vector]]:
    """Return the bytes of an object of encoded vectors, and the entry's part for each of them.

    Args:
        epoch: the epoch of the object.
        object_id: its id.
        encoded: for each segment the key of its object, the bytes of its vector, and the number of
            its deleted rows.
    """
    body, entries, blobs = bytearray(_MAGIC), list[Vector](), list[dict[str, object]]()
    for key, blob, rows in encoded:
        at = len(body)
        entries.append(Vector(epoch, object_id, at, len(blob), rows, sha256(blob)))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": at,
                "length": len(blob),
                "properties": {"cardinality": str(rows), "referenced-data-file": key},
            }
        )
        body += blob
    footer = json.dumps({"blobs": blobs}, separators=(",", ":")).encode()
    body += _MAGIC + footer + struct.pack("<I", len(footer)) + _NO_FLAGS + _MAGIC
    return bytes(body), entries


def decode_vector(blob: bytes, vector: Vector, rows: int) -> BitMap64:
    """Return the positions that a vector deletes.

    Args:
        blob: its bytes.
        vector: as the segment's entry describes it.
        rows: the number of rows of the segment.

    Raises:
        DataLoss: they are not the bytes that the entry describes, or no vector of such a segment.
    """
    if len(blob) != vector.size or sha256(blob) != vector.hash:  # against vector-not-compared
        raise DataLoss("the deletion vector is not the one that the entry describes")
    inner = blob[4:-4]
    frame = struct.pack(">I", len(inner)), struct.pack(">I", zlib.crc32(inner))
    if (blob[:4], blob[-4:]) != frame or inner[:4] != _VECTOR_MAGIC:
        raise DataLoss("the deletion vector has another frame than FORMAT.md R20.1 describes")
    try:
        positions = BitMap64.deserialize(inner[4:])
    except (ValueError, IndexError) as error:  # IndexError of no bytes at all
        raise DataLoss(f"the deletion vector does not decode: {error}") from None
    # against vector-of-another-segment
    if len(positions) != vector.rows or positions.max() >= rows:
        raise DataLoss(
            f"the deletion vector has {len(positions)} positions, not {vector.rows} of {rows} rows"
        )
    return positions


def references(body: bytes) -> dict[int, str] | None:
    """Return by the offsets of the vectors in an object for whose objects of segments they are.

    None if the object has no such frame.
    """
    size = int.from_bytes(body[-12:-8], "little")
    marks = {body[:4], body[-4:], body[-16 - size : -12 - size]}
    if len(body) < size + 20 or marks != {_MAGIC}:  # against damaged-frame-of-vectors-copied
        return None
    try:
        footer = msgspec.json.decode(body[-12 - size : -12], type=_Footer)
    except msgspec.MsgspecError:
        return None
    return {blob.offset: blob.properties.get("referenced-data-file", "") for blob in footer.blobs}


class _Blob(msgspec.Struct):
    offset: int
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct):
    blobs: list[_Blob]


def has_vectors(body: bytes, vectors: Iterable[Vector]) -> bool:
    """Return whether an object has these vectors, as their entries describe them, and its frame.

    Args:
        body: the whole object.
        vectors: of the entries that name it.
    """
    named = references(body) or {}
    parts = ((body[v.offset : v.offset + v.size], v) for v in vectors)
    return all(
        sha256(part) == v.hash and parse_segment_key(named.get(v.offset, "")) for part, v in parts
    )


def vector_bytes(positions: BitMap64) -> int:
    """Return the number of bytes of the vector of some positions."""
    return len(_encode_blob(positions))


def united(parts: Iterable[BitMap64]) -> BitMap64:
    """Return the positions that any of the vectors deletes."""
    return BitMap64().union(*parts)


def _encode_blob(positions: BitMap64) -> bytes:
    compact = positions.copy()
    compact.run_optimize()
    inner = _VECTOR_MAGIC + compact.serialize()
    return struct.pack(">I", len(inner)) + inner + struct.pack(">I", zlib.crc32(inner))
