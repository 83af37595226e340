"""Runs of slices that must be read together, because they share segments. No I/O.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventlog.model.records import Segment
from eventlog.state.keyed.slices import Run, in_each, reach


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs in groups that share no segment, in their order."""
    groups: list[list[Run]] = []
    group_of: dict[str, int] = {}
    for run in runs:
        shared = sorted({group_of[s.id] for s in run.segments if s.id in group_of})
        at = shared[0] if shared else len(groups)
        if not shared:
            groups.append([])
        for other in shared[1:]:
            groups[at] += groups[other]
            groups[other] = []
        groups[at].append(run)
        for member in groups[at]:
            group_of.update((s.id, at) for s in member.segments)
    return [group for group in groups if group]


def counting(segment: Segment, runs: Sequence[Run]) -> set[int] | None:
    """Return the buckets of these runs in which a segment counts; None if it does in all of its."""
    first, last = reach(segment, runs[0].splits)
    own = {
        bucket
        for run in runs
        if any(s.id == segment.id for s in run.segments)
        for bucket in range(max(run.first, first), min(run.last, last) + 1)
    }
    return None if len(own) == last - first + 1 else own


def parts(runs: Sequence[Run], most_bytes: int) -> list[list[Run]]:
    """Return runs of one group in parts whose logs and late rows take at most so many bytes.

    A part has at least one bucket, whatever its size. Sizes are those of stored objects, of which
    each bucket has an equal share.
    """
    found: list[list[Run]] = [[]]
    held = 0.0
    for run in runs:
        each = _each_bucket(run)
        first = run.first
        while first <= run.last:
            if found[-1] and held + each > most_bytes:
                found.append([])
                held = 0.0
            room = max(1, int((most_bytes - held) // each)) if each else run.last - first + 1
            last = min(run.last, first + room - 1)
            found[-1].append(replace(run, first=first, last=last))
            held += each * (last - first + 1)
            first = last + 1
    return found


def above_bytes(runs: Sequence[Run]) -> float:
    """Return the stored bytes of logs and late rows of runs, each bucket with an equal share."""
    return sum(_each_bucket(run) * (run.last - run.first + 1) for run in runs)


def _each_bucket(run: Run) -> float:
    return sum(in_each(s, run) for s in (*run.late, *run.logs))
