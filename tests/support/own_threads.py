"""Finds threads that a piece of work leaves running."""

import threading
from contextlib import contextmanager

from eventlog.store import parallel

_WAIT = 60  # seconds, more than a busy machine needs to end a thread that has nothing to do


@contextmanager
def none_left():
    """Fail if threads of eventlog that start in this context run on after it.

    Those that wait for the next reader are ended. Others in the process are ignored: a stream of an
    earlier test whose error is still referred to ends when the garbage collector finds it.
    """
    before = set(threading.enumerate())
    yield
    parallel.end_idle_threads()
    own = [t for t in threading.enumerate() if t.name.startswith("eventlog-") and t not in before]
    for thread in own:
        thread.join(_WAIT)
        assert not thread.is_alive(), thread.name
