"""Which slices of a keyed table to merge: what reading them costs against what a merge costs.

Imports eventlog and rewriting only. No I/O. A full merge makes a base of all that counts in its
buckets. Where the base is large against what lies above, only the newest logs are merged, to a log:
then queries read fewer objects, and the base is left alone until more has gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from msgspec import Struct

from eventlog.compaction.planner.scoring import FILE_COST
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, task_id
from eventlog.keyed.placement import applied, reach, slice_of, span
from eventlog.keyed.rule import MAX_BUCKETS, splits_of
from eventlog.keyed.slices import Run, in_each
from eventlog.model.entries import Granularity, Segment
from eventlog.quantities import count_text, size_text
from eventlog.rewriting.slice_merge import Buckets

_LARGE = 128  # times `bucket_bytes`: buckets of more, on average, are better split
_SHARE = 0.25  # of the base: logs of this size are merged into it
_MOST_LOGS = 8  # logs of one slice beyond which some are merged
_TIER = 2  # a log joins newer ones unless it is larger than this many times their sum


Rule = Literal["no logs", "no base", "share", "tier", "few", "small chunk", "split"]


class SliceVerdict(Struct, frozen=True, kw_only=True):
    """What the planner makes of neighbouring buckets of a chunk in which the same segments count.

    Attributes:
        chunk: the chunk's name.
        first: the first bucket.
        last: the last bucket.
        act: `merge`: all that counts becomes a base, or the newest logs a log; `none`.
        rule: why. `no logs`: there is nothing to merge; `no base`: only logs; `share`: the logs are
            large against the base; `tier`: many logs of about one size; `small chunk`: the chunk is
            so small that it is merged as a whole if any of it is; `few`: logs are few and small;
            `split`: there are none, but the base is of before a split of the buckets, and has been
            merged in some of those that its own became.
        bases: number of base segments.
        late: number of late segments.
        logs: number of log segments.
        inputs: number of segments to merge; 0 without a merge.
        base_bytes: of the bases, as far as they lie in these buckets if all have as much.
        log_bytes: of late segments and logs, likewise.
        newest: the last version whose rows are in these buckets.
        priority: 0 to 1, of the task that would merge them; 0 without a merge.
        sentence: the reason, with its numbers.
    """

    chunk: str
    first: int
    last: int
    act: Literal["merge", "none"]
    rule: Rule
    bases: int
    late: int
    logs: int
    inputs: int
    base_bytes: int
    log_bytes: int
    newest: int
    priority: float
    sentence: str


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a run of buckets needs merged: nothing, if there are no inputs."""

    run: Run
    inputs: tuple[Segment, ...]
    full: bool
    rule: Rule


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
    for wishes in _groups(runs, policy):
        first, last = wishes[0].run.first, wishes[-1].run.last
        inputs = _inputs(wishes)
        spans = [span(segment) for segment in inputs]
        splits = wishes[0].run.splits
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        work = f"{granularity} {first}-{last}" + (f"/{splits}" if splits else "")
        named = [(segment.id, segment.version) for segment in inputs]
        tasks.append(
            Task(
                id=task_id(table, work, named),
                version=version,
                granularity=granularity,
                chunks=(wishes[0].run.chunk,),
                inputs=inputs,
                priority=round(_priority(wishes), 6),
                reason=_reason(wishes, inputs),
                buckets=Buckets(first, last, low, high, splits),
            )
        )
    return sorted(tasks, key=lambda task: (-task.priority, task.chunks, task.id))


def verdicts(runs: Sequence[Run], policy: Policy) -> list[SliceVerdict]:
    """Return what the planner makes of each run, in their order.

    Args:
        runs: which segments count in which buckets; all those of their chunks.
        policy: the settings.
    """
    priorities = {
        (wish.run.chunk, wish.run.first): round(_priority(group), 6)
        for group in _groups(runs, policy)
        for wish in group
    }
    found = []
    for wish in _wishes(runs):
        run, merge = wish.run, bool(wish.inputs)
        found.append(
            SliceVerdict(
                chunk=run.chunk,
                first=run.first,
                last=run.last,
                act="merge" if merge else "none",
                rule=wish.rule,
                bases=len(run.base),
                late=len(run.late),
                logs=len(run.logs),
                inputs=len(wish.inputs),
                base_bytes=round(_below(run)),
                log_bytes=round(_above(run)),
                newest=max(span(segment)[1] for segment in run.segments),
                priority=priorities.get((run.chunk, run.first), 0.0),
                sentence=_sentence(wish),
            )
        )
    return found


