"""Helpers of the scenarios: rows of given hours, and work that is interrupted by others.

Nothing here sleeps or races: an action between two steps of a piece of work is called from inside
that work.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from support.builders import SCHEMA, live

from eventlog import Table
from eventlog.format import keys
from eventlog.readers import scan

START = datetime(2013, 1, 7, tzinfo=UTC)


def rows(*hours, name="row"):
    """A row for each hour since 2013-01-07; its value is the hour."""
    at = [START + timedelta(hours=hour) for hour in hours]
    names = [f"{name} {hour}" for hour in hours]
    return pa.table([at, names, [float(hour) for hour in hours]], schema=SCHEMA)


def fresh(place, granularity="day", **properties):
    """A new table."""
    return Table.create(
        place, SCHEMA, time_column="at", granularity=granularity, properties=properties
    )


def other(table):
    """A handle like that of another process, at the newest version."""
    found = Table.open(table.uri)
    found.refresh()
    return found


def names(table, version=None):
    """The names of all rows of a version, in order."""
    return sorted(scan(table, version=version).to_table().column("name").to_pylist())


def chunks(table):
    """The chunk of each live segment of the newest version, in order."""
    return sorted(segment.chunk for segment in live(table.refresh()))


def ids(table, version=None):
    """The ids of a version's live segments."""
    return {segment.id for segment in live(table.snapshot(version))}


def objects(table):
    """The keys of all segments in the store, live or not."""
    return {row.key for row in table.store.list(keys.SEGMENTS_PREFIX)}


def once(action):
    """A callback with any arguments that runs an action on its first call."""
    waiting = [action]

    def call(*_):
        if waiting:
            waiting.pop()()

    return call


def cut_in(parts, action):
    """Tables as one stream; an action runs before the second table, or before the end."""
    schema = parts[0].schema

    def stream():
        for number, part in enumerate(parts):
            if number == 1:
                action()
            yield from part.combine_chunks().to_batches()
        if len(parts) == 1:
            action()

    return pa.RecordBatchReader.from_batches(schema, stream())
