"""Keyed tables: the rule by which the rows of a key become one, slices, and scans of them.

Pure, without a clock; imports `query`, `format` and below. Start at `rule`, then `slices`, then
`row_merging`, with which readers and compaction merge rows.
"""
