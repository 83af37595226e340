"""The verbs that change what rows a table takes, and how it stores them.

Needs the extra `cli`.

column_changes  columns: their names and types, and the checks of rows
table_settings  properties, granularity, split
"""

from eventlog.cli.verbs.settings import column_changes, table_settings

VERBS = (*column_changes.VERBS, *table_settings.VERBS)

__all__ = ["VERBS"]
