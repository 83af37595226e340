"""Decides what to rewrite, in which order, and why.

No I/O except reading a snapshot (`planning.plan`) and recording results (`assessing.record`).
Imports eventlog only, and compaction's values (`policy`, `tasks`). Reading order: `spans`,
`scoring`, `candidates`, `chunk_planning`, `planning`, `queueing`, `assessing`; `slice_planning` for
keyed tables. `tests/bench/queue_load.py` simulates a day.
"""
