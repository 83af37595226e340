"""Turns scored chunks into tasks: joined, cut to size, coloured and ordered.

No I/O. Imports eventlog only. The steps follow the compaction notes for Druid: make candidate tasks
from chunks; join a small one to the one before, cut large ones; colour a task black if it depends
on another task's output.

- Without a granularity in the policy every chunk is separate, and all tasks are red.
- With one, a coarser segment and the chunks that it covers are one candidate. Above the size limit
  of a task the coarser segments become red tasks and the chunks below them black ones, because the
  red tasks make segments in those chunks.
- A single chunk above the limit is cut into several red tasks: runs of its segments in (version,
  partition) order, each ending where its outputs are full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.compaction.planner.scoring import ChunkVerdict, aged, worth
from eventlog.compaction.planner.spans import LARGE, SPARSE, TargetChunk, groups, is_odd
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, task_id
from eventlog.format.frames.entry_columns import to_segments
from eventlog.model.chunks import TimeChunk, home, parse_chunk
from eventlog.model.entries import Granularity
from eventlog.quantities import count_text

# The most segments that one task replaces: its commit names each segment, and all claims together
# may name at most 10,000.
MAX_INPUTS = 2000

Scored = tuple[TargetChunk, ChunkVerdict]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The segments that a plan may rewrite, as columns, with the rows of each chunk."""

    entries: pa.Table
    ids: list[str]
    sizes: list[int]
    large: list[bool]
    sparse: list[bool]
    rows: Mapping[TimeChunk, list[int]]


@dataclass(slots=True)
class Draft:
    """A task in preparation: its scored chunks, and the rows of `Inputs` that it replaces.

    Attributes:
        scored: its chunks with their verdicts, in time order.
        granularity: granularity of the segments that it makes.
        rows: row numbers in `Inputs`, ascending.
        bytes: total size of the segments that it replaces.
        alone: whether it is never joined with another, because it failed before.
        part: (number, count) of this part, if a chunk was cut.
        after: the drafts that must end first.
    """

    scored: list[Scored]
    granularity: Granularity
    rows: list[int]
    bytes: int
    alone: bool = False
    part: tuple[int, int] = (1, 1)
    after: list[Draft] = field(default_factory=list)
    id: str = ""
    priority: float = 0.0

    @property
    def waiting_since(self) -> int:
        """The version of the last change of its longest waiting chunk."""
        compact = [verdict.newest for _, verdict in self.scored if verdict.act == "compact"]
        return min(compact or [verdict.newest for _, verdict in self.scored])

    @property
    def chunks(self) -> tuple[str, ...]:
        """The names of its chunks."""
        return tuple(verdict.chunk for _, verdict in self.scored)


def inputs_of(
    entries: pa.Table, scored: Iterable[Scored], policy: Policy, granularity: Granularity
) -> Inputs:
    """Return the segments that tasks of these chunks may replace, in the order of `Task.inputs`.

    Args:
        entries: `classified` live entries.
        scored: the chunks that are compacted or included with their group.
        policy: the settings.
        granularity: the target granularity.
    """
    wanted = {target.chunk: target for target, _ in scored}
    homes = {own: home(own, granularity) for own in stored_chunks(entries)}
    homes = {own: belongs for own, belongs in homes.items() if belongs in wanted}
    # All segments of a chunk with another granularity than the policy's; else those that are odd.
    all_of = [
        own
        for own, belongs in homes.items()
        if policy.granularity is not None and (own != belongs or wanted[belongs].coarser)
    ]
    here = pc.and_(in_chunks(entries, homes), is_odd(entries))
    taken = pc.or_(in_chunks(entries, all_of), here)
    order = [(name, "ascending") for name in ("chunk_start", "chunk_end", "version", "partition")]
    kept = entries.filter(taken).sort_by(order)
    rows: dict[TimeChunk, list[int]] = {chunk: [] for chunk in wanted}
    starts, ends = (kept.column(n).to_pylist() for n in ("chunk_start", "chunk_end"))
    for row, own in enumerate(zip(starts, ends, strict=True)):
        rows[homes[TimeChunk(*own)]].append(row)
    ids = [value.hex() for value in kept.column("id").to_pylist()]
    sizes, large = kept.column("bytes").to_pylist(), kept.column(LARGE).to_pylist()
    for target, verdict in scored:
        if verdict.left:  # exactly one segment has this size: the others are much smaller
            rows[target.chunk] = [r for r in rows[target.chunk] if sizes[r] != verdict.left]
    return Inputs(kept, ids, sizes, large, kept.column(SPARSE).to_pylist(), rows)


def bound(chunks: Sequence[Scored], policy: Policy) -> Iterator[list[Scored]]:
    """Yield the groups of chunks that one rewrite must take together; most have one chunk."""
    if policy.granularity is None:
        yield from ([scored] for scored in chunks)
        return
    verdicts = {target.chunk: verdict for target, verdict in chunks}
    for group in groups([target for target, _ in chunks]):
        yield [(target, verdicts[target.chunk]) for target in group]


