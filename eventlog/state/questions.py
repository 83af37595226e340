"""Questions about one version: which leaves each takes, and its answer once they are there.

Pure layer. Whoever asks fetches what a question needs, and hands it in (`Log.ask`). An answer that
finds the leaves to be wrong raises, and is sought over an older key frame (hazard P1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format import segments
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import Drop, Leaf, Segment
from eventlog.state import keyframe, verification
from eventlog.state.version import VersionState

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Question(Protocol[Answer_co]):
    """What somebody wants to know of a version, whichever key frame it is seen from."""

    @property
    def checked(self) -> bool:
        """Whether each entry of its leaves is to be compared with its hash (FORMAT.md R9.8)."""
        ...

    def needs(self, state: VersionState) -> Sequence[Leaf]:
        """Return the leaves that the answer takes.

        Raises:
            Corrupt: the key frame cannot be right.
        """
        ...

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> Answer_co:
        """Return the answer.

        Args:
            state: the version.
            leaves: the entries of what `needs` returned, by sha256 and in that order.

        Raises:
            Corrupt: the leaves cannot be right.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entries:
    """The live entries of chunks that overlap [start, end) ms, in columns.

    Attributes:
        start: None: from the first chunk on.
        end: None: to the last chunk.
        keep: says of a leaf whether to read it; None: all are.
        checked: compare each entry with its hash. Without it only those are compared that are left
            out here.
    """

    start: int | None = None
    end: int | None = None
    keep: Callable[[Leaf], bool] | None = None
    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Leaf]:
        """See `Question.needs`."""
        return state.leaves(self.start, self.end, self.keep)

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> pa.Table:
        """See `Question.answer`. Leaf order, then what came since the key frame."""
        start, end = self.start, self.end
        below = state.below(leaves)
        inside = overlapping(below, start, end)
        if not self.checked and inside.num_rows < below.num_rows:
            left = below.filter(pc.invert(_overlap(below, start, end)))
            verification.check_hashes(left, state.base)
        entries = segments.concat([inside, overlapping(state.added, start, end)])
        if start is None and end is None and len(leaves) == len(state.leaves()):
            verification.check_totals(entries, state.header)
        return entries


@dataclass(frozen=True, slots=True)
class Live:
    """The segments of these drops that are live, by id; their hashes are not looked at."""

    named: Sequence[Drop]
    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Leaf]:
        """See `Question.needs`."""
        return state.holding(self.named)

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> dict[str, Segment]:
        """See `Question.answer`."""
        return state.find((drop.id for drop in self.named), leaves)


@dataclass(frozen=True, slots=True)
class Touched:
    """The leaves that the version's own key frame writes anew, as `keyframe.build` takes them."""

    checked: bool = True

    def needs(self, state: VersionState) -> Sequence[Leaf]:
        """See `Question.needs`."""
        return keyframe.touched(state.base, state.delta)

    def answer(
        self,
        state: VersionState,  # noqa: ARG002 - as every question
        leaves: Mapping[str, pa.Table],
    ) -> Mapping[str, pa.Table]:
        """See `Question.answer`."""
        return leaves


def overlapping(entries: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """Return the entries of chunks that overlap [start, end) ms; None is no bound."""
    if (start is None and end is None) or not entries.num_rows:
        return entries
    return entries.filter(_overlap(entries, start, end))


def _overlap(entries: pa.Table, start: int | None, end: int | None) -> pa.ChunkedArray:
    """Say which entries are of chunks that overlap [start, end) ms."""
    late_enough = pc.greater(entries.column("chunk_end"), MIN_MS if start is None else start)
    early_enough = pc.less(entries.column("chunk_start"), MAX_MS if end is None else end)
    return pc.and_(late_enough, early_enough)
