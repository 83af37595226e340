"""The fork point of two logs of one table, found by the chain of hashes (MERGING.md R17.1).

Under `merging` and `replication`. Imports `log` and below. Start at `relation`.
"""
