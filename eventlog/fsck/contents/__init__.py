"""The contents of segments: rows that readers refuse, rows in wrong places, and keys.

Start at `checksums`, which asks `row_check`, and that `footer_check` and `group_statistics`;
`key_check` and `key_rows` are for keyed tables.
"""
