"""Which slices of a keyed table to merge: what reading them costs against what a merge costs.

Imports eventlog only. No I/O. A full merge makes a base of all that counts in its buckets. Where
the base is large against what lies above, only the newest logs are merged, to a log: then queries
read fewer objects, and the base is left alone until more has gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from eventlog.compaction.planner.scoring import FILE_COST
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Buckets, Task, task_id
from eventlog.model.records import Granularity, Segment
from eventlog.quantities import size_text
from eventlog.state.keyed.slices import Run, applied, slice_of, span

_SHARE = 0.25  # of the base: logs of this size are merged into it
_MOST_LOGS = 8  # logs of one slice beyond which some are merged
_TIER = 2  # a log joins newer ones unless it is larger than this many times their sum


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a run of buckets needs merged."""

    run: Run
    inputs: tuple[Segment, ...]
    full: bool


def merges(
    runs: Sequence[Run], policy: Policy, *, table: str, version: int, granularity: Granularity
) -> list[Task]:
    """Return the tasks that merge slices, the most useful first.

    Args:
        runs: which segments count in which buckets.
        policy: the settings; of sizes `max_task_bytes`.
        table: the table's id.
        version: the version of the runs.
        granularity: the table's.
    """
    tasks = []
    for wishes in _together(_wishes(runs), policy):
        first, last = wishes[0].run.first, wishes[-1].run.last
        inputs = _inputs(wishes)
        spans = [span(segment) for segment in inputs]
        buckets = Buckets(first, last, min(low for low, _ in spans), max(high for _, high in spans))
        named = [(segment.id, segment.version) for segment in inputs]
        tasks.append(
            Task(
                id=task_id(table, f"{granularity} {first}-{last}", named),
                version=version,
                granularity=granularity,
                chunks=(wishes[0].run.chunk,),
                inputs=inputs,
                priority=round(_priority(wishes), 6),
                reason=_reason(wishes, inputs),
                buckets=buckets,
            )
        )
    return sorted(tasks, key=lambda task: (-task.priority, task.chunks, task.id))


def _wishes(runs: Sequence[Run]) -> list[_Wish]:
    """Return what each run needs; a small chunk is merged as a whole, so that it stays one base."""
    found: list[_Wish] = []
    for _, group in groupby(runs, key=lambda run: run.chunk):
        here = list(group)
        wishes = [wish for run in here if (wish := _wish(run)) is not None]
        stored = {s.id: s.bytes for run in here for s in run.segments}
        if wishes and sum(stored.values()) <= FILE_COST:
            wishes = [_Wish(run, run.segments, full=True) for run in here]
        found += wishes
    return found


def _wish(run: Run) -> _Wish | None:
    """Return what the buckets of a run need, or None."""
    logs = run.logs
    if not logs:
        return None
    above = sum(_share(run, s) for s in (*logs, *run.late))
    below = sum(_share(run, s) for s in run.base)
    if not run.base or above >= _SHARE * below:
        return _Wish(run, run.segments, full=True)
    tier = _tier(run)
    return _Wish(run, tier, full=False) if len(tier) >= _MOST_LOGS else None


def _tier(run: Run) -> tuple[Segment, ...]:
    """Return the newest logs of about one size, which are worth merging with each other."""
    taken: list[Segment] = []
    size = 0.0
    for log in reversed(run.logs):
        own = _share(run, log)
        if size and own > _TIER * size and len(taken) >= _MOST_LOGS // 2:
            break
        taken.append(log)
        size += own
    return tuple(reversed(_whole_spans(taken, run)))


def _whole_spans(taken: list[Segment], run: Run) -> list[Segment]:
    """Return the logs without those whose versions others share that are not among them."""
    left = [span(s) for s in run.logs if s not in taken]
    return [s for s in taken if span(s) not in left]


def _share(run: Run, segment: Segment) -> float:
    """Return the bytes of a segment that lie in the buckets of a run, if all have as many."""
    place = slice_of(segment)
    return segment.bytes * (run.last - run.first + 1) / (place.last - place.first + 1)


def _together(wishes: Iterable[_Wish], policy: Policy) -> Iterator[list[_Wish]]:
    """Yield neighbouring wishes that one task can fulfil."""
    group: list[_Wish] = []
    for wish in wishes:
        if group and not _joins(group, wish, policy):
            yield group
            group = []
        group.append(wish)
    if group:
        yield group


def _joins(group: Sequence[_Wish], wish: _Wish, policy: Policy) -> bool:
    before = group[-1]
    if before.run.chunk != wish.run.chunk or before.run.last + 1 != wish.run.first:
        return False
    if before.full != wish.full or (not wish.full and before.inputs != wish.inputs):
        return False
    size = sum(_share(w.run, s) for w in (*group, wish) for s in w.inputs)
    return size <= policy.max_task_bytes


def _inputs(wishes: Sequence[_Wish]) -> tuple[Segment, ...]:
    found = {s.id: s for wish in wishes for s in wish.inputs}
    return tuple(sorted(found.values(), key=applied))


def _priority(wishes: Sequence[_Wish]) -> float:
    """Return what queries save per byte merged, from 0 to 1."""
    saved = max(len(wish.inputs) for wish in wishes) * FILE_COST
    cost = sum(_share(wish.run, s) for wish in wishes for s in wish.inputs)
    return saved / (saved + cost)


def _reason(wishes: Sequence[_Wish], inputs: Sequence[Segment]) -> str:
    run = wishes[0].run
    where = f"buckets {run.first} to {wishes[-1].run.last} of chunk {run.chunk}"
    logs = sum(slice_of(s).kind == "log" for s in inputs)
    size = size_text(sum(s.bytes for s in inputs))
    if not wishes[0].full:
        return f"{where}: {logs} logs ({size}) become one; their base is much larger"
    bases = sum(slice_of(s).kind == "base" for s in inputs)
    return f"{where}: {logs} logs and {bases} bases ({size}) become bases"
