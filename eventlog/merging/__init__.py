"""Merges histories that have diverged: what one log of a table did is committed on another one.

`history` has what commits did, `planning` decides without I/O what of it is committed and how, and
`merger` reads, copies and commits. Imports `session` and below. Start at `merger.Merger`.
"""
