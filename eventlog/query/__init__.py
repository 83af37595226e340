"""Predicates: from SQL text or Arrow expressions to conditions, and to pruning by statistics.

Pure; imports `model` and `format`. Start at `predicate`, then read the room `sql` and `pruning`.
"""
