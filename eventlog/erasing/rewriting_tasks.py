"""Which live segments have sought rows in their bytes, and the tasks that write them again.

The rows are deleted by then: a deletion vector hides them, or a delete of their key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, structs

from eventlog import Snapshot, Table
from eventlog.compaction.planner.slice_planning import merges_of
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, task_id
from eventlog.erasing.sought import Sought
from eventlog.format.frames.entry_columns import to_segments, with_vector
from eventlog.keyed.slices import readable_runs
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.query.predicate import parse_predicate
from eventlog.segments.fragments import Reading

_MOST_KEYS = 10_000  # by which segments are pruned


def segments_with(t: Table, head: Snapshot, sought: Sought) -> list[Segment]:
    """Return the live segments whose bytes have sought rows, deleted or not.

    In a table without a key, where all sought rows were deleted, these are among those that have a
    deletion vector; in a keyed table among those whose statistics admit such rows.

    Args:
        t: the table.
        head: its newest version.
        sought: the rows.

    Raises:
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    entries = head.entries()
    if not sought.keyed:
        entries = with_vector(entries)
    if not entries.num_rows:
        return []
    entries = entries.filter(_admits(entries, sought))
    # Their deleted rows are read, too.
    bare = {s.id: s for s in to_segments(entries)}
    fields = sought.fields
    reading = Reading(
        t.store, head.version, head.stored_schema, fields, fields, table=head.header.table
    )
    found = set[str]()
    whole = [structs.replace(segment, vector=UNSET) for segment in bare.values()]
    for segment, batch in reading.located(whole):
        if segment.id not in found and sought.matches(pa.Table.from_batches([batch])).rows:
            found.add(segment.id)
    return [segment for name, segment in bare.items() if name in found]


def _admits(entries: pa.Table, sought: Sought) -> pa.Array:
    """Return for each entry whether its statistics admit sought rows."""
    may = sought.predicate.prune(entries, sought.time_column)
    if sought.keys is None or not sought.keys.num_rows:
        return may
    if len(sought.key) > 1 or sought.keys.num_rows > _MOST_KEYS:
        return pa.repeat(pa.scalar(True), entries.num_rows)
    (name,) = sought.key
    known = sought.keys.column(name).combine_chunks()
    of_keys = parse_predicate(pc.field(name).isin(known), sought.schema)
    return pc.or_(may, of_keys.prune(entries, sought.time_column))


def tasks_for(head: Snapshot, segments: Sequence[Segment], policy: Policy) -> list[Task]:
    """Return the tasks that write segments again without their deleted rows.

    Args:
        head: the newest version.
        segments: live segments of it.
        policy: the sizes.
    """
    rule = head.merge_rule
    if rule is not None:
        chunks = {segment.chunk for segment in segments}
        live = [s for s in to_segments(head.entries()) if s.chunk in chunks]
        return merges_of(
            readable_runs(live, rule),
            {segment.id for segment in segments},
            policy,
            table=head.header.table,
            version=head.version,
            granularity=head.layout.granularity,
        )
    return [_task(head, group) for group in _groups(segments, policy)]


def _groups(segments: Sequence[Segment], policy: Policy) -> Iterator[list[Segment]]:
    """Yield the segments of each time chunk, as many together as one task may read."""

    def place(segment: Segment) -> tuple[int, int, int, int]:
        chunk = parse_chunk(segment.chunk)
        return chunk.start, chunk.end, segment.version, segment.partition

    for _, of_chunk in groupby(sorted(segments, key=place), key=lambda segment: segment.chunk):
        group, size = list[Segment](), 0
        for segment in of_chunk:
            if group and size + segment.bytes > policy.max_task_bytes:
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.bytes
        yield group


def _task(head: Snapshot, inputs: Sequence[Segment]) -> Task:
    granularity = parse_chunk(inputs[0].chunk).granularity
    named = [(segment.id, segment.version) for segment in inputs]
    return Task(
        id=task_id(head.header.table, granularity, named),
        version=head.version,
        granularity=granularity,
        chunks=(inputs[0].chunk,),
        inputs=tuple(inputs),
        priority=1.0,
        reason="rows of these segments are erased",
    )
