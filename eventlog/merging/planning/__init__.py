"""Decides what a merge commits on the target. No I/O.

`plan` and `upserts` look at the source's commits one by one, and leave out what the target has
(`already_applied`); `union` compares the two states where that does not do. Imports
`merging.history` and what lies below `merging`. Start at `plan`.
"""
