"""The plan: which segments of a version to rewrite, in which order, and why.

These functions read a snapshot and never write. The decisions are made from values, by
`chunk_planning` and `slice_planning`, so the same version always gives the same plan.

Chunks that have not changed since the last analysis under the same policy are not examined again:
the log records the version of that analysis (`Analysed`), and the difference between that version
and this one shows what changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from msgspec import structs

from eventlog import Snapshot, Table
from eventlog.arguments import text
from eventlog.compaction.planner.candidates import in_chunks, stored_chunks
from eventlog.compaction.planner.chunk_planning import (
    KnownChunks,
    judged,
    known_of,
    plan_entries,
    renewed_entries,
)
from eventlog.compaction.planner.plans import (
    ChunkReport,
    ChunkSizes,
    ExaminedSlices,
    Plan,
    SliceReport,
)
from eventlog.compaction.planner.scoring import ChunkVerdict, score
from eventlog.compaction.planner.slice_planning import (
    SliceVerdict,
    enough_buckets,
    merges,
    verdicts,
)
from eventlog.compaction.planner.spans import (
    Sums,
    TargetChunk,
    classified,
    sizes_by_chunk,
)
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import Corrupt, InvalidInput, NotFound
from eventlog.format.entry_order import first_key
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import buckets_split, keyed_of
from eventlog.keyed.slices import Run, ineffective, readable_runs
from eventlog.log import diff
from eventlog.model.chunks import TimeChunk, home, parse_chunk
from eventlog.model.entries import Granularity, Segment
from eventlog.model.properties import setting
from eventlog.model.records import Piece
from eventlog.model.schema import check_timeless, stored_time_column
from eventlog.session.tags import VersionOrName
from eventlog.staging.fitting import Fit, fit_of, follows_data, may_be_coarser, may_be_finer

Interval = tuple[int, int]


def plan(
    t: Table,
    policy: Policy | None = None,
    *,
    version: VersionOrName | None = None,
    now_ms: int | None = None,
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
    snapshot = t.snapshot(version)
    chosen = _checked(policy, snapshot)
    if keyed_of(snapshot.layout) is not None:
        return _of_slices(snapshot, chosen, now_ms)
    # The rest would be told on every plan, which may have to read little else.
    fit = better_fit(snapshot, chosen) if follows_data(snapshot) else None
    cut = snapshot.layout.granularity if fit is None else fit.better
    return structs.replace(_of_chunks(t, snapshot, chosen, now_ms, cut), fit=fit)


def plan_as_cut(t: Table, policy: Policy, *, now_ms: int | None = None) -> Plan:
    """Return the plan for the granularity that the table has, whether or not it fits.

    Args: see `plan`.
    """
    snapshot = t.snapshot()
    if keyed_of(snapshot.layout) is not None:
        return _of_slices(snapshot, policy, now_ms)
    return _of_chunks(t, snapshot, policy, now_ms, snapshot.layout.granularity)


def _of_chunks(
    t: Table, snapshot: Snapshot, policy: Policy, now_ms: int | None, cut: Granularity
) -> Plan:
    """Return the plan for a table without a key whose new rows are cut by `cut`."""
    known = structs.replace(known_of(snapshot), granularity=cut)
    now = snapshot.header.time if now_ms is None else now_ms
    changed = _changed(t, snapshot, known, policy)
    if changed is None:
        return plan_entries(snapshot.entries(), known, policy, now)
    entries = _read(snapshot, changed, policy)
    since = known.analysed.version if known.analysed else None
    return plan_entries(entries, known, policy, now, since=since)


def better_fit(snapshot: Snapshot, policy: Policy) -> Fit | None:
    """Return which granularity fits a table better than its own; None: its own does.

    It is None, too, if the table has a key or no time column, so that it stays, or if the policy
    names a granularity. All segments are read, unless the table's totals suffice for the answer.

    Args:
        snapshot: the table.
        policy: the settings.
    """
    if keyed_of(snapshot.layout) is not None or snapshot.layout.time_column is None:
        return None
    now, totals = snapshot.layout.granularity, snapshot.totals
    target = setting(snapshot.properties, "segment_bytes")
    coarser = may_be_coarser(totals.segments, totals.bytes, now, target)
    finer = may_be_finer(totals.bytes, now, target)
    if policy.granularity is not None or not (coarser or finer):
        return None
    entries = snapshot.entries()
    summed = entries.group_by(["chunk_start", "chunk_end"]).aggregate([("bytes", "sum")])
    names = ("chunk_start", "chunk_end", "bytes_sum")
    columns = (summed.column(name).to_pylist() for name in names)
    sizes = {TimeChunk(start, end): size for start, end, size in zip(*columns, strict=True)}
    time_column = stored_time_column(snapshot.stored_schema, snapshot.layout)
    finest: Granularity = "day" if time_column and time_column.type == "date" else "hour"
    return fit_of(sizes, now, target, moves=follows_data(snapshot), finest=finest)


def _checked(policy: Policy | None, snapshot: Snapshot) -> Policy:
    """Return the settings, or the defaults.

    Raises:
        InvalidInput: a setting is out of bounds, or no table like this one can have it.
    """
    chosen = (policy or Policy()).check()
    if chosen.granularity is not None and snapshot.layout.time_column is None:
        check_timeless(chosen.granularity)
    return chosen


def _of_slices(snapshot: Snapshot, policy: Policy, now_ms: int | None) -> Plan:
    """Return the plan for a keyed table, which merges its slices."""
    granularity = snapshot.layout.granularity
    runs = _runs(snapshot, to_segments(snapshot.entries()))
    tasks = merges(
        runs,
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
        tasks=tuple(tasks[: policy.max_queue]),
        examined=ExaminedSlices(
            verdicts=tuple(verdicts(runs, policy)), chunks=len({run.chunk for run in runs})
        ),
    )


def examine(
    t: Table, policy: Policy | None = None, *, version: VersionOrName | None = None
) -> ChunkReport | SliceReport:
    """Return the verdicts on all chunks of a version, or on all slices of a keyed table.

    Args:
        t: the table.
        policy: the settings; the defaults if None.
        version: the version to judge at; the newest if None.

    Raises:
        InvalidInput: a setting is out of bounds.
        VersionNotFound: there is no such version.
    """
    snapshot = t.snapshot(version)
    chosen = _checked(policy, snapshot)
    if keyed_of(snapshot.layout) is not None:
        return _slice_report(snapshot, chosen)
    known, entries = known_of(snapshot), snapshot.entries()
    bounds = sorted({chosen.target_bytes // 64, chosen.target_bytes // 8, chosen.good_bytes})
    bounds.append(chosen.target_bytes + 1)
    counts = sizes_by_chunk(entries, bounds, chosen.granularity or known.granularity)
    scored = judged(classified(entries, chosen), known, chosen)
    return ChunkReport(
        version=snapshot.version,
        bounds=tuple(bounds),
        chunks=tuple(ChunkSizes(v, tuple(counts[target.chunk])) for target, v in scored),
        fit=better_fit(snapshot, chosen),
    )


def _slice_report(snapshot: Snapshot, policy: Policy) -> SliceReport:
    live = to_segments(snapshot.entries())
    slices = verdicts(_runs(snapshot, live), policy)
    keyed = keyed_of(snapshot.layout)
    bucket_bytes = setting(snapshot.properties, "bucket_bytes")
    return SliceReport(
        version=snapshot.version,
        slices=tuple(slices),
        wanted_buckets=enough_buckets(slices, keyed.buckets if keyed else 1, bucket_bytes),
        ineffective=tuple(ineffective(live, buckets_split(snapshot.layout))),
    )


def explain(
    t: Table, chunk: str, policy: Policy | None = None, *, version: VersionOrName | None = None
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
    snapshot = t.snapshot(version)
    chosen = _checked(policy, snapshot)
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
    t: Table, chunk: str, policy: Policy | None = None, *, version: VersionOrName | None = None
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
    snapshot = t.snapshot(version)
    chosen = _checked(policy, snapshot)
    if keyed_of(snapshot.layout) is None:
        raise InvalidInput("the table has no key, and so no slices: use `explain`")
    name = text(chunk, "chunk")
    bounds = parse_chunk(name)
    live = to_segments(snapshot.entries(bounds.start, bounds.end))
    of_chunk = [s for s in live if s.chunk == name]
    return tuple(verdicts(_runs(snapshot, of_chunk), chosen))


def renewed(t: Table, task: Task, policy: Policy) -> Task | None:
    """Return a black task with new inputs, after the tasks it waited for; None if needless.

    The inputs are the segments of its chunks that need to be rewritten now, including those that
    the other tasks made. So the task has a new id.
    """
    snapshot = t.snapshot()
    chunks = (parse_chunk(name) for name in task.chunks)
    entries = _read(snapshot, _merged((chunk.start, chunk.end) for chunk in chunks), policy)
    return renewed_entries(task, entries, known_of(snapshot), policy, snapshot.header.time)


def _runs(snapshot: Snapshot, live: Iterable[Segment]) -> list[Run]:
    """Return the runs of buckets of a keyed table, with the segments that count in each.

    Args:
        snapshot: the table.
        live: live segments; all segments of their chunks.

    Raises:
        Corrupt: layout, schema and properties do not fit together, or the place of a segment is
            impossible: no merge may be planned.
    """
    rule = snapshot.merge_rule
    return [] if rule is None else readable_runs(live, rule)


def _changed(
    t: Table, snapshot: Snapshot, known: KnownChunks, policy: Policy
) -> list[Interval] | None:
    """Return the intervals whose chunks must be examined; None for all.

    These are the intervals of chunks that changed since the last analysis or have a record.
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


def _keeps(intervals: Sequence[Interval]) -> Callable[[Piece], bool]:
    return lambda piece: _meets((first_key(piece).start, piece.end), intervals)


def _overlapping(entries: pa.Table, intervals: Sequence[Interval]) -> pa.Table:
    met = [c for c in stored_chunks(entries) if _meets((c.start, c.end), intervals)]
    return entries.filter(in_chunks(entries, met))


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
