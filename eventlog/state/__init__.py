"""The state of a table as values: the fold and its rules, key frames, questions, scan plans.

Imports `query` and below; does no I/O and logs nothing. Start at `fold`, then the room `small` for
its rules; then `version`, and `questions` for how leaves of a key frame come to be read.
"""
