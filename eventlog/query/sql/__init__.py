"""SQL predicates: the text is bounded, parsed and translated into conditions.

Pure; imports `query.conditions` and below. Start at `parsing`, then read `values` and `literals`.
"""
