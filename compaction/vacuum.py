"""Vacuum: deletes objects that no kept version needs.

Imports eventlog only. Commits the marks (fence and horizon), reads the segments that are live after
them, then deletes (FORMAT.md R12.5; hazard V3). A vacuum that crashes at any point has deleted
garbage only, and the next one continues from the last record. Its cost depends on the commits and
uploads since then, not on the size of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice

from msgspec import UNSET

from eventlog import Snapshot, Table
from eventlog.commit.proposal import check_writable
from eventlog.compaction.log_vacuum import LogSums, cut_log
from eventlog.display import command
from eventlog.errors import (
    CommitConflict,
    CommitUnknown,
    Corrupt,
    InvalidInput,
    VersionNotFound,
    VersionNotReplicated,
)
from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.log import history
from eventlog.log.diff import confirmed, dropped
from eventlog.log.log import HEAD_PAGE
from eventlog.model.actions import Fence, Horizon, Swept
from eventlog.model.entries import Spill, Sweep
from eventlog.model.properties import INLINE, setting
from eventlog.model.records import Meta
from eventlog.publishing.delta.delta_removal import cut_delta
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX as DELTA_PREFIX
from eventlog.publishing.iceberg.iceberg_cut import cut_iceberg
from eventlog.publishing.iceberg.manifest_publisher import PREFIX as ICEBERG_PREFIX
from eventlog.quantities import count_text
from eventlog.recovery import garbage
from eventlog.recovery.garbage import Dropped, Marks
from eventlog.recovery.old_packs import old_packs
from eventlog.session.branch_pins import check_branch_pinned
from eventlog.state.small.holds import check_marks, holds
from eventlog.state.small.timing import check_leap
from eventlog.store.branching.roots import is_own
from eventlog.store.location import place_of
from eventlog.store.port import store_time_ms
from eventlog.store.retry import put_once
from eventlog.table.branching import keeping
from eventlog.table.branching.keeping import Kept
from eventlog.telemetry.signals import traced

_BATCH = 1000  # keys of one delete request
_LOOKED_UP = 5000  # listed keys that are compared with the live set per step
_MAX_CONFLICTS = 20
_LINKED = 1000  # kept commits that are read only to check what raises the horizon
_OWN = 100  # headers that are read to learn whether vacuums alone committed them

_PUBLISHED = (ICEBERG_PREFIX, DELTA_PREFIX)

# Called with the name of the step, the amount done, and the total (0: unknown).
Progress = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class VacuumSums:
    """A number of objects and their bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one object."""
        self.objects += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum deleted and kept, or would.

    Attributes:
        table: the table's root URI.
        dry_run: whether it was a dry run, which changes nothing.
        version: the version whose live segments were kept.
        fence: staged objects of epochs below it can no longer be committed.
        horizon: versions below it can no longer be read.
        gone: what was (or would be) deleted, by kind: `dropped` segments and deletion vectors, and
            `unnamed` objects, which no kept or examined version references: unfinished uploads, and
            segments dropped long before the first vacuum; `published`, if there is any: what is
            published for other engines of versions below the horizon; `packs` of key frames below
            it, whose rows the commits have.
        kept: objects that are not live but kept, by reason: `retention`, `pin 'name' of owner`,
            `replica 'name' of owner`, `branch 'name'`, `versions that this copy lacks`, `staging`
            (also uploads above the fence).
        retained: the newest version that dropped an object kept for the `retention`; 0 if none is.
            When this version is as old as the retention, the next vacuum deletes all of these.
        log: what a vacuum of the log ended; None if it was not asked for.
        reasons: the same reasons for each object that is not live and kept, by its key; without
            those above the fence, which are kept for `staging`.
    """

    table: str
    dry_run: bool
    version: int
    fence: int
    horizon: int
    gone: Mapping[str, VacuumSums]
    kept: Mapping[str, VacuumSums]
    retained: int = 0
    log: LogSums | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def deleted(self) -> VacuumSums:
        """The sums of `gone`, over all kinds."""
        gone = self.gone.values()
        return VacuumSums(sum(sums.objects for sums in gone), sum(sums.bytes for sums in gone))


def _facts(report: VacuumReport) -> dict[str, int | bool]:
    """Return the attributes of a vacuum's span."""
    return {
        "dry_run": report.dry_run,
        "version": report.version,
        "horizon": report.horizon,
        "objects": report.deleted.objects,
        "bytes": report.deleted.bytes,
    }


