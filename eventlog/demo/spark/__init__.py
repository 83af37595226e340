"""The demo with Spark: flights appended by its jobs, compacted, read by three engines; upserts.

Start at `demo`.
"""
