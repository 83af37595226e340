"""Deletes, updates and overwrites of rows in tables without a key, by predicate.

finding     which rows a predicate selects: segments as a whole, or positions in them
landing     commits what was found, and finds it again where other commits have moved it
deleting    `delete` with a predicate
overwriting `overwrite` with a predicate
"""
