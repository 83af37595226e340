"""The segments of a table that its audit looks for, since a pin, a replica or a branch needs them.

These segments need not be live in the version that is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from eventlog.errors import Corrupt, InvalidInput, NotFound, VersionNotFound, VersionNotReplicated
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.fsck.findings import Findings
from eventlog.fsck.log_walk import Walk
from eventlog.fsck.objects.inline_segments import is_inline
from eventlog.fsck.objects.vacuum_record import RecordCheck, lacking, lacking_vectors
from eventlog.model.entries import Segment, StoredBitmap, stored_bitmap
from eventlog.model.records import Meta
from eventlog.state.small.holds import holds
from eventlog.store.branching.roots import held_from, is_own
from eventlog.store.port import ObjectInfo, ObjectStore
from eventlog.table.branching.keeping import vector_objects
from eventlog.table.branching.names import forks

_LACKING = (
    "the last vacuum's record lacks this {}, or has it dropped where it was live: the next vacuum "
    "would delete it, or examines the whole table"
)


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment that is held.

    Attributes:
        why: what holds it, as the end of a sentence about its version.
        version: a version that has it live, and that is held.
        segment: its entry.
        meta: the small state of the version.
    """

    why: str
    version: int
    segment: Segment
    meta: Meta

    @property
    def named(self) -> str:
        """The name of the segment, for a message."""
        return f"a segment of version {self.version}, which {self.why},"


class HeldSegments:
    """The segments that pins, replicas and branches hold, besides those of a version.

    Attributes:
        seen: those whose object exists and has the right size, by key. Those whose bytes stand in
            commits are looked for elsewhere.
    """

    def __init__(self) -> None:
        self._unseen: dict[str, HeldSegment] = {}
        self.seen: dict[str, HeldSegment] = {}

    def look_for(self, segments: Mapping[str, HeldSegment], others: Iterable[str]) -> None:
        """Look for these segments, by key, without `others`, which are looked for elsewhere."""
        others = set(others)
        self._unseen = {
            key: held
            for key, held in segments.items()
            if key not in others and not is_inline(held.segment)
        }

    def see(self, row: ObjectInfo, findings: Findings) -> None:
        """Note an object of the listing, and report it if it has the wrong size."""
        if row.key not in self._unseen:
            return
        held = self._unseen.pop(row.key)
        if row.size == held.segment.bytes:
            self.seen[row.key] = held
        else:
            problem = f"has {row.size:,} bytes, but {held.segment.bytes:,} in the log"
            findings.add("error", f"{held.named} {problem}", row.key, held.version)

    def report_missing(self, findings: Findings) -> None:
        """Report the segments that the listing lacked."""
        for key, held in self._unseen.items():
            findings.add("error", f"{held.named} is missing", key, held.version)


def held_segments(
    store: ObjectStore,
    walk: Walk,
    head: int,
    *,
    known: Iterable[str],
    record: RecordCheck,
    findings: Findings,
) -> tuple[dict[str, HeldSegment], list[HeldSegment]]:
    """Return the segments that pins, replicas and branches hold, by key, and with stored vectors.

    A segment comes once with each of these. Also checks that the last vacuum's record has those of
    pins and replicas that were dropped; the next vacuum would delete the others.

    Args:
        store: the store of the table or branch.
        walk: the walk over its log.
        head: the newest version.
        known: keys of live segments, which a vacuum does not delete.
        record: checks the record of the last vacuum.
        findings: where problems are reported.
    """
    meta = walk.audit.meta
    segments: dict[str, HeldSegment] = {}
    vectors: dict[StoredBitmap, HeldSegment] = {}

    def note(version: int, why: str) -> None:
        for key, held in _live_at(walk, version, why):
            segments.setdefault(key, held)
            stored = stored_bitmap(held.segment.vector)
            if stored is not None:
                vectors.setdefault(stored, held)

    try:
        oldest = held_from(store.forks)
        # The parent may have given up since the holds that its branch inherited.
        for hold in (hold for hold in holds(meta) if hold.version >= oldest):
            note(hold.version, f"{hold.kind} {hold.name!r} protects")
        # A vacuum of a branch deletes none of its parent's segments.
        live = set(known)
        own = {k: h.segment for k, h in segments.items() if k not in live and is_own(store, k)}
        for key in lacking(own, {k: segments[k].version for k in own}, meta, walk.log):
            record.report(_LACKING.format("segment"), key, segments[key].version)
        _look_for_vectors(store, walk, head, vectors, record)
        for fork in forks(store):
            with suppress(VersionNotFound):  # `check_branches` reports such a fork
                for version in (fork.held, fork.version):
                    note(version, f"branch {fork.name!r} reads")
    except (Corrupt, NotFound, InvalidInput) as error:  # also numbers that no version has
        message = (
            "the versions that pins, replicas and branches hold cannot be resolved: "
            f"{error.message}"
        )
        findings.add("warning", message, keys.commit_key(head), head)
    return segments, [*vectors.values()]


def _look_for_vectors(
    store: ObjectStore,
    walk: Walk,
    head: int,
    held: Mapping[StoredBitmap, HeldSegment],
    record: RecordCheck,
) -> None:
    """Report objects of held vectors that the last vacuum's record should have, and lacks."""
    if not held:
        return
    live = vector_objects(walk.log.snapshot(head))  # which a vacuum does not delete
    newest: dict[str, int] = {}
    for stored, one in held.items():
        key = keys.vectors_key(stored)
        if stored.object not in live and is_own(store, key):
            newest[key] = max(one.version, newest.get(key, 0))
    for key in lacking_vectors(newest, walk.audit.meta, walk.log):
        record.report(_LACKING.format("object of deletion vectors"), key, newest[key])


def _live_at(walk: Walk, version: int, why: str) -> Iterator[tuple[str, HeldSegment]]:
    """Yield the segments that are live at a version, unless this copy does not have it."""
    with suppress(VersionNotReplicated):
        snapshot = walk.log.snapshot(version)
        for segment in entry_columns.to_segments(snapshot.entries()):
            yield keys.key_of(segment), HeldSegment(why, version, segment, snapshot.meta)
