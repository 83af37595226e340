"""The rows of segments: bytes are compared with the log before they are decoded, in bounded memory.

    segments of a plan ──► segment_object ──► fragments ──► batches of the requested columns
                           bytes, checked     decoded and filtered, read ahead

Readers, merges of slices, compaction and the audit all read by `fragments`: a segment that one
refuses, all refuse. `eventlog.decoding` bounds the size to which bytes expand; `large_filters`
evaluates long lists of values on the rows of many segments at once.

Imports `log` and below.
"""
