"""What overshadows what, what can stand in for a lost segment, and what is dead.

`lineage`, `timeline` and `sweep` are pure; `fallback` reads the log. Imports `log` and below.
"""
