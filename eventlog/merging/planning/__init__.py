"""Decides what a merge commits on the target. No I/O.

`plan`, and `keyed` for keyed tables, go through the source's commits one by one, and leave out what
the target has already (`already_applied`). Where this is not possible, `by_state` compares the two
states. Imports `merging.log_acts` and what lies below `merging`. Start at `plan`.
"""
