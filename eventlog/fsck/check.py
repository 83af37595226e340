"""`fsck`: checks that the stored objects agree with the log.

Folds the whole log and compares every key frame with it (`eventlog.fsck.log_walk`), looks for the
segments of a version, counts objects that nothing refers to, and on request writes missing key
frames (`eventlog.fsck.repair`). It deletes nothing, and writes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventlog.clock import Clock
from eventlog.errors import (
    Corrupt,
    EventLogError,
    InvalidInput,
    NotFound,
    TableNotFound,
)
from eventlog.format import keys
from eventlog.fsck.contents.key_check import check_keys
from eventlog.fsck.contents.key_rows import KeyColumns
from eventlog.fsck.contents.row_check import RowCheck, read_segments
from eventlog.fsck.findings import Findings, Repair, Report
from eventlog.fsck.log_walk import LogListing, Progress, Walk, list_log
from eventlog.fsck.objects.held_segments import HeldSegments, held_segments
from eventlog.fsck.objects.leftovers import PLACES
from eventlog.fsck.objects.vacuum_record import RecordCheck, waiting_of
from eventlog.fsck.repair import repair as repair_frames
from eventlog.keyed.rule import stored_rule
from eventlog.keyed.slices import readable_runs
from eventlog.log.log import Log
from eventlog.model.entries import Segment
from eventlog.model.records import Meta
from eventlog.quantities import count_text
from eventlog.recovery import fallback
from eventlog.recovery.links import Links, past_links
from eventlog.state.small import timing
from eventlog.state.small.holds import check_kept
from eventlog.store.branching.roots import is_own
from eventlog.store.port import ObjectInfo, ObjectStore, store_time_ms
from eventlog.table.branching.soundness import check_branches
from eventlog.table.table import Table

_MAX_SOUGHT = 1000  # lost segments for which a fallback is searched, which reads segments and log
_AROUND = "its compaction inputs still exist: `eventlog scan --fallback` reads its rows from them"


def fsck(
    table: Table,
    *,
    objects: bool = True,
    checksums: bool = False,
    keys: bool = False,
    start: int | None = None,
    version: int | None = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Check a table: chain, fold, every header, delta and key frame, segments, leftovers.

    Args:
        table: a handle; `Table(store)` creates one without reading a head that may be damaged.
        objects: also check that every live segment exists and has the right size, and count the
            objects that nothing refers to: one listing of everything but the log.
        checksums: also read those segments, and those that pins and replicas hold: compare their
            sha256, and report each that readers refuse, and rows in wrong chunks and buckets;
            implies `objects`. The memory does not depend on the size of the table.
        keys: in a keyed table also read the keys in those segments: whether each is unique in
            its base, lies in its bucket, in order and within the statistics, and stands in one time
            chunk only; implies `objects`. The memory does not depend on the size of the table.
        start: trust the key frame of this version and fold from there; from version 0 if None.
        version: check the segments of this version; of the newest if None.
        repair: write missing key frames, and one for the newest version if readers would otherwise
            have to skip a damaged one. Nothing is ever overwritten or deleted.
        progress: called repeatedly with the phase, the work done and the total.

    Raises:
        InvalidInput: there is no key frame to start from, or `version` is before it; or
            `keys` of a table without a key.
        TableNotFound: there is no commit under this root.
        Unavailable: the store does not answer; the result is unknown.
        UnsupportedFormat: the log needs a newer release.
        VersionNotFound: there is no such `version`.
        VersionVacuumed: `version` is below the horizon, where segments may be gone.
    """
    links: Links = {}
    store = past_links(table.store, links)
    listed = _listed(store, links)
    if version is not None and version < (start or 0):
        raise InvalidInput(f"version {version} is before version {start}, where the fold starts")
    run = _Run(store, listed, start, version, progress or (lambda *_: None))
    run.fold()
    if keys:
        run.require_key()
    if objects or checksums or keys:
        run.look_at_objects()
    if checksums:
        run.compare_checksums(keys_follow=keys)
    if keys:
        run.check_keys()
    run.report_losses()
    run.check_time(table.clock)
    run.report_links(links)
    if repair:
        run.repair(table.clock)
    return run.report()


