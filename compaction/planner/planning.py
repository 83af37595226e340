"""The plan: which segments of a version to rewrite, in which order, and why.

`plan` reads a snapshot and never writes. All decisions are made from values by `plan_entries`, so
the same version always gives the same plan. Imports eventlog only.

Chunks that have not changed since the last analysis under the same policy are not examined again:
the log has the version of that analysis (`Analysed`), and the difference between that version and
this one shows what changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from msgspec import Struct, structs

from eventlog import Snapshot, Table
from eventlog.arguments import text
from eventlog.compaction.planner.candidates import (
    Draft,
    Scored,
    among,
    bound,
    drafts,
    finished,
    inputs_of,
    stored_chunks,
    task_of,
)
from eventlog.compaction.planner.scoring import ChunkVerdict, score
from eventlog.compaction.planner.slice_planning import SliceVerdict, merges, verdicts
from eventlog.compaction.planner.spans import (
    Sums,
    TargetChunk,
    classified,
    empty_between,
    home,
    spans,
    sums_by_chunk,
    target_chunks,
)
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import Corrupt, InvalidInput, NotFound
from eventlog.format.entry_order import first_key
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import keyed_of, stored_rule
from eventlog.keyed.slices import Run, readable
from eventlog.log import diff
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Analysed, ChunkState, Granularity, Segment
from eventlog.model.records import Leaf
from eventlog.state.small.assessment import is_current

Why = Literal["back-off", "deferred", "shed"]
Interval = tuple[int, int]


class Skipped(Struct, frozen=True):
    """A chunk that needs compaction but gets no task now.

    Attributes:
        chunk: its name.
        why: `back-off`: its task failed recently; `deferred`: it was shed before and the queue is
            still full; `shed`: the queue is full.
        until: end of a back-off in ms UTC; else 0.
    """

    chunk: str
    why: Why
    until: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """What to compact at one version.

    Attributes:
        table: the table's id.
        version: the version.
        time: the time by which back-off was judged, in ms UTC.
        granularity: the target granularity.
        policy: the settings.
        since: chunks unchanged since this version, which needed nothing then, were not examined;
            None if all were examined.
        verdicts: for every examined chunk with segments, by start, the coarser first.
        slices: of a keyed table, instead: for every run of slices, by chunk and bucket.
        spans: number of runs of adjacent or overlapping chunks among them.
        empty: number of chunks without segments in the gaps between those runs.
        tasks: the tasks in the order to run, at most `policy.max_queue`.
        skipped: chunks that need compaction but are in no task.
    """

    table: str
    version: int
    time: int
    granularity: Granularity
    policy: Policy
    since: int | None
    verdicts: tuple[ChunkVerdict, ...]
    spans: int
    empty: int
    tasks: tuple[Task, ...]
    skipped: tuple[Skipped, ...]
    slices: tuple[SliceVerdict, ...] = ()


class KnownChunks(Struct, frozen=True, kw_only=True):
    """What a plan needs of a table besides its segments.

    Attributes:
        table: its id.
        version: the version to plan at.
        granularity: the table's granularity, for new rows.
        states: the recorded states of chunks, by name.
        analysed: the last analysis, or None.
    """

    table: str
    version: int
    granularity: Granularity
    states: Mapping[str, ChunkState] = {}
    analysed: Analysed | None = None

    def trusts(self, policy: Policy) -> bool:
        """Return whether the records were made under a policy with the same stable chunks."""
        return self.analysed is not None and self.analysed.policy == policy.digest(self.granularity)


def plan(
    t: Table, policy: Policy | None = None, *, version: int | None = None, now_ms: int | None = None
) -> Plan:
    """Return what to compact. Never writes.

    Args:
        t: the table.
        policy: the settings; the defaults if None.
        version: plan as of this version; the newest if None.
        now_ms: the time by which back-off is judged, in ms UTC; the version's time if None, so that
            a past version always gives the same plan.

    Raises:
        InvalidInput: a setting of the policy is out of bounds.
        VersionNotFound: there is no such version.
    """
    chosen = (policy or Policy()).check()
    snapshot = t.snapshot(version)
    if keyed_of(snapshot.layout) is not None:
        return _of_slices(snapshot, chosen, now_ms)
    known = known_of(snapshot)
    now = snapshot.header.time if now_ms is None else now_ms
    changed = _changed(t, snapshot, known, chosen)
    if changed is None:
        return plan_entries(snapshot.entries(), known, chosen, now)
    entries = _read(snapshot, changed, chosen)
    since = known.analysed.version if known.analysed else None
    return plan_entries(entries, known, chosen, now, since=since)


def _of_slices(snapshot: Snapshot, policy: Policy, now_ms: int | None) -> Plan:
    """Return the plan for a keyed table, whose slices are merged."""
    granularity = snapshot.layout.granularity
    found = slices_of(snapshot, to_segments(snapshot.entries()))
    tasks = merges(
        found,
        policy,
        table=snapshot.header.table,
        version=snapshot.version,
        granularity=granularity,
    )
    return Plan(
        table=snapshot.header.table,
        version=snapshot.version,
        time=snapshot.header.time if now_ms is None else now_ms,
        granularity=granularity,
        policy=policy,
        since=None,
        verdicts=(),
        spans=len({run.chunk for run in found}),
        empty=0,
        tasks=tuple(tasks[: policy.max_queue]),
        skipped=(),
        slices=tuple(verdicts(found, policy)),
    )


def explain(
    t: Table, chunk: str, policy: Policy | None = None, *, version: int | None = None
) -> ChunkVerdict:
    """Return the verdict on one chunk at a version, independent of the records of other chunks.

    Args:
        t: the table.
        chunk: the chunk's name. For a chunk finer than the target granularity, the chunk that
            contains it is judged.
        policy: the settings; the defaults if None.
        version: the version to judge at; the newest if None.

    Raises:
        InvalidInput: the text is not a chunk's name, or a setting is out of bounds.
        VersionNotFound: there is no such version.
    """
    chosen = (policy or Policy()).check()
    snapshot = t.snapshot(version)
    if keyed_of(snapshot.layout) is not None:
        raise InvalidInput("a keyed table is merged by slices, not by chunks: use `explain_slices`")
    known = known_of(snapshot)
    granularity = chosen.granularity or known.granularity
    target_chunk = home(parse_chunk(text(chunk, "chunk")), granularity)
    entries = _overlapping(
        snapshot.entries(target_chunk.start, target_chunk.end),
        [(target_chunk.start, target_chunk.end)],
    )
    others = list[str]()
    for target, verdict in judged(classified(entries, chosen), known, chosen):
        if target.chunk == target_chunk:
            return verdict
        others.append(target.chunk.name)
    empty = TargetChunk(target_chunk, Sums(), Sums(), earlier=False, later=False, coarser=False)
    verdict = score(empty, chosen, known.states.get(target_chunk.name))
    if not others:
        return verdict
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    sentence = f"no segments of this chunk: those of its time are in {others[0]}{more}"
    return structs.replace(verdict, sentence=sentence)


def explain_slices(
    t: Table, chunk: str, policy: Policy | None = None, *, version: int | None = None
) -> tuple[SliceVerdict, ...]:
    """Return the verdicts on the slices of one chunk of a keyed table, at a version, by bucket.

    Args:
        t: the table.
        chunk: the chunk's name.
        policy: the settings; the defaults if None.
        version: the version to judge at; the newest if None.

    Raises:
        InvalidInput: the text is not a chunk's name, a setting is out of bounds, or the table has
            no key.
        VersionNotFound: there is no such version.
    """
    chosen = (policy or Policy()).check()
    snapshot = t.snapshot(version)
    if keyed_of(snapshot.layout) is None:
        raise InvalidInput("the table has no key, and so no slices: use `explain`")
    name = text(chunk, "chunk")
    bounds = parse_chunk(name)
    live = to_segments(snapshot.entries(bounds.start, bounds.end))
    here = [s for s in live if s.chunk == name]
    return tuple(verdicts(slices_of(snapshot, here), chosen))


def slices_of(snapshot: Snapshot, live: Iterable[Segment]) -> list[Run]:
    """Return which segments count in which buckets of a keyed table.

    Args:
        snapshot: the table.
        live: live segments, all those of their chunks.

    Raises:
        Corrupt: layout, schema and properties do not fit together, or a segment cannot lie where it
            does: no merge may be planned.
    """
    rule = stored_rule(snapshot.layout, snapshot.stored_schema, snapshot.properties)
    return [] if rule is None else readable(live, rule)


def known_of(snapshot: Snapshot) -> KnownChunks:
    """Return what a plan needs of a snapshot besides its segments."""
    return KnownChunks(
        table=snapshot.header.table,
        version=snapshot.version,
        granularity=snapshot.layout.granularity,
        states=snapshot.meta.chunks,
        analysed=snapshot.meta.analysed,
    )


def judged(entries: pa.Table, known: KnownChunks, policy: Policy) -> list[Scored]:
    """Return the verdict on every chunk of `classified` entries, by start, the coarser first."""
    trusted = known.trusts(policy)
    stored = sums_by_chunk(entries)
    targets = target_chunks(stored, policy.granularity or known.granularity)
    names = ((target, known.states.get(target.chunk.name)) for target in targets)
    return [(target, score(target, policy, state, trusted=trusted)) for target, state in names]


def plan_entries(
    entries: pa.Table, known: KnownChunks, policy: Policy, now_ms: int, *, since: int | None = None
) -> Plan:
    """Return the plan for live entries, which must include all segments of the examined chunks.

    Args:
        entries: columns of `eventlog.format.frames.entry_columns`.
        known: the rest of the table's state.
        policy: the settings, checked.
        now_ms: the time by which back-off is judged, in ms UTC.
        since: see `Plan.since`.
    """
    granularity = policy.granularity or known.granularity
    entries = classified(entries, policy)
    scored = judged(entries, known, policy)
    fresh, deferred, resting = _sorted_out(scored, known, policy, now_ms)
    inputs = inputs_of(entries, [*fresh, *deferred], policy, granularity)
    first, second = (
        finished(
            drafts(chunks, inputs, policy, granularity),
            inputs,
            policy,
            table=known.table,
            version=known.version,
            now_ms=now_ms,
        )
        for chunks in (fresh, deferred)
    )
    shed = first[policy.max_queue :]
    first = first[: policy.max_queue]
    # Only if half of the queue is free, so that shed chunks do not return to be shed again.
    room = policy.max_queue - len(first) if 2 * len(first) <= policy.max_queue else 0
    tasks = [task_of(draft, inputs, known.version) for draft in [*first, *second[:room]]]
    skipped = [*resting, *_skipped(shed, "shed"), *_skipped(second[room:], "deferred")]
    runs = spans(target.chunk for target, _ in scored)
    return Plan(
        table=known.table,
        version=known.version,
        time=now_ms,
        granularity=granularity,
        policy=policy,
        since=since,
        verdicts=tuple(verdict for _, verdict in scored),
        spans=len(runs),
        empty=empty_between(runs, granularity),
        tasks=tuple(tasks),
        skipped=tuple(skipped),
    )


def renewed(t: Table, task: Task, policy: Policy) -> Task | None:
    """Return a black task with new inputs, after the tasks it waited for; None if needless.

    Its inputs are the segments that its chunks need rewritten now, including those that the other
    tasks made; so it has a new id.
    """
    snapshot = t.snapshot()
    chunks = (parse_chunk(name) for name in task.chunks)
    entries = _read(snapshot, _merged((chunk.start, chunk.end) for chunk in chunks), policy)
    return renewed_entries(task, entries, known_of(snapshot), policy, snapshot.header.time)


def renewed_entries(
    task: Task, entries: pa.Table, known: KnownChunks, policy: Policy, now_ms: int
) -> Task | None:
    """Return the same as `renewed`, from the live entries of the task's chunks."""
    entries = classified(entries, policy)
    scored = [s for s in judged(entries, known, policy) if s[1].chunk in task.chunks]
    chosen = [(target, verdict) for target, verdict in scored if verdict.act == "compact"]
    if not chosen:
        return None
    inputs = inputs_of(entries, chosen, policy, task.granularity)
    rows = sorted(row for chunk_rows in inputs.rows.values() for row in chunk_rows)
    draft = Draft(chosen, task.granularity, rows, sum(inputs.sizes))
    (draft,) = finished(
        [draft], inputs, policy, table=known.table, version=known.version, now_ms=now_ms
    )
    return task_of(draft, inputs, known.version)


