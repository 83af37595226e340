"""The bytes of stems: the canonical JSON of their leaves, compressed (FORMAT.md 2.9.1).

A leaf stands there as it stands in a root. Compressed it takes a third of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eventlog.errors import Corrupt
from eventlog.format import codec
from eventlog.model.records import Leaf

_LEVEL = 3  # of ZSTD, as in leaves


def to_stem(leaves: Sequence[Leaf]) -> bytes:
    """Return the bytes of a stem: the same for the same leaves and library release.

    Raises:
        InvalidInput: it is larger than readers accept.
    """
    text = codec.encode_leaves(leaves)
    return pa.Codec("zstd", compression_level=_LEVEL).compress(text, asbytes=True)  # type: ignore[no-any-return]


def from_stem(body: bytes) -> tuple[Leaf, ...]:
    """Return the leaves of a stem.

    Memory is bounded by what a stem may have, whatever the bytes claim.

    Raises:
        Corrupt: the bytes are not those of a stem, or a leaf is malformed or out of order.
    """
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            text: bytes = stream.read(codec.MAX_KEYFRAME_BYTES + 1)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"a stem is not readable ZSTD: {error}") from None
    return codec.decode_leaves(text)
