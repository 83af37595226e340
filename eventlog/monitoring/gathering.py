"""The figures of a table, read from its log, from the planner and from a vacuum's dry run.

Imports eventlog and compaction. It commits and deletes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from eventlog import Snapshot, Table
from eventlog.arguments import is_number, whole
from eventlog.compaction.planner.candidates import expected_outputs, stored_chunks
from eventlog.compaction.planner.planning import plan
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.compaction.vacuum import vacuum as dry_vacuum
from eventlog.errors import InvalidInput, VersionNotReplicated
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import keyed_of
from eventlog.model.chunks import utc
from eventlog.model.properties import setting
from eventlog.monitoring.daily import Daily, daily
from eventlog.monitoring.prices import S3_STANDARD
from eventlog.monitoring.table_stats import (
    CompactionGain,
    CopyStats,
    HoldStats,
    KeptObjects,
    SliceSegments,
    TableStats,
    VacuumGain,
)
from eventlog.replication.attachment import newest_news
from eventlog.state.small.holds import holds
from eventlog.state.small.timing import effective_time
from eventlog.store.branching.roots import held_from
from eventlog.store.port import store_time_ms

DAYS = 7.0
VERSIONS = 256
MOST_DAYS, MOST_VERSIONS = 36_500, 1_000_000
_NO_QUEUE = 1_000_000  # all tasks count, also those that would be deferred


def stats(
    t: Table,
    policy: Policy | None = None,
    *,
    days: float = DAYS,
    versions: int = VERSIONS,
    vacuum: bool = False,
) -> TableStats:
    """Return the figures of a table for its operator. Commits and deletes nothing.

    Costs the entries of all live segments, and one GET of 2 KB for each version of which the rates
    are made; with copies attached, the newest commits, until one is not theirs.

    Args:
        t: the table.
        policy: the settings of compaction; the defaults if None.
        days: the rates are those of the last days,
        versions: and of no more than this number of versions.
        vacuum: also ask what a vacuum would delete and keep, which reads the commits since the last
            one, and lists the uploads since then.

    Raises:
        Corrupt: the log does not add up.
        InvalidInput: an argument is wrong.
        Unavailable: the store does not answer.
    """
    most = whole(versions, "versions", low=1, high=MOST_VERSIONS)
    if not is_number(days) or not 0 < days <= MOST_DAYS:  # in this form it refuses NaN too
        raise InvalidInput(f"days must be a number above 0, at most {MOST_DAYS}, not {days!r}")
    chosen = structs.replace((policy or Policy()).check(), max_queue=_NO_QUEUE)
    head = t.refresh()
    now_ms = max(store_time_ms(t.store, t.clock), head.header.time)
    rates = daily(
        t.history(head.version, most + 1),
        utc(now_ms),
        span=timedelta(days=days),
        keyframe_commits=setting(head.properties, "keyframe_commits"),
        prices=S3_STANDARD,
    )
    planned = plan(t, chosen, version=head.version, now_ms=now_ms)
    vacuumed = _of_vacuum(t) if vacuum else None
    return _of(t, head, planned, rates=rates, now=utc(now_ms), vacuumed=vacuumed)


def _of(
    t: Table,
    head: Snapshot,
    planned: Plan,
    *,
    rates: Daily,
    now: datetime,
    vacuumed: VacuumGain | None,
) -> TableStats:
    entries, good_bytes = head.entries(), planned.policy.good_bytes
    small = entries.filter(pc.less(entries.column("bytes"), good_bytes))
    oldest = max(head.meta.horizon, held_from(t.store.forks))
    horizon, horizon_time = _first_from(t, head, oldest)
    return TableStats(
        table=t.uri,
        version=head.version,
        time=head.timestamp,
        read_time=now,
        time_chunks=len(stored_chunks(entries)),
        segments=entries.num_rows,
        rows=head.totals.rows,
        bytes=_bytes(entries),
        deleted_rows=entry_columns.deleted_sum(entries),
        small_segments=small.num_rows,
        small_bytes=_bytes(small),
        good_bytes=good_bytes,
        by_kind=None if keyed_of(head.layout) is None else _by_kind(entries),
        compaction=_gain(planned),
        vacuum=vacuumed,
        horizon=horizon,
        horizon_time=horizon_time,
        retention_hours=setting(head.properties, "retention_hours"),
        holds=tuple(
            HoldStats(kind=h.kind, name=h.name, version=h.version) for h in holds(head.meta)
        ),
        copies=_copies(t, head, now),
        daily=rates,
        storage_dollars=round(S3_STANDARD.storage(head.totals.bytes, days=1), 6),
        prices=f"{S3_STANDARD.source} of {S3_STANDARD.date}",
    )


def _bytes(entries: pa.Table) -> int:
    return int(pc.sum(entries.column("bytes"), min_count=0).as_py())


def _by_kind(entries: pa.Table) -> SliceSegments:
    is_log = pc.equal(entries.column("slice_kind"), "log")
    logs, others = entries.filter(is_log), entries.filter(pc.invert(is_log))
    return SliceSegments(
        base_segments=others.num_rows,
        base_bytes=_bytes(others),
        log_segments=logs.num_rows,
        log_bytes=_bytes(logs),
    )


def _gain(planned: Plan) -> CompactionGain:
    """Return what the tasks of a plan would do, each input counted once."""
    inputs = {segment.id: segment for task in planned.tasks for segment in task.inputs}
    outputs = sum(_least_outputs(task, planned.policy) for task in planned.tasks)
    return CompactionGain(
        planned=len(planned.tasks),
        inputs=len(inputs),
        input_bytes=sum(segment.bytes for segment in inputs.values()),
        outputs=outputs,
        saved=max(0, len(inputs) - outputs),
        freed=sum(
            segment.bytes * (segment.rows - segment.live_rows) // max(1, segment.rows)
            for segment in inputs.values()
        ),
        skipped=len(planned.skipped),
    )


def _least_outputs(task: Task, policy: Policy) -> int:
    # What comes out of a merge of slices depends on the keys.
    return 1 if task.buckets is not None else expected_outputs(task, policy)[0]


def _first_from(t: Table, head: Snapshot, version: int) -> tuple[int, datetime]:
    """Return the first version from `version` on that a copy has, and its time."""
    log = t.session.log
    try:
        header = log.header(version)
    except VersionNotReplicated:
        start = log.starts.above(version)
        header = head.header if start is None else log.header(start.version)
    return header.version, utc(effective_time(head.meta.clock, header.version, header.time))


def _copies(t: Table, head: Snapshot, now: datetime) -> tuple[CopyStats, ...]:
    attached = sorted(head.meta.replicas.items())
    newest = newest_news(t.session) if attached else 0
    found = []
    for name, replica in attached:
        behind, behind_s = max(0, newest - replica.acked), 0.0
        if behind:
            _, since = _first_from(t, head, replica.acked + 1)
            behind_s = max(0.0, (now - since).total_seconds())
        found.append(
            CopyStats(
                name=name,
                root=replica.owner,
                acked=replica.acked,
                behind=behind,
                behind_s=round(behind_s, 3),
            )
        )
    return tuple(found)


def _of_vacuum(t: Table) -> VacuumGain:
    report = dry_vacuum(t, dry_run=True)
    return VacuumGain(
        objects=report.deleted.objects,
        bytes=report.deleted.bytes,
        retained=tuple(
            KeptObjects(reason=reason, objects=sums.objects, bytes=sums.bytes)
            for reason, sums in report.kept.items()
        ),
    )
