"""The comparison of stored deletion vectors with the log: their bytes and their positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UnsetType

from eventlog.errors import DataLoss, KeyNotFound
from eventlog.format import keys
from eventlog.format.deletion_vectors import decode_vector
from eventlog.fsck.findings import Findings
from eventlog.fsck.objects.held_segments import HeldSegment
from eventlog.fsck.objects.sought_segments import Lost
from eventlog.model.entries import Segment, stored_bitmap
from eventlog.store.port import ObjectStore

# A segment, and what holds it; None: it is one of the version that is checked.
_Needed = tuple[Segment, HeldSegment | None]


def compare_vectors(
    store: ObjectStore,
    segments: Iterable[Segment],
    held: Sequence[HeldSegment],
    findings: Findings,
) -> Iterator[tuple[int, list[Lost]]]:
    """Read objects of deletion vectors, each once, and compare them with the log.

    Args:
        store: of the table.
        segments: those of the version that is checked, without lost ones.
        held: segments that are only held, in all states of their vectors.
        findings: receives the problems, besides those of lost segments.

    Yields:
        For each object its size, and the segments that are lost with their vectors.
    """
    needed: dict[str, list[_Needed]] = {}
    for one in (*((s, None) for s in segments), *((h.segment, h) for h in held)):
        for key in keys.keys_of(one[0])[1:]:
            needed.setdefault(key, []).append(one)
    for key, users in sorted(needed.items()):
        try:
            body = store.get(key)
        except KeyNotFound:  # since it was listed
            body = b""
        yield len(body), list(_problems(key, body, users, findings))


def _problems(
    key: str, body: bytes, users: Sequence[_Needed], findings: Findings
) -> Iterator[Lost]:
    """Yield the segments that are lost with their vectors, and report the held ones."""
    for segment, held in users:
        vector, stored = segment.vector, stored_bitmap(segment.vector)
        if isinstance(vector, UnsetType) or stored is None:
            continue
        try:
            bitmap = body[stored.offset : stored.offset + stored.size]
            decode_vector(bitmap, vector, segment.rows)  # against vectors-not-compared-by-fsck
        except DataLoss as error:
            if held is None:
                yield f"its deletion vector is lost: {error.message}: {key}", segment
            else:
                problem = f"{held.named} has lost its deletion vector: {error.message}"
                findings.add("error", problem, key, held.version)
