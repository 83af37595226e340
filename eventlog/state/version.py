"""The state at one version as the log stores it: a key frame and the delta since.

The entries of a large table are in the leaves of its key frame. A `VersionState` reads nothing
itself: it names the leaves that a question needs, and the caller passes their contents in. Every
state that is made from a commit is checked against the commit's state hash (FORMAT.md R9.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt
from eventlog.format import codec, entry_order, keys
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import MergeRule, stored_rule
from eventlog.model.actions import Drop
from eventlog.model.columns.named_layout import NamedLayout, named_layout
from eventlog.model.entries import Layout, Schema, Segment
from eventlog.model.records import (
    Commit,
    Header,
    KeyFrame,
    Leaf,
    Meta,
    Piece,
    inline_size,
    pieces_in,
)
from eventlog.state import keyframe, verification
from eventlog.state.delta import Delta
from eventlog.state.fold import segments_sum
from eventlog.state.pieces import places
from eventlog.state.pieces.places import Stems


@dataclass(frozen=True)
class VersionState:
    """One version. Its key frame and its delta together determine which segments are live.

    Attributes:
        header: the header of the version's commit.
        commit_hash: sha256 of that commit's bytes.
        meta: the small state.
        base: the key frame that `delta` starts from; None is the empty state.
        delta: net adds and drops since the key frame.
        commit_bytes: size of the commit and its delta's spill; decides when a key frame is due.
        stems: the leaves of those stems of the key frame that were read, by sha256. They say no
            more than the key frame does.
    """

    header: Header
    commit_hash: str
    meta: Meta
    base: KeyFrame | None
    delta: Delta
    commit_bytes: int = 0
    stems: Stems = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_commit(
        cls, commit: Commit, body: bytes, base: KeyFrame | None, delta: Delta
    ) -> VersionState:
        """Return the state after a commit, over the key frame that it names.

        Args:
            commit: the commit.
            body: its bytes.
            base: the key frame of version `commit.header.keyframe`; None if that is None.
            delta: the commit's delta, read from its spill if it has one.

        Raises:
            Corrupt: key frame and delta do not add up to the commit's state hash (FORMAT.md R9.6).
        """
        meta = codec.meta_patch(base.state if base else Meta(), commit.state)
        return cls._checked(commit, body, meta, base, delta)

    @classmethod
    def at_keyframe(cls, commit: Commit, body: bytes, root: KeyFrame) -> VersionState:
        """Return the state after a commit, over the key frame of its own version.

        Args:
            commit: the commit.
            body: its bytes.
            root: the key frame of the same version.

        Raises:
            Corrupt: the key frame does not belong to this commit.
        """
        digest, size = codec.sha256(body), commit_size(commit, body)
        return cls(commit.header, digest, root.state, root, Delta(), size).on_keyframe(root)

    @classmethod
    def _checked(
        cls, commit: Commit, body: bytes, meta: Meta, base: KeyFrame | None, delta: Delta
    ) -> VersionState:
        size = commit_size(commit, body)
        verification.check_sums(commit.header, meta, base, delta)
        return cls(commit.header, codec.sha256(body), meta, base, delta, size)

    def after(self, commit: Commit, body: bytes, delta: Delta, meta: Meta) -> VersionState:
        """Return the state after a commit whose delta starts from this state.

        This is the state at the version of the key frame that the commit names.

        Args:
            commit: the commit.
            body: its bytes.
            delta: the commit's delta.
            meta: the small state after the commit.

        Raises:
            Corrupt: they do not add up to the commit's state hash.
        """
        return self._checked(commit, body, meta, self.base, self.delta.compose(delta))

    @property
    def version(self) -> int:
        """The version."""
        return self.header.version

    @property
    def stored_schema(self) -> Schema:
        """The schema with column ids.

        Raises:
            Corrupt: the table has none.
        """
        if self.meta.schema is None:
            raise Corrupt("the table has no schema", version=self.version)
        return self.meta.schema

    @cached_property
    def layout(self) -> NamedLayout:
        """Time column, granularity and sort order, with the names that columns have.

        Raises:
            Corrupt: the table has none, or one that does not fit its schema.
        """
        return named_layout(self.stored_layout, self.stored_schema)

    @property
    def stored_layout(self) -> Layout:
        """The layout with column ids.

        Raises:
            Corrupt: the table has none.
        """
        if self.meta.layout is None:
            raise Corrupt("the table has no layout", version=self.version)
        return self.meta.layout

    @cached_property
    def merge_rule(self) -> MergeRule | None:
        """The merge rule of a keyed table; None for others.

        Raises:
            Corrupt: layout and schema do not fit together.
        """
        return stored_rule(self.stored_layout, self.stored_schema)

    def hash_sum(self) -> str:
        """Return the sum of the entry hashes of the live segments."""
        return segments_sum(self.header, self.meta)

    def on_keyframe(self, root: KeyFrame) -> VersionState:
        """Return the same state over the key frame of its own version.

        Raises:
            Corrupt: the key frame does not belong to this state.
        """
        keyframe.check_key_frame(root)
        if (root.state_hash, root.totals, root.table, root.time, root.commit) != (
            self.header.state_hash,
            self.header.totals,
            self.header.table,
            self.header.time,
            self.commit_hash,
        ):
            # against key-frame-of-another-commit
            raise Corrupt("the key frame does not belong to this commit", version=self.version)
        return replace(self, base=root, delta=Delta(), commit_bytes=0, stems={})

    def over_newer(self, earlier: VersionState, root: KeyFrame) -> VersionState:
        """Return the same state over the key frame of a version before, which is newer than `base`.

        Args:
            earlier: the state at the key frame's version, over the same key frame as this one.
            root: the newer key frame.

        Raises:
            Corrupt: the key frame is not that of `earlier`, or they are not of one log.
        """
        framed = earlier.on_keyframe(root)
        delta = self.delta.since(earlier.delta)
        verification.check_sums(self.header, self.meta, framed.base, delta)
        return replace(self, base=framed.base, delta=delta, commit_bytes=0)

    def over(self, older: VersionState) -> VersionState:
        """Return the same state over an older key frame.

        Args:
            older: the state at the version of this state's key frame, over the older key frame.

        Raises:
            Corrupt: they are not of one log, or key frame and delta do not add up to the header.
        """
        next_one = older.version == self.version - 1
        # against fell-back-into-another-log
        if older.header.table != self.header.table or (
            next_one and older.commit_hash != self.header.prev
        ):
            raise Corrupt("the key frame below is of another log", version=self.version)
        moved = replace(
            self, base=older.base, delta=older.delta.compose(self.delta), stems=older.stems
        )
        verification.check_sums(moved.header, moved.meta, moved.base, moved.delta)
        return moved

    def took_effect(self, commit: Commit, transaction_id: str) -> bool | None:
        """Return whether a transaction took effect in a commit; being listed is not enough.

        None if the commit contains void transactions, so that only folding it can decide.

        Args:
            commit: the commit of this version.
            transaction_id: the id of the transaction.
        """
        listed = next((t for t in commit.transactions if t.id == transaction_id), None)
        if listed is None:
            return False
        if listed.until is not None:
            mark = self.meta.published.get(transaction_id)
            # against listed-taken-for-accepted
            return mark is not None and mark.version == self.version
        all_accepted = commit.header.changes.transactions == len(commit.transactions)
        return True if all_accepted else None  # against void-taken-for-accepted

    @cached_property
    def added(self) -> pa.Table:
        """The entries added since the key frame."""
        return entry_columns.from_segments(list(self.delta.adds.values()))

    def having(self, stems: Mapping[str, Sequence[Leaf]]) -> VersionState:
        """Return the same state with more stems read.

        Args:
            stems: their leaves, by sha256.
        """
        moved = replace(self, stems={**self.stems, **stems})
        # What was computed of the delta stays true.
        vars(moved)["added"] = self.added
        return moved

    def pieces(
        self,
        start: int | None = None,
        end: int | None = None,
        keep: Callable[[Piece], bool] | None = None,
    ) -> list[Piece]:
        """Return the leaves that may contain entries of chunks that overlap [start, end) ms.

        In the place of the leaves of a stem that was not read stands the stem.

        Args:
            start: ms UTC; None: from the first chunk on.
            end: ms UTC, exclusive; None: up to the last chunk.
            keep: decides whether a leaf, or a stem and all of its leaves, is included; None: all
                are.
        """

        def within(pieces: Sequence[Piece]) -> list[Piece]:
            return [
                piece
                for piece in pieces
                if (end is None or entry_order.first_key(piece).start < end)
                and (start is None or piece.end > start)
                and (keep is None or keep(piece))
            ]

        found: list[Piece] = []
        for piece in within(pieces_in(self.base)):
            below = self.stems.get(piece.sha256)
            found += [piece] if below is None else within(below)
        return found

    def pieces_of(self, named: Iterable[Drop]) -> list[Piece]:
        """Return the leaves that may contain the segments with these ids and chunks.

        In the place of the leaves of a stem that was not read stands the stem.

        Raises:
            Corrupt: the position of a leaf's first entry is malformed.
        """
        older = [drop for drop in named if self._may_be_below(drop.id)]
        if not older:
            return []
        # A drop whose chunk is not a chunk's name matches no live segment; the others still count.
        placed = (entry_order.entry_key_if_valid(drop.chunk, drop.id) for drop in older)
        wanted = (position for position in placed if position is not None)
        return places.lookup(pieces_in(self.base), wanted, self.stems)

    def pieces_of_drops(self) -> list[Piece]:
        """Return the leaves that may contain the segments that the delta drops.

        See `pieces_of` for stems and errors.
        """
        drops = self.delta.drops.values()
        placed = (entry_order.entry_key_if_valid(drop.chunk, drop.id) for drop in drops)
        wanted = (position for position in placed if position is not None)
        return places.lookup(pieces_in(self.base), wanted, self.stems)

    def find(self, ids: Iterable[str], leaves: Mapping[str, pa.Table]) -> dict[str, Segment]:
        """Return the live segments among those with these ids, by id.

        Args:
            ids: ids of segments.
            leaves: entry tables by sha256, at least those of `pieces_of` for these segments.

        Raises:
            Corrupt: delta and key frame contradict each other.
        """
        ids = list(ids)
        live = {i: self.delta.adds[i] for i in ids if i in self.delta.adds}
        older = [bytes.fromhex(i) for i in ids if self._may_be_below(i)]
        if not older or self.base is None:
            return live
        entries = entry_columns.concat([*leaves.values(), self._inlined])
        named = pc.is_in(entries.column("id"), pa.array(older, pa.binary(16)))
        below = verification.undropped(entries.filter(named), self.delta.drops)
        return live | {s.id: s for s in entry_columns.to_segments(below)}

    def below(self, leaves: Mapping[str, pa.Table]) -> pa.Table:
        """Return the live entries of the key frame: those in its root and in these leaves.

        Args:
            leaves: entry tables by sha256.

        Raises:
            Corrupt: delta and key frame contradict each other.
        """
        entries = entry_columns.concat([*leaves.values(), self._inlined])
        return verification.undropped(entries, self.delta.drops)

    @cached_property
    def _inlined(self) -> pa.Table:
        return entry_columns.from_segments(self.base.segments if self.base else ())

    def _may_be_below(self, segment_id: str) -> bool:
        """Return whether only the key frame can decide if a segment with this id is live."""
        if segment_id in self.delta.adds or segment_id in self.delta.drops:
            return False
        return keys.is_segment_id(segment_id)


def commit_size(commit: Commit, body: bytes) -> int:
    """Return how many bytes opening this version reads: the commit and its delta's spill.

    Without the bytes of segments that stand in the commit, which no later commit repeats (R9.7).
    """
    spilled = commit.delta.spill.size if commit.delta.spill else 0
    # against rows-bring-key-frames
    return len(body) + spilled - sum(map(inline_size, commit.transactions))
