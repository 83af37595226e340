"""Upkeep of a table: what reclaims storage, without ever disturbing who reads or writes.

Imports eventlog and readers only.
"""

from compaction.perform import Outcome, perform
from compaction.planner.planning import Plan, explain, plan
from compaction.policy import Policy
from compaction.reclaim import VacuumReport, vacuum
from compaction.runner import RunReport, run
from compaction.tasks import Task

__all__ = [
    "Outcome",
    "Plan",
    "Policy",
    "RunReport",
    "Task",
    "VacuumReport",
    "explain",
    "perform",
    "plan",
    "run",
    "vacuum",
]
