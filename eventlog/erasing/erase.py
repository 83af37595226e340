"""`erase`: deletes rows, ends every object that has them, and proves it by a search.

Each step leaves a table that the next call goes on with, wherever it dies: the delete commits once,
segments with deleted rows are found by their bytes, and a vacuum continues its own.
"""

from __future__ import annotations

import ast
import logging
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Snapshot, Table
from eventlog.compaction import Policy, VacuumReport, run, vacuum
from eventlog.erasing.report import (
    CopyOfTable,
    ErasureReport,
    Hold,
    Holding,
    ObjectLocation,
    held_back,
    holds_of,
)
from eventlog.erasing.rewriting_tasks import segments_with, tasks_for
from eventlog.erasing.search import Progress, Searched, has_traces, local_key, search
from eventlog.erasing.sought import Sought
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.format.frames.entry_columns import to_segments
from eventlog.model.properties import setting
from eventlog.query.predicate import Where
from eventlog.readers import scan
from eventlog.session.branch_pins import PREFIX
from eventlog.session.tags import TAG_OWNER
from eventlog.state.small import holds as held
from eventlog.state.small.holds import holds
from eventlog.store.local import LocalStore
from eventlog.store.port import store_time_ms
from eventlog.telemetry.signals import traced
from eventlog.writers import delete

_ROUNDS = 10  # of rewriting, while others commit
_OPERATION = "erase"
_LOOKED_BACK = 50  # versions among which the end of an earlier erasure is looked for
_HOUR_MS = 3_600_000
_LONGEST_WAIT_MS = 5_000
_WAITS = 10

logger = logging.getLogger(__name__)


def _facts(report: ErasureReport) -> dict[str, int | bool]:
    """Return the attributes of an erasure's span."""
    return {
        "dry_run": report.dry_run,
        "version": report.version,
        "rewritten": report.rewritten,
        "objects": len(report.searched),
        "left": len(report.left),
    }


