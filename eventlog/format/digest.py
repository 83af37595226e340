"""JSON objects that end with their own sha256, so that any changed byte is detected.

See FORMAT.md "Hashes": `digest`.
"""

from __future__ import annotations

import hashlib

from eventlog.errors import Corrupt

_SEAL_BYTES = len(',"digest":""}') + 64


def with_digest(text: bytes, owner: str = "") -> bytes:
    """Return a JSON object with a digest, the sha256 of its text, as its last field.

    Args:
        text: the object, as JSON.
        owner: hashed before the text, to tie the object to its owner.
    """
    digest = hashlib.sha256(owner.encode() + text).hexdigest()
    return b'%b,"digest":"%b"}' % (text[:-1], digest.encode())


def without_digest(body: bytes, what: str, owner: str = "") -> bytes:
    """Return the object without its digest.

    Args:
        body: the bytes that `with_digest` returned.
        what: a name for the object, for the message.
        owner: the argument that was passed to `with_digest`.

    Raises:
        Corrupt: the digest does not match.
    """
    text = body[:-_SEAL_BYTES] + b"}"
    if with_digest(text, owner) != body:  # against digest-not-checked
        raise Corrupt(f"the bytes of the {what} do not match the digest at their end")
    return text
