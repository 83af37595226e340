"""The bytes that lie in the bucket: keys, canonical JSON, segment entries, digests.

Pure; imports `model`. Start at `codec`, then `keys`, then `segments`.
"""
