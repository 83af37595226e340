"""The values of the format: commits, actions, segments, schema, time chunks.

No I/O; imports only `errors`, `arguments` and `limits`. Start at `records`, then `actions`.
"""
