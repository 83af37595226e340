"""Upkeep of a table: what reclaims storage, without ever disturbing who reads or writes.

Imports eventlog and readers only.
"""

from compaction.reclaim import VacuumReport, vacuum

__all__ = ["VacuumReport", "vacuum"]
