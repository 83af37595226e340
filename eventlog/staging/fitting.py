"""Which granularity fits a table: decided from the bytes in its time chunks. No I/O.

Three bounds keep a table from swinging between two granularities. Chunks become coarser only if
most of them are small and none of the coarser ones would be large, and finer only where they have
grown to several times that size. While rows are only added, a granularity that was left for a finer
one is therefore never taken again (docs/decisions/0044-granularity-follows-the-data.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add
from eventlog.model.chunks import TimeChunk, home, parse_chunk
from eventlog.model.entries import GRANULARITIES, Granularity
from eventlog.model.properties import AUTO, setting
from eventlog.quantities import count_text, size_text

# Up to this number of chunks their size does not matter.
MANY_CHUNKS: Final = 32
# A chunk below this part of the target is small: a query spends more on opening its segment than
# on reading it.
SMALL_PART: Final = 32
# A coarser chunk may have at most this many times the target, and one of more than
# `LARGE_TIMES` times the target is cut finer.
ROOM_TIMES: Final = 16
LARGE_TIMES: Final = 64
# The first rows of a stream, and those of one task, choose at most this one.
PARTS_COARSEST: Final[Granularity] = "month"
# Rows take about this many times the bytes in Arrow that they take in a segment.
ARROW_TIMES: Final = 4

Sizes = Mapping[TimeChunk, int]


class Fit(Struct, frozen=True, kw_only=True):
    """A granularity that fits a table better than its own.

    Attributes:
        now: how new rows are cut.
        better: the granularity that fits better.
        chunks: number of time chunks that hold rows now; for a finer one, of the large ones.
        bytes: stored bytes in them.
        wanted: number of time chunks with the better granularity; 0 if it is finer.
        moves: whether the table's granularity follows its data, so that compaction changes it.
    """

    now: Granularity
    better: Granularity
    chunks: int
    bytes: int
    wanted: int
    moves: bool

    @property
    def sentence(self) -> str:
        """The reason, with its numbers."""
        size = size_text(self.bytes // max(1, self.chunks))
        holds = f"holds {size}" if self.chunks == 1 else f"hold {size} each on average"
        text = f"{count_text(self.chunks, 'time chunk')} of granularity {self.now} {holds}"
        if not self.wanted:
            return (
                f"{text}: with granularity {self.better} new rows lie in smaller ones, and old "
                "ones stay as they are"
            )
        return (
            f"{text}, and a query opens a segment or more in each: with granularity {self.better} "
            f"there are {self.wanted:,}"
        )

    def remedy(self, uri: str) -> str:
        """Return what to do about it, for a table with a fixed granularity."""
        place = shlex.quote(uri)
        cut = f"`eventlog granularity {place} {self.better}`, or auto, cuts new rows so"
        if not self.wanted:
            return cut
        return f"`eventlog compact {place} --granularity {self.better} --run` joins them, and {cut}"


def follows_data(snapshot: Snapshot) -> bool:
    """Return whether the table's granularity follows its data (FORMAT.md R7.5)."""
    layout = snapshot.layout
    may = keyed_of(layout) is None and layout.time_column is not None
    return may and bool(setting(snapshot.properties, AUTO))


def sizes_of(adds: Iterable[Add]) -> dict[TimeChunk, int]:
    """Return the stored bytes of staged segments by time chunk."""
    sizes: dict[TimeChunk, int] = {}
    for add in adds:
        chunk = parse_chunk(add.chunk)
        sizes[chunk] = sizes.get(chunk, 0) + add.bytes
    return sizes


def coarsest_for_first_rows(snapshot: Snapshot, *, part: bool = False) -> Granularity | None:
    """Return the coarsest granularity that added rows may choose; None: they choose nothing.

    The first rows of a table whose granularity follows its data choose it.

    Args:
        snapshot: the table before they are added.
        part: whether they are a part of them, so that more rows of the same chunks may follow.
    """
    # against later-rows-choose-the-granularity
    if not follows_data(snapshot) or snapshot.totals.segments:
        return None
    return PARTS_COARSEST if part else "all"


