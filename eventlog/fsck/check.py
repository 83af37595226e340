"""`fsck`: checks that the stored objects agree with the log.

Folds the whole log and compares every key frame with it (`eventlog.fsck.log_walk`), looks for the
segments of a version, counts objects that nothing refers to, and on request writes missing key
frames (`eventlog.fsck.repair`). It deletes nothing, and writes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from eventlog.clock import Clock
from eventlog.errors import Corrupt, InvalidInput, NotFound, TableNotFound
from eventlog.format import keys
from eventlog.fsck.contents.checksums import Compared, compare_checksums
from eventlog.fsck.contents.key_check import check_keys
from eventlog.fsck.contents.key_rows import KeyColumns
from eventlog.fsck.contents.row_check import ReadSegments, read_elsewhere, read_segments
from eventlog.fsck.findings import Findings, Repair, Report
from eventlog.fsck.log_walk import LogListing, Progress, Walk, list_log
from eventlog.fsck.objects.sought_segments import (
    Lost,
    SoughtSegments,
    look_at_objects,
    sought_segments,
)
from eventlog.fsck.objects.vacuum_record import waiting_of
from eventlog.fsck.repair import repair as repair_frames
from eventlog.keyed.rule import stored_rule
from eventlog.keyed.slices import readable_runs
from eventlog.publishing.delta.publication_check import audit_delta
from eventlog.publishing.iceberg.iceberg_audit import audit_iceberg
from eventlog.recovery import fallback
from eventlog.recovery.links import Links, past_links
from eventlog.session.session import Session
from eventlog.session.tags import VersionOrName, version_number
from eventlog.state.small import timing
from eventlog.state.small.holds import check_kept
from eventlog.store.parallel import DriverName, executors_of
from eventlog.store.port import ObjectStore, store_time_ms
from eventlog.table.table import Table

_MAX_SOUGHT = 1000  # lost segments for which a fallback is searched, which reads segments and log
_AROUND = "its compaction inputs still exist: `eventlog scan --fallback` reads its rows from them"


@dataclass(frozen=True, slots=True)
class _Frames:
    """The numbers of key frames, as in a `Report`."""

    good: int
    bad: int
    missing: int


@dataclass(frozen=True, slots=True)
class _Segments:
    """The numbers of checked segments, as in a `Report`."""

    version: int | None = None
    count: int | None = None
    checksummed: int = 0
    keys_checked: int | None = None


def fsck(  # noqa: PLR0913 - what may be checked, each by itself
    table: Table,
    *,
    objects: bool = True,
    checksums: bool = False,
    keys: bool = False,
    start: VersionOrName | None = None,
    version: VersionOrName | None = None,
    repair: bool = False,
    driver: DriverName = "local",
    progress: Progress | None = None,
) -> Report:
    """Check a table: chain, fold, every header, delta and key frame, segments, leftovers.

    Args:
        table: a handle; `Table(store)` creates one without reading a head that may be damaged.
        objects: also check that every live segment exists and has the right size, count the objects
            that nothing refers to, and compare what is published for other engines with the log.
        checksums: also read those segments, and those that pins and replicas hold: compare their
            sha256, and report each that readers refuse, and rows in wrong chunks and buckets;
            implies `objects`. The memory does not depend on the size of the table.
        keys: in a keyed table also read the keys in those segments: whether each is unique in
            its base, lies in its bucket, in order and within the statistics, and stands in one time
            chunk only; implies `objects`. The memory does not depend on the size of the table.
        start: trust the key frame of this version and fold from there; from version 0 if None.
        version: check the segments of this version, or of that of a tag; of the newest if None.
        repair: write missing key frames and packs, and a key frame for the newest version if
            readers would otherwise skip a damaged one. Nothing is overwritten or deleted.
        driver: `spark`: the executors of the active session read the segments for `checksums`.
        progress: called repeatedly with the phase, the work done and the total.

    Raises:
        InvalidInput: there is no key frame to start from, or `version` is before it; or `keys` of a
            table without a key; or there is no such driver.
        TableNotFound: there is no commit under this root.
        Unavailable: the store does not answer; the result is unknown.
        UnsupportedFormat: the log needs a newer release.
        VersionNotFound: there is no such `version`.
        VersionVacuumed: `version` is below the horizon, where segments may be gone.
    """
    read = _segment_reader(driver) if checksums else None
    links: Links = {}
    store = past_links(table.store, links)
    listed, session = _listed(store, links), Session(store, table.clock)
    begin, wanted = _folded_range(session, start, version)
    progress, findings = progress or (lambda *_: None), Findings()
    wanted = listed.head if wanted is None else wanted
    walk = _walked(store, listed, findings, (begin, wanted), rows=checksums, progress=progress)
    frames = _frame_counts(walk)  # before any repair
    columns = _key_columns(store, walk, findings) if keys else None
    segments = _Segments()
    if objects or checksums or keys:
        segments = _check_segments(
            store, walk, wanted, findings, columns=columns, read=read, progress=progress
        )
    _check_publications(session, walk, findings, wanted=objects)
    _check_time(store, walk, findings, table.clock)
    _report_links(links, findings)
    repairs = repair_frames(walk, findings, table.clock) if repair else ()
    return _report(walk, findings, repairs, start=walk.begin, frames=frames, segments=segments)


def _folded_range(
    session: Session, start: VersionOrName | None, version: VersionOrName | None
) -> tuple[int | None, int | None]:
    """Return the numbers of both versions. Raises: InvalidInput, if the fold does not come so far.

    Only names of tags are looked up: the newest version may be damaged.
    """
    first = None if start is None else version_number(session, start, "start")
    wanted = None if version is None else version_number(session, version)
    if wanted is not None and wanted < (first or 0):
        raise InvalidInput(f"version {wanted} is before version {first}, where the fold starts")
    return first, wanted


def _report_links(links: Links, findings: Findings) -> None:
    """Report symbolic links. Objects behind them count as absent."""
    for key, message in sorted(links.items()):
        findings.add("error", message, key)


def _segment_reader(driver: DriverName) -> ReadSegments:
    """Return how segments are read.

    Raises:
        InvalidInput: there is no such driver, or no session of Spark.
    """
    executors = executors_of(driver)
    return read_segments if executors is None else partial(read_elsewhere, executors)


def _check_segments(
    store: ObjectStore,
    walk: Walk,
    version: int,
    findings: Findings,
    *,
    columns: KeyColumns | None,
    read: ReadSegments | None,
    progress: Progress,
) -> _Segments:
    """Check the segments of a version, and the objects beside the log.

    Args:
        store: of the table.
        walk: the completed walk over the log.
        version: the version.
        findings: receives the problems.
        columns: how keys are read; None: the keys are not checked.
        read: how segments are read; None: they are not.
        progress: see `fsck`.
    """
    sought = sought_segments(walk, version, findings)
    is_placed = _check_places(sought, findings)
    listing = look_at_objects(store, walk, sought, findings, progress)
    compared, rows = Compared(), None
    if read is not None:
        compared = compare_checksums(
            store,
            walk,
            sought,
            listing,
            findings,
            read=read,
            keys_follow=columns is not None,
            progress=progress,
        )
    lost = [*listing.lost, *compared.lost]
    if columns is not None and is_placed:
        rows, damaged = check_keys(
            columns,
            sought.segments,
            findings,
            lost=[*compared.refused, *(segment.id for _, segment in lost)],
            progress=lambda done, total: progress("keys", done, total),
        )
        lost += damaged
    _report_losses(walk, sought, lost, findings)
    return _Segments(sought.version, len(sought.segments), compared.bytes, rows)


def _walked(
    store: ObjectStore,
    listed: LogListing,
    findings: Findings,
    versions: tuple[int | None, int],
    *,
    rows: bool,
    progress: Progress,
) -> Walk:
    """Return the completed walk over the log.

    Args:
        store: of the table.
        listed: the keys of the log.
        findings: receives the problems.
        versions: the one to start from, and the one to check.
        rows: whether the rows of packs are compared with the commits.
        progress: see `fsck`.

    Raises:
        InvalidInput: there is no key frame to start from.
        VersionNotFound: the version to check does not exist.
        VersionVacuumed: it is below the horizon.
    """
    head, (start, version) = listed.head, versions
    walk = Walk(
        store,
        listed,
        findings,
        start=start,
        wanted=None if version == head else version,
        waiting=waiting_of(store, head),
        rows=rows,
    )
    if version > head:
        check_kept(walk.audit.meta, head, version, store.uri)
    walk.run(progress)
    try:
        check_kept(walk.audit.meta, head, version, store.uri)
    except Corrupt as error:
        findings.add("error", error.message, keys.commit_key(head), head)
    return walk


def _frame_counts(walk: Walk) -> _Frames:
    frames = walk.frames
    bad = len(frames.bad | frames.with_bad_pieces.keys())
    return _Frames(len(frames.good), bad, len(frames.missing))


def _key_columns(store: ObjectStore, walk: Walk, findings: Findings) -> KeyColumns | None:
    """Return how keys are read; None if the log is damaged, which is reported.

    Raises:
        InvalidInput: the table has no key.
    """
    audit, head = walk.audit, walk.listed.head
    try:
        columns = KeyColumns.of(store, audit.meta)
    except Corrupt as error:
        if not walk.unfit:
            findings.add("error", error.message, keys.commit_key(head), head)
        return None
    if columns is None and audit.version == head:
        raise InvalidInput("the table has no key, so there are no keys to check", table=store.uri)
    return columns


def _check_places(sought: SoughtSegments, findings: Findings) -> bool:
    """Return whether all segments of a keyed table can lie where they do, else report it."""
    meta = sought.meta
    if meta.layout is None or meta.schema is None:
        return True
    try:
        rule = stored_rule(meta.layout, meta.schema)
    except Corrupt:
        return True  # reported of the first schema
    try:
        if rule is not None:
            readable_runs(sought.segments.values(), rule)
    except Corrupt as error:
        findings.add("error", error.message, keys.commit_key(sought.version), sought.version)
        return False
    return True


def _report_losses(
    walk: Walk, sought: SoughtSegments, lost: Sequence[Lost], findings: Findings
) -> None:
    """Report the lost segments, and for each whether its rows can be read from others."""
    segments = {segment.id: segment for _, segment in lost}
    missing = set(segments)
    if 0 < len(segments) <= _MAX_SOUGHT:
        try:
            snapshot = walk.log.snapshot(sought.version)
            instead = fallback.find_fallback(walk.log, snapshot, segments.values())
            missing = {segment.id for segment in instead.missing}
        except (Corrupt, NotFound):
            pass  # reported before
    for problem, segment in lost:
        message = problem if segment.id in missing else f"{problem}; {_AROUND}"
        findings.add("error", message, keys.key_of(segment), segment.version)


def _report(
    walk: Walk,
    findings: Findings,
    repairs: tuple[Repair, ...],
    *,
    start: int,
    frames: _Frames,
    segments: _Segments,
) -> Report:
    return Report(
        table=walk.log.store.uri,
        start=start,
        head=walk.listed.head,
        versions=walk.versions,
        transactions=walk.transactions,
        void=tuple(walk.void),
        keyframes=frames.good,
        bad_keyframes=frames.bad,
        missing_keyframes=frames.missing,
        leaves=sum(problem is None for problem in walk.frames.leaves.values()),
        segments_version=segments.version,
        segments=segments.count,
        checksummed=segments.checksummed,
        keys_checked=segments.keys_checked,
        leftovers=walk.unnamed.counted(),
        repairs=repairs,
        errors=findings.errors,
        warnings=findings.warnings,
        findings=findings.listed,
    )


def _check_publications(session: Session, walk: Walk, findings: Findings, *, wanted: bool) -> None:
    """Report what is published in other formats and differs from the log."""
    try:
        for problem in (*audit_delta(session), *audit_iceberg(session)) if wanted else ():
            findings.add(problem.severity, problem.message, problem.key, problem.version)
    except (Corrupt, NotFound) as error:
        if not walk.unfit:
            findings.add("error", error.message, error.key, error.version)


def _check_time(store: ObjectStore, walk: Walk, findings: Findings, clock: Clock) -> None:
    """Report if the newest commit's time is far from the clock's, and what can be done."""
    header = walk.audit.header
    if header is None or header.version != walk.listed.head:
        return
    problem = timing.time_problem(header, store_time_ms(store, clock), store.uri)
    if problem is not None:
        findings.add("warning", problem, keys.commit_key(header.version), header.version)


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
