"""The program `eventlog`: its frame, its terminal output, and the verbs of the core.

Other packages contribute verbs by the entry points `eventlog.commands`. Imports everything below
it. Start at `program`, then `commands`.
"""

from eventlog.cli.entry import main

__all__ = ["main"]
