"""Rewrites rows of segments into other segments: streaming, sorting, encoding, verification.

Imports eventlog and readers, and compaction's values (`policy`, `tasks`). Reading order: `rewrite`,
`outputs`, `digest`.
"""
