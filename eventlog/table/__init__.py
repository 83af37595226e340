"""The public handle, `Table`, and what it calls: create, pins, claims, settings, restore.

Imports `commit` and below. Start at `table`; the other modules see it as `ports.OpenTable`.
"""
