"""The program `eventlog`: the group of its verbs, their options, and their output.

It stands on the roof: it imports everything, and nothing imports it. Start at `program`, then
`verbs`.
"""

from eventlog.cli.entry import main

__all__ = ["main"]
