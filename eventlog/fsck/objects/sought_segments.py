"""The segments of the version that is checked, compared with a listing of the objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventlog.errors import EventLogError
from eventlog.format import keys
from eventlog.fsck.findings import Findings
from eventlog.fsck.log_walk import Progress, Walk
from eventlog.fsck.objects.held_segments import HeldSegment, HeldSegments, held_segments
from eventlog.fsck.objects.inline_segments import SoughtBodies, is_inline
from eventlog.fsck.objects.leftovers import PLACES
from eventlog.fsck.objects.sought_vectors import SoughtVectors
from eventlog.fsck.objects.vacuum_record import RecordCheck
from eventlog.log.log import Log
from eventlog.model.entries import Segment
from eventlog.model.records import Meta
from eventlog.quantities import count_text
from eventlog.store.branching.roots import is_own
from eventlog.store.port import ObjectInfo, ObjectStore
from eventlog.table.branching.soundness import check_branches

# What is wrong with a segment whose rows cannot be read, and the segment.
Lost = tuple[str, Segment]


@dataclass(frozen=True, slots=True)
class SoughtSegments:
    """The segments that are checked.

    Attributes:
        version: the version that has them live.
        meta: its small state.
        segments: the segments, by id.
    """

    version: int
    meta: Meta
    segments: Mapping[str, Segment]


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """The segments that a listing of the objects shows to be lost, or held.

    Attributes:
        lost: the sought segments that are missing, or have the wrong size.
        held: the segments that pins, replicas and branches hold, besides those sought, and whose
            bytes are there: in a commit, or as an object of the right size.
        vectors: the held segments, in all states of their deletion vectors, whose vectors exist.
    """

    lost: Sequence[Lost] = ()
    held: Sequence[HeldSegment] = ()
    vectors: Sequence[HeldSegment] = ()


def sought_segments(walk: Walk, version: int, findings: Findings) -> SoughtSegments:
    """Return the live segments of a version, or of the last version that could be folded.

    Args:
        walk: the completed walk over the log.
        version: the version to check.
        findings: where it is reported that the version cannot be resolved.
    """
    audit, head = walk.audit, walk.listed.head
    if version != head and walk.kept is not None and walk.kept_meta is not None:
        return SoughtSegments(version, walk.kept_meta, walk.kept)
    if version == head and audit.version == head:
        return SoughtSegments(version, audit.meta, audit.live)
    known = audit.version if version == head else None
    consequence = f"the segments of version {known} are checked instead"
    if known is None:
        consequence = "its segments cannot be checked"
    message = f"version {version} cannot be resolved: {consequence}"
    findings.add("warning", message, keys.commit_key(version), version)
    if known is None:
        return SoughtSegments(version, audit.meta, {})
    return SoughtSegments(known, audit.meta, audit.live)


def look_at_objects(
    store: ObjectStore,
    walk: Walk,
    sought: SoughtSegments,
    findings: Findings,
    progress: Progress,
) -> ListedObjects:
    """Compare segments with a listing of the objects, and count objects that nothing refers to.

    Args:
        store: of the table.
        walk: the completed walk over the log, which gets the leftovers.
        sought: the segments of the version to check.
        findings: receives the problems.
        progress: called with the number of segments that were found, and their total.
    """
    audit, head = walk.audit, walk.listed.head
    record = RecordCheck(walk.log, audit, walk.waiting, walk.left_out, findings, head=head)
    every = {keys.key_of(segment): segment for segment in sought.segments.values()}
    wanted = {key: segment for key, segment in every.items() if not is_inline(segment)}
    held = HeldSegments()
    holding, with_vectors = held_segments(
        store, walk, head, known=every, record=record, findings=findings
    )
    held.look_for(holding, every)
    bodies = SoughtBodies(walk.bodies, every.values(), holding)
    vectors = SoughtVectors(every.values(), with_vectors)
    lost: list[Lost] = []
    total, at_head = len(wanted), audit.version == head
    for place in PLACES:
        for row in store.list(place):
            segment = wanted.pop(row.key, None)
            held.see(row, findings)
            bodies.see(row, findings)
            vectors.see(row, findings)
            if segment is not None:
                lost += _of_wrong_size(segment, row)
                progress("segments", total - len(wanted), total)
            if at_head and is_own(store, row.key):
                record.see(row.key)
                _count_leftover(walk, place, row)
                record.look_for(row.key)
    absent = [("a live segment is missing", segment) for segment in wanted.values()]
    absent += bodies.lost(store, findings)
    gone = {segment.id for _, segment in absent}
    without = [(why, segment) for why, segment in vectors.missing() if segment.id not in gone]
    if absent or without:  # against missing-vectors-not-seen
        lost += _unless_vacuumed(store, [*absent, *without], sought.version, findings)
    known = {segment.id for _, segment in lost}
    lost += ((why, segment) for why, segment in vectors.lost if segment.id not in known)
    held.report_missing(findings)
    vectors.report_held(findings)
    record.check()
    if at_head:
        for key, severity, message in check_branches(walk.log, audit.meta):
            findings.add(severity, message, key, head)
    return ListedObjects(lost, [*held.seen.values(), *bodies.held()], vectors.held)


def _of_wrong_size(segment: Segment, row: ObjectInfo) -> list[Lost]:
    if row.size == segment.bytes:
        return []
    return [(f"the segment has {row.size:,} bytes, but {segment.bytes:,} in the log", segment)]


def _count_leftover(walk: Walk, place: str, row: ObjectInfo) -> None:
    audit, unnamed = walk.audit, walk.unnamed
    kind = unnamed.judge(row.key, audit.meta, walk.listed.head, audit.live)
    if kind is not None:
        unnamed.count(place, kind, row.key, row.size)


def _unless_vacuumed(
    store: ObjectStore, missing: list[Lost], version: int, findings: Findings
) -> list[Lost]:
    """Return segments that the listing lacks, unless a vacuum passed their version during it."""
    try:
        horizon = Log(store).head().meta.horizon
    except EventLogError:
        horizon = 0  # the head cannot be read, so the folded state decides
    if version >= horizon:
        return missing
    message = (
        f"a vacuum has moved the horizon to version {horizon} in the meantime: "
        f"{count_text(len(missing), 'segment')} may be gone"
    )
    findings.add("warning", message, keys.commit_key(version), version)
    return []
