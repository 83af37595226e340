"""Versions of a table as Delta's actions: values to values and bytes, no I/O.

Start at `delta_commits`.
"""