@traced("eventlog.erase", _facts)
def erase(
    t: Table,
    where: Where,
    *,
    dry_run: bool = True,
    retention: timedelta | None = None,
    policy: Policy | None = None,
    progress: Progress | None = None,
) -> ErasureReport:
    """Delete rows, end what is stored of them as far as nothing holds it, and search for the rest.

    The rows are deleted, the segments that have them are written again without them, and a vacuum
    deletes the old ones and cuts the log. Then every object under the root is read, whether the log
    names it or not. What pins, branches, copies or the retention hold back stays, and the report
    names it; a call with the same predicate goes on where this one ended, also after a crash.

    The predicate is over the columns of the newest version, and is applied to older files by the
    ids of columns. The rows go as a whole, with the values of columns that were dropped. In a keyed
    table all that is stored of the keys of these rows goes; of a key whose row the predicate does
    not select any more, the older rows that it selects.

    Args:
        t: the table, or a branch.
        where: selects the rows: SQL text or a pyarrow expression.
        dry_run: change nothing: only search, and report what holds older versions.
        retention: how long older versions stay readable, as in `eventlog.compaction.vacuum`; by the
            property `retention_hours` if None. 0 ends them, and uploads that are under way, at
            once: who reads an older version then finds it vacuumed.
        policy: sizes and memory of the rewriting.
        progress: called with (name of the step, amount done, total or 0).

    Raises:
        CommitConflict, CommitUnknown, Corrupt, TableNotFound, UnsupportedFormat, VersionNotFound:
            see `eventlog.compaction.vacuum` and `eventlog.writers.delete`. Run it again.
        DataLoss: a live segment is missing or damaged.
        InvalidInput: the predicate or the retention is wrong.
        Unavailable: the store does not answer.
    """
    if retention is not None and not (
        isinstance(retention, timedelta) and retention >= timedelta(0)
    ):
        raise InvalidInput("retention must be a datetime.timedelta of 0 or more")
    chosen = (policy or Policy()).check()
    steps = progress or (lambda *_: None)
    sought = Sought.of(t.refresh(), where)
    if sought.keyed:
        sought = sought.with_keys(_keys_of(t, where, sought, chosen))
    work = _Work(t, where, chosen, steps)
    if not dry_run:
        work.delete()
        work.rewrite(sought)
    ages = _Ages.of(t.session.head(), retention)
    report = work.vacuum(sought, ages, dry_run=dry_run)
    searched = _searched(t, sought, steps)
    return work.report(searched, report, ages, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Ages:
    """How long versions and uploads are kept."""

    retention: timedelta
    staging: timedelta

    @classmethod
    def of(cls, head: Snapshot, retention: timedelta | None) -> _Ages:
        """Return the given retention, or that of the table; uploads are held no longer than it."""
        hours = [setting(head.properties, f"{name}_hours") for name in ("retention", "staging")]
        kept, upload = (timedelta(hours=number) for number in hours)
        kept = kept if retention is None else retention
        return cls(kept, min(kept, upload))


class _Work:
    """The steps of one erasure."""

    def __init__(self, t: Table, where: Where, policy: Policy, progress: Progress) -> None:
        self._t, self._where, self._policy, self._progress = t, where, policy, progress
        self._deleted: int | None = None
        self._rewritten = 0
        self._failed = list[str]()

    def delete(self) -> None:
        """Delete the rows of the newest version."""
        change = delete(self._t, where=self._where, memory_bytes=self._policy.memory_bytes)
        if change.committed:
            self._deleted = int(change)

    def rewrite(self, sought: Sought) -> None:
        """Write the live segments that have the rows again, as long as there are some."""
        for number in range(_ROUNDS):
            head = self._t.refresh()
            segments = segments_with(self._t, head, sought)
            if not segments:
                self._failed = []
                break
            tasks = tasks_for(head, segments, self._policy)
            done = run(self._t, tasks, policy=self._policy, progress=self._progress)
            self._failed = [str(x.error) for x in done.outcomes if not x.ok]
            self._rewritten += sum(x.segments_in for x in done.outcomes if x.ok)
            # What a merge must keep, it keeps in each round.
            if not number and sought.keyed and all(x.ok for x in done.outcomes):
                continue
            if not any(x.status == "done" for x in done.outcomes):
                break

    def vacuum(self, sought: Sought, ages: _Ages, *, dry_run: bool) -> VacuumReport:
        """Delete what no kept version needs, and cut the log below these."""
        if not dry_run:
            outlasted = self._outlast(sought)
            if outlasted or not self._is_marked():
                self._mark()
            self._wait(ages)
            self._end_temporary(ages)
        return vacuum(
            self._t,
            dry_run=dry_run,
            retention=ages.retention,
            staging=ages.staging,
            full=True,
            log=True,
            log_retention=ages.retention,
            progress=self._progress,
        )

    def _mark(self) -> None:
        """Commit a version that starts from a key frame without the rows, for the horizon.

        The packs of a version are those of the key frame that it starts from.
        """
        self._t.refresh()
        self._t.session.write_keyframe()
        self._t.commit(self._t.transaction(_OPERATION, []))

    def _outlast(self, sought: Sought) -> bool:
        """Commit versions until the windows of intents end that may have the rows.

        A cut of the log ends these intents. At most 64 versions, since no window is longer.
        """
        head = self._t.refresh()
        windows = [
            parsed[0]
            for row in self._t.store.list(keys.INTENTS_PREFIX)
            if (parsed := keys.parse_intent_key(row.key)) is not None
            and parsed[0] >= head.version
            and has_traces(self._t.store, row, sought)
        ]
        last = max(windows, default=-1)
        while self._t.refresh().version <= last:  # against intent-that-stays-open
            self._t.commit(self._t.transaction(_OPERATION, []))
        return bool(windows)

    def _wait(self, ages: _Ages) -> None:
        """Wait until the retention has passed, if that takes a few seconds at most.

        The clock of a store may show whole seconds, and commits are stamped apart.
        """
        head = self._t.refresh()
        for _ in range(_WAITS):  # against vacuum-before-its-second
            left_ms = head.header.time + _ms(ages.retention)
            left_ms -= store_time_ms(self._t.store, self._t.clock)
            if not 0 < left_ms <= _LONGEST_WAIT_MS:
                return
            self._t.clock.sleep((left_ms + 1) / 1000)
            self._t.refresh()  # an answer of the store has its time

    def _end_temporary(self, ages: _Ages) -> None:
        """Delete what puts into a directory have left; one that is under way is repeated."""
        store, before = self._t.store, self._t.clock.now_ms() - _ms(ages.staging)
        if isinstance(store, LocalStore):
            store.delete_temporary(f for f in store.temporary_files() if f.time <= before)

    def _is_marked(self) -> bool:
        """Return whether an erasure has ended here, and vacuums alone have committed since."""
        if self._deleted is not None or self._rewritten:
            return False
        return self._end() is not None

    def _end(self) -> int | None:
        """Return the time (ms UTC) of the version with which an erasure ended."""
        for entry in self._t.history(limit=_LOOKED_BACK):
            if entry.operation == _OPERATION:
                return int(entry.time.timestamp() * 1000)
            if entry.operation != "vacuum":
                return None
        return None

    def report(
        self, searched: Searched, vacuumed: VacuumReport, ages: _Ages, *, dry_run: bool
    ) -> ErasureReport:
        """Return the report."""
        t = self._t
        head = t.refresh()
        holding = self._holding(head, vacuumed, ages)
        left = (one for one in searched.objects if one.verdict != "none")
        found = []
        for one in left:
            branches, key = local_key(one.key)
            place = ObjectLocation(branches, keys.parse_data_key(key) is not None)
            segments = searched.segments.get(one.key, frozenset())
            found.append((one, holds_of(one, place, segments, holding)))
        ended = 0 if vacuumed.log is None else sum(n for n, _ in vacuumed.log.sums.values())
        return ErasureReport(
            table=t.uri,
            where=str(self._where),
            dry_run=dry_run,
            version=head.version,
            deleted=self._deleted,
            rewritten=self._rewritten,
            vacuumed=0 if dry_run else vacuumed.deleted.objects + ended,
            searched=tuple(searched.objects),
            held_by=held_back(t.uri, found, holding),
            copies=tuple(
                CopyOfTable(name=name, owner=replica.owner, acked=replica.acked)
                for name, replica in sorted(head.meta.replicas.items())
            ),
            failures=tuple(self._failed),
        )

    def _holding(self, head: Snapshot, vacuumed: VacuumReport, ages: _Ages) -> Holding:
        """Return what holds older versions back, and until when."""
        since = self._end() or head.header.time
        by_reason = dict[str, Hold]()
        of_log = list[Hold]()
        for one in holds(head.meta):
            if one.version >= head.version:
                continue
            named = _hold(one)
            by_reason[f"{one.kind} {one.name!r} of {one.owner}"] = named
            of_log.append(named)
        for reason in {*vacuumed.kept}:
            if reason.startswith("branch "):
                by_reason[reason] = "branch", ast.literal_eval(reason.removeprefix("branch "))
        if self._t.store.forks:  # the log of a branch ends with it
            of_log = [("branch", self._t.store.forks[0].name)]
        hours = setting(head.properties, "tombstone_hours")
        return Holding(
            live=frozenset(entry.id for entry in to_segments(head.entries())),
            reasons=vacuumed.reasons,
            by_reason=by_reason,
            holds=of_log,
            retention=since + _ms(ages.retention),
            staging=since + _ms(ages.staging),
            tombstones=since + 2 * hours * _HOUR_MS,
        )


def _hold(one: held.Hold) -> Hold:
    """Return a pin or a replica as the report has it."""
    if one.kind == "replica":
        return "copy", one.name
    if one.name.startswith(PREFIX):
        return "branch", one.name.removeprefix(PREFIX)
    return ("tag" if one.owner == TAG_OWNER else "pin"), one.name


def _ms(time: timedelta) -> int:
    return int(time / timedelta(milliseconds=1))


def _keys_of(t: Table, where: Where, sought: Sought, policy: Policy) -> pa.Table:
    """Return the keys that the predicate selects in the newest version."""
    return scan(t, [*sought.key], where, memory_bytes=policy.memory_bytes).to_table()


def _searched(t: Table, sought: Sought, progress: Progress) -> Searched:
    """Search every object; in a keyed table for the keys of rows that are stored, too.

    A key whose row is there, and is not selected, stays: then its older rows alone are sought.
    """
    if not sought.keyed or sought.names_keys:
        return search(t.store, sought, progress)
    first = search(t.store, sought, progress)
    stored = _distinct(first.keys, sought)
    if stored is None:
        return first
    gone = _without_live(t, sought, stored)
    known = sought.keys
    more = gone if known is None else _distinct([known, gone], sought)
    if more is None or (known is not None and more.num_rows == known.num_rows):
        return first  # it has sought these keys already
    return search(t.store, sought.with_keys(more), progress)


def _distinct(tables: list[pa.Table], sought: Sought) -> pa.Table | None:
    rows = sum(table.num_rows for table in tables)
    if not rows:
        return None
    return pa.concat_tables(tables).group_by([*sought.key], use_threads=False).aggregate([])


def _without_live(t: Table, sought: Sought, stored: pa.Table) -> pa.Table:
    """Return those of some keys that have no row in the newest version."""
    where = None
    if len(sought.key) == 1:
        (name,) = sought.key
        where = pc.field(name).isin(stored.column(name).combine_chunks())
    live = scan(t, [*sought.key], where).to_table().cast(stored.schema)
    return stored.join(live, [*sought.key], join_type="left anti", use_threads=False)
