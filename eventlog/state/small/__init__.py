"""The small state: what each action of a transaction makes of it, or why it is void.

Pure, without a clock; imports `format` and below. Start at `rules`, which knows every action.
"""
