"""Merges histories that have diverged: commits what one log of a table did on another log of it.

`log_acts` describes what commits did, `planning` decides without I/O what a merge commits,
`planner_inputs` reads what it asks for, `target_commits` commits, and `merger` leads them. Imports
`session` and below. Start at `merger.Merger`.
"""