@traced("eventlog.vacuum", _facts)
def vacuum(
    t: Table,
    *,
    dry_run: bool = True,
    retention: timedelta | None = None,
    staging: timedelta | None = None,
    full: bool = False,
    log: bool = False,
    log_retention: timedelta | None = None,
    progress: Progress | None = None,
) -> VacuumReport:
    """Delete the segments and deletion vectors that no kept version needs, and abandoned uploads.

    Versions below the horizon become `VersionVacuumed`; the log stays, unless `log` is set. Pins,
    branches and replicas hold the horizon back. If no pin holds a branch under the root, as after
    the table has followed a copy, the vacuum pins it again; if the horizon has passed the branch
    already, the objects that it reads are kept all the same. A vacuum of a branch deletes only the
    branch's own objects. Safe to run beside any number of writers, readers and other vacuums. If it
    crashes at any point, run it again.

    Args:
        t: the table.
        dry_run: delete nothing; report what would be deleted, and why the rest is kept.
        retention: how long versions stay readable. By the property `retention_hours` if None, but
            older ones, too, where that would free and hide nothing; see FORMAT.md 10.1.
        staging: how long an upload may take before it is fenced; `staging_hours` of it if None.
        full: list the whole table instead of the epochs since the last vacuum. Finds objects that a
            stale listing missed, late uploads into an epoch that was already listed, and with `log`
            what earlier vacuums left below the cut.
        log: cut the log, too: of commits that are older than its retention, and below the horizon
            and every branch, only stubs are left, and their key frames, spills and intents are
            deleted. These versions become `VersionCut`; a branch is never cut.
        log_retention: how long commits are kept then; `log_retention_hours` of the table if None.
            A time that is given is obeyed even where it ends a few commits only.
        progress: called with (name of the step, amount done, total or 0).

    Raises:
        CommitConflict: other writers kept changing pins or marks; nothing was deleted, try again.
            Or the table is a branch that accepts no first commit, see `Table.commit`.
        CommitUnknown: it is unknown whether the marks were committed; nothing was deleted. See
            `Table.commit`.
        Corrupt: the log breaks its format or lost its end, or it is unknown which objects a branch
            reads; nothing more is deleted.
        InvalidInput: retention or staging is negative or not a timedelta. Or the log is to be cut,
            and neither the property nor the call says how long it is kept.
        TableNotFound: the table was replaced or removed.
        Unavailable: the store does not answer; run it again.
        UnsupportedFormat: the table needs a newer release (hazard V5).
        VersionNotFound: a commit that it reads was removed.
    """
    head = t.refresh()
    log_ms = _log_age(head, log_retention) if log else None
    ages = _Ages.of(head, retention, staging, log_ms)
    steps = progress or (lambda *_: None)
    asked = log_ms is not None and log_retention is not None
    _begin_above(t, wanted=asked and not dry_run)
    report = _vacuumed(t, head, ages, steps, dry_run=dry_run, full=full)
    if log_ms is None:
        return report
    return replace(report, log=cut_log(t, log_ms, steps, asked=asked, run=not dry_run, full=full))


def _begin_above(t: Table, *, wanted: bool) -> None:
    """Write a key frame from which the versions that are kept start, so that all below may go."""
    if wanted and not t.store.forks:
        t.session.write_keyframe()


def _log_age(head: Snapshot, given: timedelta | None) -> int:
    """Return how long the log is kept, in ms.

    Raises:
        InvalidInput: nothing says so, or it is negative or not a timedelta.
    """
    hours = setting(head.properties, "log_retention_hours")
    if given is None and not hours:  # against log-that-is-kept-cut
        raise InvalidInput(
            "the table keeps its log for ever: set the property log_retention_hours, or pass "
            "log_retention (in the shell --log-retention-hours)"
        )
    kept = timedelta(hours=hours) if given is None else given
    if not isinstance(kept, timedelta) or kept < timedelta(0):
        raise InvalidInput("log_retention must be a datetime.timedelta of 0 or more")
    return int(kept / timedelta(milliseconds=1))


def _vacuumed(
    t: Table, head: Snapshot, ages: _Ages, progress: Progress, *, dry_run: bool, full: bool
) -> VacuumReport:
    """Do what `vacuum` does, but the cut of the log."""
    _check_newest(t, head)
    check_marks(head.meta, head.version, t.uri)
    if not dry_run:
        check_branch_pinned(t.store, head.version)  # else every commit would be refused
    if not dry_run and not full and _nothing_new(t, head, ages):
        return _idle(t, head)
    run = _mark(t, ages, progress, dry_run=dry_run, full=full)
    run.cut(delete=not dry_run)
    run.judge(delete=not dry_run)  # against recorded-before-the-deletes
    run.drop_packs(delete=not dry_run, full=full)
    # A record without changes would give the next vacuum something to do, and so on for ever.
    if not dry_run and run.changed:
        run.record()
    return run.report(dry_run=dry_run)


