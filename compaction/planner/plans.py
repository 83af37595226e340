"""Plans of compaction, and what the planner examined for them.

No I/O. A plan of a keyed table merges slices; one of any other table rewrites chunks.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from eventlog.compaction.planner.scoring import ChunkVerdict
from eventlog.compaction.planner.slice_planning import SliceVerdict
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, chunks_text
from eventlog.display import Described, Description
from eventlog.model.entries import Granularity, Segment
from eventlog.quantities import count_text, size_text
from eventlog.staging.fitting import Fit

_SHOWN_TASKS = 10

Why = Literal["back-off", "deferred", "shed"]


class Skipped(Struct, frozen=True):
    """A chunk that needs compaction but gets no task now.

    Attributes:
        chunk: the chunk's name.
        why: `back-off`: its task failed recently; `deferred`: it was shed before and the queue is
            still full; `shed`: the queue is full.
        until: end of a back-off in ms UTC; else 0.
    """

    chunk: str
    why: Why
    until: int = 0


class ExaminedChunks(Struct, frozen=True, kw_only=True):
    """The chunks that a plan examined.

    Attributes:
        since: chunks unchanged since this version, which needed nothing then, were not examined;
            None if all were examined.
        verdicts: for every examined chunk with segments, by start, the coarser first.
        spans: number of runs of adjacent or overlapping chunks among them.
        empty: number of chunks without segments in the gaps between those runs.
        skipped: chunks that need compaction but are in no task.
    """

    since: int | None
    verdicts: tuple[ChunkVerdict, ...]
    spans: int
    empty: int
    skipped: tuple[Skipped, ...]


class ExaminedSlices(Struct, frozen=True, kw_only=True):
    """The slices of a keyed table that a plan examined.

    Attributes:
        verdicts: for every run of slices, by chunk and bucket.
        chunks: number of chunks that they belong to.
    """

    verdicts: tuple[SliceVerdict, ...]
    chunks: int


class Plan(Described, Struct, frozen=True, kw_only=True):
    """What to compact at one version.

    Attributes:
        table: the table's id.
        version: the version.
        time: the time by which back-off was judged, in ms UTC.
        granularity: the target granularity.
        policy: the settings.
        tasks: the tasks in the order to run, at most `policy.max_queue`.
        examined: the chunks, or the slices, that were examined.
        fit: if the table's granularity follows its data, and another one fits better, that one. The
            tasks are those that it needs.
    """

    table: str
    version: int
    time: int
    granularity: Granularity
    policy: Policy
    tasks: tuple[Task, ...]
    examined: ExaminedChunks | ExaminedSlices
    fit: Fit | None = None

    @property
    def verdicts(self) -> tuple[ChunkVerdict, ...]:
        """The verdicts on the examined chunks; none for a keyed table."""
        return self._chunks.verdicts

    @property
    def slices(self) -> tuple[SliceVerdict, ...]:
        """The verdicts on the examined slices; none unless the table is keyed."""
        return self.examined.verdicts if isinstance(self.examined, ExaminedSlices) else ()

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The chunks that need compaction but are in no task."""
        return self._chunks.skipped

    @property
    def since(self) -> int | None:
        """The version since which changes were examined; None if everything was."""
        return self._chunks.since

    @property
    def spans(self) -> int:
        """The number of runs of adjacent or overlapping chunks; of a keyed table, of chunks."""
        return self._chunks.spans

    @property
    def empty(self) -> int:
        """The number of chunks without segments in the gaps between those runs."""
        return self._chunks.empty

    def _described(self) -> Description:
        size, count = sum(task.bytes for task in self.tasks), len(self.tasks)
        inputs = sum(len(task.inputs) for task in self.tasks)
        facts = [
            ("tasks", f"{count:,}, of {count_text(inputs, 'segment')} and {size_text(size)}"),
            ("examined", f"{len(self.examined.verdicts):,} {self._kind}"),
        ]
        if self.skipped:
            facts.append(("skipped", count_text(len(self.skipped), "chunk")))
        rows = [
            (chunks_text(task.chunks), f"{len(task.inputs):,}", size_text(task.bytes), task.reason)
            for task in self.tasks[:_SHOWN_TASKS]
        ]
        header = ("chunks", "segments", "size", "reason") if rows else ()
        more = count - len(rows)
        left_out = f"… {more} more of {count} tasks, in .tasks" if more else ""
        title = f"Plan of compaction of version {self.version}, to {self.granularity} chunks"
        return Description(title, facts, header, rows, frozenset((1, 2)), left_out)

    @property
    def _kind(self) -> str:
        return "slices" if isinstance(self.examined, ExaminedSlices) else "chunks"

    @property
    def _chunks(self) -> ExaminedChunks:
        if isinstance(self.examined, ExaminedChunks):
            return self.examined
        return ExaminedChunks(
            since=None, verdicts=(), spans=self.examined.chunks, empty=0, skipped=()
        )


class ChunkSizes(Struct, frozen=True):
    """The verdict on a chunk, and how large its segments are.

    Attributes:
        verdict: the verdict on the chunk.
        counts: numbers of the chunk's segments, by the bounds of the report: below the first bound,
            from the first to the second, and so on, and from the last on.
    """

    verdict: ChunkVerdict
    counts: tuple[int, ...]


class ChunkReport(Struct, frozen=True, kw_only=True):
    """All chunks of a version as compaction sees them.

    Attributes:
        version: the version.
        bounds: sizes in bytes by which segments are counted, ascending. A segment is good from the
            last but one on, and too large from the last one on.
        chunks: the chunks, by start, the coarser first.
        fit: a granularity that fits better than the table's, if one does.
    """

    version: int
    bounds: tuple[int, ...]
    chunks: tuple[ChunkSizes, ...]
    fit: Fit | None = None


class SliceReport(Struct, frozen=True, kw_only=True):
    """All slices of a version of a keyed table as compaction sees them.

    Attributes:
        version: the version.
        slices: the verdicts, by chunk and bucket.
        wanted_buckets: the number of buckets into which the table should be split; None if its
            buckets are not large.
        ineffective: segments that are effective in no slice; the next merge of a chunk drops them.
    """

    version: int
    slices: tuple[SliceVerdict, ...]
    wanted_buckets: int | None
    ineffective: tuple[Segment, ...]
