"""Vacuum: reclaim the storage of what no version that is kept can show.

Imports eventlog only. Shell: commit the marks, read what is live behind them, then delete
(FORMAT.md R12.5; hazard V3). A vacuum that dies anywhere has deleted only what was dead, and the
next one starts where the last record says. Its cost follows the commits and uploads since then, not
the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

from eventlog import Snapshot, Table
from eventlog.commit.proposal import check_writable
from eventlog.errors import (
    CommitConflict,
    CommitUnknown,
    Corrupt,
    InvalidInput,
    VersionNotFound,
)
from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.log import history
from eventlog.log.log import HEAD_PAGE
from eventlog.model.properties import setting
from eventlog.model.records import Action, Drop, Fence, Horizon, Segment, Spill, Sweep, Swept
from eventlog.recovery import sweep
from eventlog.recovery.sweep import Dropped, Marks
from eventlog.state.small.timing import check_leap
from eventlog.store.parallel import HEADER_THREADS, each
from eventlog.store.port import store_time_ms
from eventlog.store.retry import put_once

_BATCH = 1000  # keys of one delete request
_LOOKED_UP = 5000  # listed keys that are compared with the live set at once
_HEADERS = 256  # between two notes of progress
_MAX_CONFLICTS = 20

# Called with what is being done, how much of it is done, and how much there is (0: unknown).
Progress = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Sums:
    """A number of objects and their bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one object."""
        self.objects += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum did, or would do.

    Attributes:
        table: the root URI.
        dry_run: whether nothing was changed.
        version: the version whose live set was spared.
        fence: staged objects of epochs below it are dead.
        horizon: versions below it are given up.
        gone: what was (or would be) deleted: `dropped` segments, and `unnamed` objects, which no
            version that is kept or was looked at names: unfinished uploads, and what was dropped
            long before the first vacuum.
        kept: why what is not live stays: `retention`, `pin 'name' of owner`, `replica 'name' of
            owner`, `staging`. Uploads above the fence are looked for by a dry run only.
    """

    table: str
    dry_run: bool
    version: int
    fence: int
    horizon: int
    gone: Mapping[str, Sums]
    kept: Mapping[str, Sums]


