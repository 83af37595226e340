"""Reads keyed tables: rows of one key are merged as they are read.

Imports eventlog and the other modules of readers. Start at `merging.Slices`.
"""

from eventlog.readers.keyed.groups import grouped
from eventlog.readers.keyed.merging import Slices

__all__ = ["Slices", "grouped"]
