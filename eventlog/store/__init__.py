"""The storage port and its adapters: S3, a local directory, memory.

Imports `format` and below. Start at `port`; `location` finds the adapter of a URI.
"""
