"""Compaction and vacuum, beside readers and writers, which neither wait nor fail because of them.

    plan ──► tasks ──► run: queue ──► perform ──► commit of a replacement ──► note in the log
    vacuum: fence and horizon into the log ──► what is live ──► delete the rest

`plan` and `explain` read a version and never write: the same version gives the same plan. `perform`
takes effect once, however often it is repeated. Only `vacuum` deletes.

Imports eventlog and readers only.
"""

from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.planner.planning import explain, explain_slices, plan
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.policy import Policy
from eventlog.compaction.runner import RunReport, run
from eventlog.compaction.tasks import Task
from eventlog.compaction.vacuum import VacuumReport, vacuum

__all__ = [
    "Outcome",
    "Plan",
    "Policy",
    "RunReport",
    "Task",
    "VacuumReport",
    "explain",
    "explain_slices",
    "perform",
    "plan",
    "run",
    "vacuum",
]
