"""The state of a table as values: the fold and its rules, key frames, questions, scan plans.

Imports `keyed` and below; does no I/O and logs nothing. Start at `fold`, then read the room `small`
for its rules, `version`, and `questions`, which shows how the leaves of a key frame are requested.
"""
