"""The writer's name, as histories, pins and claims show it."""

from __future__ import annotations

import getpass
import os
import socket

from eventlog.commit.proposal import MAX_WRITER


def writer_name() -> str:
    """Return the name of this writer, `user@host`, as the operating system reports it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:MAX_WRITER]
