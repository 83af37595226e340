"""The objects beside the log: segments, their holds, and objects that nothing refers to.

Start at `sought_segments`, which compares the segments of a version with a listing. `held_segments`
looks for the segments that pins, replicas and branches hold, `leftovers` counts unnamed objects,
`vacuum_record` looks at the record of the last vacuum.
"""
