"""Committing: rebase, proposal, the protocol, and the shell that performs it.

`rebase`, `proposal`, `publication` and `protocol` do no I/O. Imports `log` and below. Start at
`committer`.
"""
