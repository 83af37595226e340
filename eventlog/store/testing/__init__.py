"""Stores that count, fail and crash, and the embedded S3 server: for tests and the demo.

Imports the other adapters.
"""
