"""The program `eventlog`: the command group, terminal output, and the commands of the core.

Other packages add commands through the entry points `eventlog.commands`. Imports everything below.
Start at `program`, then `commands`.
"""

from eventlog.cli.entry import main

__all__ = ["main"]
