"""Rewrites the rows of segments into new segments: streaming, sorting, encoding, verification.

Imports the core and readers; compaction uses it, and writers may. Reading order: `rewrite`,
`outputs`, `row_digest`, `stored_rows`; `slice_merge` for keyed tables.
"""
