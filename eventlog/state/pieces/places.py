"""Where entries lie among neighbouring leaves or stems, and which of these a delta rewrites.

Leaves and stems are pieces: each stands for a run of entries, from its first one on. The rules are
the same for both (FORMAT.md R9.4, R9.6).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from eventlog.format.entry_order import EntryKey, entry_key, first_key
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment
from eventlog.model.records import Leaf, Piece, Stem
from eventlog.state.delta import Delta

Stems = Mapping[str, Sequence[Leaf]]  # the leaves of the stems that were read, by sha256


def containing(pieces: Sequence[Piece], positions: Iterable[EntryKey]) -> dict[int, list[EntryKey]]:
    """Return the indexes of the pieces that may contain entries at these positions, ascending.

    These are the pieces in whose range a position falls, and earlier ones whose chunks reach that
    far. A segment that is not found in them counts as not live, so a piece that was cut in the
    wrong place must not hide an entry.

    Returns:
        For each index, the positions that may lie in its piece.
    """
    if not pieces:
        return {}
    firsts = [first_key(piece) for piece in pieces]
    reach = list(accumulate((piece.end for piece in pieces), max))
    found: dict[int, list[EntryKey]] = {}
    for position in positions:
        last = max(0, bisect_right(firsts, position) - 1)
        found.setdefault(last, []).append(position)
        while last > 0 and reach[last - 1] > position.start:
            last -= 1
            if pieces[last].end > position.start:
                found.setdefault(last, []).append(position)
    return {index: found[index] for index in sorted(found)}


def lookup(pieces: Sequence[Piece], positions: Iterable[EntryKey], stems: Stems) -> list[Piece]:
    """Return what has to be read to find entries at these positions.

    Args:
        pieces: what the root names.
        positions: of the entries.
        stems: the stems that were read. A stem that is not among them is itself returned; the
            others stand for those of their leaves that may have the entries.
    """
    needed: list[Piece] = []
    for index, some in containing(pieces, positions).items():
        piece = pieces[index]
        below = stems.get(piece.sha256)
        if below is None:
            needed.append(piece)
        else:
            needed += (below[i] for i in containing(below, some))
    return needed


class PieceRun:
    """Neighbouring pieces that are rewritten together, or one piece that stays as it is."""

    def __init__(self, piece: Piece, changes: list[tuple[bool, str]], delta: Delta) -> None:
        self.pieces = [piece]
        self._changes, self._delta = changes, delta

    @property
    def rewritten(self) -> bool:
        """Whether the delta changes any of the pieces."""
        return bool(self._changes)

    def delta(self) -> Delta:
        """Return the part of the delta that falls into these pieces."""
        adds: dict[str, Segment] = {i: self._delta.adds[i] for added, i in self._changes if added}
        drops: dict[str, Drop] = {
            i: self._delta.drops[i] for added, i in self._changes if not added
        }
        return Delta(adds, drops)

    def absorb(self, other: PieceRun) -> None:
        """Add the pieces and changes of the next run."""
        self.pieces += other.pieces
        self._changes = self._changes + other._changes


def piece_runs(pieces: Sequence[Piece], delta: Delta, small: int) -> list[PieceRun]:
    """Group the pieces: each touched piece is joined with its touched or small neighbours.

    Args:
        pieces: neighbouring leaves, or neighbouring stems.
        delta: what changes.
        small: a leaf with fewer entries, or a stem with fewer leaves, is small.
    """
    firsts = [first_key(piece) for piece in pieces]
    changes: dict[int, list[tuple[bool, str]]] = {}
    for added, entries in ((True, delta.adds.values()), (False, delta.drops.values())):
        for entry in entries:
            at = max(0, bisect_right(firsts, entry_key(entry.chunk, entry.id)) - 1)
            changes.setdefault(at, []).append((added, entry.id))
    grouped: list[PieceRun] = []
    for index, piece in enumerate(pieces):
        run = PieceRun(piece, changes.get(index, []), delta)
        if grouped and _join(grouped[-1], run, small):
            grouped[-1].absorb(run)
        else:
            grouped.append(run)
    return grouped


def _join(left: PieceRun, right: PieceRun, small: int) -> bool:
    if left.rewritten and right.rewritten:
        return True
    few = [_size(run.pieces[-1]) < small for run in (left, right)]
    return (left.rewritten and few[1]) or (right.rewritten and few[0])


def _size(piece: Piece) -> int:
    return piece.leaves if isinstance(piece, Stem) else piece.segments
