"""The checksum of a stored object, in memory that does not follow its size."""

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
        store: where it lies.
        key: of the object.
        most: read at most so many bytes: one more than there should be is enough to tell that the
            object is longer. All of it if None.
        piece_bytes: bytes of a request.
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
