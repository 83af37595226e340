"""Where the blocks of one version stand in a picture: a column a time chunk, stacked. No I/O.

What readers see stands above a line, what they no longer see below it. In a keyed table a block is
as wide as its buckets are: a base stands over its own ones, a log of all buckets above all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from typing import Literal, NamedTuple

from msgspec import UnsetType

from eventlog.keyed.placement import Placed, place
from eventlog.keyed.rule import splits_of
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import SliceKind
from eventlog.view.picture import Block, Picture

BlockState = Literal["visible", "masked", "overshadowed", "dropped", "dead"]
_KINDS: Sequence[SliceKind] = ("base", "late", "log")
MOST_LANES = 64  # across a time chunk: more buckets share lanes


class Stacked(NamedTuple):
    """A rectangle of a block.

    Attributes:
        block: the number of the block.
        state: that of the block, or of these buckets: a merge has taken in a log in some of them.
        column: the number of its column.
        left: where it begins in the column, from 0 to 1.
        right: where it ends there.
        low: its distance from the line, in square roots of bytes.
        high: the distance of its other side.
        above: whether it stands above the line.
    """

    block: int
    state: BlockState
    column: int
    left: float
    right: float
    low: float
    high: float
    above: bool


@dataclass(frozen=True, slots=True)
class BucketRange:
    """The place of a block of a keyed table.

    Attributes:
        kind: base, late or log.
        first: its first bucket, as the table numbers them at the last version of the picture.
        last: its last one.
        low: the first version whose rows it has.
        high: the last one.
        level: how many merges its rows went through.
    """

    kind: SliceKind
    first: int
    last: int
    low: int
    high: int
    level: int


def bucket_count(picture: Picture) -> int:
    """Return the number of buckets at the last version; 0 of a table without a key."""
    layout = picture.meta.layout
    keyed = None if layout is None or isinstance(layout.keyed, UnsetType) else layout.keyed
    return 0 if keyed is None else keyed.buckets


def bucket_ranges(picture: Picture) -> list[BucketRange]:
    """Return the place of each block; an empty list of a table without a key.

    Raises:
        Corrupt: an entry has none.
    """
    layout = picture.meta.layout
    if layout is None or isinstance(layout.keyed, UnsetType):
        return []
    splits = splits_of(layout.keyed)
    placed = (place(block.entry, splits) for block in picture.blocks)
    return [_range_of(one) for one in placed]


class Stacks:
    """The blocks of a picture in columns.

    Args:
        picture: the picture.
        most: of columns; where there are more time chunks, neighbours share one.
    """

    def __init__(self, picture: Picture, most: int) -> None:
        self._picture = picture
        names = {block.entry.chunk for block in picture.blocks}
        self.chunks: Sequence[str] = sorted(names, key=parse_chunk)
        self._shared = -(-len(self.chunks) // most) or 1
        self.columns = -(-len(self.chunks) // self._shared)
        number = {name: at for at, name in enumerate(self.chunks)}
        self._ranges = bucket_ranges(picture)
        self._lanes = min(bucket_count(picture), MOST_LANES) or 1
        members: list[list[int]] = [[] for _ in self.chunks]
        for n, block in enumerate(picture.blocks):
            members[number[block.entry.chunk]].append(n)
        if self._ranges:  # what is applied first is next to the line
            members = [sorted(some, key=self._applied) for some in members]
        self._members = members
        self._versions = [transaction.version for transaction in picture.transactions]
        self._dead = [self._dead_from(block) for block in picture.blocks]

    def first_chunk(self, column: int) -> str:
        """Return the name of the first time chunk of a column."""
        return self.chunks[column * self._shared]

    def state_at(self, block: int, version: int) -> BlockState | None:
        """Return the state of a block; None before it was added."""
        shown = self._picture.blocks[block]
        if shown.made >= 0 and version < self._versions[shown.made]:
            return None
        if shown.ended is None or version < self._versions[shown.ended]:
            masked = any(at <= version for at, _ in shown.masks)
            return "masked" if masked else "visible"
        dead = self._dead[block]
        if dead is not None and dead <= version:
            return "dead"
        return "overshadowed" if self._picture.transactions[shown.ended].rewrite else "dropped"

    def at(self, version: int) -> list[Stacked]:
        """Return the rectangles of a version, those of a column from the line outwards.

        Dead blocks are left out.
        """
        found: list[Stacked] = []
        heights: dict[tuple[int, bool], list[float]] = {}
        for chunk, members in enumerate(self._members):
            column = chunk // self._shared
            shown = [(n, state) for n in members if (state := self.state_at(n, version))]
            merged = [
                n
                for n, state in shown
                if self._ranges and self._ranges[n].level and state in ("visible", "masked")
            ]
            for n, state in shown:
                if state == "dead":
                    continue
                above = state in ("visible", "masked")
                lanes = heights.setdefault((column, above), [0.0] * self._lanes)
                first, last = self._lanes_of(n)
                low = max(lanes[first : last + 1])
                high = low + sqrt(self._picture.blocks[n].entry.bytes)
                lanes[first : last + 1] = [high] * (last - first + 1)
                taken = self._taken_in(n, merged) if above else []
                for left, right, is_taken in _parts(first, last, taken):
                    part = "overshadowed" if is_taken else state
                    sides = left / self._lanes, right / self._lanes
                    found.append(Stacked(n, part, column, *sides, low, high, above))
        return found

    def kind(self, block: int) -> SliceKind | None:
        """Return whether a block is a base, a late segment or a log; None without a key."""
        return self._ranges[block].kind if self._ranges else None

    def _applied(self, block: int) -> tuple[int, int]:
        one = self._ranges[block]
        return _KINDS.index(one.kind), one.low

    def _lanes_of(self, block: int) -> tuple[int, int]:
        if not self._ranges:
            return 0, 0
        buckets, place = bucket_count(self._picture), self._ranges[block]
        first = place.first * self._lanes // buckets
        return first, max(first, (place.last + 1) * self._lanes // buckets - 1)

    def _taken_in(self, block: int, merged: Sequence[int]) -> list[tuple[int, int]]:
        """Return the lanes in which merges have taken in a live block (FORMAT.md R15.4)."""
        if not merged:
            return []
        one = self._ranges[block]
        return [
            self._lanes_of(n)
            for n in merged
            if self._ranges[n].level > one.level
            and self._ranges[n].low <= one.low
            and one.high <= self._ranges[n].high
            and self._ranges[n].first <= one.last
            and one.first <= self._ranges[n].last
        ]

    def _dead_from(self, block: Block) -> int | None:
        """Return the version at which the horizon has reached the one that dropped a block."""
        if block.ended is None:
            return None
        gone = self._versions[block.ended]
        reached = (at for at, horizon in self._picture.horizons if horizon >= gone)
        return next((max(at, gone) for at in reached), None)


def _parts(
    first: int, last: int, taken: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, bool]]:
    """Yield the runs of lanes that are taken in, and those that are not: [left, right)."""
    if not taken:
        yield first, last + 1, False
        return
    inside = [any(low <= lane <= high for low, high in taken) for lane in range(first, last + 1)]
    at = first
    for is_taken, run in groupby(inside):
        width = len(list(run))
        yield at, at + width, is_taken
        at += width


def _range_of(placed: Placed) -> BucketRange:
    return BucketRange(
        placed.kind, placed.first, placed.last, placed.low, placed.high, placed.level
    )
