"""What a predicate means: SQL or Arrow to conditions, conditions to pruning by statistics.

Pure; imports `model` and `format`. Start at `predicate`, then the room `sql`, then `pruning`.
"""
