"""Reading the log: the head, any version, history; what is read is kept for later.

Imports `state` and below, and writes nothing. Start at `log`.
"""
