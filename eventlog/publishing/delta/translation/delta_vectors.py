"""Deletion vectors in Delta's forms. No I/O.

Source: Delta's PROTOCOL.md, "Deletion Vector Format". The bitmap is the table's own: both formats
use the portable form of 64-bit Roaring bitmaps. A small vector stands in the action, a larger one
in an object of its own, whose name follows from its bytes, so that any publisher writes the same.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from eventlog.format.codec import sha256

VECTORS_PREFIX = "_delta_vectors/"
MOST_INLINE = 1024  # bytes of a vector that stands in the action
_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class DeltaVector:
    """A deletion vector of one segment.

    Attributes:
        rows: the number of rows that it deletes.
        content: its bytes in Delta's form.
    """

    rows: int
    content: bytes

    @classmethod
    def of(cls, bitmap: bytes, rows: int) -> DeltaVector:
        """Return the vector with the bitmap of an entry.

        Args:
            bitmap: its bytes, as an entry has them.
            rows: how many rows it deletes.
        """
        return cls(rows, _MAGIC + bitmap)

    @property
    def is_inline(self) -> bool:
        """Whether it stands in the action."""
        return len(self.content) <= MOST_INLINE

    def descriptor(self) -> dict[str, Any]:
        """Return the field `deletionVector` of an action."""
        if self.is_inline:
            return {
                "storageType": "i",
                "pathOrInlineDv": z85(self.content),
                "sizeInBytes": len(self.content),
                "cardinality": self.rows,
            }
        name = z85(bytes.fromhex(self._digest))
        return {
            "storageType": "u",
            "pathOrInlineDv": f"{VECTORS_PREFIX.rstrip('/')}{name}",
            "offset": len(_VERSION),
            "sizeInBytes": len(self.content),
            "cardinality": self.rows,
        }

    @property
    def key(self) -> str:
        """The key of the object of a vector that is not inline."""
        d = self._digest
        name = "-".join((d[:8], d[8:12], d[12:16], d[16:20], d[20:]))
        return f"{VECTORS_PREFIX}deletion_vector_{name}.bin"

    def body(self) -> bytes:
        """Return the bytes of that object."""
        size = struct.pack(">I", len(self.content))
        return _VERSION + size + self.content + struct.pack(">I", zlib.crc32(self.content))

    @property
    def _digest(self) -> str:
        return sha256(self.content)[:32]


def z85(content: bytes) -> str:
    """Return bytes in ZeroMQ's base 85 (RFC 32/Z85), filled with zeros to a multiple of four."""
    padded = content + bytes(-len(content) % 4)
    powers = (85**4, 85**3, 85**2, 85, 1)
    numbers = (number for (number,) in struct.iter_unpack(">I", padded))
    return "".join(_Z85[number // power % 85] for number in numbers for power in powers)
