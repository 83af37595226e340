"""The text of a SQL predicate: bounded, parsed, and brought to conditions.

Pure; imports `query.conditions` and below. Start at `parsing`, then `values`, then `literals`.
"""
