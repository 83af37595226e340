"""Runs of the sequences of an app: which of its units of work a log has done. No I/O."""

from __future__ import annotations

# The first and the last sequence of each run, in order. No two runs overlap or touch.
Runs = tuple[tuple[int, int], ...]


def joined_runs(some: Runs, others: Runs) -> Runs:
    """Return the sequences that are in at least one of the two."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((*some, *others)):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def common_runs(some: Runs, others: Runs) -> Runs:
    """Return the sequences that are in both."""
    return runs_without(some, runs_without(some, others))


def runs_without(runs: Runs, others: Runs) -> Runs:
    """Return the sequences of the runs that are in none of the others."""
    rest = []
    for first, last in runs:
        at = first
        for low, high in others:
            if high < at or low > last:
                continue
            if low > at:
                rest.append((at, low - 1))
            at = high + 1
        if at <= last:
            rest.append((at, last))
    return tuple(rest)
