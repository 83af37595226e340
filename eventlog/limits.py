"""Every bound of the format in one place: what a reader refuses, no writer may write.

Words layer: numbers and nothing else. FORMAT.md "Limits" lists them, with who checks each; a test
writes at each of them and one beyond. A bound that readers have and writers do not check shuts
away rows that were acknowledged, so a new one is entered here and used on both sides.
"""

from __future__ import annotations

# JSON objects, in bytes.
COMMIT_BYTES = 8 * 2**20
HEADER_BYTES = 2048  # from the start of a commit to the end of its header
KEYFRAME_BYTES = 64 * 2**20
INTENT_BYTES = 256 * 1024
JSON_DEPTH = 40  # arrays and objects: a type takes up to 3 * TYPE_DEPTH, 8 lie around it

# Leaves, spills and records of vacuums: bytes of all columns before compression.
FRAME_BYTES = 2**30

# Schemas and types.
TYPE_DEPTH = 10  # lists, maps and structs inside one another
NAME_CHARACTERS = 255  # of columns, pins, replicas, owners, groups

# The small state.
PINS = 1000
REPLICAS = 100
CLAIMS = 1000
CLAIMED_SEGMENTS = 10_000  # of all claims together: every commit since the key frame carries them
CHUNK_STATES = 500
APPS = 100_000

# Segments. Objects up to this size are fetched and checked whole, larger ones in parts.
WHOLE_BYTES = 2**20
# What a row group holds: so many rows, and so many bytes of Arrow unless one row has more.
ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 64 * 2**20
# The values of one row, in Arrow: what Parquet puts into one page has less than 2 GiB.
ROW_BYTES = 2**30
