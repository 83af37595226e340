"""Which segments replace which, what can be read for a lost segment, and what vacuum may delete.

`lineage`, `overshadowing` and `garbage` do no I/O; `fallback` reads the log. Imports `log` and
below.
"""
