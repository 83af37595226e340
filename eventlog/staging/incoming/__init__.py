"""Rows as callers hand them in: any Arrow-compatible object becomes batches of the table's types.

Start at `streams`, then `casting`. `times` reads event times that are text, `pandas_frames` refuses
Python objects that Arrow would change, and a `Problem` is the reason why rows are refused.
"""
