"""Rows become segments: cast to the table's types, split by chunk, encoded in bounded memory.

Imports `commit` and below. Start at the room `incoming`, then `stager`, then `encoding`.
"""
