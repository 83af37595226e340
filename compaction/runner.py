"""The runner: a plan carried out within its limits, by a driver.

Imports eventlog only, and compaction's own. The queue decides what runs (`planner.queueing`), a
driver performs it, and the log is told how it ended (`planner.assessing`). Nothing here is needed
for safety: a runner may be killed at any moment, and several may run at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import Struct

from compaction.perform import Outcome, perform
from compaction.planner.assessing import End, Result, record
from compaction.planner.planning import plan, renewed
from compaction.planner.queueing import Queue
from compaction.policy import MIB, Policy
from compaction.tasks import Task
from eventlog import Table
from eventlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DriverName = Literal["local", "spark"]
Progress = Callable[[str, int, int], None]
_Ended = list[tuple[Task, Outcome]]
# How an outcome counts for the notes in the log; what is not here is as if it had not been tried.
_ENDS: dict[str, End] = {"done": "done", "superseded": "superseded", "failed": "failed"}


class RunReport(Struct, frozen=True, kw_only=True):
    """What a run did.

    Attributes:
        planned: tasks that there were.
        outcomes: of each task that was performed, in the order in which they ended.
        shed: tasks that the queue had no room for, or whose predecessor failed: for another run.
        noted: the version that notes how it went; None: there was nothing to note.
    """

    planned: int
    outcomes: tuple[Outcome, ...]
    shed: tuple[Task, ...]
    noted: int | None

    def count(self, status: str) -> int:
        """Return how many tasks ended so: done, superseded, claimed, failed, out of time."""
        return sum(outcome.status == status for outcome in self.outcomes)


def run(
    t: Table,
    tasks: Iterable[Task] | None = None,
    driver: DriverName = "local",
    *,
    policy: Policy | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Compact: perform the tasks, at most so many and so large at once as the policy says.

    Ingestion neither waits nor fails because of it, and it never fails because of ingestion. Tasks
    that fail do not stop the others; the log notes how all of them ended.

    Args:
        t: the table.
        tasks: what to do; what `plan` says now if None.
        driver: local: in threads of this program, which share `policy.memory_bytes`; spark: on the
            executors of a session.
        policy: the settings; the defaults if None.
        spark: the session of the driver spark; the active one if None.
        progress: is told ("bytes", done, of so many).

    Raises:
        InvalidInput: a setting is wrong, there is no such driver, or it lacks a session.
        Unavailable: the store does not answer.
    """
    chosen = (policy or Policy()).check()
    if driver not in ("local", "spark"):
        raise InvalidInput(f"driver is local or spark, not {driver!r}")
    found = plan(t, chosen, now_ms=t.clock.now_ms()).tasks if tasks is None else tuple(tasks)
    if not found:
        return RunReport(planned=0, outcomes=(), shed=(), noted=record(t, chosen))
    queue = Queue(chosen)
    shed = queue.offer(found)
    with _driver(driver, t, chosen, spark) as performing:
        ended, cancelled = _drain(t, queue, performing, chosen, progress or (lambda *_: None))
    shed += cancelled
    results = [
        Result(task, _ENDS[outcome.status], outcome.made)
        for task, outcome in ended
        if outcome.status in _ENDS
    ]
    results += [Result(task, "shed") for task in shed]
    return RunReport(
        planned=len(found),
        outcomes=tuple(outcome for _, outcome in ended),
        shed=tuple(shed),
        noted=record(t, chosen, results),
    )


class _Driver(Protocol):
    """Performs tasks somewhere. A task is known by the id under which the queue has it."""

    def start(self, name: str, task: Task) -> None:
        """Begin a task."""
        ...

    def ended(self) -> list[tuple[str, Outcome]]:
        """Wait until at least one task has ended, and return those that have."""
        ...


class _Local:
    """Threads of this program, which share one bound on memory."""

    def __init__(self, t: Table, policy: Policy, pool: ThreadPoolExecutor, threads: int) -> None:
        self._t, self._pool = t, pool
        share = max(MIB, policy.memory_bytes // threads)
        self._policy = msgspec.structs.replace(policy, memory_bytes=share)
        self._running: dict[Future[Outcome], str] = {}

    def start(self, name: str, task: Task) -> None:
        """See `_Driver.start`."""
        self._running[self._pool.submit(perform, self._t, task, self._policy)] = name

    def ended(self) -> list[tuple[str, Outcome]]:
        """See `_Driver.ended`."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        return [(self._running.pop(future), future.result()) for future in done]


class _Spark:
    """Executors: all that may run at once is one job, a task a partition."""

    def __init__(self, t: Table, policy: Policy, spark: SparkSession | None) -> None:
        self._t, self._policy, self._spark = t, policy, spark
        self._started: list[tuple[str, Task]] = []

    def start(self, name: str, task: Task) -> None:
        """See `_Driver.start`."""
        self._started.append((name, task))

    def ended(self) -> list[tuple[str, Outcome]]:
        """See `_Driver.ended`."""
        from compaction.spark import perform_on  # noqa: PLC0415 - needs the extra spark

        started, self._started = self._started, []
        found = perform_on(self._spark, self._t, [task for _, task in started], self._policy)
        return [(name, outcome) for (name, _), outcome in zip(started, found, strict=True)]


@contextmanager
def _driver(
    name: DriverName, t: Table, policy: Policy, spark: SparkSession | None
) -> Iterator[_Driver]:
    if name == "spark":
        yield _Spark(t, policy, spark)
        return
    threads = min(policy.max_tasks, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="eventlog-compact")
    try:
        yield _Local(t, policy, pool, threads)
    finally:
        pool.shutdown(cancel_futures=True)


def _drain(
    t: Table, queue: Queue, driver: _Driver, policy: Policy, progress: Progress
) -> tuple[_Ended, list[Task]]:
    """Perform what waits until nothing does; return what ended, and what was cancelled.

    What met a claim is tried again when another task has ended: that may have held it.
    """
    done, total = 0, sum(task.bytes for task in queue.waiting)
    started: dict[str, Task] = {}
    ended, claimed, cancelled = _Ended(), _Ended(), list[Task]()
    progress("bytes", 0, total)
    while queue or queue.running:
        for task in queue.launch():
            # What a black task waited for has changed its chunks: its inputs are looked up again.
            current = renewed(t, task, policy) if task.after else task
            if current is None:
                queue.complete(task.id)
            else:
                started[task.id] = current
                driver.start(task.id, current)
        for name, outcome in driver.ended() if queue.running else ():
            cancelled += queue.complete(name, ok=outcome.ok)
            if outcome.status == "claimed":
                claimed.append((started[name], outcome))
                continue
            ended.append((started[name], outcome))
            done += outcome.bytes_in
            progress("bytes", min(done, total), total)
            if outcome.ok:
                cancelled += queue.offer(task for task, _ in claimed)
                claimed = []
    progress("bytes", total, total)
    return ended + claimed, cancelled
