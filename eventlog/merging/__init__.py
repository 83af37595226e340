"""Merges histories that have diverged: commits what one log of a table did on another log of it.

`history` describes what commits did, `planning` decides without I/O what a merge commits, and
`merger` reads, copies and commits. Imports `session` and below. Start at `merger.Merger`.
"""
