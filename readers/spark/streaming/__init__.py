"""Spark's streaming source: a table as a stream of appended rows, exactly once.

Start at `progress`, which decides without I/O what each batch reads. Spark calls `stream_source`,
which reads the log by `tail`.
"""
