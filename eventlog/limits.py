"""The limits of the format in one place: a writer must not write what a reader refuses.

FORMAT.md "Limits" lists them, and which side checks each; a test writes at each limit and one
beyond it. A limit that readers enforce and writers do not would make acknowledged rows unreadable,
so a new limit is added here and used on both sides.
"""

from __future__ import annotations

# JSON objects, in bytes.
COMMIT_BYTES = 8 * 2**20
HEADER_BYTES = 2048  # from the start of a commit to the end of its header
KEYFRAME_BYTES = 64 * 2**20
INTENT_BYTES = 256 * 1024
FORK_BYTES = 4096
START_BYTES = 4096
JSON_DEPTH = 40  # arrays and objects: up to 3 * TYPE_DEPTH in a type, and 8 around it

# Leaves, spills and records of vacuums: bytes of all columns before compression.
FRAME_BYTES = 2**30

# Schemas and types.
TYPE_DEPTH = 10  # nesting of lists, maps and structs
NAME_CHARACTERS = 255  # of columns, checks, pins, replicas, owners, groups
CHECKS = 100  # of a table: commits contain the schema
CHECK_CHARACTERS = 4096  # of the expression of a check

# The small state.
PINS = 1000
REPLICAS = 100
CLAIMS = 1000
CLAIMED_SEGMENTS = 10_000  # over all claims: every commit after the key frame contains them
CHUNK_STATES = 500
APPS = 100_000
ORIGINS = 10_000  # other logs that are merged into one

# Segments. Objects up to this size are fetched and checked in one piece, larger ones in parts.
WHOLE_BYTES = 2**20
# The rows of a row group, and their bytes in Arrow unless a single row is larger.
ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 64 * 2**20
# The values of one row, in Arrow: a Parquet page must be smaller than 2 GiB.
ROW_BYTES = 2**30
