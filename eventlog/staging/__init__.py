"""Rows become segments: brought to the table's types, cut by chunk, encoded within memory.

Imports `commit` and below. Start at `rows`, then `stager`, then `encoding`.
"""