def granularity_of(adds: Iterable[Add], now: Granularity) -> Granularity:
    """Return the granularity of staged segments, which may be coarser than that of the table.

    Of several it is the one that has the most bytes.
    """
    by_name: dict[Granularity, int] = {}
    for chunk, size in sizes_of(adds).items():
        by_name[chunk.granularity] = by_name.get(chunk.granularity, 0) + size
    return max(by_name, key=lambda name: (by_name[name], GRANULARITIES.index(name)), default=now)


def sizes_at(sizes: Sizes, granularity: Granularity) -> dict[TimeChunk, int]:
    """Return the bytes by chunk of a granularity; a coarser chunk stays what it is."""
    joined: dict[TimeChunk, int] = {}
    for chunk, size in sizes.items():
        place = home(chunk, granularity)
        joined[place] = joined.get(place, 0) + size
    return joined


def fit_of(
    sizes: Sizes,
    now: Granularity,
    target_bytes: int,
    *,
    moves: bool,
    finest: Granularity = "hour",
) -> Fit | None:
    """Return the granularity that fits better than the present one; None: it fits.

    Args:
        sizes: stored bytes by time chunk, of any granularity.
        now: the table's granularity.
        target_bytes: the size of a segment that is aimed at.
        moves: see `Fit`.
        finest: the finest granularity that divides the rows: dates have no hours.
    """
    coarser = coarser_fit(sizes, now, target_bytes)
    if coarser != now:
        return Fit(
            now=now,
            better=coarser,
            chunks=len(sizes_at(sizes, now)),
            bytes=sum(sizes.values()),
            wanted=len(sizes_at(sizes, coarser)),
            moves=moves,
        )
    large = _large_chunks(sizes, now, target_bytes)
    finer = GRANULARITIES.index(now) - 1
    if not large or finer < GRANULARITIES.index(finest):
        return None
    better = GRANULARITIES[finer]
    return Fit(now=now, better=better, chunks=len(large), bytes=sum(large), wanted=0, moves=moves)


def coarser_fit(
    sizes: Sizes, now: Granularity, target_bytes: int, *, coarsest: Granularity = "all"
) -> Granularity:
    """Return the present granularity, or the finest coarser one whose chunks are not too many.

    Args:
        sizes: bytes by time chunk.
        now: the table's granularity.
        target_bytes: the size of a segment that is aimed at, in the same kind of bytes.
        coarsest: the coarsest granularity to return, unless the present one is coarser.
    """
    best, small = now, target_bytes // SMALL_PART
    first, last = GRANULARITIES.index(now), GRANULARITIES.index(coarsest)
    for granularity in GRANULARITIES[first : last + 1]:
        joined = sizes_at(sizes, granularity)
        # against chunks-joined-to-be-cut-again
        if granularity != now and max(joined.values(), default=0) > ROOM_TIMES * target_bytes:
            break
        best = granularity
        smaller = sum(size < small for size in joined.values())
        if len(joined) <= MANY_CHUNKS or 4 * smaller <= 3 * len(joined):
            break
    return best


def may_be_coarser(segments: int, size: int, now: Granularity, target_bytes: int) -> bool:
    """Return whether the totals of a table let `coarser_fit` have another answer.

    Args:
        segments: number of live segments.
        size: their stored bytes.
        now: the table's granularity.
        target_bytes: the size of a segment that is aimed at.
    """
    return now != "all" and segments > MANY_CHUNKS and size * SMALL_PART < segments * target_bytes


def may_be_finer(size: int, now: Granularity, target_bytes: int) -> bool:
    """Return whether the totals of a table let `fit_of` have a finer granularity."""
    return now != "hour" and size > LARGE_TIMES * target_bytes


def _large_chunks(sizes: Sizes, now: Granularity, target_bytes: int) -> list[int]:
    """Return the sizes of the large chunks, if they hold most of what new rows are cut to.

    Chunks of a coarser granularity do not count: they are from before it was left.
    """
    present = [size for chunk, size in sizes_at(sizes, now).items() if chunk.granularity == now]
    large = [size for size in present if size > LARGE_TIMES * target_bytes]
    return large if 2 * sum(large) > sum(present) else []
