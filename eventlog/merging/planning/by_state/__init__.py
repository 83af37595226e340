"""Plans the union of two logs: one transaction that makes the target what both are. No I/O.

A merge needs it where transactions cannot be applied one by one (MERGING.md R19.10). Imports
`merging.planning` and `merging.log_acts`. Start at `union`.
"""
