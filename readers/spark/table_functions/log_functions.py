"""The functions that return a table's versions and segments: one task reads the log.

Imports eventlog, readers and pyspark (extra `spark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from eventlog.log.history import HistoryEntry
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.spark.table_functions.analysis import (
    Analysis,
    constants_of,
    opened_for,
    pinned_version,
)
from eventlog.readers.spark.types import to_spark
from eventlog.table.inspection.columns import HISTORY, SEGMENTS
from eventlog.table.inspection.inspector import segment_row

_history_values = attrgetter(*(field.name for field in fields(HistoryEntry)))


class EventLogHistory:
    """The versions of a table, newest first."""

    def __init__(self, analysis: Analysis | None = None) -> None:
        self._analysis = analysis

    @staticmethod
    def analyze(uri: Any, start: Any = None, limit: Any = None, storage: Any = None) -> Analysis:
        """Return the columns, and the version that the history begins at.

        Raises:
            InvalidInput: an argument is wrong.
            NotFound: there is no such table or version.
        """
        given = constants_of(uri=uri, start=start, limit=limit, storage=storage)
        if given is None:
            return Analysis(to_spark(HISTORY))
        table = opened_for(given["uri"], given["storage"])
        begin, limit = given["start"], given["limit"]
        begin = table.refresh().version if begin is None else begin
        next(table.history(begin, limit), None)
        return Analysis(to_spark(HISTORY), table=table.id, version=begin)

    def eval(
        self, uri: Any, start: Any = None, limit: Any = None, storage: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each version."""
        table = opened_for(uri, storage, self._analysis)
        start = pinned_version(self._analysis, start)
        yield from map(_history_values, table.history(start, limit))


class EventLogSegments:
    """The live segments of a version."""

    def __init__(self, analysis: Analysis | None = None) -> None:
        self._analysis = analysis

    @staticmethod
    def analyze(uri: Any, version: Any = None, storage: Any = None) -> Analysis:
        """Return the columns, and the version.

        Raises:
            InvalidInput: an argument is wrong.
            NotFound: there is no such table or version, or the version was vacuumed.
        """
        given = constants_of(uri=uri, version=version, storage=storage)
        if given is None:
            return Analysis(to_spark(SEGMENTS))
        snapshot = kept_snapshot(opened_for(given["uri"], given["storage"]), given["version"])
        return Analysis(to_spark(SEGMENTS), table=snapshot.header.table, version=snapshot.version)

    def eval(self, uri: Any, version: Any = None, storage: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each segment, in the order of `Snapshot.segments`."""
        table = opened_for(uri, storage, self._analysis)
        snapshot = kept_snapshot(table, pinned_version(self._analysis, version))
        for segment in snapshot.segments():
            yield segment_row(segment, table.store)