def drafts(
    chunks: Sequence[Scored], inputs: Inputs, policy: Policy, granularity: Granularity
) -> list[Draft]:
    """Return drafts that rewrite these chunks, in time order, without ids and priorities.

    Args:
        chunks: the chunks to compact, and those that are included if their group is cut.
        inputs: their segments.
        policy: the settings.
        granularity: the target granularity.
    """
    results: list[Draft] = []
    last: dict[Granularity, Draft] = {}  # to which the next neighbour may be joined
    for group in bound(chunks, policy):
        coarse = [(t, v) for t, v in group if t.coarser and policy.granularity is not None]
        made = granularity if coarse else group[0][0].chunk.granularity
        draft = _draft(group, made, _rows(group, inputs), inputs)
        if not draft.rows:
            continue
        if _fits(draft, policy):
            if made in last and _joins(last[made], draft, policy):
                _join(last[made], draft)
            else:
                results.append(draft)
                last[made] = draft
            continue
        if coarse:
            coarse_draft = _draft(coarse, made, _rows(coarse, inputs), inputs)
            red = _in_parts(coarse_draft, _runs(coarse_draft.rows, inputs, policy), inputs)
            rest = drafts([s for s in group if not s[0].coarser], inputs, policy, granularity)
            for black in rest:
                black.after = [r for r in red if _covers(r, black)]
            results += [*red, *rest]
        else:
            results += _cut_chunk(draft, inputs, policy)
        last.pop(made, None)
    return results


def finished(
    unfinished: Iterable[Draft],
    inputs: Inputs,
    policy: Policy,
    *,
    table: str,
    version: int,
    now_ms: int,
) -> list[Draft]:
    """Return the drafts with ids and priorities, in the order in which they should run."""
    named = list(zip(inputs.ids, inputs.entries.column("version").to_pylist(), strict=True))
    for draft in unfinished:
        draft.id = task_id(table, draft.granularity, (named[row] for row in draft.rows))
        base = _urgency(draft, policy, now_ms)
        draft.priority = aged(base, version - draft.waiting_since, policy)
        # Never above the drafts that it waits for, which precede it in the list.
        draft.priority = min([draft.priority, *(other.priority for other in draft.after)])
    return sorted(
        unfinished,
        key=lambda d: (-d.priority, bool(d.after), d.waiting_since, d.scored[0][0].chunk, d.id),
    )


def task_of(draft: Draft, inputs: Inputs, version: int) -> Task:
    """Return the task of a finished draft."""
    return Task(
        id=draft.id,
        version=version,
        granularity=draft.granularity,
        chunks=draft.chunks,
        inputs=tuple(to_segments(inputs.entries.take(draft.rows))),
        priority=round(draft.priority, 6),
        reason=_reason(draft, version),
        after=tuple(sorted(other.id for other in draft.after)),
    )


