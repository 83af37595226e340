"""Committing: rebase, proposal, the protocol, and the shell that executes it.

`rebase`, `proposal`, `intents` and `protocol` do no I/O. Imports `log` and below. Start at
`committer`.
"""
