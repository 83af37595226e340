"""The state of a table as values: the fold and its rules, key frames, snapshots.

Imports `query` and below. Start at `fold`, then the room `small` for its rules, then `snapshot`.
"""
