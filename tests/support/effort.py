"""What some work costs, counted: the same on every machine and under any load."""

import sys


def calls_of(work):
    """How many function calls some work makes: its cost, whatever the machine does besides."""
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
