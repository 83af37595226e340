"""A table for the planner's tests: segments as values, and tasks performed by arithmetic."""

from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import UNSET, structs

from eventlog.compaction.planner.assessing import Result, noted
from eventlog.compaction.planner.chunk_planning import KnownChunks, plan_entries, renewed_entries
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.format.frames import entry_columns
from eventlog.model.chunks import TimeChunk, chunk_of, parse_chunk
from eventlog.model.entries import Segment, Vector
from eventlog.model.records import Meta
from eventlog.state.small.assessment import assess

TABLE = "7a" * 16
HASH = "ab" * 32


class PlannedTable:
    """Live segments, versions and chunk states of a table without rows.

    Args:
        granularity: the table's granularity.
        shrink: the size of outputs relative to the expected size.
    """

    def __init__(self, granularity="day", *, shrink=1.0):
        self.granularity, self.shrink = granularity, shrink
        self.version, self.made = 0, 0
        self.live: dict[str, Segment] = {}
        self.meta = Meta()

    def add(self, chunk: str, *sizes: int, rows: int = 1000) -> list[Segment]:
        """One commit that adds segments of these sizes."""
        self.version += 1
        return [self._add(chunk, size, rows, n) for n, size in enumerate(sizes)]

    def delete(self, segment: Segment, rows: int) -> Segment:
        """One commit that deletes rows of a live segment; returns its entry."""
        self.version += 1
        now = self.live[segment.id]
        vector = Vector(now.rows - now.live_rows + rows, b"bitmap")
        self.live[segment.id] = structs.replace(now, vector=vector)
        return self.live[segment.id]

    def known(self) -> KnownChunks:
        return KnownChunks(
            table=TABLE,
            version=self.version,
            granularity=self.granularity,
            states=self.meta.chunks,
            analysed=self.meta.analysed,
        )

    def plan(self, policy: Policy, now_ms: int = 0) -> Plan:
        """The plan over everything."""
        entries = entry_columns.from_segments(list(self.live.values()))
        return plan_entries(entries, self.known(), policy.check(), now_ms)

    def finish(self, task: Task, policy: Policy) -> Result:
        """Perform a task: each chunk gets ceil(bytes / target) segments of equal size."""
        if any(self.live.get(s.id) != s for s in task.inputs):
            return Result(task, "superseded")
        held: dict[TimeChunk, list[int]] = {}
        for segment in task.inputs:
            for chunk, size, rows in _pieces(segment, task):
                sums = held.setdefault(chunk, [0, 0])
                sums[0] += size
                sums[1] += rows
        for segment in task.inputs:
            del self.live[segment.id]
        self.version += 1
        made: list[str] = []
        for chunk in sorted(held):
            size, rows = held[chunk]
            count = max(1, min(rows, ceil(size / policy.target_bytes)))
            for part in range(count):
                share = int(self.shrink * (size // count + (part < size % count)))
                rows_here = rows // count + (part < rows % count)
                made.append(self._add(chunk.name, share, rows_here, len(made)).id)
        return Result(task, "done", tuple(made))

    def note(self, results: Sequence[Result], policy: Policy, now_ms: int = 0) -> None:
        """Record the results of a run, as in the log."""
        action = noted(self.plan(policy, now_ms), self.known(), results)
        if action is not None:
            meta = assess(action, self.meta, self.version + 1)
            assert not isinstance(meta, str), meta
            self.version, self.meta = self.version + 1, meta

    def run(self, policy: Policy, now_ms: int = 0) -> list[Result]:
        """Plan, perform all tasks (black ones renewed after the others), and record the results."""
        results = []
        for task in self.plan(policy, now_ms).tasks:
            renewed = self.renewed(task, policy) if task.after else task
            if renewed is not None:
                results.append(self.finish(renewed, policy))
        self.note(results, policy, now_ms)
        return results

    def renewed(self, task: Task, policy: Policy) -> Task | None:
        """As `planning.renewed`: the task with the current segments of its chunks."""
        entries = entry_columns.from_segments(list(self.live.values()))
        return renewed_entries(task, entries, self.known(), policy, 0)

    def rows(self) -> int:
        return sum(segment.live_rows for segment in self.live.values())

    def _add(self, chunk: str, size: int, rows: int, partition: int) -> Segment:
        self.made += 1
        name = f"{self.made:032x}"
        segment = Segment(name, chunk, 0, self.version, partition, rows, size, HASH, 1)
        self.live[name] = segment
        return segment


def _pieces(segment: Segment, task: Task) -> Iterable[tuple[TimeChunk, int, int]]:
    """The chunks that get an input's rows: its own, or evenly the first few that it covers."""
    own = parse_chunk(segment.chunk)
    size = segment.bytes * segment.live_rows // max(1, segment.rows)
    segment = structs.replace(segment, rows=segment.live_rows, bytes=size, vector=UNSET)
    first = chunk_of(own.start, task.granularity)
    if first.end >= own.end:
        yield first, segment.bytes, segment.rows
        return
    inner = [first]
    while len(inner) < min(3, segment.rows) and inner[-1].end < own.end:
        inner.append(chunk_of(inner[-1].end, task.granularity))
    for n, chunk in enumerate(inner):
        size = segment.bytes // len(inner) + (n < segment.bytes % len(inner))
        yield chunk, size, segment.rows // len(inner) + (n < segment.rows % len(inner))
