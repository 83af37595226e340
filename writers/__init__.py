"""Writers: each call commits its rows as one version.

Imports eventlog (and readers where rows must be read back); never compaction. The Spark sink is in
`eventlog.writers.spark` and needs the extra `spark`.
"""

from eventlog.writers.batch import append, overwrite
from eventlog.writers.keyed import delete, upsert

__all__ = ["append", "delete", "overwrite", "upsert"]
