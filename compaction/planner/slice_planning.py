"""Plans merges of slices of a keyed table: the cost of reading them against that of a merge.

Imports eventlog and rewriting only. No I/O. A full merge makes a base of all segments that count in
its buckets. If the base is large against the logs above it, only the newest logs are merged, into
one log: then queries read fewer objects, and the base is not rewritten until there are more logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from msgspec import Struct

from eventlog.compaction.planner.scoring import FILE_COST
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, task_id
from eventlog.keyed.placement import Placed, in_order, slice_of
from eventlog.keyed.rule import MAX_BUCKETS, splits_of
from eventlog.keyed.slices import Run
from eventlog.model.entries import Granularity
from eventlog.quantities import count_text, size_text
from eventlog.rewriting.slice_merge import Buckets

_LARGE = 128  # times `bucket_bytes`: if buckets are larger on average, a split is better
_SHARE = 0.25  # of the base: logs of at least this size are merged into it
_MOST_LOGS = 8  # logs of one slice beyond which some are merged
_TIER = 2  # a log joins newer ones unless it is larger than this many times their sum


Rule = Literal["no logs", "no base", "share", "tier", "few", "small chunk", "split"]


class SliceVerdict(Struct, frozen=True, kw_only=True):
    """The planner's verdict on neighbouring buckets of a chunk in which the same segments count.

    Attributes:
        chunk: the chunk's name.
        first: the first bucket.
        last: the last bucket.
        act: `merge`: all segments that count become a base, or the newest logs one log; `none`.
        rule: why. `no logs`: there is nothing to merge; `no base`: only logs; `share`: the logs are
            large against the base; `tier`: many logs of about one size; `small chunk`: the chunk is
            so small that it is merged as a whole if any of it is; `few`: logs are few and small;
            `split`: there are no logs, but the base is older than a split of the buckets, and only
            some of the new buckets were merged since.
        bases: number of base segments.
        late: number of late segments.
        logs: number of log segments.
        inputs: number of segments to merge; 0 without a merge.
        base_bytes: bytes of the bases in these buckets, if all their buckets are of equal size.
        log_bytes: bytes of late segments and logs in these buckets, likewise.
        newest: the last version whose rows are in these buckets.
        priority: the priority of the task that would merge them, 0 to 1; 0 without a merge.
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
class _Need:
    """The merge that a run of buckets needs; none if there are no inputs.

    Attributes:
        run: the run.
        inputs: the segments to merge, in the order in which they are applied.
        full: whether these are all segments that count, so that the merge makes a base.
        rule: the rule that decided.
        bytes: bytes of the inputs in these buckets, if all their buckets are of equal size.
    """

    run: Run
    inputs: tuple[Placed, ...]
    full: bool
    rule: Rule
    bytes: float


def merges(
    runs: Sequence[Run], policy: Policy, *, table: str, version: int, granularity: Granularity
) -> list[Task]:
    """Return the tasks that merge slices, the most useful first.

    Args:
        runs: the runs of buckets, with the segments that count in each.
        policy: the settings; of the sizes only `max_task_bytes` applies.
        table: the table's id.
        version: the version of the runs.
        granularity: the table's granularity.
    """
    groups = _groups(runs, policy)
    return _tasks(groups, table=table, version=version, granularity=granularity)


def merges_of(
    runs: Sequence[Run],
    ids: AbstractSet[str],
    policy: Policy,
    *,
    table: str,
    version: int,
    granularity: Granularity,
) -> list[Task]:
    """Return the tasks that merge all that counts wherever some segments count, worth it or not.

    Once they are done, none of these segments is live.

    Args:
        runs: the runs of buckets, with the segments that count in each.
        ids: ids of the segments.
        policy: as for `merges`.
        table: the table's id.
        version: the version of the runs.
        granularity: the table's granularity.
    """
    named = (run for run in runs if any(one.segment.id in ids for one in run.placed))
    groups = _together((_all_of(run, "share") for run in named), policy)
    return _tasks(groups, table=table, version=version, granularity=granularity)


