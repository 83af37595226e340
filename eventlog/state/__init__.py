"""The state of a table as values: the fold and its rules, key frames, snapshots.

Imports `query` and below. Start at `fold`, then `rules`, then `snapshot`.
"""