def _sorted_out(
    scored: Sequence[Scored], known: KnownChunks, policy: Policy, now_ms: int
) -> tuple[list[Scored], list[Scored], list[Skipped]]:
    """Return the chunks to compact now, the deferred ones, and the resting ones.

    Chunks that a rewrite must take together are treated alike.
    """
    fresh, deferred, resting = list[Scored](), list[Scored](), list[Skipped]()
    trusted = known.trusts(policy)
    for group in bound(scored, policy):
        compact = [verdict for _, verdict in group if verdict.act == "compact"]
        if not compact:
            continue
        states = [v.state for v in compact if v.state is not None]
        until = max((s.until for s in states if s.failures), default=0)
        # A rest longer than the policy's maximum was recorded by a wrong clock.
        # against no-rest-after-a-failure
        if now_ms < until <= now_ms + 1000 * policy.max_backoff_s:
            resting += [Skipped(verdict.chunk, "back-off", until) for verdict in compact]
        elif trusted and all(_is_deferred(verdict) for verdict in compact):
            deferred += group
        else:
            fresh += group
    return fresh, deferred, resting


def _is_deferred(verdict: ChunkVerdict) -> bool:
    state = verdict.state
    return (
        state is not None
        and state.state == "deferred"
        and is_current(state, verdict.newest, verdict.segments)
    )