def enough_buckets(found: Sequence[SliceVerdict], buckets: int, bucket_bytes: int) -> int | None:
    """Return into how many buckets to split a table whose buckets are large; None if they are not.

    A merge rewrites whole buckets, and a look-up reads one.

    Args:
        found: the verdicts on all slices.
        buckets: how many there are.
        bucket_bytes: the property.
    """
    stored: dict[str, int] = {}
    for verdict in found:
        size = verdict.base_bytes + verdict.log_bytes
        stored[verdict.chunk] = stored.get(verdict.chunk, 0) + size
    largest, wanted = max(stored.values(), default=0), buckets
    if largest <= _LARGE * bucket_bytes * buckets:
        return None
    while 2 * wanted <= MAX_BUCKETS and 2 * largest > _LARGE * bucket_bytes * wanted:
        wanted *= 2
    return wanted if wanted > buckets else None


def _groups(runs: Sequence[Run], policy: Policy) -> Iterator[list[_Wish]]:
    """Yield the runs to merge, those of one task together."""
    return _together((wish for wish in _wishes(runs) if wish.inputs), policy)


def _wishes(runs: Sequence[Run]) -> list[_Wish]:
    """Return what each run needs; a small chunk is merged as a whole, so that it stays one base."""
    found: list[_Wish] = []
    for _, group in groupby(runs, key=lambda run: run.chunk):
        here = list(group)
        halved = _halved(here)
        wishes = [_wish(run, halved) for run in here]
        stored = {s.id: s.bytes for run in here for s in run.segments}
        if any(w.inputs for w in wishes) and sum(stored.values()) <= FILE_COST:
            wishes = [
                wish if wish.full else _Wish(wish.run, wish.run.segments, True, "small chunk")
                for wish in wishes
            ]
        found += wishes
    return found


def _halved(here: Sequence[Run]) -> set[str]:
    """Return the ids of bases of before a split that no longer count in all of their buckets.

    What is left of them is read through the hash of its rows, and keeps the whole object.
    """
    left: dict[str, int] = {}
    for run in here:
        for base in run.base:
            if splits_of(slice_of(base)) < run.splits:
                first, last = reach(base, run.splits)
                width = run.last - run.first + 1
                left[base.id] = left.get(base.id, last - first + 1) - width
    return {name for name, buckets in left.items() if buckets}


def _wish(run: Run, halved: AbstractSet[str]) -> _Wish:
    """Return what the buckets of a run need."""
    merged = {span(base) for base in run.base}
    # A log of a base's own versions has what the merge had to leave as it was.
    if all(span(log) in merged for log in run.logs):
        if any(base.id in halved for base in run.base):
            return _Wish(run, run.segments, True, "split")
        return _Wish(run, (), False, "no logs")
    if not run.base:
        return _Wish(run, run.segments, True, "no base")
    if _above(run) >= _SHARE * _below(run):
        return _Wish(run, run.segments, True, "share")
    tier = _tier(run)
    if len(tier) >= _MOST_LOGS:
        return _Wish(run, tier, False, "tier")
    return _Wish(run, (), False, "few")


def _above(run: Run) -> float:
    return sum(_share(run, s) for s in (*run.logs, *run.late))


def _below(run: Run) -> float:
    return sum(_share(run, s) for s in run.base)


def _sentence(wish: _Wish) -> str:
    run = wish.run
    logs = f"{count_text(len(run.logs), 'log')} with {size_text(round(_above(run)))}"
    base = f"a base of {size_text(round(_below(run)))}"
    match wish.rule:
        case "no logs":
            return "nothing lies above the base: it is read as it is"
        case "no base":
            return f"{logs} and no base: they become one"
        case "split":
            return (
                f"{base}, of which other buckets have been merged since it was split: what is left "
                "gets one of its own"
            )
        case "share":
            return f"{logs} above {base}: from {_SHARE:.0%} of it on they are merged into it"
        case "small chunk":
            return f"the chunk has less than {size_text(FILE_COST)}: it is merged as a whole"
        case "tier":
            return (
                f"{logs} above {base}, which is much larger: the newest {len(wish.inputs)} become "
                "one log"
            )
    return f"{logs} above {base}: too few and too small for a merge"


def _tier(run: Run) -> tuple[Segment, ...]:
    """Return the newest logs of about one size, which are worth merging with each other."""
    taken: list[Segment] = []
    size = 0.0
    merged = {span(base) for base in run.base}
    for log in reversed([log for log in run.logs if span(log) not in merged]):
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
    return in_each(segment, run) * (run.last - run.first + 1)


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
