"""The demo's second half: compaction while late flights keep arriving, in the same days.

Needs the extra `demo`. Neither side waits for the other: what is printed as conflicts has been
counted on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from compaction import Policy, plan, run
from compaction.planner.planning import Plan
from eventlog import Table
from writers import demo_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Ongoing:
    """What compaction and late appends did beside each other.

    Attributes:
        before: live segments when it began.
        after: live segments at the end.
        appends: late appends, all of them committed.
        failed_appends: late appends that raised.
        rounds: times that the planner was asked.
        compactions: replacements that were committed.
        conflicts: replacements that were not, for whatever reason.
        arrived: commits that landed between a replacement's plan and its commit, in all.
        reasons: what the planner said of its first tasks.
        stable: whether planning once more finds nothing left to do.
    """

    before: int = 0
    after: int = 0
    appends: int = 0
    failed_appends: int = 0
    rounds: int = 0
    compactions: int = 0
    conflicts: int = 0
    arrived: int = 0
    reasons: list[str] = field(default_factory=list)
    stable: bool = False


def compact_beside(
    spark: SparkSession, t: Table, late: Sequence[Sequence[pa.Table]], policy: Policy
) -> Ongoing:
    """Compact again and again while Spark jobs append; once more when they have ended.

    Args:
        spark: the session of the jobs.
        t: the table.
        late: for each job, what it appends, one after the other.
        policy: of compaction.
    """
    found = Ongoing(before=t.refresh().totals.segments)
    jobs = demo_spark.append_late(spark, late, t.uri)
    while not all(job.done() for job in jobs):
        _compact(t, policy, found)
    for job in jobs:
        if job.exception() is None:
            found.appends += job.result()
        else:
            found.failed_appends += 1
    _compact(t, policy, found)
    found.after = t.refresh().totals.segments
    found.stable = not plan(t, policy).tasks
    return found


def _compact(t: Table, policy: Policy, found: Ongoing) -> None:
    planned = plan(t, policy, now_ms=t.clock.now_ms())
    found.rounds += 1
    if not found.reasons:
        found.reasons = _reasons(planned)
    outcomes = run(t, planned.tasks, policy=policy).outcomes
    found.compactions += sum(outcome.status == "done" for outcome in outcomes)
    found.conflicts += sum(outcome.status != "done" for outcome in outcomes)
    found.arrived += sum(
        outcome.version - planned.version - 1 for outcome in outcomes if outcome.version is not None
    )


def _reasons(planned: Plan) -> list[str]:
    first = [verdict for verdict in planned.verdicts if verdict.act == "compact"][:2]
    chunks = [f"{verdict.chunk}: {verdict.sentence}" for verdict in first]
    return chunks + [
        f"{len(task.chunks)} days in one task: {task.reason}" for task in planned.tasks[:1]
    ]
