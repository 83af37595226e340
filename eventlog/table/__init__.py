"""What a user holds, `Table`, and what it calls: create, pins, claims, settings, restore.

Imports `merging` and below. Start at `table`; the other modules take the `Session` under it.
"""
