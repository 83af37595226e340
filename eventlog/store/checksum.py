"""The checksum of a stored object, computed in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from eventlog.store.port import ObjectStore

_PIECE_BYTES = 8 * 2**20


def object_checksum(
    store: ObjectStore,
    key: str,
    most: int | None = None,
    *,
    piece_bytes: int = _PIECE_BYTES,
    watch: Callable[[bytes], object] | None = None,
) -> str:
    """Return the sha256 of an object, read piece by piece, as 64 hexadecimal digits.

    Args:
        store: contains the object.
        key: of the object.
        most: the maximum number of bytes to read; all if None. One byte more than the expected size
            is enough to detect that the object is longer.
        piece_bytes: bytes per request.
        watch: called with each piece.

    Raises:
        KeyNotFound: there is no such object.
        Unavailable: the store does not answer.
    """
    digest, start = hashlib.sha256(), 0
    while most is None or start < most:
        length = piece_bytes if most is None else min(piece_bytes, most - start)
        piece = store.get(key, start=start, length=length)
        digest.update(piece)
        if watch is not None and piece:
            watch(piece)
        start += len(piece)
        if len(piece) < length:
            break
    return digest.hexdigest()
