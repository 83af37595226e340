"""The check of key frames, their stems and leaves: each is compared with the fold of the log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import zip_longest

from eventlog import limits
from eventlog.errors import Corrupt, KeyNotFound, NotFound, UnsupportedFormat
from eventlog.format import keys
from eventlog.format.entry_order import EntryKey, first_key
from eventlog.format.frames import entry_columns
from eventlog.fsck.audit import Audit
from eventlog.fsck.findings import Findings
from eventlog.fsck.objects.leftovers import UnnamedObjects
from eventlog.fsck.pack_check import PackCheck
from eventlog.log.log import Log
from eventlog.model.records import KeyFrame, Leaf, Piece, Stem, packs_of, pieces_in
from eventlog.state import keyframe
from eventlog.state.pieces.stems import check_stem
from eventlog.store.parallel import read_ahead


@dataclass(frozen=True, slots=True)
class BadPiece:
    """A leaf or stem that is missing or damaged, as described by the first key frame that names it.

    Attributes:
        version: of that key frame.
        piece: its entry there.
        end: of a leaf: the first entry of the next leaf; None for the last leaf.
        missing: whether there is no object under its key.
        problem: what is wrong with it.
    """

    version: int
    piece: Piece
    end: EntryKey | None
    missing: bool
    problem: str


@dataclass(slots=True)
class KeyFrameAudit:
    """The state of the key frames.

    Attributes:
        good: versions whose key frame agrees with the fold, stems and leaves included.
        bad: versions whose root is damaged, or does not agree.
        newer: versions whose root has a newer format, and is not compared.
        with_bad_pieces: versions whose root is sound, with their missing or damaged leaves and
            stems.
        missing: versions whose key frame is referred to or due, but does not exist.
        leaves: by sha256, those that were read; None if nothing is wrong.
        stems: the same of stems.
    """

    good: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    newer: set[int] = field(default_factory=set)
    with_bad_pieces: dict[int, set[str]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    leaves: dict[str, BadPiece | None] = field(default_factory=dict)
    stems: dict[str, BadPiece | None] = field(default_factory=dict)

    def noted(self, piece: Piece) -> dict[str, BadPiece | None]:
        """Return `stems` for a stem, `leaves` for a leaf."""
        return self.stems if isinstance(piece, Stem) else self.leaves

    def bad_pieces(self) -> dict[str, BadPiece]:
        """Return the missing or damaged stems and leaves, stems first, by sha256."""
        return {name: bad for name, bad in (*self.stems.items(), *self.leaves.items()) if bad}


class KeyFrameCheck:
    """Checks key frames, those of older versions first; each leaf and stem is read once.

    Args:
        log: the log.
        audit: the fold of the log so far.
        unnamed: notes which leaves and stems have a name.
        frames: receives the state of the key frames.
        findings: receives the problems.
        rows: whether the rows of packs are compared with the commits.

    Attributes:
        packs: checks the packs that key frames name.
    """

    def __init__(
        self,
        log: Log,
        audit: Audit,
        unnamed: UnnamedObjects,
        frames: KeyFrameAudit,
        findings: Findings,
        *,
        rows: bool,
    ) -> None:
        self._log, self._audit, self._unnamed = log, audit, unnamed
        self._frames, self._findings = frames, findings
        self.packs = PackCheck(log, findings, rows=rows)
        self._entries: dict[str, Piece] = {}  # of pieces, from the last root that names them
        self._below: dict[str, Sequence[Leaf]] = {}  # of the stems that were read

    def check_stray(self, version: int) -> None:
        """Report a key frame past the head, unless its commit arrived after the listing."""
        try:
            self._log.header(version)
        except (Corrupt, NotFound):
            self._frames.bad.add(version)
            message = (
                "this key frame is of a version that the log does not have: commits were removed, "
                "or an `eventlog replicate` to this root was interrupted and has to be run again"
            )
            self._findings.add("error", message, keys.keyframe_key(version), version)

    def note_missing(self, version: int, problem: str) -> None:
        """Note a key frame that is referred to or due, but does not exist."""
        self._frames.missing.add(version)
        message = f"{problem}; readers use an older one"
        self._findings.add("warning", message, keys.keyframe_key(version), version)

    def check(self, version: int, pool: Executor) -> None:
        """Compare a key frame, its new stems and leaves with the fold, if that has its version."""
        key = keys.keyframe_key(version)
        try:
            root = self._log.key_frames.root(version)
        except UnsupportedFormat as error:
            # Only the key frame needs a newer release; the log itself can be read.
            self._frames.newer.add(version)
            message = f"{error.message}; readers of this release skip this key frame"
            self._findings.add("warning", message, key, version)
            return
        except (Corrupt, NotFound) as error:
            problems = [error.message]
        else:
            self._check_pieces(root, pool)
            folded = self._audit.version == version
            self._unnamed.note_packs(pack.sha256 for pack in packs_of(root))
            self.packs.check(root, self._audit.live if folded else None, pool)
            if not folded:
                return  # readers use it, and nothing contradicts it; its commit is reported
            problems = self._audit.check_keyframe(root)
        for problem in problems:
            message = f"{problem}; readers skip this key frame"
            self._findings.add("error", message, key, version)
        if problems:
            self._frames.bad.add(version)
        elif version not in self._frames.with_bad_pieces:
            self._frames.good.add(version)

    def check_again(self, version: int, pool: Executor) -> None:
        """Check the leaves of a stem that was written again, of the key frame that named it first.

        Raises:
            Corrupt: the root or another stem is damaged.
            KeyNotFound: the root or another stem is missing.
        """
        root = self._log.key_frames.root(version)
        leaves = self._log.key_frames.all_leaves(root)
        unread = [leaf for leaf in leaves if leaf.sha256 not in self._frames.leaves]
        self._look_at(leaves, unread, version, pool)
        self._report(unread, version)

    def _check_pieces(self, root: KeyFrame, pool: Executor) -> None:
        """Read the stems and leaves that earlier roots do not have with the same entry."""
        stems = [piece for piece in pieces_in(root) if isinstance(piece, Stem)]
        self._look_at(stems, self._new(stems), root.version, pool)
        leaves = [*root.leaves, *(leaf for s in stems for leaf in self._below.get(s.sha256, ()))]
        self._look_at(leaves, self._new(leaves), root.version, pool)
        self._report([*stems, *leaves], root.version)

    def _new(self, pieces: Sequence[Piece]) -> list[Piece]:
        new = [piece for piece in pieces if self._entries.get(piece.sha256) != piece]
        self._entries.update((piece.sha256, piece) for piece in new)
        return new

    def _look_at(
        self, pieces: Sequence[Piece], new: Sequence[Piece], version: int, pool: Executor
    ) -> None:
        """Read new ones among the neighbouring stems or leaves of a root."""
        self._unnamed.note_frames(piece.sha256 for piece in pieces)
        nexts = dict(zip_longest((piece.sha256 for piece in pieces), pieces[1:]))
        for piece, body in read_ahead(pool, new, self._fetch):
            problem = self._problem(piece, body, version)
            after = nexts[piece.sha256]
            end = first_key(after) if after else None
            bad = BadPiece(version, piece, end, body is None, problem) if problem else None
            self._frames.noted(piece)[piece.sha256] = bad

    def _report(self, pieces: Sequence[Piece], version: int) -> None:
        for bad in (self._frames.noted(piece)[piece.sha256] for piece in pieces):
            if bad is not None:
                self._frames.with_bad_pieces.setdefault(version, set()).add(bad.piece.sha256)
                message = f"{bad.problem}; readers skip this key frame"
                self._findings.add("error", message, keys.piece_key(bad.piece), version)

    def _fetch(self, piece: Piece) -> tuple[Piece, bytes | None]:
        most = min(piece.size, limits.FRAME_BYTES) + 1
        try:
            return piece, self._log.store.get(keys.piece_key(piece), length=most)
        except KeyNotFound:
            return piece, None

    def _problem(self, piece: Piece, body: bytes | None, version: int) -> str | None:
        if isinstance(piece, Leaf):
            return self._leaf_problem(piece, body, version)
        if body is None:
            return "the stem is missing"
        try:
            self._below[piece.sha256] = check_stem(piece, body)
        except Corrupt as error:
            return error.message
        return None

    def _leaf_problem(self, leaf: Leaf, body: bytes | None, version: int) -> str | None:
        if body is None:
            return "the leaf is missing"
        try:
            table = keyframe.check_leaf(leaf, body)
            keyframe.check_entries(leaf.sha256, table)
            entries = entry_columns.to_segments(table)
        except Corrupt as error:
            return error.message
        if self._audit.version == version and self._audit.foreign(entries):
            return "the leaf has entries that are not in the folded state"
        return None
