"""Plans which chunks to compact, from live entries and the recorded states of chunks.

No I/O: the same entries and states always give the same plan. `planning` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from eventlog import Snapshot
from eventlog.compaction.planner.candidates import (
    Draft,
    Scored,
    bound,
    drafts,
    finished,
    inputs_of,
    task_of,
)
from eventlog.compaction.planner.plans import ExaminedChunks, Plan, Skipped, Why
from eventlog.compaction.planner.scoring import ChunkVerdict, score
from eventlog.compaction.planner.spans import (
    classified,
    empty_between,
    spans,
    sums_by_chunk,
    target_chunks,
)
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.model.entries import Analysed, ChunkState, Granularity
from eventlog.state.small.assessment import is_current


class KnownChunks(Struct, frozen=True, kw_only=True):
    """The inputs of a plan besides the table's segments.

    Attributes:
        table: the table's id.
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


def known_of(snapshot: Snapshot) -> KnownChunks:
    """Return the inputs of a plan, besides the segments, from a snapshot."""
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
        since: see `ExaminedChunks.since`.
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
    examined = ExaminedChunks(
        since=since,
        verdicts=tuple(verdict for _, verdict in scored),
        spans=len(runs),
        empty=empty_between(runs, granularity),
        skipped=tuple(skipped),
    )
    return Plan(
        table=known.table,
        version=known.version,
        time=now_ms,
        granularity=granularity,
        policy=policy,
        tasks=tuple(tasks),
        examined=examined,
    )


def renewed_entries(
    task: Task, entries: pa.Table, known: KnownChunks, policy: Policy, now_ms: int
) -> Task | None:
    """Return the same as `planning.renewed`, from the live entries of the task's chunks."""
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
