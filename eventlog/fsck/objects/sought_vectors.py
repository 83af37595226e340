"""The objects of deletion vectors that an audit looks for: those of a version, and held ones.

A segment whose vector is lost is lost itself, since nothing tells which of its rows are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import UnsetType

from eventlog.errors import DataLoss
from eventlog.format import keys
from eventlog.format.deletion_vectors import positions_in_entry
from eventlog.fsck.findings import Findings
from eventlog.fsck.objects.held_segments import HeldSegment
from eventlog.model.entries import Segment, stored_bitmap
from eventlog.store.port import ObjectInfo

_MISSING = "its deletion vector is missing"


@dataclass(slots=True)
class _Object:
    """One object: the segments whose vectors are in it, and the segments that are held."""

    segments: list[Segment] = field(default_factory=list)
    held: list[HeldSegment] = field(default_factory=list)


class SoughtVectors:
    """The objects of deletion vectors that have to be there.

    Args:
        segments: the segments of the version that is checked.
        held: segments that pins, replicas and branches hold, in all states of their vectors.

    Attributes:
        lost: the segments whose vectors the objects that were seen cannot have, with the problem.
        held: the held segments whose vectors may be there.
    """

    def __init__(self, segments: Iterable[Segment], held: Iterable[HeldSegment]) -> None:
        self._unseen: dict[str, _Object] = {}
        self.lost: list[tuple[str, Segment]] = []
        self.held: list[HeldSegment] = []
        live = list(segments)
        for segment in live:
            for key in keys.keys_of(segment)[1:]:
                self._unseen.setdefault(key, _Object()).segments.append(segment)
        for segment in live:
            vector = segment.vector
            if isinstance(vector, UnsetType) or stored_bitmap(vector) is not None:
                continue
            try:
                positions_in_entry(vector, segment.rows)  # against unreadable-bitmap-not-seen
            except DataLoss as error:
                self.lost.append((error.message, segment))
        known = {segment.vector for segment in live}  # whose loss is that of a live segment
        for one in held:
            if one.segment.vector in known:
                continue
            for key in keys.keys_of(one.segment)[1:]:
                self._unseen.setdefault(key, _Object()).held.append(one)

    def see(self, row: ObjectInfo, findings: Findings) -> None:
        """Note an object of the listing, and report what it is too small for."""
        seen = self._unseen.pop(row.key, None)
        if seen is None:
            return
        for segment in seen.segments:
            if row.size < _end(segment):  # against short-vectors-not-seen
                self.lost.append((f"its deletion vector is cut off: {row.key}", segment))
        for one in seen.held:
            if row.size < _end(one.segment):
                problem = f"{one.named} has a deletion vector that is cut off"
                findings.add("error", problem, row.key, one.version)
            else:
                self.held.append(one)

    def missing(self) -> list[tuple[str, Segment]]:
        """Return the segments of the version whose vectors the listing lacked."""
        return [
            (f"{_MISSING}: {key}", segment)
            for key, unseen in self._unseen.items()
            for segment in unseen.segments
        ]

    def report_held(self, findings: Findings) -> None:
        """Report the held vectors that the listing lacked."""
        for key, unseen in self._unseen.items():
            for one in unseen.held:
                problem = f"{one.named} has lost its deletion vector: the object is missing"
                findings.add("error", problem, key, one.version)


def _end(segment: Segment) -> int:
    stored = stored_bitmap(segment.vector)
    return 0 if stored is None else stored.offset + stored.size
