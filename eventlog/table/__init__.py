"""The public handle, `Table`, and the verbs with a life of their own: create, restore, leases.

Imports `commit` and below. Start at `table`.
"""
