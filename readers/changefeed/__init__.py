"""Reads the changes between two versions: rows inserted, updated and deleted.

Imports eventlog and the other modules of readers. Start at `reader.changes`.
"""

from eventlog.readers.changefeed.reader import Changes, changes

__all__ = ["Changes", "changes"]
