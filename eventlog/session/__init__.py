"""A table as one program has it open: what is remembered of it between two commits.

`Session` reads and commits through one log. Users hold it inside a `Table`; rooms take the session
itself. Imports `commit` and below. Start at `session`.
"""
