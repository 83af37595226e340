"""Simulates and plots a day in which rows arrive faster than they can be compacted.

The planner, the queue and the chunk states in the log are the real ones. Segments are only entries,
the duration of a task follows from its bytes, and randomness is seeded: the same load gives the
same day. Plotting needs the extra `plot`.

    python tests/bench/queue_load.py --out docs/guides/queue.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from eventlog.clock import ManualClock
from eventlog.compaction.planner.assessing import Result, noted
from eventlog.compaction.planner.chunk_planning import KnownChunks, plan_entries
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.planner.queueing import Queue
from eventlog.compaction.planner.scoring import aged
from eventlog.compaction.policy import MIB, Policy
from eventlog.compaction.tasks import Task
from eventlog.format.frames import entry_columns
from eventlog.model.chunks import DAY_MS, chunk_of
from eventlog.model.entries import Segment
from eventlog.model.records import Meta
from eventlog.state.small.assessment import assess

HOUR_MIN = 60
MINUTE_MS = 60_000
POLICY = Policy(max_tasks=3, max_queue=60, small_task_bytes=0, ageing_versions=20_000)


@dataclass(frozen=True, slots=True)
class Load:
    """The load: uploads of small segments, each to one day of the past.

    Attributes:
        hours: duration of the simulation.
        busy: first and last hour of the overload.
        uploads: uploads per minute, outside the overload and within it.
        last: the hour after which there are no more uploads.
        chunks: number of days that uploads are spread over.
        task_minutes: minimum duration of a task.
        rate: bytes that a task rewrites per minute.
        every: minutes between plans.
        seed: of the random source.
    """

    hours: int = 24
    busy: tuple[int, int] = (6, 14)
    uploads: tuple[float, float] = (0.3, 2.5)
    last: int = 22
    chunks: int = 400
    task_minutes: int = 2
    rate: int = 128 * MIB
    every: int = 5
    seed: int = 1


@dataclass(slots=True)
class Trace:
    """The course of a simulation; the lists of int have one item per minute.

    Attributes:
        waiting, running: number of tasks.
        deferred: number of chunks in the state `deferred`.
        uploads, ended: number of uploads and of completed tasks so far.
        launched: (minute, priority) of each task.
        shed: (minute, priority of a shed task, least priority in the queue).
        left: number of tasks in a plan at the end.
    """

    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    launched: list[tuple[int, float]] = field(default_factory=list)
    shed: list[tuple[int, float, float]] = field(default_factory=list)
    left: int = 0


def simulate(policy: Policy = POLICY, load: Load | None = None) -> Trace:
    """Simulate a load and return its trace."""
    load = load or Load()
    world, trace = _World(policy.check(), load), Trace()
    for minute in range(load.hours * HOUR_MIN):
        world.arrive(minute)
        world.end(minute)
        if minute % load.every == 0:
            trace.shed += world.plan(minute)
        trace.launched += world.launch(minute)
        trace.waiting.append(len(world.queue))
        trace.running.append(len(world.queue.running))
        trace.deferred.append(sum(s.state == "deferred" for s in world.meta.chunks.values()))
        trace.uploads.append(world.uploads)
        trace.ended.append(world.ended)
    trace.left = len(world.planned(load.hours * HOUR_MIN).tasks)
    return trace


class _World:
    """The simulated table: live segments, small state, and the running tasks by end."""

    def __init__(self, policy: Policy, load: Load) -> None:
        self.policy, self.load = policy, load
        self.clock = ManualClock(0, load.seed)
        self.queue = Queue(policy)
        self.live: dict[str, Segment] = {}
        self.until: dict[str, tuple[int, Task]] = {}
        self.results: list[Result] = []
        self.meta = Meta()
        self.version = self.uploads = self.ended = 0
        self.owed = 0.0  # fraction of an upload that is carried over to the next minute

    def arrive(self, minute: int) -> None:
        """Commit the uploads of a minute, each 2 to 9 segments of 1 to 24 MiB for one day."""
        start, end = self.load.busy
        hour = minute // HOUR_MIN
        self.owed += self.load.uploads[start <= hour < end] if hour < self.load.last else 0.0
        while self.owed >= 1:
            self.owed -= 1
            self.uploads += 1
            self.version += 1
            day = int(self.clock.random_fraction() * self.load.chunks)
            for _ in range(2 + int(self.clock.random_fraction() * 8)):
                self._add(
                    chunk_of(day * DAY_MS, "day").name, 1 + int(self.clock.random_fraction() * 24)
                )

    def end(self, minute: int) -> None:
        """Commit the tasks that end in a minute."""
        for task_id, (until, task) in list(self.until.items()):
            if until > minute:
                continue
            del self.until[task_id]
            self.queue.complete(task_id)
            self.version += 1
            self.ended += 1
            for segment in task.inputs:
                del self.live[segment.id]
            size = ceil(task.bytes / MIB)
            outputs = ceil(task.bytes / self.policy.target_bytes)
            made = [
                self._add(task.chunks[0], size // outputs + (part < size % outputs))
                for part in range(outputs)
            ]
            self.results.append(Result(task, "done", tuple(made)))

    def plan(self, minute: int) -> list[tuple[int, float, float]]:
        """Plan, offer the tasks to the queue, record the chunk states; return the shed tasks."""
        plan = self.planned(minute)
        shed = self.queue.offer(plan.tasks)
        urgency = {
            v.chunk: aged(v.priority, self.version - v.newest, self.policy) for v in plan.verdicts
        }
        kept = min((task.priority for task in self.queue.waiting), default=0.0)
        lost = [task.priority for task in shed]
        lost += [urgency[skipped.chunk] for skipped in plan.skipped if skipped.why == "shed"]
        results = [*self.results, *(Result(task, "shed") for task in shed)]
        action = noted(plan, self._known(), results)
        self.results = []
        if action is not None:
            self.version += 1
            meta = assess(action, self.meta, self.version)
            self.meta = self.meta if isinstance(meta, str) else meta
        return [(minute, priority, kept) for priority in lost]

    def planned(self, minute: int) -> Plan:
        """Return the plan for all live segments."""
        live = list(self.live.values())
        entries = entry_columns.from_segments(live, [0] * len(live))  # the hashes are not used
        # Plans include running tasks, which the queue ignores: leave room, so the queue sheds.
        wide = replace(self.policy, max_queue=self.policy.max_queue + self.policy.max_tasks)
        return plan_entries(entries, self._known(), wide, minute * MINUTE_MS)

    def launch(self, minute: int) -> list[tuple[int, float]]:
        """Start the tasks that the queue releases."""
        launched = self.queue.launch()
        for task in launched:
            minutes = self.load.task_minutes + ceil(task.bytes / self.load.rate)
            self.until[task.id] = (minute + minutes, task)
        return [(minute, task.priority) for task in launched]

    def _known(self) -> KnownChunks:
        return KnownChunks(
            table="0" * 32,
            version=self.version,
            granularity="day",
            states=self.meta.chunks,
            analysed=self.meta.analysed,
        )

    def _add(self, chunk: str, mib: int) -> str:
        name = self.clock.random_id()
        self.live[name] = Segment(
            id=name,
            chunk=chunk,
            epoch=0,
            version=self.version,
            partition=len(self.live),
            rows=1000 * mib,
            bytes=mib * MIB,
            checksum="0" * 64,
            schema=1,
        )
        return name


def draw(trace: Trace, policy: Policy, load: Load, path: Path) -> None:
    """Write a plot of a trace as PNG.

    Raises:
        ModuleNotFoundError: the extra `plot` is not installed.
    """
    import matplotlib as mpl  # noqa: PLC0415 - the extra `plot` is needed only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - likewise, and only once Agg is chosen

    figure, (top, middle, bottom) = plt.subplots(
        3, 1, figsize=(9, 8.5), sharex=True, height_ratios=(3, 2, 2), layout="constrained"
    )
    hours = [minute / HOUR_MIN for minute in range(len(trace.waiting))]
    for axes in (top, middle, bottom):
        axes.axvspan(*load.busy, color="0.93", lw=0)
        axes.grid(axis="y", color="0.88", lw=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    _draw_queue(top, hours, trace, policy)
    _draw_rates(middle, trace)
    _draw_priorities(bottom, trace)
    bottom.set_xlabel("hour of the day (grey: more arrives than can be compacted)")
    bottom.set_xlim(0, load.hours)
    bottom.set_xticks(range(0, load.hours + 1, 2))
    figure.savefig(path, dpi=96, metadata={"Software": None})
    plt.close(figure)


def _draw_queue(axes: Any, hours: Sequence[float], trace: Trace, policy: Policy) -> None:
    axes.plot(hours, trace.deferred, color="tab:orange", lw=1.4, label="chunks deferred")
    axes.plot(hours, trace.waiting, color="tab:blue", lw=1.4, label="tasks waiting")
    axes.axhline(policy.max_queue, color="tab:red", ls="--", lw=1)
    axes.annotate(
        f"max_queue = {policy.max_queue}", (hours[-1], policy.max_queue), color="tab:red",
        ha="right", va="bottom", xytext=(0, 3), textcoords="offset points",
    )  # fmt: skip
    axes.set_ylabel("tasks, chunks")
    axes.set_ylim(bottom=0)
    axes.set_title("A day of overload: the queue is bounded, the rest deferred and recovered")
    axes.legend(loc="upper right", frameon=False, bbox_to_anchor=(1, 0.92))


def _draw_rates(axes: Any, trace: Trace) -> None:
    marks = range(0, len(trace.ended), HOUR_MIN)
    last = len(trace.ended) - 1
    for counts, color, label in (
        (trace.uploads, "tab:gray", "uploads"),
        (trace.ended, "tab:green", "tasks ended"),
    ):
        each = [counts[min(m + HOUR_MIN, last)] - counts[m] for m in marks]
        axes.stairs(each, range(len(each) + 1), color=color, lw=1.6, label=label)
    axes.set_ylabel("in each hour")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", frameon=False)


def _draw_priorities(axes: Any, trace: Trace) -> None:
    for points, color, label in (
        ([(minute, priority) for minute, priority, _ in trace.shed], "tab:orange", "shed"),
        (trace.launched, "tab:blue", "launched"),
    ):
        xs, ys = [m / HOUR_MIN for m, _ in points], [p for _, p in points]
        axes.scatter(xs, ys, s=5, color=color, label=label, lw=0)
    axes.set_ylabel("priority of tasks")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", frameon=False, markerscale=2.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate the default load and plot it."""
    parser = argparse.ArgumentParser(prog="queue_load.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("queue.png"), help="the PNG to write")
    out: Path = parser.parse_args(arguments).out
    load = Load()
    draw(simulate(POLICY, load), POLICY, load, out)


if __name__ == "__main__":
    main()
