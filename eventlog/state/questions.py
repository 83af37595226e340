"""Questions about one version: which leaves each one needs, and its answer given those leaves.

The caller (`Log.answer`) fetches what a question needs and passes it in. A question that finds the
leaves to be wrong raises; the caller then repeats it over an older key frame (hazard P1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format.frames import entry_columns
from eventlog.model.actions import Drop
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.entries import Segment
from eventlog.model.records import Leaf, Piece, Stem
from eventlog.state import keyframe, verification
from eventlog.state.pieces.places import Stems
from eventlog.state.version import VersionState

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Question(Protocol[Answer_co]):
    """A question about a version. Its answer does not depend on which key frame it is read from."""

    @property
    def checked(self) -> bool:
        """Whether the caller must compare each entry with its hash first (FORMAT.md R9.8)."""
        ...

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """Return the leaves that the answer needs, and stems that may have more of them.

        As long as there is a stem among them, the caller reads it and asks again.

        Raises:
            Corrupt: the key frame is certainly wrong.
        """
        ...

    def without_statistics(self, state: VersionState, needed: Sequence[Leaf]) -> Collection[str]:
        """Return the sha256 of leaves of whose entries no statistics are needed.

        Args:
            state: the version.
            needed: the leaves that `needs` returned at last.
        """
        ...

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> Answer_co:
        """Return the answer.

        Args:
            state: the version.
            leaves: the entries of the leaves that `needs` returned at last, by sha256 and in that
                order.

        Raises:
            Corrupt: the leaves are certainly wrong.
        """
        ...


class WholeLeaves:
    """A question that needs all columns of its leaves."""

    __slots__ = ()

    def without_statistics(
        self,
        state: VersionState,  # noqa: ARG002 - part of the protocol
        needed: Sequence[Leaf],  # noqa: ARG002
    ) -> Collection[str]:
        """See `Question.without_statistics`."""
        return ()


@dataclass(frozen=True, slots=True)
class Entries(WholeLeaves):
    """The live entries of chunks that overlap [start, end) ms, in columns.

    Attributes:
        start: ms UTC; None: from the first chunk on.
        end: ms UTC, exclusive; None: up to the last chunk.
        keep: decides whether a leaf, or a stem with its leaves, is read; None: all are.
        checked: compare each entry with its hash. If false, only the entries that this question
            leaves out are compared.
    """

    start: int | None = None
    end: int | None = None
    keep: Callable[[Piece], bool] | None = None
    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """See `Question.needs`."""
        return state.pieces(self.start, self.end, self.keep)

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> pa.Table:
        """See `Question.answer`. Entries in leaf order, then those added since the key frame."""
        start, end = self.start, self.end
        below = state.below(leaves)
        inside = overlapping(below, start, end)
        if not self.checked and inside.num_rows < below.num_rows:
            left_out = below.filter(pc.invert(_overlap(below, start, end)))
            verification.check_hashes(left_out, state.base)
        entries = entry_columns.concat([inside, overlapping(state.added, start, end)])
        if start is None and end is None and all(p.sha256 in leaves for p in state.pieces()):
            verification.check_totals(entries, state.header)
        return entries


@dataclass(frozen=True, slots=True)
class Live(WholeLeaves):
    """The segments of these drops that are live, by id. The hashes in the drops are ignored."""

    named: Sequence[Drop]
    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """See `Question.needs`."""
        return state.pieces_of(self.named)

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> dict[str, Segment]:
        """See `Question.answer`."""
        return state.find((drop.id for drop in self.named), leaves)


@dataclass(frozen=True, slots=True)
class Leaves(WholeLeaves):
    """The leaves of the key frame, in order, without those below the stems of these sha256."""

    but: frozenset[str] = frozenset()
    checked: bool = False

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """See `Question.needs`. The leaves themselves are not read."""
        pieces = state.pieces(keep=lambda piece: piece.sha256 not in self.but)
        return [piece for piece in pieces if isinstance(piece, Stem)]

    def answer(
        self,
        state: VersionState,
        leaves: Mapping[str, pa.Table],  # noqa: ARG002 - part of the protocol
    ) -> Sequence[Leaf]:
        """See `Question.answer`."""
        return [piece for piece in state.pieces() if isinstance(piece, Leaf)]


@dataclass(frozen=True, slots=True)
class Touched(WholeLeaves):
    """What the version's own key frame will rewrite, for `keyframe.build_key_frame`.

    The answer are the leaves of entries, and the stems, each by sha256.
    """

    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """See `Question.needs`."""
        return keyframe.touched(state.base, state.delta, state.stems)

    def answer(
        self, state: VersionState, leaves: Mapping[str, pa.Table]
    ) -> tuple[Mapping[str, pa.Table], Stems]:
        """See `Question.answer`."""
        return leaves, state.stems


def overlapping(entries: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """Return the entries of chunks that overlap [start, end) ms; None means unbounded."""
    if (start is None and end is None) or not entries.num_rows:
        return entries
    return entries.filter(_overlap(entries, start, end))


def _overlap(entries: pa.Table, start: int | None, end: int | None) -> pa.ChunkedArray:
    """Return a mask of the entries whose chunks overlap [start, end) ms."""
    late_enough = pc.greater(entries.column("chunk_end"), MIN_MS if start is None else start)
    early_enough = pc.less(entries.column("chunk_start"), MAX_MS if end is None else end)
    return pc.and_(late_enough, early_enough)
