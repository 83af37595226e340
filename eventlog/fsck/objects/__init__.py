"""The objects beside the log: segments, what holds them, and what nothing refers to.

Start at `sought_segments`, which compares the segments of a version with a listing. `held_segments`
looks for what pins, replicas and branches hold, `leftovers` counts unnamed objects, `vacuum_record`
looks at what the last vacuum left.
"""
