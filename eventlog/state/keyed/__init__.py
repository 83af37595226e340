"""Keyed tables: the rule by which rows of a key become one, slices, and which of them a scan reads.

Pure, without a clock; imports `query`, `format` and below. Start at `rule`, then `slices`.
"""
