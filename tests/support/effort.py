"""Counts the cost of work: the same on every machine and under any load."""

import sys


def calls_of(work):
    """The number of function calls that some work makes."""
    count = 0

    def tick(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
