"""Stores that count requests, fail and crash, and an embedded S3 server: for tests and the demo.

Imports the other modules of `store`.
"""