def _last(t: Table, head: Snapshot) -> Sweep | None:
    """Return the record of the last vacuum of this place; None if there is none.

    The log of a copy that takes over contains its source's record, but the copy's garbage differs.
    """
    last = head.meta.swept
    elsewhere = last is not None and last.place not in (UNSET, place_of(t.store))
    return None if elsewhere else last  # against record-of-another-place


@dataclass(frozen=True, slots=True)
class _Ages:
    """The age (ms) at which a version may be vacuumed, an upload fenced, and the log cut."""

    retention_ms: int
    staging_ms: int
    asked: bool  # whether the retention was given, and not the table's own
    log_ms: int | None  # None: it is not cut

    @classmethod
    def of(
        cls,
        head: Snapshot,
        retention: timedelta | None,
        staging: timedelta | None,
        log_ms: int | None,
    ) -> _Ages:
        """Return the given ages, or those in the table's properties."""
        hours = {
            name: setting(head.properties, f"{name}_hours") for name in ("retention", "staging")
        }
        kept = timedelta(hours=hours["retention"]) if retention is None else retention
        upload = timedelta(hours=hours["staging"]) if staging is None else staging
        if not all(isinstance(a, timedelta) and a >= timedelta(0) for a in (kept, upload)):
            raise InvalidInput("retention and staging must be datetime.timedelta of 0 or more")
        kept_ms, upload_ms = (int(age / timedelta(milliseconds=1)) for age in (kept, upload))
        return cls(kept_ms, upload_ms, asked=retention is not None, log_ms=log_ms)


def _check_newest(t: Table, head: Snapshot) -> None:
    """Refuse to delete if the log lost its end: key frames are written after their commits.

    Raises:
        Corrupt: there is a key frame of a version that does not exist.
    """
    rows = t.store.list(keys.LOG_PREFIX, limit=HEAD_PAGE)
    parsed = (keys.parse_log_key(row.key) for row in rows)
    newest = max((p[0] for p in parsed if p and p[1]), default=0)
    if newest <= head.version:
        return
    try:
        t.session.log.header(newest)  # committed after the head was read
    except VersionNotFound:
        raise Corrupt(
            f"there is a key frame of version {newest}, but no such commit: commits were removed, "
            "or an `eventlog replicate` to this root was interrupted; nothing is deleted. Run that "
            "again, restore the commits, or run `eventlog fsck`",
            table=t.uri,
            key=keys.keyframe_key(newest),
            version=newest,
        ) from None


def _idle(t: Table, head: Snapshot) -> VacuumReport:
    """Vacuum a table without news: a publisher that was behind the horizon may have gone on."""
    marks = Marks(head.meta.fence, head.meta.horizon, head.meta.horizon)
    run = _Sweep(t, head, marks, Kept(t.session.log, (), 0), lambda *_: None)
    run.cut(delete=True)  # against idle-vacuum-that-cuts-nothing
    return run.report(dry_run=False)


def _nothing_new(t: Table, head: Snapshot, ages: _Ages) -> bool:
    """Return whether a vacuum would change nothing: `_is_settled`, and nothing is pending.

    Nor are there versions to give up: of an idle table some grow older than the retention, and a
    row that a vector in the log deletes stays readable in them, though they free no object.
    """
    last = _last(t, head)
    if last is None or last.pending is not None or not _is_settled(t, head):
        return False
    # against idle-table-swept
    return _is_of_vacuums(t, head.meta.horizon, _marks(t, head, head.meta, ages).horizon)


def _is_settled(t: Table, head: Snapshot) -> bool:
    """Return whether nothing was committed or uploaded since the last vacuum's record.

    Without this, every vacuum of an idle table would process the commits of the one before.
    """
    last, meta = _last(t, head), head.meta
    if last is None or head.version != last.version + 1:
        return False
    if (last.fence, last.horizon) != (meta.fence, meta.horizon):
        return False
    after = f"{keys.SEGMENTS_PREFIX}{meta.fence:012d}"
    return not list(t.store.list(keys.SEGMENTS_PREFIX, after=after, limit=1))


