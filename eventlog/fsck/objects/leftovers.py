"""Leftovers: stored objects that nothing in the table refers to, and why they exist.

No I/O. Crashed uploads, dropped segments before their vacuum, and published transactions whose
window has passed leave objects behind (FORMAT.md "Crashes"). They are counted, and never reported
as errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.fsck.findings import LeftoverKind, Leftovers
from eventlog.fsck.objects.short_ids import ShortIds
from eventlog.model.actions import Swept
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Meta

PLACES = (
    keys.SEGMENTS_PREFIX,
    keys.FRAMES_PREFIX,
    keys.PACKS_PREFIX,
    keys.INTENTS_PREFIX,
    keys.PROBES_PREFIX,
)


class UnnamedObjects:
    """Counts the objects that nothing refers to.

    Args:
        start: the version from which on the history is known; 0 for the whole history.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._dropped = ShortIds()  # a history has many
        self._frames: set[bytes] = set()
        self._records: set[bytes] = set()
        self._packs: set[bytes] = set()
        self._vectors: AbstractSet[str] | None = None
        self._found: dict[tuple[str, LeftoverKind], Leftovers] = {}

    def unknown_before(self, version: int) -> None:
        """Note that versions before this one could not be read."""
        self.start = max(self.start, version)

    def note_drops(self, ids: Iterable[str]) -> None:
        """Note the ids of the segments and the vectors that a commit dropped."""
        self._dropped.note(ids)

    def note_commit(self, commit: Commit) -> None:
        """Note the objects under `_frames/` that a commit refers to."""
        spills = [t.spill for t in commit.transactions] + [commit.delta.spill]
        self.note_frames(spill.sha256 for spill in spills if spill is not None)
        sweeps = (a for t in commit.transactions for a in t.actions if isinstance(a, Swept))
        self._records |= {_bytes(s.sweep.pending.sha256) for s in sweeps if s.sweep.pending}

    def note_frames(self, sha256s: Iterable[str]) -> None:
        """Note objects under `_frames/` that something refers to."""
        self._frames.update(map(_bytes, sha256s))

    def note_packs(self, sha256s: Iterable[str]) -> None:
        """Note packs that a key frame refers to."""
        self._packs.update(map(_bytes, sha256s))

    def judge(
        self, key: str, meta: Meta, head: int, live: Mapping[str, Segment]
    ) -> LeftoverKind | None:
        """Return the kind of leftover of the object under `key`; None if something refers to it.

        Args:
            key: under one of `PLACES`.
            meta: the small state at the head.
            head: the newest version.
            live: the live segments at the head, by id.
        """
        if key.startswith(keys.SEGMENTS_PREFIX):
            return self._judge_data(key, meta, live)
        if key.startswith(keys.FRAMES_PREFIX):
            return self._judge_frame(key, meta)
        if key.startswith(keys.PACKS_PREFIX):
            return self._judge_pack(key)
        if key.startswith(keys.INTENTS_PREFIX):
            parsed = keys.parse_intent_key(key)
            if parsed is None:
                return "foreign"
            return "open" if parsed[0] > head else "ended"
        return "probe"

    def count(self, place: str, kind: LeftoverKind, key: str, size: int) -> None:
        """Count one leftover."""
        known = self._found.get((place, kind)) or Leftovers(place, kind, 0, 0, key)
        objects, total = known.objects + 1, known.bytes + size
        self._found[place, kind] = Leftovers(place, kind, objects, total, known.example)

    def counted(self) -> tuple[Leftovers, ...]:
        """Return the counted leftovers, by place and kind."""
        order = sorted(self._found, key=lambda at: (PLACES.index(at[0]), at[1]))
        return tuple(self._found[at] for at in order)

    def _judge_data(self, key: str, meta: Meta, live: Mapping[str, Segment]) -> LeftoverKind | None:
        parsed = keys.parse_data_key(key)
        if parsed is None:
            return "foreign"
        epoch, name = parsed
        segment = live.get(name)
        if segment is not None and keys.key_of(segment) == key:
            return None
        if keys.parse_vectors_key(key) and key in self._vectors_of(live):
            return None
        if name in self._dropped:
            return "dropped"
        if epoch < self.start:
            return "earlier"
        return "staged" if epoch >= meta.fence else "abandoned"

    def _vectors_of(self, live: Mapping[str, Segment]) -> AbstractSet[str]:
        """Return the keys of the vectors of the live segments; looked up once."""
        if self._vectors is None:
            found = (keys.keys_of(segment)[1:] for segment in live.values())
            self._vectors = frozenset(key for names in found for key in names)
        return self._vectors

    def _judge_frame(self, key: str, meta: Meta) -> LeftoverKind | None:
        digest = key.removeprefix(keys.FRAMES_PREFIX).partition(".")[0]
        try:
            if key not in (keys.frame_key(digest), keys.stem_key(digest)):
                return "foreign"
        except Corrupt:
            return "foreign"
        pending = meta.swept.pending if meta.swept else None
        name = bytes.fromhex(digest)
        if name in self._frames or (pending is not None and digest == pending.sha256):
            return None
        if name in self._records:
            return "swept"
        return "earlier" if self.start else "unnamed"

    def _judge_pack(self, key: str) -> LeftoverKind | None:
        parsed = keys.parse_pack_key(key)
        if parsed is None:
            return "foreign"
        if bytes.fromhex(parsed[1]) in self._packs:
            return None
        return "earlier" if self.start else "unnamed"


def _bytes(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""  # not a valid hash, so no key has this name
