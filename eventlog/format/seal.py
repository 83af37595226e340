"""JSON objects that end with their own sha256, so that any flipped byte is noticed.

Pure layer (FORMAT.md "Hashes": `digest`).
"""

from __future__ import annotations

import hashlib

from eventlog.errors import Corrupt

_SEAL_BYTES = len(',"digest":""}') + 64


def sealed(text: bytes, owner: str = "") -> bytes:
    """Return a JSON object with the sha256 of its text as its last field, `digest`.

    Args:
        text: the object.
        owner: what it belongs to, where the digest is to cover that too: the text follows it.
    """
    digest = hashlib.sha256(owner.encode() + text).hexdigest()
    return b'%b,"digest":"%b"}' % (text[:-1], digest.encode())


def unsealed(whole: bytes, what: str, owner: str = "") -> bytes:
    """Return the text without its digest.

    Args:
        whole: what `sealed` returned.
        what: a name for the object, for the message.
        owner: as it was given to `sealed`.

    Raises:
        Corrupt: the digest is not that of the text.
    """
    text = whole[:-_SEAL_BYTES] + b"}"
    if sealed(text, owner) != whole:  # against digest-not-checked
        raise Corrupt(f"the {what}'s bytes do not have the digest at their end")
    return text
