"""The comparison of segments with the log: their sha256, and whether readers accept their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from eventlog.errors import Corrupt, DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.fsck.contents.row_check import ReadSegments, RowCheck, SeenRows
from eventlog.fsck.contents.vector_check import compare_vectors
from eventlog.fsck.findings import Findings
from eventlog.fsck.log_walk import Progress, Walk
from eventlog.fsck.objects.held_segments import HeldSegment
from eventlog.fsck.objects.sought_segments import ListedObjects, Lost, SoughtSegments
from eventlog.keyed.rule import keyed_of
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.entries import Segment
from eventlog.segments.checked_rows import stored_rows_tested
from eventlog.store.port import ObjectStore


@dataclass(slots=True)
class Compared:
    """The results of reading segments.

    Attributes:
        bytes: the bytes that were read and hashed.
        lost: the live segments with other bytes than those in the log.
        refused: the ids of the segments that readers refuse.
    """

    bytes: int = 0
    lost: list[Lost] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _RowProblems:
    """Finds what is wrong with the rows of a segment. Can be pickled.

    Attributes:
        checks: how the rows of a version are read, by version.
        held: the versions of the segments that are only held, by their ids.
        version: the version of the others.
        keys_follow: see `compare_checksums`.
    """

    checks: Mapping[int, RowCheck]
    held: Mapping[str, int]
    version: int
    keys_follow: bool

    def __call__(self, segment: Segment) -> list[str]:
        check = self.checks.get(self.held.get(segment.id, self.version))
        if check is None:
            return []  # nothing can be read, which was reported
        # Statistics are of all rows, deleted ones included; vectors are read elsewhere.
        whole = msgspec.structs.replace(segment, vector=UNSET)
        return check.problems(whole, places=segment.id in self.held or not self.keys_follow)


def compare_checksums(
    store: ObjectStore,
    walk: Walk,
    sought: SoughtSegments,
    listing: ListedObjects,
    findings: Findings,
    *,
    read: ReadSegments,
    keys_follow: bool,
    progress: Progress,
) -> Compared:
    """Read segments and deletion vectors, and compare them with the log.

    Args:
        store: of the table.
        walk: the completed walk over the log.
        sought: the segments of the version to check.
        listing: the segments that are only held, and those that are known to be lost.
        findings: receives the problems, besides those of lost segments.
        read: how segments are read.
        keys_follow: whether the live rows in wrong places are reported by a check of the keys.
        progress: called with the number of bytes that were read, and their total.
    """
    held = listing.held
    holders = {one.segment.id: one for one in held}
    checks = _row_checks(store, walk, sought, held, findings)
    both = [*sought.segments.values(), *(one.segment for one in held)]
    compared, total, done = Compared(), sum(segment.bytes for segment in both), 0
    versions = {one.segment.id: one.version for one in held}
    problems = _RowProblems(checks, versions, sought.version, keys_follow)
    for seen in read(store, sorted(both, key=_by_age), problems):
        segment, holder = seen.segment, holders.get(seen.segment.id)
        done += segment.bytes
        progress("bytes", done, total)
        if seen.digest is None:
            continue  # reported as missing
        compared.bytes += segment.bytes
        if seen.refused:
            compared.refused.add(segment.id)
        if holder is None and seen.digest != segment.checksum:
            compared.lost.append((f"the segment's {_other_digest(seen)}", segment))
            continue
        for message in _messages(seen):
            named = message if holder is None else f"{holder.named} is damaged: {message}"
            version = segment.version if holder is None else holder.version
            findings.add("error", named, keys.key_of(segment), version)
    known = {segment.id for _, segment in (*listing.lost, *compared.lost)}
    live = [segment for segment in sought.segments.values() if segment.id not in known]
    for body_size, problems_found in compare_vectors(store, live, listing.vectors, findings):
        compared.bytes += body_size
        compared.lost += problems_found
    gone = {segment.id for _, segment in compared.lost} | compared.refused
    _test_rows(store, sought, [segment for segment in live if segment.id not in gone], findings)
    return compared


def _test_rows(
    store: ObjectStore, sought: SoughtSegments, segments: Sequence[Segment], findings: Findings
) -> None:
    """Report the checks that live rows break, in a table without a key (FORMAT.md R7.13).

    In a keyed table rows may be hidden by later ones.
    """
    schema, layout = sought.meta.schema, sought.meta.layout
    checks = checks_of(schema)
    if schema is None or layout is None or keyed_of(layout) is not None or not checks:
        return
    key, version = keys.commit_key(sought.version), sought.version
    try:
        tested = stored_rows_tested(store, segments, schema, checks, version=version, keyed=False)
    except (DataLoss, InvalidInput) as error:
        findings.add("warning", f"rows were not tested: {error.message}", key, version)
        return
    if problem := tested.problem():
        findings.add("error", f"{problem}: correct or delete these rows", key, version)


def _row_checks(
    store: ObjectStore,
    walk: Walk,
    sought: SoughtSegments,
    held: Sequence[HeldSegment],
    findings: Findings,
) -> dict[int, RowCheck]:
    """Return how the rows of versions are read whose segments are looked at."""
    metas = {one.version: one.meta for one in held} | {sought.version: sought.meta}
    checks: dict[int, RowCheck] = {}
    for version, meta in metas.items():
        try:
            check = RowCheck.of(store, version, meta)
        except Corrupt as error:
            if not walk.unfit:
                findings.add("error", error.message, keys.commit_key(version), version)
            continue
        if check is not None:
            checks[version] = check
    return checks


def _messages(seen: SeenRows) -> Iterator[str]:
    """Yield what is wrong with a segment."""
    if seen.digest == seen.segment.checksum:
        yield from seen.problems
    else:
        yield f"its {_other_digest(seen)}"


def _other_digest(seen: SeenRows) -> str:
    return f"sha256 is {seen.digest}, but {seen.segment.checksum} in the log"


def _by_age(segment: Segment) -> tuple[int, int]:
    return segment.version, segment.partition
