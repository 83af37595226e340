"""JSON objects that end with their own sha256, so that any flipped byte is noticed.

Pure layer (FORMAT.md "Commit": `digest`).
"""

from __future__ import annotations

import hashlib

from eventlog.errors import Corrupt

_SEAL_BYTES = len(',"digest":""}') + 64


def sealed(text: bytes) -> bytes:
    """Return a JSON object with the sha256 of its text as its last field, `digest`."""
    return b'%b,"digest":"%b"}' % (text[:-1], hashlib.sha256(text).hexdigest().encode())


def unsealed(whole: bytes, what: str) -> bytes:
    """Return the text without its digest.

    Args:
        whole: what `sealed` returned.
        what: a name for the object, for the message.

    Raises:
        Corrupt: the digest is not that of the text.
    """
    text = whole[:-_SEAL_BYTES] + b"}"
    if sealed(text) != whole:
        raise Corrupt(f"the {what}'s bytes do not have the digest at their end")
    return text
