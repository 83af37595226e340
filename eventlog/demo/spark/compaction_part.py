"""The demo's second part: compaction while late flights of the same days keep arriving.

Needs the extra `demo`. Neither side waits for the other, except to make sure that they overlap: the
first round of compaction runs once late flights have arrived after its plan, and the last batch of
each late job is appended after that round. Conflicts are counted on both sides, and the overlap is
verified in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from eventlog import Table
from eventlog.compaction import Policy, plan, run
from eventlog.compaction.planner.plans import Plan
from eventlog.demo.spark import spark_jobs
from eventlog.model.actions import Replace
from eventlog.model.records import Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.1


@dataclass(slots=True)
class Ongoing:
    """The result of concurrent compaction and late appends.

    Attributes:
        before: number of live segments at the start.
        after: number of live segments at the end.
        appends: number of late appends that were committed.
        failed_appends: number of late jobs that failed.
        rounds: number of plans.
        compactions: number of replacements that were committed.
        conflicts: number of replacements that were not, for any reason.
        arrived: number of late appends between the plan of a replacement and its commit.
        between: number of replacements between two late appends.
        reasons: the planner's reasons for its first tasks.
        stable: whether a final plan has no tasks left.
    """

    before: int = 0
    after: int = 0
    appends: int = 0
    failed_appends: int = 0
    rounds: int = 0
    compactions: int = 0
    conflicts: int = 0
    arrived: int = 0
    between: int = 0
    reasons: list[str] = field(default_factory=list)
    stable: bool = False

    @property
    def ok(self) -> bool:
        """Whether they overlapped in both orders without conflicts, and no tasks are left."""
        succeeded = not self.conflicts and not self.failed_appends
        return succeeded and self.stable and self.arrived > 0 and self.between > 0


def compact_beside(
    spark: SparkSession,
    t: Table,
    late: Sequence[Sequence[pa.Table]],
    policy: Policy,
    done: Callable[[], None],
) -> Ongoing:
    """Compact repeatedly while Spark jobs append, and once more after they have ended.

    Args:
        spark: the session of the jobs.
        t: the table.
        late: the batches of each job, appended in order; at least three each.
        policy: of compaction.
        done: called when a batch was appended.
    """
    ongoing = Ongoing(before=t.refresh().totals.segments)
    start = t.session.head().version
    planned, compacted = Event(), Event()
    running = spark_jobs.append_late(
        spark, [_held(each, planned, compacted) for each in late], t.uri, done=done
    )
    try:
        _await_append(t, start, running)
        first = _plan(t, policy)
        planned.set()
        _await_append(t, first.version, running)
        _compact(t, first, policy, ongoing)
        compacted.set()
        while not all(job.done() for job in running):
            _compact(t, _plan(t, policy), policy, ongoing)
    finally:
        planned.set()
        compacted.set()
    for job in running:
        if job.exception() is None:
            ongoing.appends += job.result()
        else:
            ongoing.failed_appends += 1
    _compact(t, _plan(t, policy), policy, ongoing)
    head = t.refresh()
    ongoing.arrived, ongoing.between = meetings(
        t.session.log.read(version)[0] for version in range(start + 1, head.version + 1)
    )
    ongoing.after = head.totals.segments
    ongoing.stable = not plan(t, policy).tasks
    return ongoing


def meetings(commits: Iterable[Commit]) -> tuple[int, int]:
    """Return how often appends and replacements overlapped, according to the log.

    Args:
        commits: in order of version. The transactions of a commit take effect in order.

    Returns:
        How many appends landed between the plan of some replacement and its commit, and how many
        replacements landed between two appends.
    """
    appends: list[int] = []  # the version of each so far
    arrived: set[int] = set()  # which of them
    between = waiting = 0  # replacements after an append; of those, the ones after the last append
    for commit in commits:
        for transaction in commit.transactions:
            plans = [a.version for a in transaction.actions if isinstance(a, Replace)]
            if plans and appends:
                arrived.update(at for at, version in enumerate(appends) if version > plans[0])
                waiting += 1
            elif transaction.operation == "append":
                appends.append(commit.header.version)
                between, waiting = between + waiting, 0
    return len(arrived), between


def _held(batches: Sequence[pa.Table], planned: Event, compacted: Event) -> Iterator[pa.Table]:
    """Yield a job's batches: the second after the first plan, the last after its replacements."""
    for number, batch in enumerate(batches, 1):
        if number > 1:
            planned.wait()
        if number == len(batches):
            compacted.wait()
        yield batch


def _await_append(t: Table, version: int, jobs: Sequence[Future[int]]) -> None:
    """Wait until there is a newer version, or no job is left that could append."""
    while t.refresh().version == version and wait(jobs, timeout=_POLL_S).not_done:
        pass


def _plan(t: Table, policy: Policy) -> Plan:
    return plan(t, policy, now_ms=t.clock.now_ms())


def _compact(t: Table, planned: Plan, policy: Policy, ongoing: Ongoing) -> None:
    ongoing.rounds += 1
    if not ongoing.reasons:
        ongoing.reasons = _reasons(planned)
    outcomes = run(t, planned.tasks, policy=policy).outcomes
    ongoing.compactions += sum(outcome.status == "done" for outcome in outcomes)
    ongoing.conflicts += sum(outcome.status != "done" for outcome in outcomes)


def _reasons(planned: Plan) -> list[str]:
    first = [verdict for verdict in planned.verdicts if verdict.act == "compact"][:2]
    chunks = [f"{verdict.chunk}: {verdict.sentence}" for verdict in first]
    return chunks + [
        f"{len(task.chunks)} days in one task: {task.reason}" for task in planned.tasks[:1]
    ]
