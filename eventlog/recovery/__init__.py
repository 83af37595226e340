"""Which segments replace which, the fallback for lost segments, and garbage.

`lineage`, `overshadowing` and `garbage` do no I/O; `fallback` reads the log. Imports `log` and
below.
"""
