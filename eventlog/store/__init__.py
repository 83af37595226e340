"""The storage port and its adapters: S3, a local directory, memory; and how requests are sent.

Imports `format` and below. Start at `port`; `location` selects the adapter for a URI, `retry` has
the retry policy, `parallel` reads ahead.
"""
