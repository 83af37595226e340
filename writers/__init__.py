"""Writers: each call commits its rows as one version.

    append      adds rows; conflicts with no other append, nor with compaction
    overwrite   replaces whole time chunks
    upsert      inserts rows into a keyed table, or merges them with those of their keys
    delete      deletes rows of a keyed table, by key or by predicate

Each takes `app_id` and `app_seq`, with which a repeated call has no second effect. Rows are
whatever speaks Arrow; they are stored unchanged, or refused with a reason.

Imports eventlog (and readers where rows must be read back); never compaction. The Spark sink is in
`eventlog.writers.spark` and needs the extra `spark`.
"""

from eventlog.writers.batch import append
from eventlog.writers.keyed import delete, upsert
from eventlog.writers.overwriting import overwrite

__all__ = ["append", "delete", "overwrite", "upsert"]
