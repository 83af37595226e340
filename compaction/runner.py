"""The runner: a plan carried out within its limits, by a driver.

Imports eventlog only, and compaction's own. The queue decides what runs (`planner.queueing`), a
driver performs it, and the log is told how it ended (`planner.assessing`). Nothing here is needed
for safety: a runner may be killed at any moment, and several may run at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from eventlog import Table
from eventlog.compaction.perform import Outcome, perform
from eventlog.compaction.planner.assessing import End, Result, record
from eventlog.compaction.planner.planning import plan, renewed
from eventlog.compaction.planner.queueing import Queue
from eventlog.compaction.policy import MIB, Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import EventLogError, InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DriverName = Literal["local", "spark"]
Progress = Callable[[str, int, int], None]
_Work = Callable[[Task, Progress], Outcome]
# How an outcome counts for the notes in the log; what is not here is as if it had not been tried.
_ENDS: dict[str, End] = {"done": "done", "superseded": "superseded", "failed": "failed"}
_MAX_TASKS = 10_000
_MAX_ERROR = 500
_ERROR_START = 200  # of an error that is cut: its kind is said first, its cause last

logger = logging.getLogger(__name__)


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
    that fail do not stop the others; the log notes how all of them ended. A run that is interrupted
    stops its tasks, notes in the log how far it came, and raises what interrupted it.

    Args:
        t: the table.
        tasks: what to do; what `plan` says now if None.
        driver: local: in threads of this program, which share `policy.memory_bytes`; spark: on the
            executors of a session, each task a job of its own (see `limits_on` for how many at
            once). There `policy.memory_bytes` is that of one task: an executor that performs
            several at once, one in each of its slots, needs as many times as much.
        policy: the settings; the defaults if None.
        spark: the session of the driver spark; the active one if None.
        progress: is told ("bytes", done, of so many), in the thread of the caller: by the local
            driver while a task runs, by the driver spark when one has ended.

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
    if driver == "spark":
        limits, work = _on_executors(t, chosen, spark)
        crew = _Workers(work, min(limits.max_tasks, len(found)))
    else:
        limits, threads = chosen, min(chosen.max_tasks, os.cpu_count() or 1)
        crew = _Workers(_in_threads(t, chosen, threads), threads)
    going = _Run(t, limits, crew, progress or (lambda *_: None))
    try:
        going.drain(found)
    except BaseException:
        going.stop()
        _note(t, chosen, going.results())
        raise
    finally:
        crew.stop()
    return RunReport(
        planned=len(found),
        outcomes=tuple(outcome for _, outcome in going.ended + going.claimed),
        shed=tuple(going.shed),
        noted=record(t, chosen, going.results()),
    )


def limits_on(policy: Policy, parallelism: int | None) -> Policy:
    """Return the limits of the driver spark: a cluster takes more at once than one program does.

    Where `max_tasks` is the default and the session's default parallelism is larger, that takes its
    place; where `max_running_bytes` is the default too, it grows in proportion. Any other value of
    either stays.

    Args:
        policy: the settings.
        parallelism: the session's; None where it does not say (Spark Connect).
    """
    usual = Policy()
    if parallelism is None or policy.max_tasks != usual.max_tasks:
        return policy
    at_once = min(max(parallelism, policy.max_tasks), _MAX_TASKS)
    running = policy.max_running_bytes
    if running == usual.max_running_bytes:
        running = running // usual.max_tasks * at_once
    return replace(policy, max_tasks=at_once, max_running_bytes=running)


def _in_threads(t: Table, policy: Policy, threads: int) -> _Work:
    """Return what performs a task in this program, in so many threads that share the memory."""
    share = replace(policy, memory_bytes=max(MIB, policy.memory_bytes // threads))
    return lambda task, told: perform(t, task, share, progress=told)


def _on_executors(t: Table, policy: Policy, spark: SparkSession | None) -> tuple[Policy, _Work]:
    """Return the limits, and what performs a task as a job of Spark."""
    from eventlog.compaction.spark import active, parallelism, perform_on  # noqa: PLC0415 - the extra spark

    session = spark or active()
    limits = limits_on(policy, parallelism(session))
    return limits, lambda task, _: perform_on(session, t, task, policy)


class _Stopped(BaseException):
    """The run ends before its tasks do: no failure of theirs."""


class _Workers:
    """Threads that perform tasks. What they have to tell is heard one by one, by who asks.

    A task is known by the id under which the queue has it.
    """

    def __init__(self, work: _Work, threads: int) -> None:
        self._work = work
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eventlog-compact")
        self._told: SimpleQueue[tuple[str, int | Outcome]] = SimpleQueue()
        self._stopped = Event()

    def start(self, name: str, task: Task) -> None:
        """Begin a task."""
        self._pool.submit(self._perform, name, task)

    def hear(self) -> tuple[str, int | Outcome]:
        """Wait for news of a task that was started: how many bytes it has done, or its outcome."""
        return self._told.get()

    def stop(self) -> list[tuple[str, Outcome]]:
        """End what runs, and return what had ended by then and was not heard yet.

        A task in a thread stops where it would tell of its progress. One on an executor runs to its
        end unless Spark cancels it, as it does when the program is interrupted.
        """
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
        unheard: list[tuple[str, Outcome]] = []
        while True:
            try:
                name, news = self._told.get_nowait()
            except Empty:
                return unheard
            if isinstance(news, Outcome):
                unheard.append((name, news))

    def _perform(self, name: str, task: Task) -> None:
        def told(_what: str, done: int, total: int) -> None:
            if self._stopped.is_set():
                raise _Stopped
            self._told.put((name, task.bytes * done // max(1, total)))

        try:
            outcome = self._work(task, told)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - or the run would wait for it for ever
            outcome = _failed(task, error)
            logger.warning("task %s: %s", task.id, outcome.error)
        self._told.put((name, outcome))


class _Run:
    """Tasks on their way through the queue and the crew, and how they ended.

    Attributes:
        ended: what was performed, in the order in which it ended.
        claimed: what met a claim to the last.
        shed: what the queue had no room for, or whose predecessor failed.
    """

    def __init__(self, t: Table, limits: Policy, crew: _Workers, progress: Progress) -> None:
        self._t, self._policy, self._crew, self._progress = t, limits, crew, progress
        self._queue = Queue(limits)
        self._started: dict[str, Task] = {}
        self._moved: dict[str, int] = {}  # bytes done of each task that runs
        self._done = self._total = 0
        self.ended: list[tuple[Task, Outcome]] = []
        self.claimed: list[tuple[Task, Outcome]] = []
        self.shed: list[Task] = []

    def drain(self, tasks: Iterable[Task]) -> None:
        """Perform the tasks until none waits."""
        self.shed += self._queue.offer(tasks)
        self._total = sum(task.bytes for task in self._queue.waiting)
        self._progress("bytes", 0, self._total)
        while self._queue or self._queue.running:
            self._launch()
            if self._queue.running:
                self._hear(*self._crew.hear())
        self._progress("bytes", self._total, self._total)

    def stop(self) -> None:
        """End what runs; what ended before it could be stopped counts."""
        for name, outcome in self._crew.stop():
            if outcome.ok:
                self.ended.append((self._started[name], outcome))

    def results(self) -> list[Result]:
        """Return how the tasks ended, for the notes in the log."""
        results = [
            Result(task, _ENDS[outcome.status], outcome.made)
            for task, outcome in self.ended
            if outcome.status in _ENDS
        ]
        return results + [Result(task, "shed") for task in self.shed]

    def _launch(self) -> None:
        for task in self._queue.launch():
            # What a black task waited for has changed its chunks: its inputs are looked up again.
            # against black-as-it-was-planned
            current = renewed(self._t, task, self._policy) if task.after else task
            if current is None:
                self._queue.complete(task.id)
            else:
                self._started[task.id] = current
                self._crew.start(task.id, current)

    def _hear(self, name: str, news: int | Outcome) -> None:
        if isinstance(news, int):
            self._move(name, news)
            return
        self.shed += self._queue.complete(name, ok=news.ok)
        ended = (self._started[name], news)
        if news.status == "claimed":
            self.claimed.append(ended)
            return
        self.ended.append(ended)
        self._move(name, news.bytes_in)
        if news.ok:
            # That may have held the claims which the others met.
            self.shed += self._queue.offer(task for task, _ in self.claimed)
            self.claimed = []

    def _move(self, name: str, done: int) -> None:
        self._done += done - self._moved.get(name, 0)
        self._moved[name] = done
        self._progress("bytes", min(self._done, self._total), self._total)


def _note(t: Table, policy: Policy, results: list[Result]) -> None:
    """Note in the log how tasks ended, beside an error that says more than one from here would."""
    try:
        record(t, policy, results)
    except EventLogError as problem:
        logger.warning("how %d tasks ended is not noted: %s", len(results), problem)


def _failed(task: Task, error: BaseException) -> Outcome:
    """Return the outcome of a task that could not say by itself what became of it."""
    # Spark's errors hold the trace of the JVM, where nothing of this is to be seen.
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
