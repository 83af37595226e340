"""The segments whose bytes stand in commits: whether these have them (FORMAT.md R21.1, R21.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UnsetType

from eventlog.format import keys
from eventlog.fsck.findings import Findings
from eventlog.fsck.objects.short_ids import ShortIds
from eventlog.inline import inline_objects
from eventlog.model.entries import Segment
from eventlog.store.port import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from eventlog.fsck.objects.held_segments import HeldSegment


class CommittedBodies:
    """The segments whose bytes the folded commits have, by accepted adds."""

    def __init__(self) -> None:
        self._ids = ShortIds()
        self._folded: list[range] = []

    def note(self, version: int, live: Iterable[Segment]) -> None:
        """Note a version that was folded, after the one before.

        Args:
            version: the version.
            live: the segments that it made live. The fold compares the bytes of their adds.
        """
        self._ids.note(_in_commit(segment) for segment in live if segment.inline == version)
        if self._folded and self._folded[-1].stop == version:
            self._folded[-1] = range(self._folded[-1].start, version + 1)
        else:
            self._folded.append(range(version, version + 1))

    def folded(self, version: int) -> bool:
        """Return whether a version was folded."""
        return any(version in run for run in self._folded)

    def __contains__(self, segment: Segment) -> bool:
        """Return whether the commit that an entry names was folded, and has its bytes."""
        return _in_commit(segment) in self._ids


class SoughtBodies:
    """The bytes of inline segments that have to be there, in a commit or at their keys.

    Args:
        known: what the folded commits have.
        segments: those of the version that is checked.
        held: those that pins, replicas and branches hold, by key.
    """

    def __init__(
        self,
        known: CommittedBodies,
        segments: Iterable[Segment],
        held: Mapping[str, HeldSegment],
    ) -> None:
        self._known = known
        self._live = {keys.key_of(segment): segment for segment in segments if is_inline(segment)}
        self._held = {
            key: one
            for key, one in held.items()
            if key not in self._live and is_inline(one.segment)
        }
        self._at_key: set[str] = set()

    def see(self, row: ObjectInfo, findings: Findings) -> None:
        """Note an object of the listing, and report it if it has the wrong size."""
        held = self._held.get(row.key)
        segment = self._live.get(row.key) if held is None else held.segment
        if segment is None:
            return
        if row.size == segment.bytes:
            self._at_key.add(row.key)
            return
        message = (
            f"the object has {row.size:,} bytes, but the segment, whose bytes stand in commit "
            f"{segment.inline}, has {segment.bytes:,}: programs that read files return other rows; "
            "remove this object by hand"
        )
        findings.add("warning", message, row.key, segment.version)

    def lost(self, store: ObjectStore, findings: Findings) -> list[tuple[str, Segment]]:
        """Return the segments of the version whose bytes are nowhere, with the problem.

        Reports entries that name a commit which does not have their bytes.

        Raises:
            Unavailable: the store does not answer.
        """
        sought = [*self._live.values(), *(one.segment for one in self._held.values())]
        unknown = [segment for segment in sought if segment not in self._known]
        # Not from memory: the question is what is stored.
        found = inline_objects.fetch_objects(store, unknown, cached=False)
        for segment in unknown:
            stands = _stands(segment)
            if self._known.folded(stands):  # against bytes-of-no-add
                message = f"no add of this commit that counts has the bytes of segment {segment.id}"
                findings.add("error", message, keys.commit_key(stands), stands)
        gone = {
            key
            for key, segment in zip([*self._live, *self._held], sought, strict=True)
            if segment not in self._known
            and segment.checksum not in found
            and key not in self._at_key
        }
        for key in [key for key in self._held if key in gone]:
            one = self._held.pop(key)
            problem = f"{one.named} is missing: {_nowhere(one.segment)}"
            findings.add("error", problem, key, one.version)
        return [
            (f"a live segment is missing: {_nowhere(segment)}", segment)
            for key, segment in self._live.items()
            if key in gone
        ]

    def held(self) -> Sequence[HeldSegment]:
        """Return the held segments whose bytes are there, after `lost`."""
        return [*self._held.values()]


def is_inline(segment: Segment) -> bool:
    """Return whether the bytes of a segment stand in a commit."""
    return not isinstance(segment.inline, UnsetType)


def _stands(segment: Segment) -> int:
    """Return the version of the commit that has the bytes of an inline segment."""
    return 0 if isinstance(segment.inline, UnsetType) else segment.inline


def _in_commit(segment: Segment) -> str:
    """Return the first half of an id, mixed with the commit that its entry names."""
    return f"{int(segment.id[:16], 16) ^ _stands(segment):016x}"


def _nowhere(segment: Segment) -> str:
    return f"neither commit {segment.inline} nor an object at this key has its bytes"
