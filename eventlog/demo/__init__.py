"""The demo: a year of flights, appended by Spark jobs, compacted, read by three engines; upserts.

A program that uses the library as its users do. It may import everything, and nothing imports it.
Start at `demo`.
"""
