"""The work of the Lambda function on one table: plan, run tasks that fit, record the results.

Bounded by the size of a task, by time and by memory. Tasks that do not fit are counted and left to
the next invocation or to another driver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from eventlog import Table
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.moving import plan_to_perform
from eventlog.compaction.planner.assessing import Result, record
from eventlog.compaction.policy import MIB, Policy
from eventlog.compaction.tasks import Task

MAX_PLANS = 20  # per table and invocation

logger = logging.getLogger(__name__)


class Context(Protocol):
    """Lambda's context of an invocation (the part that is used here)."""

    @property
    def aws_request_id(self) -> str:
        """The id of the invocation."""
        ...

    @property
    def memory_limit_in_mb(self) -> int | str:
        """The memory of the function, in MiB."""
        ...

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends the invocation."""
        ...


class Budget:
    """The time and the memory of one invocation.

    Attributes:
        begun: whether a task has already used part of it.

    Args:
        context: the invocation's context.
        reserve_ms: time in ms kept in reserve for the end.
    """

    def __init__(self, context: Context, reserve_ms: int) -> None:
        self._context, self._reserve_ms = context, reserve_ms
        self.begun = False

    @property
    def memory_bytes(self) -> int:
        """The memory of the function, in bytes."""
        return int(self._context.memory_limit_in_mb) * MIB

    def seconds(self) -> float:
        """Return how many seconds a task may run if it starts now; none may start at 0 or less."""
        return (self._context.get_remaining_time_in_millis() - self._reserve_ms) / 1000


@dataclass
class Progress:
    """The results of one invocation for a table.

    Attributes:
        version: the version of the last plan.
        ended: the tasks that ran, each with how it ended.
        outcomes: number of tasks by status.
        errors: error texts of failed tasks.
        large: ids of tasks that are too large for the function.
        slow: ids of tasks that take longer than a whole invocation.
        unfinished: whether time ran out before the work was done.
    """

    version: int = -1
    ended: list[Result] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    large: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    unfinished: bool = False

    @property
    def settled(self) -> bool:
        """Whether this function has nothing more to do at that version."""
        return not self.unfinished and self.outcomes.keys() <= {"done", "superseded"}

    def facts(self) -> dict[str, Any]:
        """Return the numbers for a log line."""
        return {
            "version": self.version,
            **self.outcomes,
            "bytes": sum(result.task.bytes for result in self.ended if result.end == "done"),
            "too_large": len(self.large),
            "too_slow": len(self.slow),
            "unfinished": self.unfinished,
        }


def compact_table(
    table: Table, settings: Settings, budget: Budget, skip: Iterable[str]
) -> Progress:
    """Run the tasks that a table needs and the budget allows, and record the results in the log.

    Tasks that wait for others are planned again once those have ended, because their inputs are
    known only then.

    Args:
        table: the table.
        settings: the function's settings.
        budget: the invocation's budget.
        skip: ids of tasks that are not for this function.

    Raises:
        EventLogError: the table cannot be read, or the store does not answer. Errors of a task are
            its outcome and are not raised.
    """
    policy = settings.policy_within(budget.memory_bytes)
    progress = Progress(slow=set(skip))
    full_analysis = False
    for _ in range(MAX_PLANS):
        if budget.seconds() <= 0:
            progress.unfinished = True
            break
        # Back-off is judged by the current time, even without a new commit.
        planned = plan_to_perform(table, policy, table.clock.now_ms())
        progress.version = planned.version
        full_analysis = planned.since is None
        if not _run(table, planned.tasks, policy, settings.max_bytes, budget, progress):
            break
    else:
        progress.unfinished = True
    # Recorded even without tasks if the whole table had to be read to find that out.
    if progress.ended or full_analysis:
        record(table, policy, progress.ended)
    return progress


def _run(  # noqa: PLR0917 - the state of one turn
    table: Table,
    tasks: Iterable[Task],
    policy: Policy,
    max_bytes: int,
    budget: Budget,
    progress: Progress,
) -> bool:
    """Run the tasks that wait for no other. Return whether it is worth planning again."""
    waiting = moved = False
    for task in tasks:
        if task.id in progress.slow:
            continue
        if task.bytes > max_bytes:
            if task.id not in progress.large:
                log_event(logging.WARNING, "task too large", **_facts(table, task))
            progress.large.add(task.id)
        elif task.after:
            waiting = True
        elif budget.seconds() <= 0:
            progress.unfinished = True
            return False
        else:
            status = _perform(table, task, policy, budget, progress).status
            moved |= status in ("done", "superseded")
            waiting |= status == "superseded"
    return waiting and moved


def _perform(
    table: Table, task: Task, policy: Policy, budget: Budget, progress: Progress
) -> Outcome:
    is_first = not budget.begun
    budget.begun = True
    outcome = perform(table, task, policy, deadline_s=budget.seconds())
    status = outcome.status
    progress.outcomes[status] = progress.outcomes.get(status, 0) + 1
    match status:
        case "done" | "superseded" | "failed" as end:
            progress.ended.append(Result(task, end, outcome.made))
    facts = {**_facts(table, task), **msgspec.to_builtins(outcome)}
    facts["made"] = len(outcome.made)
    if status == "failed":
        progress.errors.append(str(outcome.error))
        log_event(logging.ERROR, "task failed", **facts)
    elif status == "out of time":
        progress.unfinished = True
        if is_first:  # the next invocation has no more time: it counts as a failure
            progress.slow.add(task.id)
            progress.ended.append(Result(task, "failed"))
        log_event(logging.WARNING, "task too slow" if is_first else "task out of time", **facts)
    else:
        log_event(logging.INFO, "task ended", **facts)
    return outcome


def _facts(table: Table, task: Task) -> dict[str, Any]:
    return {
        "table": table.uri,
        "task": task.id,
        "first_chunk": task.chunks[0],
        "chunks": len(task.chunks),
        "segments": len(task.inputs),
        "bytes": task.bytes,
        "rows": task.rows,
        "priority": task.priority,
        "reason": task.reason,
    }


def log_event(level: int, event: str, **facts: Any) -> None:
    """Log an event with its facts (`eventlog.compaction.aws.json_lines`)."""
    logger.log(level, event, extra={"facts": facts})
