"""The rows of segments: bytes are compared with the log before they are decoded, in bounded memory.

Readers, merges of slices, compaction and the audit all read by `fragments`: what one refuses, all
refuse. `segment_object` checks the bytes, and `eventlog.decoding` bounds what they expand to.
Imports `log` and below.
"""
