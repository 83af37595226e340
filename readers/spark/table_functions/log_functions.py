"""The functions that return a table's versions and segments: one task reads the log.

Imports eventlog, readers and pyspark (extra `spark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec import UnsetType

from eventlog import Segment
from eventlog.format import keys
from eventlog.log.history import HistoryEntry
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.spark.table_functions.analysis import (
    Analysis,
    constants_of,
    opened_for,
    pinned_version,
)
from eventlog.readers.spark.types import to_spark
from eventlog.store.branching.roots import root_of
from eventlog.store.port import ObjectStore

HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("writer", pa.string()),
        *((name, pa.int64()) for name in ("adds", "drops", "rows", "bytes", "transactions")),
        ("deletes", pa.int64()),
    ]
)
# The attributes of `Segment` that have one value, then others that follow from them.
_PLAIN = (
    ("id", pa.string()),
    ("chunk", pa.string()),
    ("epoch", pa.int64()),
    ("version", pa.int64()),
    ("partition", pa.int64()),
    ("rows", pa.int64()),
    ("bytes", pa.int64()),
    ("checksum", pa.string()),
    ("schema", pa.int64()),
)
_SLICE = pa.struct(
    [
        ("kind", pa.string()),
        *((name, pa.int64()) for name in ("first", "last", "low", "high", "level")),
        ("ordinal", pa.int64()),
        ("splits", pa.int64()),
    ]
)
SEGMENTS = pa.schema([*_PLAIN, ("live_rows", pa.int64()), ("slice", _SLICE), ("uri", pa.string())])
_history_values = attrgetter(*(field.name for field in fields(HistoryEntry)))
_plain_values = attrgetter(*(name for name, _ in _PLAIN), "live_rows")


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
            yield _row_of(segment, table.store)


def _row_of(segment: Segment, store: ObjectStore) -> tuple[Any, ...]:
    """Return a segment as a row of `SEGMENTS`."""
    place = None
    if not isinstance(segment.slice, UnsetType):
        values = (getattr(segment.slice, field.name) for field in _SLICE)
        place = tuple(None if isinstance(one, UnsetType) else one for one in values)
    key = keys.key_of(segment)
    return (*_plain_values(segment), place, f"{root_of(store, key)}/{key}")
