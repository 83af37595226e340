"""Plans the merge of a keyed table, where the order of the rows of a key counts. No I/O.

Imports `merging.planning` and `merging.log_acts`. Start at `upserts`.
"""
