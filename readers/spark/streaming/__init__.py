"""Spark's streaming source: a table as a stream of appended rows, exactly once.

Start at `progress`, which decides without I/O what each batch reads; `source` is what Spark calls,
and `tail` reads the log for it.
"""
