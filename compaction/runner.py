"""Runs a plan within its limits, by one of the drivers.

Imports eventlog and compaction only. The queue decides what runs (`planner.queueing`), a driver
performs it, and the results are recorded in the log (`planner.assessing`). Safety does not depend
on this module: a runner may be killed at any moment, and several may run at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from eventlog import Table
from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.moving import plan_to_perform
from eventlog.compaction.planner.assessing import End, Result, record
from eventlog.compaction.planner.planning import renewed
from eventlog.compaction.planner.queueing import Queue
from eventlog.compaction.policy import MIB, Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import EventLogError, InvalidInput
from eventlog.staging.fitting import Fit
from eventlog.store.parallel import DriverName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
_Work = Callable[[Task, Progress], Outcome]
# How outcomes are recorded in the log; other outcomes count as not attempted.
_ENDS: dict[str, End] = {"done": "done", "superseded": "superseded", "failed": "failed"}
_MAX_TASKS = 10_000
_MAX_ERROR = 500
_ERROR_START = 200  # kept of a long error, whose kind is at its start and whose cause at its end

logger = logging.getLogger(__name__)


class RunReport(Struct, frozen=True, kw_only=True):
    """The result of a run.

    Attributes:
        planned: number of planned tasks.
        outcomes: the outcome of each task that was performed, in the order in which they ended.
        shed: tasks left for another run: the queue was full, or their predecessor failed.
        noted: the version that records the results; None if there was nothing to record.
        fit: the granularity that the table has now, because it fits better than the one that it had
            before the run; None if it stayed.
    """

    planned: int
    outcomes: tuple[Outcome, ...]
    shed: tuple[Task, ...]
    noted: int | None
    fit: Fit | None = None

    def count(self, status: str) -> int:
        """Return how many tasks ended with a status; see `Outcome.status`."""
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
    """Compact: perform the tasks within the policy's limits on number and size.

    A run never blocks ingestion or makes it fail, and never fails because of ingestion. Tasks that
    fail do not stop the others; the log records the results. An interrupted run stops its tasks,
    records the results so far in the log, and raises the exception that interrupted it.

    Args:
        t: the table.
        tasks: the tasks to perform; None: those of a new `plan`, with its granularity (`Plan.fit`).
        driver: `local`: threads of this program, which share `policy.memory_bytes`. `spark`: the
            executors of a session, one job per task (see `limits_on` for how many at once). There
            `policy.memory_bytes` is for one task: an executor needs it once for each of its slots.
        policy: the settings; the defaults if None.
        spark: the session for the driver `spark`; the active one if None.
        progress: called with ("bytes", done, total) in the caller's thread: by the driver `local`
            while a task runs, by the driver `spark` when one has ended.

    Raises:
        InvalidInput: a setting is wrong, there is no such driver, or there is no Spark session.
        Unavailable: the store does not answer.
    """
    chosen = (policy or Policy()).check()
    if driver not in ("local", "spark"):
        raise InvalidInput(f"driver must be local or spark, not {driver!r}")
    planned, fit = _planned(t, chosen) if tasks is None else (tuple(tasks), None)
    if not planned:
        return RunReport(planned=0, outcomes=(), shed=(), noted=record(t, chosen), fit=fit)
    if driver == "spark":
        limits, work = _on_executors(t, chosen, spark)
        workers = _Workers(work, min(limits.max_tasks, len(planned)))
    else:
        limits, threads = chosen, min(chosen.max_tasks, os.cpu_count() or 1)
        workers = _Workers(_in_threads(t, chosen, threads), threads)
    execution = _Run(t, limits, workers, progress or (lambda *_: None))
    try:
        execution.drain(planned)
    except BaseException:
        execution.stop()
        _note(t, chosen, execution.results())
        raise
    finally:
        workers.stop()
    return RunReport(
        planned=len(planned),
        outcomes=tuple(outcome for _, outcome in execution.ended + execution.claimed),
        shed=tuple(execution.shed),
        noted=record(t, chosen, execution.results()),
        fit=fit,
    )


def limits_on(policy: Policy, parallelism: int | None) -> Policy:
    """Return the limits for the driver `spark`: a cluster can run more at once than one program.

    If `max_tasks` is the default and the session's default parallelism is larger, that replaces it;
    if `max_running_bytes` is the default too, it grows in proportion. Other values are kept.

    Args:
        policy: the settings.
        parallelism: the session's default parallelism; None if unknown (Spark Connect).
    """
    usual = Policy()
    if parallelism is None or policy.max_tasks != usual.max_tasks:
        return policy
    at_once = min(max(parallelism, policy.max_tasks), _MAX_TASKS)
    running = policy.max_running_bytes
    if running == usual.max_running_bytes:
        running = running // usual.max_tasks * at_once
    return replace(policy, max_tasks=at_once, max_running_bytes=running)


def _planned(t: Table, policy: Policy) -> tuple[tuple[Task, ...], Fit | None]:
    """Return the tasks of a new plan, and the granularity that the table was given for them."""
    made = plan_to_perform(t, policy, t.clock.now_ms())
    return made.tasks, made.fit


def _in_threads(t: Table, policy: Policy, threads: int) -> _Work:
    """Return a function that performs a task in one of several threads that share the memory."""
    share = replace(policy, memory_bytes=max(MIB, policy.memory_bytes // threads))
    return lambda task, report: perform(t, task, share, progress=report)


def _on_executors(t: Table, policy: Policy, spark: SparkSession | None) -> tuple[Policy, _Work]:
    """Return the limits, and a function that performs a task as a Spark job."""
    from eventlog.compaction.spark import active, parallelism, perform_on  # noqa: PLC0415 - the extra spark

    session = spark or active()
    limits = limits_on(policy, parallelism(session))
    return limits, lambda task, _: perform_on(session, t, task, policy)


class _Stopped(BaseException):
    """The run was stopped before its tasks ended; they did not fail."""


class _Workers:
    """Threads that perform tasks and queue their events for one consumer.

    Tasks are named by their id in the queue.
    """

    def __init__(self, work: _Work, threads: int) -> None:
        self._work = work
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eventlog-compact")
        self._events: SimpleQueue[tuple[str, int | Outcome]] = SimpleQueue()
        self._stopped = Event()

    def start(self, name: str, task: Task) -> None:
        """Start a task."""
        self._pool.submit(self._perform, name, task)

    def next_event(self) -> tuple[str, int | Outcome]:
        """Wait for the next event of a started task: the bytes that it has done, or its outcome."""
        return self._events.get()

    def stop(self) -> list[tuple[str, Outcome]]:
        """Stop the running tasks. Return the outcomes that were not consumed yet.

        A task in a thread stops when it next reports progress. One on an executor runs to its end
        unless Spark cancels it, as Spark does when the program is interrupted.
        """
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
        outcomes: list[tuple[str, Outcome]] = []
        while True:
            try:
                name, event = self._events.get_nowait()
            except Empty:
                return outcomes
            if isinstance(event, Outcome):
                outcomes.append((name, event))

    def _perform(self, name: str, task: Task) -> None:
        size = task.bytes

        def report(_unit: str, done: int, total: int) -> None:
            if self._stopped.is_set():
                raise _Stopped
            self._events.put((name, size * done // max(1, total)))

        try:
            outcome = self._work(task, report)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - else the run would wait for ever
            outcome = _failed(task, error)
            logger.warning("task %s: %s", task.id, outcome.error)
        self._events.put((name, outcome))


class _Run:
    """The state of a run: the queue, the running tasks, and how tasks ended.

    Attributes:
        ended: tasks that were performed, in the order in which they ended.
        claimed: tasks that are still blocked by a claim.
        shed: tasks for which the queue was full, or whose predecessor failed.
    """

    def __init__(self, t: Table, limits: Policy, workers: _Workers, progress: Progress) -> None:
        self._t, self._policy, self._workers, self._progress = t, limits, workers, progress
        self._queue = Queue(limits)
        self._started: dict[str, Task] = {}
        self._bytes_done: dict[str, int] = {}  # by running task
        self._done = self._total = 0
        self.ended: list[tuple[Task, Outcome]] = []
        self.claimed: list[tuple[Task, Outcome]] = []
        self.shed: list[Task] = []

    def drain(self, tasks: Iterable[Task]) -> None:
        """Perform the tasks until none is waiting."""
        self.shed += self._queue.offer(tasks)
        self._total = sum(task.bytes for task in self._queue.waiting)
        self._progress("bytes", 0, self._total)
        while self._queue or self._queue.running:
            self._launch()
            if self._queue.running:
                self._handle(*self._workers.next_event())
        self._progress("bytes", self._total, self._total)

    def stop(self) -> None:
        """Stop the running tasks. Those that ended before they were stopped count."""
        for name, outcome in self._workers.stop():
            if outcome.ok:
                self.ended.append((self._started[name], outcome))

    def results(self) -> list[Result]:
        """Return how the tasks ended, to be recorded in the log."""
        results = [
            Result(task, _ENDS[outcome.status], outcome.made)
            for task, outcome in self.ended
            if outcome.status in _ENDS
        ]
        return results + [Result(task, "shed") for task in self.shed]

    def _launch(self) -> None:
        for task in self._queue.launch():
            # The tasks that a black task waited for changed its chunks: look its inputs up again.
            # against black-as-it-was-planned
            current = renewed(self._t, task, self._policy) if task.after else task
            if current is None:
                self._queue.complete(task.id)
            else:
                self._started[task.id] = current
                self._workers.start(task.id, current)

    def _handle(self, name: str, event: int | Outcome) -> None:
        if isinstance(event, int):
            self._count(name, event)
            return
        self.shed += self._queue.complete(name, ok=event.ok)
        ended = (self._started[name], event)
        if event.status == "claimed":
            self.claimed.append(ended)
            return
        self.ended.append(ended)
        self._count(name, event.bytes_in)
        if event.ok:
            # This task may have held the claims that blocked the others.
            self.shed += self._queue.offer(task for task, _ in self.claimed)
            self.claimed = []

    def _count(self, name: str, done: int) -> None:
        self._done += done - self._bytes_done.get(name, 0)
        self._bytes_done[name] = done
        self._progress("bytes", min(self._done, self._total), self._total)


def _note(t: Table, policy: Policy, results: list[Result]) -> None:
    """Record in the log how tasks ended. A failure is only logged: another error is raised."""
    try:
        record(t, policy, results)
    except EventLogError as problem:
        logger.warning("the results of %d tasks were not recorded: %s", len(results), problem)


def _failed(task: Task, error: BaseException) -> Outcome:
    """Return the outcome of a task that raised instead of returning one."""
    # Spark's errors include the JVM's stack trace, which does not help here.
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("at "))
    if len(text) > _MAX_ERROR:
        text = f"{text[:_ERROR_START]} … {text[_ERROR_START - _MAX_ERROR + 3 :]}"
    return Outcome(
        task=task.id,
        status="failed",
        bytes_in=task.bytes,
        segments_in=len(task.inputs),
        error=text,
    )
