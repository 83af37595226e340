"""Rows become segments: cast to the table's types, split by chunk, encoded in bounded memory.

    rows ──► incoming ──► stager ──► cutting ──► encoding ──► uploads ──► adds for a transaction
             stream,                 chunks,     Parquet,     objects
             checks, casts           order       checksums    under fresh ids

In a keyed table `upsert_rows` cuts by bucket and key. `compact_arrays` splits Arrow's views and
dictionaries, which may represent more than they take.

Imports `commit` and below. Start at the room `incoming`, then `stager`, then `encoding`.
"""
