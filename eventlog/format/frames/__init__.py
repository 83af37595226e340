"""The objects under `_frames/`: leaves and stems of key frames, and spills of commits.

Leaves and spills are tables of segment entries as Parquet. `entry_columns` has the entries as
columns, `spill_columns` the adds and drops of a spill, and `frame_bytes` the bytes, written and
checked. `stem_bytes` has those of stems.
"""
