"""Reading the log: the head, any version, snapshots, differences, history; much of it is kept.

Imports `state` and below, and writes nothing. Start at `log`, whose method `ask` fetches what the
questions of `state` take; then `snapshot`, which is how callers ask.
"""
