"""What to rewrite, in which order, and why: pure but for reading a snapshot and noting the result.

Imports eventlog only, and compaction's words (`policy`, `tasks`). Reading order: `spans`,
`scoring`, `candidates`, `planning`, `queueing`, `assessing`. `eventlog.demo.load` simulates a day
of it.
"""