def expected_outputs(task: Task, policy: Policy) -> tuple[int, bool]:
    """Return how many segments a task makes; and False if it may be more, from coarser inputs."""
    sizes: dict[TimeChunk, int] = {}
    for segment in task.inputs:
        chunk = home(parse_chunk(segment.chunk), task.granularity)
        live = max(1, segment.bytes * segment.live_rows // max(1, segment.rows))
        sizes[chunk] = sizes.get(chunk, 0) + live
    least = sum(-(-size // policy.target_bytes) for size in sizes.values())
    return least, all(chunk.granularity == task.granularity for chunk in sizes)


def stored_chunks(entries: pa.Table) -> list[TimeChunk]:
    """Return the distinct time chunks of entries."""
    grouped = entries.group_by(["chunk_start", "chunk_end"]).aggregate([])
    pairs = (grouped.column(name).to_pylist() for name in ("chunk_start", "chunk_end"))
    return [TimeChunk(start, end) for start, end in zip(*pairs, strict=True)]


def in_chunks(entries: pa.Table, chunks: Iterable[TimeChunk]) -> pa.ChunkedArray:
    """Return, for each entry, whether its own chunk is one of these."""
    by_width: dict[int, list[int]] = {}
    for chunk in chunks:
        by_width.setdefault(chunk.end - chunk.start, []).append(chunk.start)
    start = entries.column("chunk_start")
    width = pc.subtract(entries.column("chunk_end"), start)
    mask = pc.equal(width, -1)  # none
    for wide, starts in by_width.items():
        matches = pc.and_(pc.equal(width, wide), pc.is_in(start, pa.array(starts, pa.int64())))
        mask = pc.or_(mask, matches)
    return mask


def _draft(
    scored: Sequence[Scored], granularity: Granularity, rows: list[int], inputs: Inputs
) -> Draft:
    failed = any(v.state is not None and v.state.failures > 0 for _, v in scored)
    size = sum(inputs.sizes[row] for row in rows)
    return Draft(list(scored), granularity, sorted(rows), size, alone=failed)


def _rows(scored: Iterable[Scored], inputs: Inputs) -> list[int]:
    return [row for target, _ in scored for row in inputs.rows[target.chunk]]


def _fits(draft: Draft, policy: Policy) -> bool:
    return draft.bytes <= policy.max_task_bytes and len(draft.rows) <= MAX_INPUTS


def _joins(before: Draft, draft: Draft, policy: Policy) -> bool:
    """Return whether two neighbours are small and fit into one task."""
    return (
        max(before.bytes, draft.bytes) < policy.small_task_bytes
        and before.bytes + draft.bytes <= policy.max_task_bytes
        and len(before.rows) + len(draft.rows) <= MAX_INPUTS
        and not (before.alone or draft.alone)
    )


def _join(before: Draft, draft: Draft) -> None:
    before.scored += draft.scored
    before.rows = sorted(before.rows + draft.rows)
    before.bytes += draft.bytes


def _covers(red: Draft, black: Draft) -> bool:
    first, last = black.scored[0][0].chunk, black.scored[-1][0].chunk
    return any(target.chunk.overlaps(first.start, last.end) for target, _ in red.scored)


def _cut_chunk(draft: Draft, inputs: Inputs, policy: Policy) -> list[Draft]:
    """Cut the draft of one chunk into several.

    Large and small segments are separated, so that the small ones are merged into as few as
    possible. A single small segment left over is kept as it is, unless it is sparse.
    """
    foreign = draft.scored[0][1].rule == "granularity"
    large = [row for row in draft.rows if inputs.large[row]]
    small = [row for row in draft.rows if not inputs.large[row]]
    runs = _runs(large, inputs, policy)
    small_runs = _runs(small, inputs, policy)
    runs += [r for r in small_runs if foreign or len(r) > 1 or inputs.sparse[r[0]]]
    return _in_parts(draft, runs, inputs)


def _in_parts(draft: Draft, runs: Sequence[list[int]], inputs: Inputs) -> list[Draft]:
    """Return a draft for each run, with the chunks whose segments it takes."""
    owner = {row: scored for scored in draft.scored for row in inputs.rows[scored[0].chunk]}
    parts = []
    for number, rows in enumerate(runs, 1):
        scored = list({id(owner[row]): owner[row] for row in rows}.values())
        parts.append(_draft(scored, draft.granularity, rows, inputs))
        parts[-1].part = (number, len(runs))
    return parts


def _runs(rows: Sequence[int], inputs: Inputs, policy: Policy) -> list[list[int]]:
    """Return the rows in runs, each at most the size of a task, or a single larger segment.

    Among the ends within one target size below the limit it picks the one whose outputs are
    fullest: they are then good, and no later plan rewrites them.
    """
    runs, start = [], 0
    while start < len(rows):
        totals = list[int]()
        for row in rows[start : start + MAX_INPUTS]:
            total = inputs.sizes[row] + (totals[-1] if totals else 0)
            if totals and total > policy.max_task_bytes:
                break
            totals.append(total)
        count = len(totals)
        if start + count < len(rows):
            least = totals[-1] - policy.target_bytes
            ends = [(_fullness(t, policy), n) for n, t in enumerate(totals, 1) if t > least]
            count = max(ends)[1]
        runs.append(list(rows[start : start + count]))
        start += count
    return runs


def _fullness(total: int, policy: Policy) -> float:
    """Return how full the fewest segments for `total` bytes are, 0 to 1."""
    return total / (max(1, -(-total // policy.target_bytes)) * policy.target_bytes)


def _urgency(draft: Draft, policy: Policy, now_ms: int) -> float:
    """Return the priority of a draft, 0 to 1, before ageing."""
    if policy.order == "newest":
        last = draft.scored[-1][0].chunk
        width = last.end - last.start
        return width / (width + max(0, now_ms - last.end))
    saved = sum(verdict.saved for _, verdict in draft.scored)
    return worth(saved, _cost(draft), sum(verdict.freed for _, verdict in draft.scored))


def _cost(draft: Draft) -> int:
    """Return the cost of rewriting all its chunks; for a part, that of the whole chunk."""
    return max(draft.bytes, sum(verdict.input_bytes for _, verdict in draft.scored))


def _reason(draft: Draft, version: int) -> str:
    verdicts = [verdict for _, verdict in draft.scored]
    if len(verdicts) == 1:
        text = f"{verdicts[0].rule}: {verdicts[0].sentence}"
    else:
        rules: Counter[str] = Counter(verdict.rule for verdict in verdicts)
        counts = ", ".join(f"{rule} {number:,}" for rule, number in sorted(rules.items()))
        more = " or more" if "granularity" in rules else ""
        text = (
            f"{count_text(len(verdicts), 'chunk')} ({counts}): rewriting "
            f"{count_text(len(draft.rows), 'segment')} into "
            f"{sum(v.outputs for v in verdicts):,}{more} saves queries "
            f"{sum(v.saved for v in verdicts):,}"
        )
    number, of = draft.part
    if of > 1:
        text += f"; part {number} of {of}, {count_text(len(draft.rows), 'segment')}"
    age = version - draft.waiting_since
    return f"{text}; waiting for {count_text(age, 'version')}" if age else text
