"""JSON objects that end with their own sha256, so that any changed byte is detected.

See FORMAT.md "Hashes": `digest`.
"""

from __future__ import annotations

import hashlib

from eventlog.errors import Corrupt

_SEAL_BYTES = len(',"digest":""}') + 64


def sealed(text: bytes, owner: str = "") -> bytes:
    """Return a JSON object with a digest, the sha256 of its text, as its last field.

    Args:
        text: the object, as JSON.
        owner: hashed before the text, to tie the object to its owner.
    """
    digest = hashlib.sha256(owner.encode() + text).hexdigest()
    return b'%b,"digest":"%b"}' % (text[:-1], digest.encode())


def unsealed(body: bytes, what: str, owner: str = "") -> bytes:
    """Return the object without its digest.

    Args:
        body: the bytes that `sealed` returned.
        what: a name for the object, for the message.
        owner: the argument that was passed to `sealed`.

    Raises:
        Corrupt: the digest does not match.
    """
    text = body[:-_SEAL_BYTES] + b"}"
    if sealed(text, owner) != body:  # against digest-not-checked
        raise Corrupt(f"the bytes of the {what} do not match the digest at their end")
    return text
