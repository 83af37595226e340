"""What is in the segments: rows that readers refuse, rows in wrong places, and keys.

Start at `rows`; `key_check` and `key_rows` are for keyed tables.
"""
