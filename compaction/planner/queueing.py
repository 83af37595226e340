"""The queue of tasks: bounded, by priority, within the limits of what may run at once.

Pure: no clock, no threads; who runs tasks asks `launch`, and says `complete`. The same calls in the
same order give the same answers. Imports eventlog only. The rules are those of the task runner and
the load shedding in the compaction notes for Druid.

- The task of the greatest priority goes first; of equals, the one that was offered first.
- A task that does not fit beside those that run is waited for: nothing goes before it, or a stream
  of small tasks could keep a large one waiting for ever. One that exceeds the limit runs alone.
- A black task waits until those that it names have ended. If one of them fails or is shed, so is
  it: its chunks would need the same work again afterwards.
- Above `max_queue` the tasks of the lowest priority are shed; of equals, the latest.
"""

from __future__ import annotations

from collections.abc import Iterable

from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task


class Queue:
    """Tasks that wait and tasks that run.

    Args:
        policy: `max_tasks`, `max_running_bytes` and `max_queue` apply.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[str, Task] = {}
        self._running: dict[str, Task] = {}
        self._numbers: dict[str, int] = {}  # of those that wait: when they were offered
        self._offered = 0

    def __len__(self) -> int:
        """Return how many tasks wait."""
        return len(self._waiting)

    @property
    def waiting(self) -> list[Task]:
        """The tasks that wait, the first to go first (black ones as if they could)."""
        return sorted(self._waiting.values(), key=self._rank)

    @property
    def running(self) -> list[Task]:
        """The tasks that were launched and have not ended, in that order."""
        return list(self._running.values())

    @property
    def running_bytes(self) -> int:
        """The size of the inputs of all that run."""
        return sum(task.bytes for task in self._running.values())

    def offer(self, tasks: Iterable[Task]) -> list[Task]:
        """Take tasks in, and return those that were shed to stay within the bound.

        A task that waits already takes the priority of its new plan. One that shares a segment with
        a task that runs is ignored: the next plan sees what that one made. One that shares a
        segment with others that wait takes their place.
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
        """Move to running what may run now, and return it in order."""
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
        """Take out a task that ran, and return those cancelled with it because it failed.

        A task that does not run is no fault: it may have been completed twice.
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
            if task.id in self._waiting:  # it may have gone with one that it waited for
                self._remove(task.id)
                shed += [task, *self._cancel({task.id})]
        return shed

    def _cancel(self, gone: set[str]) -> list[Task]:
        """Take out every waiting task that depends on one that is gone, however far down."""
        cancelled: list[Task] = []
        while found := [t for t in self.waiting if not gone.isdisjoint(t.after)]:
            for task in found:
                self._remove(task.id)
            cancelled += found
            gone = {task.id for task in found}
        return cancelled

    def _remove(self, task_id: str) -> None:
        self._waiting.pop(task_id, None)
        self._numbers.pop(task_id, None)
