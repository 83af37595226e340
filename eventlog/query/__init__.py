"""Predicates: from SQL text or Arrow expressions to conditions, and to pruning by statistics.

Also the values that SQL expressions compute for rows (`value_expressions`), in the same language.

Pure; imports `model` and `format`. Start at `predicate`, then read the room `sql` and `pruning`.
"""