def _skipped(left_out: Iterable[Draft], why: Why) -> list[Skipped]:
    names = {
        verdict.chunk: None
        for draft in left_out
        for _, verdict in draft.scored
        if verdict.act == "compact"
    }
    return [Skipped(name, why) for name in names]


def _changed(
    t: Table, snapshot: Snapshot, known: KnownChunks, policy: Policy
) -> list[Interval] | None:
    """Return the intervals whose chunks must be examined; None for all.

    They are the chunks that changed since the last analysis, and those with a record.
    """
    analysed = known.analysed
    if analysed is None or not known.trusts(policy) or analysed.version < snapshot.meta.horizon:
        return None
    try:
        changes = diff.diff(t.snapshot(analysed.version), snapshot)
    except (NotFound, Corrupt):
        return None
    names = {segment.chunk for segment in [*changes.added, *changes.dropped]} | known.states.keys()
    granularity = policy.granularity or known.granularity
    homes = (home(parse_chunk(name), granularity) for name in names)
    return _merged((chunk.start, chunk.end) for chunk in homes)


def _read(snapshot: Snapshot, intervals: Sequence[Interval], policy: Policy) -> pa.Table:
    """Return the live entries that overlap the intervals.

    If a coarser chunk must be cut, all entries within it are read too.
    """
    bounds = list(intervals)
    while True:
        entries = _overlapping(snapshot.entries(keep=_keeps(bounds)), bounds)
        reached = [] if policy.granularity is None else stored_chunks(entries)
        wider = _merged([*bounds, *((chunk.start, chunk.end) for chunk in reached)])
        if wider == bounds:
            return entries
        bounds = wider


def _keeps(intervals: Sequence[Interval]) -> Callable[[Leaf], bool]:
    return lambda leaf: _meets((first_key(leaf).start, leaf.end), intervals)


def _overlapping(entries: pa.Table, intervals: Sequence[Interval]) -> pa.Table:
    met = [c for c in stored_chunks(entries) if _meets((c.start, c.end), intervals)]
    return entries.filter(among(entries, met))


def _meets(interval: Interval, intervals: Sequence[Interval]) -> bool:
    """Return whether an interval overlaps one of several disjoint, ordered intervals."""
    after = bisect_right(intervals, interval[1] - 1, key=lambda other: other[0])
    return after > 0 and intervals[after - 1][1] > interval[0]


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals in order, with touching ones merged."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
