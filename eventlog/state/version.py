"""The state at one version as its log has it: a key frame, and the delta since.

Pure layer. A large table's entries lie in the leaves of its key frame. A `VersionState` names
them and says which of them a question takes, and is handed them: it reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt
from eventlog.format import keys, places, segments
from eventlog.model.records import Drop, Header, KeyFrame, Layout, Leaf, Meta, Schema, Segment
from eventlog.state import keyframe, verification
from eventlog.state.delta import Delta
from eventlog.state.fold import segments_sum


@dataclass(frozen=True)
class VersionState:
    """One version; which segments are live is said by its key frame and its delta together.

    Attributes:
        header: of the version's commit.
        commit_hash: sha256 of that commit's bytes.
        meta: the small state.
        base: the key frame that `delta` starts from; None is the empty state.
        delta: net adds and drops since.
        commit_bytes: size of the commit, which decides when a key frame is due.
    """

    header: Header
    commit_hash: str
    meta: Meta
    base: KeyFrame | None
    delta: Delta
    commit_bytes: int = 0

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

    @property
    def layout(self) -> Layout:
        """Time column, granularity and sort order.

        Raises:
            Corrupt: the table has none.
        """
        if self.meta.layout is None:
            raise Corrupt("the table has no layout", version=self.version)
        return self.meta.layout

    def hash_sum(self) -> str:
        """Return the sum of the entry hashes of the live segments."""
        return segments_sum(self.header, self.meta)

    def on_keyframe(self, root: KeyFrame) -> VersionState:
        """Return the same state seen from the key frame of its own version.

        Raises:
            Corrupt: the key frame is not of this state.
        """
        keyframe.check(root)
        if (root.state_hash, root.totals, root.table, root.commit) != (
            self.header.state_hash,
            self.header.totals,
            self.header.table,
            self.commit_hash,
        ):
            # against key-frame-of-another-commit
            raise Corrupt("the key frame is not of this commit", version=self.version)
        return replace(self, base=root, delta=Delta(), commit_bytes=0)

    def over(self, older: VersionState) -> VersionState:
        """Return the same state seen from an older key frame.

        Args:
            older: the state at the version of this one's key frame, over the older one.

        Raises:
            Corrupt: they do not add up to the header.
        """
        moved = replace(self, base=older.base, delta=older.delta.compose(self.delta))
        verification.check_sums(moved.header, moved.meta, moved.base, moved.delta)
        return moved

    @cached_property
    def added(self) -> pa.Table:
        """The entries that came since the key frame."""
        return segments.from_segments(list(self.delta.adds.values()))

    def leaves(
        self,
        start: int | None = None,
        end: int | None = None,
        keep: Callable[[Leaf], bool] | None = None,
    ) -> list[Leaf]:
        """Return the leaves that may hold entries of chunks that overlap [start, end) ms.

        Args:
            start: None: from the first chunk on.
            end: None: to the last chunk.
            keep: says of a leaf whether it is wanted; None: all are.
        """
        return [
            leaf
            for leaf in (self.base.leaves if self.base else ())
            if (end is None or places.first_key(leaf).start < end)
            and (start is None or leaf.end > start)
            and (keep is None or keep(leaf))
        ]

    def holding(self, named: Iterable[Drop]) -> list[Leaf]:
        """Return the leaves in which the segments of these ids and chunks stand, if anywhere.

        Raises:
            Corrupt: a leaf's place is none.
        """
        older = [drop for drop in named if self._may_be_below(drop.id)]
        if not older or self.base is None:
            return []
        # What names no chunk is no live segment, which says nothing of the others.
        placed = (places.place(drop.chunk, drop.id) for drop in older)
        wanted = keyframe.holding(self.base.leaves, (p for p in placed if p is not None))
        return [self.base.leaves[index] for index in sorted(wanted)]

    def find(self, ids: Iterable[str], leaves: Mapping[str, pa.Table]) -> dict[str, Segment]:
        """Return the live ones among the segments of these ids, by id.

        Args:
            ids: of segments.
            leaves: by sha256, at least those that `holding` names for them.

        Raises:
            Corrupt: delta and key frame contradict each other.
        """
        ids = list(ids)
        live = {i: self.delta.adds[i] for i in ids if i in self.delta.adds}
        older = [bytes.fromhex(i) for i in ids if self._may_be_below(i)]
        if not older or self.base is None:
            return live
        entries = segments.concat([*leaves.values(), self._inlined])
        named = pc.is_in(entries.column("id"), pa.array(older, pa.binary(16)))
        below = verification.undropped(entries.filter(named), self.delta.drops)
        return live | {s.id: s for s in segments.to_segments(below)}

    def below(self, leaves: Mapping[str, pa.Table]) -> pa.Table:
        """Return the live entries of the key frame: those in its root, and of these leaves.

        Raises:
            Corrupt: delta and key frame contradict each other.
        """
        entries = segments.concat([*leaves.values(), self._inlined])
        return verification.undropped(entries, self.delta.drops)

    @cached_property
    def _inlined(self) -> pa.Table:
        return segments.from_segments(self.base.segments if self.base else ())

    def _may_be_below(self, segment_id: str) -> bool:
        """Say whether only the key frame tells if a segment of this id is live."""
        if segment_id in self.delta.adds or segment_id in self.delta.drops:
            return False
        return keys.is_segment_id(segment_id)
