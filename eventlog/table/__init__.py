"""The public handle, `Table`, and the verbs that it calls: create, pins, claims, settings, restore.

Imports `commit` and below. Start at `table`; what its verbs ask of it is `ports.OpenTable`.
"""
