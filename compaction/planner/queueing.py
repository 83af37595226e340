"""The queue of tasks: bounded, ordered by priority, within the limits on running tasks.

No clock, no threads: a runner calls `launch` and `complete`. Deterministic. Imports eventlog only.
The rules follow the task runner and the load shedding in the compaction notes for Druid.

- The task with the highest priority runs first; among equals, the one offered first.
- A task that does not fit beside the running ones blocks those after it; otherwise a stream of
  small tasks could starve a large one. A task above the limit runs alone.
- A black task waits until the tasks that it names have ended. If one of them fails or is shed, it
  is cancelled too: its chunks would need the same work again afterwards.
- Above `max_queue` the tasks with the lowest priority are shed; among equals, the latest.
"""

from __future__ import annotations

from collections.abc import Iterable

from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task


class Queue:
    """Waiting and running tasks.

    Args:
        policy: its `max_tasks`, `max_running_bytes` and `max_queue` apply.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[str, Task] = {}
        self._running: dict[str, Task] = {}
        self._numbers: dict[str, int] = {}  # order in which waiting tasks were offered
        self._offered = 0

    def __len__(self) -> int:
        """Return the number of waiting tasks."""
        return len(self._waiting)

    @property
    def waiting(self) -> list[Task]:
        """The waiting tasks in the order to run, black ones included."""
        return sorted(self._waiting.values(), key=self._rank)

    @property
    def running(self) -> list[Task]:
        """The running tasks, in the order in which they were launched."""
        return list(self._running.values())

    @property
    def running_bytes(self) -> int:
        """The total size of the inputs of running tasks."""
        return sum(task.bytes for task in self._running.values())

    def offer(self, tasks: Iterable[Task]) -> list[Task]:
        """Add tasks, and return those that were shed to stay within the bound.

        A task that is already waiting gets its new priority. One that shares a segment with a
        running task is ignored: the next plan will include that task's output. One that shares a
        segment with waiting tasks replaces them.
        """
        busy = {segment.id for task in self._running.values() for segment in task.inputs}
        holders = {s.id: task.id for task in self._waiting.values() for s in task.inputs}
        for task in tasks:
            if task.id in self._running or any(s.id in busy for s in task.inputs):
                continue
            for segment in task.inputs:
                replaced = holders.get(segment.id, task.id)
                if replaced != task.id:
                    self._remove(replaced)
                holders[segment.id] = task.id
            self._waiting[task.id] = task
            self._numbers.setdefault(task.id, self._offered)
            self._offered += 1
        return self._shed()

    def launch(self) -> list[Task]:
        """Start the tasks that may run now, and return them in order."""
        launched = []
        for task in self.waiting:
            if not self._is_ready(task):
                continue
            if not self._fits(task):
                break
            self._remove(task.id)
            self._running[task.id] = task
            launched.append(task)
        return launched

    def complete(self, task_id: str, *, ok: bool = True) -> list[Task]:
        """Remove a task that ended, and return the tasks cancelled because it failed.

        A no-op for a task that is not running: it may have been completed twice.
        """
        ended = self._running.pop(task_id, None)
        return [] if ok or ended is None else self._cancel({task_id})

    def _rank(self, task: Task) -> tuple[float, int, str]:
        return (-task.priority, self._numbers[task.id], task.id)

    def _is_ready(self, task: Task) -> bool:
        # against black-beside-red
        return not any(name in self._waiting or name in self._running for name in task.after)

    def _fits(self, task: Task) -> bool:
        if not self._running:
            return True
        total = self.running_bytes + task.bytes
        return (
            len(self._running) < self._policy.max_tasks and total <= self._policy.max_running_bytes
        )

    def _shed(self) -> list[Task]:
        shed: list[Task] = []
        for task in reversed(self.waiting):
            if len(self._waiting) <= self._policy.max_queue:  # against queue-without-bound
                break
            if task.id in self._waiting:  # it may have been cancelled with a task it waited for
                self._remove(task.id)
                shed += [task, *self._cancel({task.id})]
        return shed

    def _cancel(self, gone: set[str]) -> list[Task]:
        """Remove every waiting task that depends on a removed one, directly or indirectly."""
        cancelled: list[Task] = []
        while dependent := [t for t in self.waiting if not gone.isdisjoint(t.after)]:
            for task in dependent:
                self._remove(task.id)
            cancelled += dependent
            gone = {task.id for task in dependent}
        return cancelled

    def _remove(self, task_id: str) -> None:
        self._waiting.pop(task_id, None)
        self._numbers.pop(task_id, None)
