"""The demo without Java: the libraries of two formats write the same rows, at the same time.

Start at `contest`.
"""
