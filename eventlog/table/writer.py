"""Who writes: the name that histories, pins and claims show.

Shell layer: asks the operating system.
"""

from __future__ import annotations

import getpass
import os
import socket

from eventlog.commit.proposal import MAX_WRITER


def writer_name() -> str:
    """Return who writes, for histories: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:MAX_WRITER]
