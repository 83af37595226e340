"""The writer's name, as histories, pins and claims show it."""

from __future__ import annotations

import os
import pwd
import socket
from functools import cache

from eventlog.commit.proposal import MAX_WRITER

_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # in the order of `getpass.getuser`


def writer_name() -> str:
    """Return the name of this writer, `user@host`, as the operating system reports it."""
    user = next(filter(None, map(os.environ.get, _VARIABLES)), None) or _name_of(os.getuid())
    return f"{user}@{socket.gethostname()}"[:MAX_WRITER]


@cache  # the system's list of users is a file, and every transaction has the name
def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container's user need not have a name
        return str(user)