def _is_of_vacuums(t: Table, low: int, high: int) -> bool:
    """Return whether vacuums alone committed the versions above `low`, up to `high`.

    Reads headers, the newest first, up to the first commit of another. Of more than `_OWN` versions
    it reads none, and they count as those of others.
    """
    if high - low > _OWN:  # against headers-without-limit
        return False
    try:
        versions = range(high, low, -1)
        # against idle-table-vacuumed-for-ever
        return all(garbage.is_of_vacuum(t.session.log.header(v).changes) for v in versions)
    except VersionNotFound:  # a copy may lack it
        return False


def _mark(t: Table, ages: _Ages, progress: Progress, *, dry_run: bool, full: bool) -> _Sweep:
    """Commit fence and horizon if they advance, and pin branches that no pin holds.

    Returns:
        The sweep, which judges by the snapshot with the marks, with the drops up to this snapshot.
    """
    for _ in range(_MAX_CONFLICTS):  # after a conflict: another transaction, on a newer head
        head = t.refresh()
        check_writable(head.header)  # against newer-table-vacuumed
        check_marks(head.meta, head.version, t.uri)
        # A branch made from here on is pinned first, and its pin conflicts with the horizon.
        branches = keeping.unheld(t.session.log, head)
        # against branch-not-pinned-again
        actions = keeping.pins_again(t.store, branches, head.meta)
        marks = _marks(t, head, keeping.with_pins(head.meta, actions), ages)
        if not full and _is_settled(t, head):  # against pin-keeps-vacuums-busy
            marks = _settled_marks(t, head, marks)
        run = _Sweep(t, head, marks, Kept(t.session.log, branches, marks.horizon), progress)
        # The horizon never falls again, so the commits that justify raising it are checked first.
        try:
            last = None if full else _last(t, head)
            run.gather(last, may_stay=not ages.asked)  # against horizon-before-its-log
        except VersionNotFound:
            t.verify()  # the table may be gone
            raise
        # against given-retention-not-obeyed, horizon-for-nothing
        if not ages.asked and not run.frees():
            marks = replace(marks, horizon=_horizon_of_log(t, head, marks, ages))
            run.stay(marks, Kept(t.session.log, branches, marks.horizon))
            if marks.horizon > head.meta.horizon:
                run.gather(last)
        if marks.fence > head.meta.fence:  # against no-fence-committed
            actions.append(Fence(marks.fence))
        if marks.horizon > head.meta.horizon:  # against no-horizon-committed
            actions.append(Horizon(marks.horizon))
        if dry_run or not actions:
            return run
        try:
            version = t.commit(t.transaction("vacuum", actions))
        except CommitConflict as error:  # a pin was added, or another vacuum advanced the marks
            logger.info("vacuum retries on a newer head: %s", error)
            continue  # against conflict-of-marks-ignored
        marked = t.snapshot(version)
        check_marks(marked.meta, marked.version, t.uri)
        run.move(marked, None if full else _last(t, marked))
        return run
    raise CommitConflict(
        f"other writers changed the fence or horizon {_MAX_CONFLICTS} times in a row; nothing was "
        "deleted, try again",
        table=t.uri,
    )


def _settled_marks(t: Table, head: Snapshot, marks: Marks) -> Marks:
    """Return the marks of a settled table: those that it has, unless there are versions to give up.

    No object is of an epoch above the fence, so that a higher one would free nothing.
    """
    # against settled-table-keeps-its-garbage
    own = _is_of_vacuums(t, head.meta.horizon, marks.horizon)
    horizon = head.meta.horizon if own else marks.horizon
    return replace(marks, fence=head.meta.fence, horizon=horizon)


def _marks(t: Table, head: Snapshot, meta: Meta, ages: _Ages) -> Marks:
    now_ms = store_time_ms(t.store, t.clock)
    check_leap(head.header, now_ms)
    aged = _version_at(t, head, now_ms - ages.retention_ms, meta.horizon)
    staged = _version_at(t, head, now_ms - ages.staging_ms, meta.fence)
    return garbage.marks(meta, aged=aged, staged=staged)


def _horizon_of_log(t: Table, head: Snapshot, marks: Marks, ages: _Ages) -> int:
    """Return the horizon below which the log may be cut, where a higher one would free nothing."""
    known = head.meta.horizon
    if ages.log_ms is None or t.store.forks:  # against horizon-stops-the-cut
        return known
    time_ms = store_time_ms(t.store, t.clock) - ages.log_ms
    return max(known, min(marks.horizon, _version_at(t, head, time_ms, known)))


def _version_at(t: Table, head: Snapshot, time_ms: int, known: int) -> int:
    """Return the newest version at that time, or an older one if a copy lacks this version."""
    try:
        return history.version_at(t.session.log, head, time_ms, known)
    except VersionNotReplicated as missing:  # against vacuum-stopped-by-a-gap
        start = t.session.log.starts.above(missing.version or 0)
        return known if start is None else max(known, start.after)


