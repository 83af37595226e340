"""Repair: writes missing key frames, stems, leaves and packs, and nothing else.

Key frames are derived, so they can be built again from the log. Nothing is ever overwritten or
deleted here. Damaged objects must be removed by hand. Until then, the newest version gets a key
frame of its own, so that readers need not fall back to an older one (FORMAT.md R9.4 to R9.6).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import pyarrow as pa

from eventlog.clock import Clock
from eventlog.commit.proposal import check_writable, keyframe_due
from eventlog.errors import (
    AlreadyExists,
    Corrupt,
    EventLogError,
    KeyNotFound,
    NotFound,
    UnsupportedFormat,
)
from eventlog.format import codec, keys
from eventlog.format.entry_order import EntryKey, first_key
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.fsck.findings import Findings, Repair
from eventlog.fsck.keyframe_check import BadPiece
from eventlog.fsck.log_walk import Walk
from eventlog.fsck.pack_check import PackAudit
from eventlog.inline import inline_objects, packing
from eventlog.inline.packing import Packs
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import KeyFrame, Leaf, Pack, Piece, Stem, packs_of
from eventlog.state import keyframe
from eventlog.state.delta import Delta
from eventlog.state.keyframe import Frame
from eventlog.state.pieces.places import Stems
from eventlog.store.parallel import threads
from eventlog.store.port import Body
from eventlog.store.retry import retrying

_MOST_OLDER = 64  # key frames, one below the other, whose packs are made again for one pack
_TAKEN = (
    "it cannot be replaced, since nothing is ever overwritten; readers skip it. Remove the "
    "object {key} by hand, then run `eventlog fsck --repair` again"
)


def repair(walk: Walk, findings: Findings, clock: Clock) -> tuple[Repair, ...]:
    """Write missing objects, oldest first, and return what was done.

    Args:
        walk: a completed walk.
        findings: those of the walk; repaired ones are marked there.
        clock: for the pauses between tries.
    """
    repairer = _Repairer(walk, findings, clock)
    frames = walk.frames
    if why := _unwanted(walk):
        for pack, version in walk.key_frames.packs.packs.missing.items():
            repairer.note(_key(pack), version, f"not written: {why}")
        for version in sorted(frames.bad | frames.missing | frames.with_bad_pieces.keys()):
            repairer.note(keys.keyframe_key(version), version, f"not written: {why}")
        return tuple(repairer.repairs)
    repairer.write_pieces()
    repairer.write_packs(walk.key_frames.packs.packs)
    for version in sorted(frames.missing):
        repairer.write_root(version, "written: it was missing")
    for version in sorted(frames.bad):
        key = keys.keyframe_key(version)
        repairer.note(key, version, _TAKEN.format(key=key))
    if walk.audit.version == walk.listed.head:
        repairer.repair_head()
    return tuple(repairer.repairs)


def _unwanted(walk: Walk) -> str | None:
    """Return why nothing must be written; None if it may be."""
    if walk.broken:
        return "commits are damaged, and a key frame would hide that from readers"
    try:
        check_writable(walk.log.header(walk.listed.head))
    except UnsupportedFormat as error:
        return error.message
    return None


class _Repairer:
    """Writes key frames, stems and leaves from the folded state."""

    def __init__(self, walk: Walk, findings: Findings, clock: Clock) -> None:
        self._walk = walk
        self._log, self._frames, self._head = walk.log, walk.frames, walk.listed.head
        self._first, self._findings, self._clock = walk.unnamed.start, findings, clock
        self.repairs: list[Repair] = []

    def note(self, key: str, version: int, message: str, *, done: bool = False) -> None:
        """Note what was done, or why nothing was done."""
        self.repairs.append(Repair(key, version, done, message))
        if done:
            self._findings.repaired(key)

    def write_pieces(self) -> None:
        """Write missing stems and leaves again, oldest first: later ones are made from them."""
        for version in sorted({bad.version for bad in self._frames.bad_pieces().values()}):
            done = [self._write_piece(bad) for bad in self._bad(version, Stem)]
            if any(done):
                # Of their leaves nothing was known.
                with threads() as pool, suppress(Corrupt, NotFound):
                    self._walk.key_frames.check_again(version, pool)
            for bad in self._bad(version, Leaf):
                self._write_piece(bad)

    def _bad(self, version: int, kind: type[Piece]) -> list[BadPiece]:
        """Return what is missing or damaged, and was named by this version first."""
        found = self._frames.bad_pieces().values()
        return [bad for bad in found if bad.version == version and isinstance(bad.piece, kind)]

    def _write_piece(self, bad: BadPiece) -> bool:
        """Write a missing stem or leaf, byte for byte: its key is the hash of its content.

        Returns:
            Whether it was written.
        """
        key = keys.piece_key(bad.piece)
        if not bad.missing:
            # The same entries have the same hash, so they cannot be stored under another key.
            self.note(key, bad.version, f"{bad.problem}: {_TAKEN.format(key=key)}")
            return False
        try:
            body = self._piece_bytes(bad, key)
            done = body is not None and self._stored(key, body)
        except EventLogError as error:
            self.note(key, bad.version, f"not written: {error.message}")
            return False
        if not done:
            message = "not written: this release of pyarrow does not encode it to the same bytes"
            self.note(key, bad.version, message)
            return False
        self.note(key, bad.version, "written: it was missing", done=True)
        self._frames.noted(bad.piece)[bad.piece.sha256] = None
        for version, lacking in list(self._frames.with_bad_pieces.items()):
            lacking.discard(bad.piece.sha256)
            if not lacking:
                del self._frames.with_bad_pieces[version]
                self._frames.good |= {version} - self._frames.bad
        return True

    def write_packs(self, packs: PackAudit) -> None:
        """Write missing packs, oldest first, and note the damaged ones."""
        for pack, version in sorted(packs.missing.items(), key=lambda one: one[0].last):
            self._write_pack(pack, version)
        for pack, version in packs.damaged.items():
            self.note(_key(pack), version, _TAKEN.format(key=_key(pack)))

    def _write_pack(self, pack: Pack, version: int) -> None:
        """Write a missing pack again, byte for byte: its key has the hash of its content.

        Args:
            pack: its element in the root.
            version: a version whose key frame names it.
        """
        key = _key(pack)
        try:
            body = self._packs(pack.last).objects.get(key)
            done = body is not None and self._stored(key, body)
        except EventLogError as error:
            self.note(key, version, f"not written: {error.message}")
            return
        if done:
            self.note(key, version, "written: it was missing", done=True)
        else:
            message = "not written: the rows are not there any more, or become other bytes"
            self.note(key, version, message)

    def _packs(self, version: int, depth: int = 0) -> Packs:
        """Return the packs of a version's key frame, as its writer made them."""
        snapshot, store = self._log.snapshot(version), self._log.store
        # A pack may have joined older ones, which a vacuum has deleted: they are made, not stored.
        for older in packs_of(snapshot.base) if depth < _MOST_OLDER else ():
            if inline_objects.get_pack(store, older) is None:
                self._packs(older.last, depth + 1)
        return packing.packs_at(store, snapshot.base, snapshot.delta, version)

    def write_root(self, version: int, message: str) -> None:
        """Write the key frame of a version that has none."""
        key = keys.keyframe_key(version)
        try:
            snapshot = self._log.snapshot(version)
            damaged = self._write(snapshot, _shared) and self._write(snapshot, _whole)
        except EventLogError as error:
            self.note(key, version, f"not written: {error.message}")
            return
        if damaged:
            why = f"the key frame of version {version} would refer to this damaged leaf"
            self.note(damaged, version, f"{why}: {_TAKEN.format(key=damaged)}")
            return
        self.note(key, version, message, done=True)
        self._frames.good.add(version)

    def repair_head(self) -> None:
        """Write the newest version's key frame, if it is due or the one in use is unusable."""
        frames, head = self._frames, self._head
        base = self._log.header(head).keyframe
        if head in frames.good | frames.newer:
            return
        if base is None or base in frames.good or base < self._first:
            seen = frames.bad | frames.with_bad_pieces.keys() | frames.missing
            if head not in seen and keyframe_due(self._log.snapshot(head).state):
                self.write_root(head, "written: it was due")
            return
        if head in frames.bad or head in frames.with_bad_pieces:
            message = "readers step back to an older key frame until a commit writes a new one"
            self.note(keys.keyframe_key(head), head, message)
            return
        self.write_root(
            head,
            "written for the newest version, so that readers need not step back over the "
            f"unusable key frame of version {base}",
        )

    def _write(self, snapshot: Snapshot, make: Callable[[Log, Snapshot], Frame]) -> str | None:
        """Store a key frame, its root last; return the key of a damaged object that it needs.

        Raises:
            AlreadyExists: another key frame has been written in the meantime.
            Corrupt: a stem that it shares with another one is damaged.
            KeyNotFound: a stem that it shares with another one is missing.
        """
        frame = make(self._log, snapshot)
        packs = packing.packs_at(self._log.store, snapshot.base, snapshot.delta, snapshot.version)
        bad = self._frames.bad_pieces()
        for piece in self._log.key_frames.new_in(frame.root, None, frame.stems):
            key = keys.piece_key(piece)
            body = frame.objects.get(key)
            sound = self._stored(key, body) if body else piece.sha256 not in bad
            if not sound:
                return key
        for key, made in packs.objects.items():
            self._stored(key, made)  # readers pass over one that is damaged
        root_key = keys.keyframe_key(snapshot.version)
        root = msgspec.structs.replace(frame.root, packs=packs.packs)
        if not self._stored(root_key, codec.encode_keyframe(root)):
            raise AlreadyExists("another process has written it in the meantime", key=root_key)
        return None

    def _stored(self, key: str, body: Body) -> bool:
        """Create an object; return whether it has these bytes now, even if it existed before.

        Raises:
            InvalidInput: the store refuses the request.
            Unavailable: the store does not answer.
        """
        store = self._log.store
        if retrying(self._clock)(store.put_if_absent, key, body):
            return True
        return store.get(key, length=memoryview(body).nbytes + 1) == body

    def _piece_bytes(self, bad: BadPiece, key: str) -> bytes | None:
        """Return the bytes that a stem or leaf had, or None if they cannot be reproduced."""
        snapshot = self._log.snapshot(bad.version)
        try:
            rebuilt = _shared(self._log, snapshot).objects.get(key)
        except (Corrupt, KeyNotFound):
            rebuilt = None
        if rebuilt is not None or isinstance(bad.piece, Stem):
            return rebuilt
        entries = snapshot.entries().sort_by(entry_columns.ORDER)
        columns = [entries.column(name).to_pylist() for name in ("chunk_start", "chunk_end", "id")]
        order = [EntryKey(a, b, c.hex()) for a, b, c in zip(*columns, strict=True)]
        start = bisect_left(order, first_key(bad.piece))
        end = bisect_left(order, bad.end) if bad.end else len(order)
        part = entries.slice(start, end - start)
        # The columns of statistics depend on the leaves that were written with it: try both forms.
        for table in (part, entry_columns.from_segments(entry_columns.to_segments(part))):
            body = frame_bytes.to_parquet(table)
            if codec.sha256(body) == bad.piece.sha256:
                return body
        return None


def _shared(log: Log, snapshot: Snapshot) -> Frame:
    """Return the key frame that a committer would write: it shares pieces with the previous one."""
    snapshot, leaves, stems = log.load_touched(snapshot)
    return _build(snapshot, snapshot.base, snapshot.delta, leaves, stems)


def _whole(log: Log, snapshot: Snapshot) -> Frame:  # noqa: ARG001 - as `_shared`
    """Return the key frame of the same state with new leaves only, which have other keys."""
    live = entry_columns.to_segments(snapshot.entries())
    return _build(snapshot, None, Delta({segment.id: segment for segment in live}), {}, {})


def _build(
    snapshot: Snapshot,
    base: KeyFrame | None,
    delta: Delta,
    leaves: Mapping[str, pa.Table],
    stems: Stems,
) -> Frame:
    return keyframe.build_key_frame(
        base,
        delta,
        leaves,
        stems,
        header=snapshot.header,
        commit_hash=snapshot.commit_hash,
        meta=snapshot.meta,
    )


def _key(pack: Pack) -> str:
    return keys.pack_key(pack.last, pack.sha256)
