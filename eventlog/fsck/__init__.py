"""The audit of a whole log: what each commit says against what the fold makes of it.

Imports the rooms below, `recovery` and `table` included. Start at `check`; `walk` reads,
`audit` compares, `leftovers` and `repair` are what may follow.
"""
