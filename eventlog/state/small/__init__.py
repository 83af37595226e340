"""The small state: how each action of a transaction changes it, or why the transaction is void.

Pure, without a clock; imports `format` and below. Start at `rules`, which handles every action.
"""
