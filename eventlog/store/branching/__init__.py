"""Branches as stores: a branch's own objects, and below its fork those of its parent.

Imports `format` and below, and the port. Start at `branch`. `branch_files` is its pyarrow file
system, `roots` decides under which root an object lies, and `within` copies segments in S3, also of
branches; it imports the adapter of S3.
"""
