"""`Table`, the handle of a user, and its operations: create, pins, claims, settings, restore.

Imports `merging` and below. Start at `table`; the other modules take the `Session` under it.
"""
