"""Joins histories that have diverged: what one log of a table did is committed on another one.

`history` says what commits did, `plan` and `upserts` decide what of it is carried and how, and
`union` makes two logs one by their states where that does not do, all without I/O; `carry` reads,
copies and commits. May import what lies below `table`. Start at
`carry.Carrier`.
"""
