"""Records the state of chunks in the log after a plan was run, so that the next plan costs less.

Imports eventlog only. `noted` does no I/O: it makes one action from a plan after the tasks ended
and their results; `record` commits it. It is an optimization: if another analysis is committed
first, this one is dropped.

- A chunk whose task failed is unstable and rests, twice as long after each further failure.
- A chunk that got no task because the queue was full is deferred.
- A chunk that tasks have just rewritten, to which nothing was added since, and that still needs
  compaction by its sizes, is stable: another rewrite would give the same result (fixed point).
- All other chunks that need compaction are unstable, so that the next plan finds them without
  examining the whole table. Stable ones need no record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from eventlog import Table
from eventlog.compaction.planner.chunk_planning import KnownChunks, known_of
from eventlog.compaction.planner.planning import plan_as_cut
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.planner.scoring import ChunkVerdict
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import CommitConflict
from eventlog.keyed.rule import keyed_of
from eventlog.model.actions import Assess, ChunkChange
from eventlog.model.chunks import home, parse_chunk
from eventlog.model.entries import GRANULARITIES, Analysed, ChunkState, Granularity, Segment
from eventlog.state.small.assessment import MAX_STATES, is_current

# An analysis without news is recorded anyway after this many versions: the next plan reads the
# difference since the last one, which grows with every commit.
REFRESH = 100

End = Literal["done", "superseded", "failed", "shed"]

logger = logging.getLogger(__name__)


class Result(Struct, frozen=True):
    """How a task ended.

    Attributes:
        task: the task.
        end: `done`; `superseded`: others changed its inputs; `failed`; `shed`: cancelled under
            load.
        made: ids of the segments that this attempt added; empty if another attempt did the work.
    """

    task: Task
    end: End
    made: tuple[str, ...] = ()


def record(
    t: Table, policy: Policy, results: Sequence[Result] = (), *, now_ms: int | None = None
) -> int | None:
    """Record the current state of the chunks in the log, and return the version that contains it.

    Returns None if there is nothing new to record, or another analysis was recorded meanwhile.

    Args:
        t: the table.
        policy: the settings of the tasks.
        results: how each task ended.
        now_ms: the time in ms UTC; the table's clock if None.
    """
    if keyed_of(t.session.head().layout) is not None:
        return None  # slices are planned from their segments alone
    now = t.clock.now_ms() if now_ms is None else now_ms
    after = plan_as_cut(t, policy, now_ms=now)
    known = known_of(t.snapshot(after.version))
    action = noted(after, known, results)
    if action is None:
        return None
    try:
        return t.commit(t.transaction("assess", [action], read_version=after.version))
    except CommitConflict as conflict:
        logger.info("the analysis of version %d is not recorded: %s", after.version, conflict)
        return None


def noted(after: Plan, known: KnownChunks, results: Sequence[Result] = ()) -> Assess | None:
    """Return the action that records the analysis, or None if the log has it already.

    Args:
        after: a plan made after the tasks ended, at the time from which back-off counts.
        known: the table's state used by that plan.
        results: how each task ended.
    """
    digest = after.policy.digest(known.granularity)
    states = states_after(after, known, results)
    version = after.version
    if len(states) > MAX_STATES:
        # Chunks left out must not count as stable: with version 0 the next plan examines all of
        # them.
        states, version = _foremost(states, after), 0  # against notes-left-out-taken-for-stable
    changes = tuple(
        ChunkChange(name, states.get(name))
        for name in sorted(known.states.keys() | states.keys())
        if states.get(name) != known.states.get(name)
    )
    old = known.analysed
    recent = old is not None and old.policy == digest and version < old.version + REFRESH
    if recent and not changes:
        return None
    return Assess(old, Analysed(version, digest), changes)


def states_after(
    after: Plan, known: KnownChunks, results: Sequence[Result] = ()
) -> dict[str, ChunkState]:
    """Return every chunk state to record, by name, without a limit. See `noted`."""
    by_chunk: dict[str, list[Result]] = {}
    for result in results:
        for name in result.task.chunks:
            by_chunk.setdefault(name, []).append(result)
    needed = _inputs_by_chunk((task.inputs for task in after.tasks), after.granularity)
    deferred = {skipped.chunk for skipped in after.skipped if skipped.why != "back-off"}
    states: dict[str, ChunkState] = {}
    for verdict in after.verdicts:
        name = verdict.chunk
        state = _state(
            verdict,
            known.states.get(name),
            [result for chunk in _holding(name) for result in by_chunk.get(chunk, [])],
            needed.get(name, []),
            after=after,
            deferred=name in deferred,
        )
        if state is not None:
            states[name] = state
    return states


def _state(
    verdict: ChunkVerdict,
    old: ChunkState | None,
    ended: Sequence[Result],
    needed: Sequence[Segment],
    *,
    after: Plan,
    deferred: bool,
) -> ChunkState | None:
    if verdict.act != "compact":
        is_kept = verdict.rule == "rewritten" or _is_kept(verdict, old)
        return old if is_kept else None
    base = ChunkState("unstable", verdict.newest, verdict.segments)
    if old is not None and not any(result.end == "done" for result in ended):
        base = structs.replace(base, failures=old.failures, until=old.until)
    if any(result.end == "failed" for result in ended):
        failures = (old.failures if old is not None else 0) + 1  # against failures-not-counted
        until = after.time + after.policy.backoff_ms(failures)
        return structs.replace(base, failures=failures, until=until)
    if not deferred and _is_fixed(verdict, ended, needed):  # against fixed-point-not-noted
        return structs.replace(base, state="stable")
    if deferred or any(result.end == "shed" for result in ended):
        return structs.replace(base, state="deferred")
    return base


def _is_kept(verdict: ChunkVerdict, old: ChunkState | None) -> bool:
    """Return whether a chunk under a coarser segment keeps its record as stable."""
    noted_stable = old is not None and old.state == "stable" and verdict.rule == "overlap"
    return noted_stable and old is not None and is_current(old, verdict.newest, verdict.segments)


def _is_fixed(verdict: ChunkVerdict, ended: Sequence[Result], needed: Sequence[Segment]) -> bool:
    """Return whether another rewrite would only repeat the tasks.

    That is the case if nothing was added since they were planned, unless the chunk was cut into
    several tasks and another round would more than halve the number of segments.
    """
    if not needed or any(result.end != "done" for result in ended):
        return False
    # against deletes-meanwhile-taken-for-rewritten
    if verdict.sparse:
        return False
    made = {name for result in ended for name in result.made}
    # Segments that no task of this run made may still gain: rows added meanwhile, perhaps in the
    # same commit as a task, and inputs of tasks that were not performed.
    if any(s.id not in made for s in needed):  # against arrival-taken-for-rewritten
        return False
    return bool(made) and (len(ended) == 1 or 2 * verdict.outputs >= verdict.inputs)


def _holding(name: str) -> list[str]:
    """Return the names of a chunk and of all chunks that contain it: a task may have cut those."""
    chunk = parse_chunk(name)
    return list(dict.fromkeys(home(chunk, granularity).name for granularity in GRANULARITIES))


def _inputs_by_chunk(
    inputs: Iterable[Iterable[Segment]], granularity: Granularity
) -> dict[str, list[Segment]]:
    by_chunk: dict[str, list[Segment]] = {}
    for segments in inputs:
        for segment in segments:
            name = home(parse_chunk(segment.chunk), granularity).name
            by_chunk.setdefault(name, []).append(segment)
    return by_chunk


def _foremost(states: Mapping[str, ChunkState], after: Plan) -> dict[str, ChunkState]:
    """Return as many states as the log allows: the resting, then the stable, then the urgent."""
    priorities = {verdict.chunk: verdict.priority for verdict in after.verdicts}

    def rank(name: str) -> tuple[bool, bool, float, str]:
        state = states[name]
        return (not state.failures, state.state != "stable", -priorities.get(name, 0.0), name)

    return {name: states[name] for name in sorted(states, key=rank)[:MAX_STATES]}
