"""Changes of rows in Spark, planned on the driver and read by tasks.

Imports eventlog, readers and pyspark (extra `spark`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from eventlog import Snapshot, Table
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.log import history
from eventlog.query.moments import to_ms
from eventlog.readers.changefeed import change_planning, change_steps
from eventlog.readers.changefeed.change_planning import ChangePlan
from eventlog.readers.changefeed.change_steps import Appended, Exchanged, Step, Written
from eventlog.readers.changefeed.images import COLUMNS
from eventlog.readers.changefeed.reader import ChangeReading, reading_of
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.spark import slice_shares
from eventlog.readers.spark.shares import (
    DEFAULT_TARGET_BYTES,
    OPEN_BYTES,
    Work,
    check_schema,
    check_schema_columns,
    where_of,
    without_columns_of,
)
from eventlog.readers.spark.spark_options import SparkOptions
from eventlog.readers.spark.types import declared
from eventlog.segments.batches import retyped
from eventlog.segments.fragments import DEFAULT_BATCH_ROWS
from eventlog.session.tags import version_number
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.state.scan import project
from eventlog.store.location import open_store


@dataclass(frozen=True, slots=True)
class ChangeWork(Work):
    """The changes of some versions, in shares of about equal weight.

    Attributes:
        reading: how steps become batches.
        schema: what Spark expects of every batch.
        shares: the steps of each task, pickled.
    """

    reading: ChangeReading
    schema: pa.Schema
    shares: Sequence[bytes]

    def without_shares(self) -> ChangeWork:
        """Return the same without shares."""
        return replace(self, shares=())

    def batches(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """See `Work.batches`."""
        steps: list[Step] = pickle.loads(share)  # noqa: S301 - from this program's own driver
        for batch in self.reading.batches(steps):
            yield from retyped(pa.Table.from_batches([batch]), self.schema).to_batches()


def schema_of(snapshot: Snapshot, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of changes: the columns asked for, and those of changes.

    Raises:
        InvalidInput: a column is unknown, named twice, or has the name of one of those.
    """
    names = project(snapshot.schema, columns, snapshot.stored_schema).names
    asked = change_planning.change_question(snapshot.state, names, None)
    return pa.schema([*asked.schema, *COLUMNS])


def table_columns(schema: StructType) -> StructType:
    """Return a schema without the columns that only changes have.

    Raises:
        InvalidInput: one of these has another type than in changes.
    """
    return without_columns_of(schema, COLUMNS)


def of_options(given: SparkOptions, schema: StructType, last: Snapshot) -> ChangeWork:
    """Return the work of a batch read of changes.

    Args:
        given: the options.
        schema: the columns for Spark.
        last: the last version.

    Raises:
        InvalidInput: an option is wrong, or the schema has columns that there are not.
        NotFound: there is no such version, or it was vacuumed.
    """
    columns = table_columns(schema)
    check_schema_columns(given, columns)
    table = Table(open_store(given.path, given.storage))
    table.session.adopt(last.state)
    start = max(1, _first(given, table, last)) - 1
    if start > last.version:
        raise InvalidInput(
            f"version {start + 1} is the first to read, but {last.version} is the last: give an "
            "earlier startingVersion or startingTimestamp"
        )
    first = kept_snapshot(table, start)
    asked = change_planning.change_question(
        last.state, columns.names, where_of(given), given.overflow
    )
    versions = change_planning.read_versions(table, first, last.version)
    clock = last.meta.clock
    plan = change_planning.plan_changes(start, last.version, versions, table.snapshot, asked, clock)
    target = given.whole("targetBytes", DEFAULT_TARGET_BYTES, 1) or DEFAULT_TARGET_BYTES
    return share_out_changes([plan], table, last, schema, target, memory_bytes=given.memory_bytes)


def share_out_changes(
    plans: Sequence[ChangePlan],
    table: Table,
    columns: Snapshot,
    schema: StructType,
    target_bytes: int,
    *,
    memory_bytes: int | None = None,
) -> ChangeWork:
    """Return the work of plans, one after another.

    Args:
        plans: one or more, which ask for the same columns and rows.
        table: the table.
        columns: the version that has the columns.
        schema: the columns for Spark, in this order.
        target_bytes: stored bytes per share.
        memory_bytes: about how many bytes of Arrow data a task holds; None: the default.

    Raises:
        InvalidInput: the schema has columns that there are not, or that have another type.
    """
    check_schema(table_columns(schema), columns)
    memory_bytes = DEFAULT_MEMORY_BYTES if memory_bytes is None else memory_bytes
    reading = reading_of(plans[0], table, columns, DEFAULT_BATCH_ROWS, memory_bytes)
    times = {version: time for plan in plans for version, time in plan.times.items()}
    steps = [step for plan in plans for step in plan.steps]
    shares = [pickle.dumps(share) for share in _shares(steps, target_bytes)]
    return ChangeWork(replace(reading, times=times), declared(schema), shares)


def _first(given: SparkOptions, table: Table, last: Snapshot) -> int:
    """Return the first version whose changes are read."""
    timestamp = given.named.get("startingTimestamp")
    if timestamp is None:
        start = given.version("startingVersion")
        return 1 if start is None else version_number(table.session, start) or 1
    try:
        return history.checked_version_at(table.session.log, last, to_ms(timestamp) - 1) + 1
    except VersionNotFound:
        return 1


def _shares(steps_to_read: Iterable[Step], target_bytes: int) -> Iterator[list[Step]]:
    """Yield the steps of each task, in order."""
    share: list[Step] = []
    size = 0
    for step in steps_to_read:
        for part in _parts(step, target_bytes):
            own = sum(s.bytes + OPEN_BYTES for s in change_steps.segments_to_read(part))
            if share and size + own > target_bytes:
                yield share
                share, size = [], 0
            last = share[-1] if share else None
            if isinstance(last, Appended) and isinstance(part, Appended):
                share[-1] = Appended((*last.segments, *part.segments))  # read ahead together
            else:
                share.append(part)
            size += own
    if share:
        yield share


def _parts(step: Step, target_bytes: int) -> Iterator[Step]:
    """Yield a step in parts for different tasks."""
    match step:
        case Appended(segments):
            yield from (Appended((segment,)) for segment in segments)
        case Exchanged(version, dropped, added) if not dropped or change_steps.only_deletes(step):
            left = {s.id: (s,) for s in added if dropped}
            yield from (Exchanged(version, (s,), left.get(s.id, ())) for s in dropped)
            yield from (Exchanged(version, (), (s,)) for s in added if not dropped)
        case Written(after, runs):
            for share in slice_shares.merging_shares(runs, target_bytes, OPEN_BYTES):
                yield Written(after, tuple(share))
        case _:
            yield from change_steps.portions(step, target_bytes)
