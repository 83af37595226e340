"""A writer for a running process: appends of many callers are committed in groups.

    appender        `Appender`: what a program holds; one thread that commits beside its callers
    backlog         pure: which appends wait, when a group is due, how far each app has come
    taken_rows      rows of a caller become bytes in the table's types, or are refused
    group_commit    one group becomes one transaction

A caller's rows are converted and checked in its own thread, so what does not fit fails that call
alone.
"""

from eventlog.writers.appending.appender import Appender

__all__ = ["Appender"]
