"""Compaction and vacuum; readers and writers work on undisturbed meanwhile.

Imports eventlog and readers only.
"""

from eventlog.compaction.execute import Outcome, perform
from eventlog.compaction.planner.planning import Plan, explain, explain_slices, plan
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
