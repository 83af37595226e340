"""Joins the schemas of two logs that have diverged, column by column and check by check. No I/O.

Imports `merging.planning.carried`, `merged_settings` and `merging.log_acts`. Start at
`merged_schema`.
"""
