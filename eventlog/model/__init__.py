"""The words of the format as values: commits, actions, segments, schema, time chunks.

Pure; imports only `errors`, `arguments` and `limits`. Start at `records`, then `actions`.
"""
