"""Which segments replace which, what to read in place of a lost segment, and what is garbage.

`lineage`, `overshadowing` and `garbage` do no I/O; `fallback` reads the log. Imports `log` and
below.
"""
