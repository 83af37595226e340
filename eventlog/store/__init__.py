"""The storage port and its adapters: S3, a local directory, memory; and how requests are sent.

Imports `format` and below. Start at `port`; `location` finds the adapter of a URI, `retry` has the
one policy of retries, `parallel` reads ahead.
"""
