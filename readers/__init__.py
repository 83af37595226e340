"""Readers: the rows of one version, pruned by statistics, as Arrow or for Arrow-based libraries.

Imports eventlog; never writers or compaction. The Spark source is in `eventlog.readers.spark` and
needs the extra `spark`.
"""

from eventlog.readers.scanner import Scan, count, scan

__all__ = ["Scan", "count", "scan"]
