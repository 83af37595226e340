"""Erasure: rows leave the store, and a search of every object proves it or names what holds them.

    erase    delete ──► rewrite what has the rows ──► vacuum, cut the log ──► search ──► report

`erase` performs the steps. `rewriting_tasks` finds the live segments that have the rows. `search`
lists and reads all objects, which `log_objects` and `file_search` decode; `sought` decides what
counts as a trace of a row, and `report` what holds the traces back.
"""

from eventlog.erasing.erase import erase
from eventlog.erasing.report import CopyOfTable, ErasureReport, HeldBack, SearchedObject

__all__ = ["CopyOfTable", "ErasureReport", "HeldBack", "SearchedObject", "erase"]