class _Run:
    """One run of fsck, with its intermediate results."""

    def __init__(
        self,
        store: ObjectStore,
        listed: LogListing,
        start: int | None,
        version: int | None,
        progress: Progress,
    ) -> None:
        self._store, self._listed = store, listed
        self._progress = progress
        self._start = start or 0
        self._version = listed.head if version is None else version
        self._findings = Findings()
        wanted = None if self._version == listed.head else self._version
        self._walk = Walk(
            store,
            listed,
            self._findings,
            start=start,
            wanted=wanted,
            waiting=waiting_of(store, listed.head),
        )
        self._sought: Mapping[str, Segment] | None = None
        self._held = HeldSegments()  # besides those sought
        self._record = RecordCheck(
            self._walk.log,
            self._walk.audit,
            self._walk.waiting,
            self._walk.left_out,
            self._findings,
            head=listed.head,
        )
        self._repairs: tuple[Repair, ...] = ()
        self._good = self._bad = self._lacking = 0  # key frames, before any repair
        self._checksummed = 0
        self._refused: set[str] = set()  # ids of segments that readers refuse
        self._misplaced = False  # whether segments lie where they cannot, so that none is read
        self._columns: KeyColumns | None = None
        self._keys_checked: int | None = None
        self._lost: list[tuple[str, Segment]] = []

    def fold(self) -> None:
        """Walk the log.

        Raises:
            VersionNotFound: the version to check does not exist.
            VersionVacuumed: it is below the horizon.
        """
        audit, head, uri = self._walk.audit, self._listed.head, self._store.uri
        if self._version > head:
            check_kept(audit.meta, head, self._version, uri)
        self._walk.run(self._progress)
        try:
            check_kept(audit.meta, head, self._version, uri)
        except Corrupt as error:
            self._findings.add("error", error.message, keys.commit_key(head), head)
        frames = self._walk.frames
        self._good, self._lacking = len(frames.good), len(frames.missing)
        self._bad = len(frames.bad | frames.with_bad_leaves.keys())

    def look_at_objects(self) -> None:
        """Compare the live segments with a listing, and count objects that nothing refers to."""
        self._sought = self._segments()
        self._look_at_slices()
        wanted = {keys.key_of(segment): segment for segment in self._sought.values()}
        held = held_segments(
            self._store,
            self._walk,
            self._listed.head,
            known=wanted,
            record=self._record,
            findings=self._findings,
        )
        self._held.look_for(held, wanted)
        total, at_head = len(wanted), self._walk.audit.version == self._listed.head
        for place in PLACES:
            for row in self._store.list(place):
                segment = wanted.pop(row.key, None)
                self._held.see(row, self._findings)
                if segment is not None:
                    self._compare_size(segment, row)
                    self._progress("segments", total - len(wanted), total)
                if at_head and is_own(self._store, row.key):
                    self._count_leftover(place, row)
                    self._record.look_for(row.key)
        if wanted:
            self._report_missing(wanted)
        self._held.report_missing(self._findings)
        self._record.check()
        if at_head:
            for key, severity, message in check_branches(self._walk.log, self._walk.audit.meta):
                self._findings.add(severity, message, key, self._listed.head)

    def _look_at_slices(self) -> None:
        """Report a segment of a keyed table that cannot lie where it does."""
        meta = self._meta()
        if meta.layout is None or meta.schema is None:
            return
        try:
            rule = stored_rule(meta.layout, meta.schema, meta.properties)
        except Corrupt:
            return  # reported of the first schema
        try:
            if rule is not None:
                readable_runs((self._sought or {}).values(), rule)
        except Corrupt as error:
            key = keys.commit_key(self._version)
            self._findings.add("error", error.message, key, self._version)
            self._misplaced = True

    def _meta(self) -> Meta:
        """Return the small state of the version to check."""
        audit, kept = self._walk.audit, self._walk.kept_meta
        return audit.meta if kept is None or self._version == audit.version else kept

    def compare_checksums(self, *, keys_follow: bool) -> None:
        """Read the segments, also those that are only held, and compare them with the log.

        Args:
            keys_follow: `check_keys` reports the live rows in wrong places.
        """
        held_by = {held.segment.id: held for held in self._held.seen.values()}
        both = [
            *(self._sought or {}).values(),
            *(held.segment for held in self._held.seen.values()),
        ]
        total, done = sum(segment.bytes for segment in both), 0
        checks = self._row_checks()

        def problems(segment: Segment) -> list[str]:
            held = held_by.get(segment.id)
            check = checks.get(held.version if held else self._version)
            if check is None:
                return []  # nothing can be read, which was reported
            return check.problems(segment, places=held is not None or not keys_follow)

        for seen in read_segments(self._store, sorted(both, key=_by_age), problems):
            segment = seen.segment
            done += segment.bytes
            self._progress("bytes", done, total)
            if seen.digest is None:
                continue  # reported as missing
            self._checksummed += segment.bytes
            if seen.refused:
                self._refused.add(segment.id)
            held = held_by.get(segment.id)
            messages = list(seen.problems)
            if seen.digest != segment.checksum:
                problem = f"sha256 is {seen.digest}, but {segment.checksum} in the log"
                if held is None:
                    self._lost.append((f"the segment's {problem}", segment))
                    continue
                messages = [f"its {problem}"]
            for message in messages:
                named = message if held is None else f"{held.named} is damaged: {message}"
                version = segment.version if held is None else held.version
                self._findings.add("error", named, keys.key_of(segment), version)

    def _row_checks(self) -> dict[int, RowCheck]:
        """Return how the rows of versions are read whose segments are looked at."""
        metas = {held.version: held.meta for held in self._held.seen.values()}
        metas[self._version] = self._meta()
        checks: dict[int, RowCheck] = {}
        for version, meta in metas.items():
            try:
                check = RowCheck.of(self._store, version, meta)
            except Corrupt as error:
                if not self._walk.unfit:
                    self._findings.add("error", error.message, keys.commit_key(version), version)
                continue
            if check is not None:
                checks[version] = check
        return checks

    def require_key(self) -> None:
        """Check that the table has a key.

        Raises:
            InvalidInput: it has none.
        """
        audit = self._walk.audit
        try:
            self._columns = KeyColumns.of(self._store, audit.meta)
        except Corrupt as error:
            if not self._walk.unfit:
                key = keys.commit_key(self._listed.head)
                self._findings.add("error", error.message, key, self._listed.head)
            return
        if self._columns is None and audit.version == self._listed.head:
            raise InvalidInput(
                "the table has no key, so there are no keys to check", table=self._store.uri
            )

    def check_keys(self) -> None:
        """Check the keys in the segments."""
        if self._columns is None or self._misplaced:
            return  # the log is damaged, which was reported
        self._keys_checked, damaged = check_keys(
            self._columns,
            self._sought or {},
            self._findings,
            lost=[*self._refused, *(segment.id for _, segment in self._lost)],
            progress=lambda done, total: self._progress("keys", done, total),
        )
        self._lost += damaged

    def report_losses(self) -> None:
        """Report the lost segments, and for each whether its rows can be read from others."""
        lost = {segment.id: segment for _, segment in self._lost}
        missing = set(lost)
        if 0 < len(lost) <= _MAX_SOUGHT:
            log = self._walk.log
            try:
                instead = fallback.find_fallback(log, log.snapshot(self._version), lost.values())
                missing = {segment.id for segment in instead.missing}
            except (Corrupt, NotFound):
                pass  # reported before
        for problem, segment in self._lost:
            message = problem if segment.id in missing else f"{problem}; {_AROUND}"
            self._findings.add("error", message, keys.key_of(segment), segment.version)

    def check_time(self, clock: Clock) -> None:
        """Report if the newest commit's time is far from the clock's, and what can be done."""
        header = self._walk.audit.header
        if header is None or header.version != self._listed.head:
            return
        problem = timing.time_problem(header, store_time_ms(self._store, clock))
        if problem is not None:
            self._findings.add("warning", problem, keys.commit_key(header.version), header.version)

    def report_links(self, links: Links) -> None:
        """Report symbolic links that were met: what is behind them counts as absent."""
        for key, message in sorted(links.items()):
            self._findings.add("error", message, key)

    def repair(self, clock: Clock) -> None:
        """Write the missing key frames."""
        self._repairs = repair_frames(self._walk, self._findings, clock)

    def report(self) -> Report:
        """Return the report of this run."""
        walk, sought = self._walk, self._sought
        return Report(
            table=self._store.uri,
            start=self._start,
            head=self._listed.head,
            versions=walk.versions,
            transactions=walk.transactions,
            void=tuple(walk.void),
            keyframes=self._good,
            bad_keyframes=self._bad,
            missing_keyframes=self._lacking,
            leaves=sum(problem is None for problem in walk.frames.leaves.values()),
            segments_version=None if sought is None else self._version,
            segments=None if sought is None else len(sought),
            checksummed=self._checksummed,
            keys_checked=self._keys_checked,
            leftovers=walk.unnamed.counted(),
            repairs=self._repairs,
            errors=self._findings.errors,
            warnings=self._findings.warnings,
            findings=self._findings.listed,
        )

    def _segments(self) -> Mapping[str, Segment]:
        """Return the live segments of the version to check, or of the last version folded."""
        audit, head = self._walk.audit, self._listed.head
        if self._version != head and self._walk.kept is not None:
            return self._walk.kept
        if self._version == head and audit.version == head:
            return audit.live
        known = audit.version if self._version == head else None
        consequence = f"the segments of version {known} are checked instead"
        if known is None:
            consequence = "its segments cannot be checked"
        key = keys.commit_key(self._version)
        message = f"version {self._version} cannot be resolved: {consequence}"
        self._findings.add("warning", message, key, self._version)
        self._version = self._version if known is None else known
        return {} if known is None else audit.live

    def _compare_size(self, segment: Segment, row: ObjectInfo) -> None:
        if row.size != segment.bytes:
            problem = f"the segment has {row.size:,} bytes, but {segment.bytes:,} in the log"
            self._lost.append((problem, segment))

    def _count_leftover(self, place: str, row: ObjectInfo) -> None:
        self._record.see(row.key)
        audit, unnamed = self._walk.audit, self._walk.unnamed
        kind = unnamed.judge(row.key, audit.meta, self._listed.head, audit.live)
        if kind is not None:
            unnamed.count(place, kind, row.key, row.size)

    def _report_missing(self, wanted: Mapping[str, Segment]) -> None:
        """Report missing segments, unless a vacuum passed the version during this run."""
        try:
            horizon = Log(self._store).head().meta.horizon
        except EventLogError:
            horizon = 0  # the head cannot be read, so the folded state decides
        if self._version < horizon:
            message = (
                f"a vacuum has moved the horizon to version {horizon} in the meantime: "
                f"{count_text(len(wanted), 'segment')} may be gone"
            )
            key = keys.commit_key(self._version)
            self._findings.add("warning", message, key, self._version)
            return
        self._lost += [("a live segment is missing", segment) for segment in wanted.values()]


def _listed(store: ObjectStore, links: Links) -> LogListing:
    """Return the keys of the log.

    Raises:
        InvalidInput: there are links in place of them.
        TableNotFound: there are none.
    """
    listed = list_log(store)
    if listed.head < 0 and links:
        raise InvalidInput("; ".join(links.values()), table=store.uri, key=min(links))
    if listed.head < 0:
        raise TableNotFound(
            f"no table at {store.uri}: check the path, or create it", table=store.uri
        )
    return listed


def _by_age(segment: Segment) -> tuple[int, int]:
    return segment.version, segment.partition
