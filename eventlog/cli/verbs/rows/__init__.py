"""The verbs that write rows.

Needs the extra `cli`.

file_options  the options of input files and of units of work
interruption  what Ctrl-C left behind
adding        append, upsert, and what deletes of keys share with them
row_changes   delete, update, overwrite, merge-rows
erasing       erase
"""

from eventlog.cli.verbs.rows import adding, erasing, row_changes

VERBS = (*adding.VERBS, *row_changes.VERBS, *erasing.VERBS)

__all__ = ["VERBS"]