@dataclass(slots=True)
class _Candidates:
    """Objects that may have to be deleted, by the log and the listing."""

    dropped: dict[str, Dropped] = field(default_factory=dict)
    waiting: list[Dropped] = field(default_factory=list)
    young: VacuumSums = field(default_factory=VacuumSums)


class _Sweep:
    """One sweep after the marks are committed, judged by the one snapshot that has them."""

    def __init__(
        self, t: Table, head: Snapshot, marks: Marks, kept: Kept, progress: Progress
    ) -> None:
        self._t, self._head, self._marks, self._progress = t, head, marks, progress
        self._log = t.session.log
        self._kept = kept
        self._of_branches: dict[str, str] = {}  # keys that are kept for a branch, and its name
        self._absent = 0  # below it this copy may lack versions whose objects it must keep
        self._of_absent = set[str]()  # keys that are kept for these versions
        self._of_ids = set[str]()  # keys that are kept for the ids in them alone
        self._candidates = _Candidates()
        self._gone: dict[str, VacuumSums] = {"dropped": VacuumSums(), "unnamed": VacuumSums()}
        self._unknown = False  # whether drops between the old and the new horizon were not read
        self._previous: Sweep | None = None  # the last vacuum's record
        self._last: Sweep | None = None  # None: there is no record, or it is lost
        self._all_dropped: dict[str, Dropped] = {}  # all dropped segments, also of other roots
        self._recorded: set[str] = set()  # keys of drops that only the record names
        self._corrected = False  # whether the record names versions that the log does not confirm
        self._lost = False  # whether the object of the last vacuum's record is gone
        self._every: dict[bytes, int] | None = None  # the epochs of all live segments, by id
        self._of_vectors: tuple[int, Mapping[str, int]] = -1, {}  # of a version: see `_vectors`

    def gather(self, last: Sweep | None, *, may_stay: bool = False) -> None:
        """Collect dropped segments: those that the last vacuum left, and those of later commits.

        If the horizon rises, the versions from the new horizon on are checked as well.

        Args:
            last: the record of the last vacuum; None if there is none, or it is not to be used.
            may_stay: whether `frees` is asked next. Without a record it needs the drops from the
                table's horizon on, which are read if they are of at most `_LINKED` versions. Of a
                branch it needs none.

        Raises:
            Corrupt: the commits that were read do not belong to one log.
        """
        left = None if last is None else self._left(last)
        self._previous, self._last = last, None if left is None else last
        self._all_dropped = left or {}
        self._recorded = set(self._all_dropped)
        low, horizon = self._head.meta.horizon, self._marks.horizon
        # Before the drops are read: a backfill may close the gap at any time.
        self._absent = self._log.starts.absent_below(horizon)  # against absent-versions-forgotten
        start = horizon if self._last is None else self._last.version
        if may_stay and horizon > low and not self._t.store.forks:
            if self._last is None and horizon - low <= _LINKED:
                start = low
            missed = self._last is None and start > low  # against drops-that-were-not-read
            # against gap-that-stays
            self._unknown = missed or self._log.starts.absent_below(low) > 0
        linked = range(0)
        # The drops up to a fork are not the branch's, and its parent may have cut its log.
        fork = forks[0].version if (forks := self._t.store.forks) else 0
        start, lowest = max(start, fork), max(horizon, fork)
        if horizon > low:  # against horizon-by-another-log
            linked = range(lowest, min(start + 1, lowest + _LINKED))
        self._collect(start, linked)

    def frees(self) -> bool:
        """Return whether a higher horizon frees or hides something, or it cannot be told.

        After `gather`. A header and two LISTs, if retention and holds allow a higher horizon. Of a
        branch it cannot be told: what it dropped of its parent's objects is not recorded.
        """
        low, high = self._head.meta.horizon, self._marks.horizon
        if high == low:
            return False
        if self._unknown or self._t.store.forks:  # against branch-that-keeps-deleted-rows
            return True
        try:
            deleted = self._log.header(high).totals.deleted or 0
        except VersionNotFound:  # a copy may lack it
            return True
        listed = (self._t.store.list(prefix, limit=1) for prefix in _PUBLISHED)
        published = any(map(list, listed))
        return garbage.is_worth_raising(
            low, high, self._candidates.dropped.values(), deleted, published=published
        )

    def stay(self, marks: Marks, kept: Kept) -> None:
        """Judge by a lower horizon than that of `gather`, since that one would free nothing.

        Args:
            marks: with that horizon.
            kept: by that horizon.
        """
        self._marks, self._kept = marks, kept

    def move(self, marked: Snapshot, last: Sweep | None) -> None:
        """Judge by the snapshot that has the marks, and collect the drops up to it."""
        known, self._head = self._head, marked  # against live-set-read-before-the-marks
        if last == self._previous:
            self._collect(known.version, known=known)  # against drops-up-to-the-marks-forgotten
        else:
            self.gather(last)

    def _collect(self, after: int, linked: range = range(0), known: Snapshot | None = None) -> None:
        def report(done: int, total: int) -> None:
            self._progress("versions", done, total)

        until = self._head.version
        for gone in dropped(self._log, after, until, report, linked=linked, known=known):
            for key, size in gone.objects().items():
                known_size = self._all_dropped[key].bytes if key in self._all_dropped else 0
                # Of vectors the last drop counts, and the largest part of the object that is known.
                self._all_dropped[key] = Dropped(key, gone.version, max(size, known_size))
                self._recorded.discard(key)
        own = {k: d for k, d in self._all_dropped.items() if is_own(self._t.store, k)}
        self._candidates.dropped = own  # against branch-counts-its-parents-segments

    def cut(self, *, delete: bool) -> None:
        """Take back what is published of versions below the horizon, before their segments go."""
        horizon = self._marks.horizon
        if not horizon:
            return
        gone = cut_iceberg(self._t.session, horizon, run=delete)
        if not self._t.store.forks:  # no branch is published as Delta
            gone += cut_delta(self._t.session, horizon, run=delete)
        for _, size in gone:
            self._gone.setdefault("published", VacuumSums()).add(size)

    def judge(self, *, delete: bool) -> None:
        """Judge every candidate, and delete the garbage if `delete` is set."""
        candidates, marks = self._candidates, self._marks
        if self._last is None:
            # Without a record there are many candidates: read all leaves once, not once per part.
            ids, epochs = (self._head.entries().column(name) for name in ("id", "epoch"))
            self._every = dict(zip(ids.to_pylist(), epochs.to_pylist(), strict=True))
        live = self._live(candidates.dropped)
        verdict = garbage.verdict(candidates.dropped, live, marks.fence, marks.horizon)
        candidates.waiting = [*verdict.waiting]
        self._spare(garbage.spared(candidates.dropped.values(), live))
        alive = self._still_shown([d for d in verdict.garbage if d.key in self._recorded])
        candidates.waiting += alive.values()
        deletable = [item for item in verdict.garbage if item.key not in alive]
        self._take("dropped", deletable, delete=delete)
        start = 0 if self._last is None else self._last.fence
        for listed in self._listed(start):
            live = self._live(listed)
            deletable = garbage.unnamed(listed, live, candidates.dropped, marks.fence)
            # against missing-in-the-record-taken-for-abandoned
            alive = self._still_shown(deletable)
            candidates.waiting += alive.values()
            deletable = [item for item in deletable if item.key not in alive]
            self._take("unnamed", deletable, delete=delete)
            self._spare(
                garbage.spared(garbage.unnamed(listed, {}, candidates.dropped, marks.fence), live)
            )
            for young in garbage.unnamed(listed, live, candidates.dropped, keys.MAX_VERSION):
                if garbage.object_epoch(young.key) >= marks.fence:
                    candidates.young.add(young.bytes)

    def drop_packs(self, *, delete: bool, full: bool) -> None:
        """Delete the packs that no kept version needs, or only count them.

        A table that has no rows in commits any more may have had some: `full` looks.
        """
        meta = self._head.meta
        had = setting(meta.properties, INLINE) or self._head.totals.inline is not UNSET
        if not had and not full:  # against packs-of-another-time-kept
            return
        found = old_packs(self._log, self._marks.horizon)
        if found:
            gone = [Dropped(key, 0, size) for key, size in found.items()]
            self._gone["packs"] = VacuumSums()
            self._take("packs", gone, delete=delete)

    def _spare(self, spared: Sequence[Dropped]) -> None:
        """Leave objects to the next vacuum whose ids are live in other objects."""
        self._of_ids |= {item.key for item in spared}
        self._candidates.waiting += spared  # against spared-by-its-id-not-recorded

    def record(self) -> None:
        """Record how far this vacuum got, so that the next one starts there."""
        pending = None
        if self._candidates.waiting:  # against waiting-not-recorded
            body = garbage.to_object(self._candidates.waiting)
            pending = Spill(sha256(body), len(body), 0, len(self._candidates.waiting))
            put_once(self._t.store, self._t.clock, keys.frame_key(pending.sha256), body)
        marks = self._marks
        place = place_of(self._t.store)
        done = Sweep(marks.fence, marks.horizon, self._head.version, pending, place)
        try:
            self._t.commit(self._t.transaction("vacuum", [Swept(done)]))
        except CommitConflict as error:
            logger.info("another vacuum got further, its record stands: %s", error)
        except CommitUnknown as error:  # deletion is done; without a record it is repeated
            logger.warning("it is not known whether this vacuum was recorded: %s", error)

    @property
    def changed(self) -> bool:
        """Whether this vacuum's record would differ from the last one's, or that is gone."""
        return (
            self._previous is None
            or (self._previous.fence, self._previous.horizon)
            != (self._marks.fence, self._marks.horizon)
            or self._corrected
            or self._lost
            or self._gone["dropped"].objects > 0
        )

    def report(self, *, dry_run: bool) -> VacuumReport:
        """Return the report."""
        kept: dict[str, VacuumSums] = {}
        reasons: dict[str, str] = {}
        retained = 0
        for waiting in self._candidates.waiting:
            branch = self._of_branches.get(waiting.key)
            why = f"branch {branch!r}" if branch else garbage.reason(waiting, self._marks)
            if waiting.key in self._of_absent:
                why = "versions that this copy lacks"
            if waiting.key in self._of_ids:
                why = "segments of the same ids"
            kept.setdefault(why, VacuumSums()).add(waiting.bytes)
            reasons[waiting.key] = why
            if why == "retention":
                retained = max(retained, waiting.version)
        if self._candidates.young.objects:
            staging = kept.setdefault("staging", VacuumSums())
            staging.objects += self._candidates.young.objects
            staging.bytes += self._candidates.young.bytes
        return VacuumReport(
            table=self._t.uri,
            dry_run=dry_run,
            version=self._head.version,
            fence=self._marks.fence,
            horizon=self._marks.horizon,
            gone=self._gone,
            kept=kept,
            retained=retained,
            reasons=reasons,
        )

    def _left(self, last: Sweep) -> dict[str, Dropped] | None:
        """Return the drops that the last vacuum left pending, or None if its record is lost."""
        if last.pending is None:
            return {}
        try:
            body = self._log.spill_bytes(last.pending)
            return garbage.from_object(body, last.pending.drops, last.version)
        except Corrupt as error:
            logger.warning("the last vacuum's record is lost, examining the whole table: %s", error)
            key = keys.frame_key(last.pending.sha256)
            self._lost = not any(self._t.store.list(key, limit=1))
            return None  # against lost-record-taken-for-empty

    def _listed(self, start: int) -> Iterator[dict[str, int]]:
        """Yield key and size of segments and vectors from epoch `start` on, in parts.

        Keys that no writer of this table would create are never deleted (hazard V4).
        """
        part: dict[str, int] = {}
        forks = self._t.store.forks  # a branch has no objects of older epochs
        after = f"{keys.SEGMENTS_PREFIX}{max(start, forks[0].version if forks else 0):012d}"
        for listed in self._t.store.list(keys.SEGMENTS_PREFIX, after=after):
            parsed = keys.parse_data_key(listed.key)  # against foreign-keys-deleted
            if parsed is None:
                continue
            part[listed.key] = listed.size
            if len(part) == _LOOKED_UP:
                yield part
                part = {}
        yield part

    def _live(self, candidates: Iterable[str]) -> dict[str, int]:
        """Return the keys whose id is live at the version that has the marks.

        A live id is enough to keep an object, even if the log names it with another key. That of an
        object of vectors is live if a live entry names one of its vectors.

        Returns:
            For each key the epoch in the key of the live segment, or of the live vectors.
        """
        live: dict[str, int] = {}
        left = iter(candidates)
        while batch := list(islice(left, _LOOKED_UP)):
            named = {key: parsed[1] for key in batch if (parsed := keys.parse_data_key(key))}
            if self._every is None:
                drops = garbage.drops_of_keys(batch)
                epochs = {name: s.epoch for name, s in self._head.live(drops).items()}
            else:
                every = self._every
                ids = {name: bytes.fromhex(name) for name in named.values()}
                epochs = {name: every[raw] for name, raw in ids.items() if raw in every}
            if any(keys.parse_vectors_key(key) for key in batch):
                epochs |= self._vectors()  # against live-vectors-deleted
            live |= {key: epochs[name] for key, name in named.items() if name in epochs}
        return live

    def _vectors(self) -> Mapping[str, int]:
        """Return the epochs, by id, of all objects of vectors that live entries name."""
        version, known = self._of_vectors
        if version != self._head.version:
            known = keeping.vector_objects(self._head)
            self._of_vectors = self._head.version, known
        return known

    def _still_shown(self, deletable: Sequence[Dropped]) -> dict[str, Dropped]:
        """Return the segments, by key, that kept versions show, whatever the last record contains.

        The record proves nothing (R12.9), neither by its entries nor by the lack of one. If the
        version that it names does not confirm the drop, or a kept version shows the segment, all
        versions above the horizon are read. Versions that a copy lacks cannot be read: a follower
        may have stored their segments already, and may copy their commits at any time.
        """
        unnamed = (d for d in deletable if not d.version)
        absent = {d.key: d for d in unnamed if garbage.object_epoch(d.key) < self._absent}
        if absent:
            self._of_absent |= absent.keys()
            return absent | self._still_shown([d for d in deletable if d.key not in absent])
        of_branches = self._kept.of(item.key for item in deletable)
        named = {d.key: garbage.object_id(d.key) for d in deletable if d.key not in of_branches}
        shown = self._shown(named)
        recorded: dict[int, list[str]] = {}
        for item in deletable:
            if item.key in named and item.version:  # 0: no version is recorded
                recorded.setdefault(item.version, []).append(named[item.key])
        gone = confirmed(self._log, recorded) - shown  # against record-believed-without-the-log
        doubted = {key for key, name in named.items() if name not in gone}
        found = {d.key: d for d in deletable if d.key in named and named[d.key] in shown}
        if doubted and self._last is not None:
            # A segment is added, and then dropped, in a version above its epoch.
            since = max(self._marks.horizon, min(map(garbage.object_epoch, doubted)))
            until = self._last.version + 1  # the record's own version, which names the one below
            for by in dropped(self._log, since, until):
                sizes = by.objects()
                found |= {k: Dropped(k, by.version, sizes[k]) for k in doubted & sizes.keys()}
        self._report_kept(found)
        return found

    def _report_kept(self, found: Mapping[str, Dropped]) -> None:
        """Warn of segments that kept versions show, whatever the last record contains."""
        recorded = {key: item for key, item in found.items() if item.version}
        if recorded:
            self._corrected = True
            example = recorded[min(recorded)]
            logger.warning(
                "the last vacuum's record was wrong about %s that kept versions show, such as %s, "
                "dropped in version %d; they stay, and %s compares the record with the log",
                count_text(len(recorded), "segment"),
                example.key,
                example.version,
                command("fsck", self._t.uri),
            )
        others = found.keys() - recorded.keys()
        if others:  # a record would name the version
            logger.warning(
                "vacuum keeps %s that no version names, such as %s: kept versions show a segment "
                "with the same id",
                count_text(len(others), "object"),
                min(others),
            )

    def _shown(self, candidates: Collection[str]) -> set[str]:
        """Return the ids that the version at the horizon, or a version that is held, shows.

        Args:
            candidates: the keys of the objects to look for.
        """
        shown: set[str] = set()
        drops = garbage.drops_of_keys(candidates)
        held_versions = {hold.version for hold in holds(self._head.meta)}
        for version in sorted({self._marks.horizon, *held_versions}) if candidates else ():
            snapshot = self._kept_at(version)
            shown |= snapshot.live(drops).keys()
            if len(drops) < len(candidates):  # against vectors-of-held-versions-deleted
                shown |= keeping.vector_objects(snapshot).keys()
        return shown

    def _kept_at(self, version: int) -> Snapshot:
        """Return the snapshot of a version, or of the next version that a copy has."""
        try:
            return self._log.snapshot(version)
        except VersionNotReplicated:
            start = self._log.starts.above(version)
            return self._head if start is None else self._log.snapshot(start.version)

    def _take(self, kind: str, deletable: Sequence[Dropped], *, delete: bool) -> None:
        """Delete garbage, or only count it; objects that a branch reads wait."""
        for first in range(0, len(deletable), _BATCH):
            batch = deletable[first : first + _BATCH]
            read = self._kept.of(item.key for item in batch)
            self._of_branches |= read
            self._candidates.waiting += [item for item in batch if item.key in read]
            batch = [item for item in batch if item.key not in read]  # against fork-is-no-hold
            if delete and batch:
                self._t.verify()  # judged by another table's log, all of this would be garbage
                self._t.store.delete([item.key for item in batch])
            for item in batch:
                self._gone[kind].add(item.bytes)
            if delete and batch:
                self._progress("deletes", sum(sums.objects for sums in self._gone.values()), 0)
