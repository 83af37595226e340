"""Rows of some segments become other segments: streaming, sorting, encoding, and the proof of it.

Imports eventlog and readers, and compaction's words (`policy`, `tasks`). Reading order: `rewrite`,
`outputs`, `external_sort`, `digest`.
"""
