"""Writers: each call commits its rows as one version.

Imports eventlog (and readers where rows must be read back); never compaction. The Spark sink is in
`eventlog.writers.spark` and needs the extra `spark`.
"""

from eventlog.writers.batch import append, overwrite

__all__ = ["append", "overwrite"]