def _tasks(
    groups: Iterable[Sequence[_Need]], *, table: str, version: int, granularity: Granularity
) -> list[Task]:
    """Return the tasks of groups of runs, the most useful first."""
    tasks = []
    for needs in groups:
        run, last = needs[0].run, needs[-1].run.last
        inputs = in_order({one.segment.id: one for need in needs for one in need.inputs}.values())
        low, high = min([one.low for one in inputs]), max([one.high for one in inputs])
        work = f"{granularity} {run.first}-{last}" + (f"/{run.splits}" if run.splits else "")
        named = [(one.segment.id, one.segment.version) for one in inputs]
        tasks.append(
            Task(
                id=task_id(table, work, named),
                version=version,
                granularity=granularity,
                chunks=(run.chunk,),
                inputs=tuple([one.segment for one in inputs]),
                priority=round(_priority(needs), 6),
                reason=_reason(needs, inputs),
                buckets=Buckets(run.first, last, low, high, run.splits),
            )
        )
    return sorted(tasks, key=lambda task: (-task.priority, task.chunks, task.id))


def verdicts(runs: Sequence[Run], policy: Policy) -> list[SliceVerdict]:
    """Return the verdict on each run, in their order.

    Args:
        runs: the runs of buckets, with the segments that count in each; all runs of their chunks.
        policy: the settings.
    """
    needs = _needs(runs)
    priorities = {
        (need.run.chunk, need.run.first): round(_priority(group), 6)
        for group in _together((need for need in needs if need.inputs), policy)
        for need in group
    }
    return [_verdict(need, priorities.get((need.run.chunk, need.run.first), 0.0)) for need in needs]


def _verdict(need: _Need, priority: float) -> SliceVerdict:
    run = need.run
    logs, below, above = run.logs, _bytes(run, run.base), _bytes(run, (*run.logs, *run.late))
    return SliceVerdict(
        chunk=run.chunk,
        first=run.first,
        last=run.last,
        act="merge" if need.inputs else "none",
        rule=need.rule,
        bases=len(run.base),
        late=len(run.late),
        logs=len(logs),
        inputs=len(need.inputs),
        base_bytes=round(below),
        log_bytes=round(above),
        newest=max([one.high for one in run.placed]),
        priority=priority,
        sentence=_sentence(
            need,
            f"{count_text(len(logs), 'log')} with {size_text(round(above))}",
            f"a base of {size_text(round(below))}",
        ),
    )


def enough_buckets(judged: Sequence[SliceVerdict], buckets: int, bucket_bytes: int) -> int | None:
    """Return the number of buckets to split a table into; None if its buckets are not large.

    A merge rewrites entire buckets, and a look-up reads one.

    Args:
        judged: the verdicts on all slices.
        buckets: the number of buckets of the table.
        bucket_bytes: the table's property of this name.
    """
    stored: dict[str, int] = {}
    for verdict in judged:
        size = verdict.base_bytes + verdict.log_bytes
        stored[verdict.chunk] = stored.get(verdict.chunk, 0) + size
    largest, wanted = max(stored.values(), default=0), buckets
    if largest <= _LARGE * bucket_bytes * buckets:
        return None
    while 2 * wanted <= MAX_BUCKETS and 2 * largest > _LARGE * bucket_bytes * wanted:
        wanted *= 2
    return wanted if wanted > buckets else None


def _groups(runs: Sequence[Run], policy: Policy) -> Iterator[list[_Need]]:
    """Yield the runs to merge, those of one task together."""
    return _together((need for need in _needs(runs) if need.inputs), policy)


def _needs(runs: Sequence[Run]) -> list[_Need]:
    """Return the need of each run. A small chunk is merged entirely, so that it stays one base."""
    all_needs: list[_Need] = []
    for _, group in groupby(runs, key=lambda run: run.chunk):
        of_chunk = list(group)
        halved = _halved(of_chunk)
        needs = [_need(run, halved) for run in of_chunk]
        if any(need.inputs for need in needs):
            stored = {one.segment.id: one.segment.bytes for run in of_chunk for one in run.placed}
            if sum(stored.values()) <= FILE_COST:
                needs = [need if need.full else _all_of(need.run, "small chunk") for need in needs]
        all_needs += needs
    return all_needs


