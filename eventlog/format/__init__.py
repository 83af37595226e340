"""The bytes and keys of stored objects.

    commit, key frame, fork, start  ◄── codec ──►  canonical JSON that ends with its digest
    entries of segments             ◄── frames ─►  Parquet: leaves of key frames, spills; stems
    version, chunk, id              ◄── keys ───►  the key of an object below the root

`wellformed` checks decoded values by the rules that need no state, `entry_order` has the order of
entries, `parts` the checksums of a large segment, `buckets` the hash of keys, and `conversion` the
Parquet types that a column accepts.

No I/O; imports `model` and below. Start at `codec`, then `keys`, then the room `frames`.
"""