def vacuum(
    t: Table,
    *,
    dry_run: bool = True,
    retention: timedelta | None = None,
    staging: timedelta | None = None,
    full: bool = False,
    progress: Progress | None = None,
) -> VacuumReport:
    """Delete the segments that no kept version can show, and uploads that nobody finished.

    Versions below the horizon become `VersionVacuumed`; the log itself always stays. Pins and
    replicas hold the horizon back. Safe beside any number of writers, readers and other vacuums,
    and after its own death at any point: run it again.

    Args:
        t: the table.
        dry_run: only look, and report what would go and what holds the rest back.
        retention: how long versions stay readable; the property `retention_hours` if None.
        staging: how long an upload may take before it is fenced; the property `staging_hours`.
        full: list the whole table instead of what came since the last vacuum: finds what a stale
            listing missed, and what was uploaded late, into an epoch that was listed already.
        progress: called as the work goes on.

    Raises:
        CommitConflict: others kept changing pins or marks; nothing was deleted, try again.
        CommitUnknown: see `Table.commit`; of the marks, so that nothing was deleted.
        Corrupt: the log breaks its format, or commits were removed; nothing more is deleted on a
            log that does not add up.
        InvalidInput: a negative time.
        Unavailable: the store does not answer; run it again.
        UnsupportedFormat: the table needs a newer release (hazard V5).
    """
    head = t.refresh()
    ages = _Ages.of(head, retention, staging)
    _check_newest(t, head)
    if not dry_run and not full and _nothing_new(t, head):
        idle = Marks(head.meta.fence, head.meta.horizon, head.meta.horizon)
        return _Sweep(t, head, idle, lambda *_: None).report(dry_run=False)
    head, found = _mark(t, ages, dry_run=dry_run)
    run = _Sweep(t, head, found, progress or (lambda *_: None))
    last = None if full else head.meta.swept
    run.gather(last)
    run.judge(delete=not dry_run)  # against recorded-before-the-deletes
    # A record that says nothing new would be news for the next vacuum, and so on for ever.
    if not dry_run and (last is None or (last.fence, last.horizon) != (found.fence, found.horizon)):
        run.record()
    return run.report(dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Ages:
    """How old a version is that may be given up, and an upload that may be fenced (ms)."""

    retention_ms: int
    staging_ms: int

    @classmethod
    def of(cls, head: Snapshot, retention: timedelta | None, staging: timedelta | None) -> _Ages:
        """Return the ages asked for, or those that the table's properties say."""
        hours = {
            name: setting(head.properties, f"{name}_hours") for name in ("retention", "staging")
        }
        kept = timedelta(hours=hours["retention"]) if retention is None else retention
        upload = timedelta(hours=hours["staging"]) if staging is None else staging
        if not all(isinstance(a, timedelta) and a >= timedelta(0) for a in (kept, upload)):
            raise InvalidInput("retention and staging are datetime.timedelta of 0 or more")
        return cls(*(int(age / timedelta(milliseconds=1)) for age in (kept, upload)))


def _check_newest(t: Table, head: Snapshot) -> None:
    """Refuse to delete by a log that lost its end: key frames come after their commits.

    Raises:
        Corrupt: there is a key frame of a version that is not there.
    """
    rows = t.store.list(keys.LOG_PREFIX, limit=HEAD_PAGE)
    parsed = (keys.parse_log_key(row.key) for row in rows)
    newest = max((p[0] for p in parsed if p and p[1]), default=0)
    if newest <= head.version:
        return
    try:
        t.log.header(newest)  # others were faster than our look
    except VersionNotFound:
        raise Corrupt(
            f"there is a key frame of version {newest}, but no such commit: commits were removed; "
            "nothing is deleted. Bring them back, or run `eventlog fsck`",
            table=t.uri,
            key=keys.keyframe_key(newest),
            version=newest,
        ) from None


def _nothing_new(t: Table, head: Snapshot) -> bool:
    """Say whether nothing waits, and nothing came since the last vacuum but its own record.

    Else a vacuum of an idle table would sweep up behind its own commits for ever.
    """
    last, meta = head.meta.swept, head.meta
    if last is None or last.pending is not None or head.version != last.version + 1:
        return False
    if (last.fence, last.horizon) != (meta.fence, meta.horizon):
        return False
    after = f"{keys.SEGMENTS_PREFIX}{meta.fence:012d}"
    return not list(t.store.list(keys.SEGMENTS_PREFIX, after=after, limit=1))


def _mark(t: Table, ages: _Ages, *, dry_run: bool) -> tuple[Snapshot, Marks]:
    """Commit fence and horizon as far as they go; return the snapshot that carries them."""
    for _ in range(_MAX_CONFLICTS):  # lost races: each time another transaction, on a newer head
        head = t.refresh()
        check_writable(head.header)  # against newer-table-vacuumed
        found = _marks(t, head, ages)
        actions: list[Action] = []
        if found.fence > head.meta.fence:  # against no-fence-committed
            actions.append(Fence(found.fence))
        if found.horizon > head.meta.horizon:  # against no-horizon-committed
            actions.append(Horizon(found.horizon))
        if dry_run or not actions:
            return head, found
        try:
            version = t.commit(t.transaction("vacuum", actions))
        except CommitConflict as error:  # a pin came, or another vacuum went further
            logger.info("vacuum looks again: %s", error)
            continue  # against conflict-of-marks-ignored
        return t.snapshot(version), found  # against live-set-read-before-the-marks
    raise CommitConflict(
        f"fence and horizon were changed by others {_MAX_CONFLICTS} times in a row; nothing was "
        "deleted, try again",
        table=t.uri,
    )


def _marks(t: Table, head: Snapshot, ages: _Ages) -> Marks:
    now_ms = store_time_ms(t.store, t.clock)
    check_leap(head.header, now_ms)
    aged = history.version_at(t.log, head, now_ms - ages.retention_ms, head.meta.horizon)
    staged = history.version_at(t.log, head, now_ms - ages.staging_ms, head.meta.fence)
    return sweep.marks(head.meta, aged=aged, staged=staged)


@dataclass(slots=True)
class _Found:
    """What the log and the listing say of objects that may have to go."""

    dropped: dict[str, Dropped] = field(default_factory=dict)
    waiting: tuple[Dropped, ...] = ()
    young: Sums = field(default_factory=Sums)


class _Sweep:
    """One sweep behind the marks: everything is judged by the one snapshot that carries them."""

    def __init__(self, t: Table, head: Snapshot, marks: Marks, progress: Progress) -> None:
        self._t, self._head, self._marks, self._progress = t, head, marks, progress
        self._found = _Found()
        self._gone: dict[str, Sums] = {"dropped": Sums(), "unnamed": Sums()}
        self._last: Sweep | None = None  # None: the record of the last run is lost
        self._every: frozenset[bytes] | None = None

    def gather(self, last: Sweep | None) -> None:
        """Collect what was dropped: left by the last vacuum, and by the commits since."""
        left = None if last is None else self._left(last)
        self._last = None if left is None else last
        dropped = left or {}
        start = self._marks.horizon if self._last is None else self._last.version
        for version in self._with_drops(start):
            for segment in _drops_of(self._t, version):
                key = keys.key_of(segment)
                dropped[key] = Dropped(key, version, segment.bytes)
        self._found.dropped = dropped

    def judge(self, *, delete: bool) -> None:
        """Judge every candidate, and delete what is dead unless only looking."""
        found, marks = self._found, self._marks
        if self._last is None:
            # Of very many candidates: one pass over all leaves instead of one for each part.
            self._every = frozenset(self._head.entries().column("id").to_pylist())
        live = self._live(found.dropped)
        told = sweep.verdict(found.dropped, live, marks.fence, marks.horizon)
        found.waiting = told.waiting
        self._take("dropped", told.dead, delete=delete)
        start = 0 if self._last is None else self._last.fence
        for listed in self._listed(start, whole=not delete):
            live = self._live(listed)
            dead = sweep.unnamed(listed, live, found.dropped, marks.fence)
            self._take("unnamed", dead, delete=delete)
            for young in sweep.unnamed(listed, live, found.dropped, keys.MAX_VERSION):
                if sweep.epoch_of(young.key) >= marks.fence:
                    found.young.add(young.bytes)

    def record(self) -> None:
        """Note how far this vacuum came, so that the next one starts here."""
        pending = None
        if self._found.waiting:  # against waiting-not-recorded
            body = sweep.to_object(self._found.waiting)
            pending = Spill(sha256(body), len(body), 0, len(self._found.waiting))
            put_once(self._t.store, self._t.clock, keys.frame_key(pending.sha256), body)
        marks = self._marks
        done = Sweep(marks.fence, marks.horizon, self._head.version, pending)
        try:
            self._t.commit(self._t.transaction("vacuum", [Swept(done)]))
        except CommitConflict as error:
            logger.info("another vacuum came further, its record stands: %s", error)
        except CommitUnknown as error:  # all is deleted; without a record the next one looks again
            logger.warning("whether this vacuum is on record is not known: %s", error)

    def report(self, *, dry_run: bool) -> VacuumReport:
        """Return what was found, and done unless only looked for."""
        kept: dict[str, Sums] = {}
        for one in self._found.waiting:
            kept.setdefault(sweep.reason(one, self._marks), Sums()).add(one.bytes)
        if self._found.young.objects:
            staging = kept.setdefault("staging", Sums())
            staging.objects += self._found.young.objects
            staging.bytes += self._found.young.bytes
        return VacuumReport(
            table=self._t.uri,
            dry_run=dry_run,
            version=self._head.version,
            fence=self._marks.fence,
            horizon=self._marks.horizon,
            gone=self._gone,
            kept=kept,
        )

    def _left(self, last: Sweep) -> dict[str, Dropped] | None:
        """Return what the last vacuum left, or None where nobody can tell any more."""
        if last.pending is None:
            return {}
        try:
            return sweep.from_object(self._t.log.frame(last.pending), last.pending.drops)
        except Corrupt as error:
            logger.warning("the last vacuum's record is lost, looking at everything: %s", error)
            return None  # against lost-record-taken-for-empty

    def _with_drops(self, start: int) -> Iterator[int]:
        """Yield the versions after `start` that dropped segments: a header each."""
        log, last = self._t.log, self._head.version
        versions = range(start + 1, last + 1)
        for header in each(log.header, versions, count=HEADER_THREADS, window=history.PAGE):
            if header.changes.drops:
                yield header.version
            if header.version % _HEADERS == 0 or header.version == last:
                self._progress("versions", header.version - start, last - start)

    def _listed(self, start: int, *, whole: bool) -> Iterator[dict[str, int]]:
        """Yield key and size of the segments' objects from epoch `start` to the fence, in parts.

        Keys that no writer of this table would build are nobody's to delete (hazard V4).
        """
        part: dict[str, int] = {}
        after = f"{keys.SEGMENTS_PREFIX}{start:012d}"
        for found in self._t.store.list(keys.SEGMENTS_PREFIX, after=after):
            parsed = keys.parse_segment_key(found.key)  # against foreign-keys-deleted
            if parsed is None:
                continue
            # against uploads-above-the-fence-deleted
            if parsed[0] >= self._marks.fence and not whole:
                break  # keys are in the order of their epochs
            part[found.key] = found.size
            if len(part) == _LOOKED_UP:
                yield part
                part = {}
        yield part

    def _live(self, candidates: Iterable[str]) -> set[str]:
        """Return the keys whose segment's id is live at the version that carries the marks.

        An id is enough to be spared, wherever the log says that its object lies.
        """
        found: set[str] = set()
        left = iter(candidates)
        while batch := list(islice(left, _LOOKED_UP)):
            named = {key: parsed for key in batch if (parsed := keys.parse_segment_key(key))}
            if self._every is not None:
                ids = {p[2] for p in named.values() if bytes.fromhex(p[2]) in self._every}
            else:
                ids = set(self._head.live([Drop(p[2], p[1], "") for p in named.values()]))
            found |= {key for key, parsed in named.items() if parsed[2] in ids}
        return found

    def _take(self, kind: str, dead: Sequence[Dropped], *, delete: bool) -> None:
        """Delete what is dead, or only count it."""
        for first in range(0, len(dead), _BATCH):
            batch = dead[first : first + _BATCH]
            if delete:
                self._t.verify()  # by the log of another table everything here would be dead
                self._t.store.delete([one.key for one in batch])
            for one in batch:
                self._gone[kind].add(one.bytes)
            if delete:
                self._progress("deletes", sum(sums.objects for sums in self._gone.values()), 0)


def _drops_of(t: Table, version: int) -> Sequence[Segment]:
    """Return the segments that a commit made not live, by the fold's own word.

    Raises:
        Corrupt: the commit says otherwise.
    """
    commit, _ = t.log.read(version)
    effect = t.log.effect(commit)
    if len(effect.drops) != commit.header.changes.drops:
        raise Corrupt(
            "the commit does not drop what its header says: run `eventlog fsck`; nothing more is "
            "deleted",
            table=t.uri,
            version=version,
        )
    return effect.drops