def _halved(of_chunk: Sequence[Run]) -> set[str]:
    """Return the ids of bases older than a split that no longer count in all of their buckets.

    Readers leave out the other rows of such a base by hashing the keys; the object still has them.
    """
    left: dict[str, int] = {}
    for run in of_chunk:
        for base in run.base if run.splits else ():
            if splits_of(slice_of(base.segment)) < run.splits:
                buckets = base.last - base.first + 1
                left[base.segment.id] = left.get(base.segment.id, buckets) - run.width
    return {name for name, buckets in left.items() if buckets}


def _need(run: Run, halved: AbstractSet[str]) -> _Need:
    """Return the need of a run of buckets."""
    base, logs = run.base, run.logs
    merged = {one.span for one in base}
    # A log with the same versions as a base has the rows that the merge could not combine.
    if all(log.span in merged for log in logs):
        if any(one.segment.id in halved for one in base):
            return _all_of(run, "split")
        return _Need(run, (), False, "no logs", 0.0)
    if not base:
        return _all_of(run, "no base")
    if _bytes(run, (*logs, *run.late)) >= _SHARE * _bytes(run, base):
        return _all_of(run, "share")
    tier = _tier(run, [log for log in logs if log.span not in merged])
    if len(tier) >= _MOST_LOGS:
        return _Need(run, tier, False, "tier", _bytes(run, tier))
    return _Need(run, (), False, "few", 0.0)


def _all_of(run: Run, rule: Rule) -> _Need:
    return _Need(run, run.placed, True, rule, _bytes(run, run.placed))


def _bytes(run: Run, placed: Iterable[Placed]) -> float:
    """Return the bytes of segments in the buckets of a run, if all buckets are of equal size."""
    width = run.width
    return sum([one.bytes_in(width) for one in placed])


def _sentence(need: _Need, logs: str, base: str) -> str:
    match need.rule:
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
                f"{logs} above {base}, which is much larger: the newest {len(need.inputs)} become "
                "one log"
            )
    return f"{logs} above {base}: too few and too small for a merge"


def _tier(run: Run, logs: Sequence[Placed]) -> tuple[Placed, ...]:
    """Return the newest logs of about one size, which are worth merging with each other.

    Args:
        run: the run.
        logs: its logs, without those of the versions of its bases.
    """
    newest: list[Placed] = []
    size = 0.0
    for log in reversed(logs):
        own = log.bytes_in(run.width)
        if size and own > _TIER * size and len(newest) >= _MOST_LOGS // 2:
            break
        newest.append(log)
        size += own
    # Logs that share their versions with a log that stays are not merged either.
    chosen = {log.segment.id for log in newest}
    left = {log.span for log in run.logs if log.segment.id not in chosen}
    return tuple([log for log in reversed(newest) if log.span not in left])


def _together(needs: Iterable[_Need], policy: Policy) -> Iterator[list[_Need]]:
    """Yield neighbouring needs that one task can fulfil."""
    group: list[_Need] = []
    size = 0.0
    for need in needs:
        if group and not (_joins(group[-1], need) and size + need.bytes <= policy.max_task_bytes):
            yield group
            group, size = [], 0.0
        group.append(need)
        size += need.bytes
    if group:
        yield group


def _joins(before: _Need, need: _Need) -> bool:
    """Return whether one task may fulfil both needs, whatever their size."""
    if before.run.chunk != need.run.chunk or before.run.last + 1 != need.run.first:
        return False
    return before.full == need.full and (need.full or before.inputs == need.inputs)


def _priority(needs: Sequence[_Need]) -> float:
    """Return the priority of a merge, 0 to 1: the savings of queries per byte merged."""
    saved = max([len(need.inputs) for need in needs]) * FILE_COST
    return saved / (saved + sum([need.bytes for need in needs]))


def _reason(needs: Sequence[_Need], inputs: Sequence[Placed]) -> str:
    run = needs[0].run
    where = f"buckets {run.first} to {needs[-1].run.last} of chunk {run.chunk}"
    kinds = Counter([one.kind for one in inputs])
    size = size_text(sum([one.segment.bytes for one in inputs]))
    if not needs[0].full:
        return f"{where}: {kinds['log']} logs ({size}) become one; their base is much larger"
    return f"{where}: {kinds['log']} logs and {kinds['base']} bases ({size}) become bases"
