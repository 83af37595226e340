"""Reads keyed tables: rows of one key are merged as they are read.

Imports eventlog and the other modules of readers. Start at `slice_reader.SliceReader`; `cuts` shows
how rows are cut, so that few are in memory at once.
"""

from eventlog.readers.keyed.slice_reader import SliceReader

__all__ = ["SliceReader"]
