"""The bytes and keys of stored objects: keys, canonical JSON, segment entries, digests.

No I/O; imports `model`. Start at `codec`, then `keys`, then the room `frames`.
"""
