"""Readers: the rows of one version, or what changed between two, as Arrow or for its libraries.

Imports eventlog; never writers or compaction. The Spark source is in `eventlog.readers.spark` and
needs the extra `spark`.
"""

from eventlog.readers.changefeed import Changes, changes
from eventlog.readers.scanner import Scan, count, scan

__all__ = ["Changes", "Scan", "changes", "count", "scan"]
