"""Time chunks: half-open UTC intervals cut by a granularity, and their readable names.

The granularity follows from the name: `all`, `2013`, `2013-01`, `2013-01-07`, `2013-01-07T05`.
Years run from 0001 to 9999 (FORMAT.md "Time chunks").
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec import Struct

from eventlog.arguments import shown
from eventlog.errors import InvalidInput
from eventlog.model.entries import GRANULARITIES, Granularity

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_US = DAY_MS * 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_MS = -62_135_596_800_000  # 0001-01-01T00:00Z
MAX_MS = 253_402_300_800_000  # 10000-01-01T00:00Z

_NAME = re.compile(r"(all)|(\d{4})(?:-(\d{2})(?:-(\d{2})(?:T(\d{2}))?)?)?", re.ASCII)
_BY_PARTS: dict[int, Granularity] = {1: "year", 2: "month", 3: "day", 4: "hour"}


class TimeChunk(Struct, frozen=True, order=True):
    """A half-open interval `[start, end)` in ms UTC that is a time chunk of some granularity."""

    start: int
    end: int

    @property
    def name(self) -> str:
        """The readable name, as used in keys."""
        return chunk_name(self.start, self.end)

    @property
    def granularity(self) -> Granularity:
        """The granularity of this chunk."""
        return _granularity(self.start, self.end)

    def overlaps(self, start: int, end: int) -> bool:
        """Say whether the chunk overlaps `[start, end)`."""
        return self.start < end and start < self.end


@lru_cache(maxsize=65536)
def parse_chunk(name: str) -> TimeChunk:
    """Return the chunk with this name.

    Raises:
        InvalidInput: the text is not the name of a chunk.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise InvalidInput(
            f"{name!r} is not a time chunk; write all, 2013, 2013-01, 2013-01-07 or 2013-01-07T05"
        )
    if match[1]:
        return TimeChunk(MIN_MS, MAX_MS)
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    granularity = _BY_PARTS[len(parts)]
    year, month, day, hour = [*parts, *(1, 1, 1, 0)[len(parts) :]]
    try:
        moment = datetime(year, month, day, hour, tzinfo=UTC)
    except ValueError:
        raise InvalidInput(f"{name!r} is not a time chunk: no such date") from None
    return chunk_of(_ms(moment), granularity)


@lru_cache(maxsize=65536)
def chunk_name(start: int, end: int) -> str:
    """Return the name of the chunk `[start, end)`.

    Raises:
        InvalidInput: the interval is not a time chunk of any granularity.
    """
    granularity = _granularity(start, end)
    if granularity == "all":
        return "all"
    # isoformat pads the year to four digits; strftime does not on every platform.
    text = datetime.fromtimestamp(start // 1000, tz=UTC).isoformat()
    return text[: {"year": 4, "month": 7, "day": 10, "hour": 13}[granularity]]


def chunk_of(time_ms: int, granularity: Granularity) -> TimeChunk:
    """Return the chunk of a granularity that contains the instant.

    Raises:
        InvalidInput: the instant is outside the years 0001 to 9999.
    """
    if not MIN_MS <= time_ms < MAX_MS:
        raise InvalidInput(f"event time {time_ms} ms is outside the years 0001 to 9999")
    if granularity == "all":
        return TimeChunk(MIN_MS, MAX_MS)
    if granularity in ("hour", "day"):
        width = HOUR_MS if granularity == "hour" else DAY_MS
        start = time_ms - time_ms % width
        return TimeChunk(start, start + width)
    moment = datetime.fromtimestamp(time_ms // 1000, tz=UTC)
    if granularity == "month":
        return TimeChunk(
            _month_start(moment.year, moment.month), _month_start(moment.year, moment.month + 1)
        )
    return TimeChunk(_month_start(moment.year, 1), _month_start(moment.year + 1, 1))


def home(chunk: TimeChunk, granularity: Granularity) -> TimeChunk:
    """Return the chunk of a granularity that a chunk lies in, or the chunk if it is coarser."""
    return max(chunk, chunk_of(chunk.start, granularity), key=lambda c: c.end - c.start)


def utc(time_ms: int) -> datetime:
    """Return a time in ms UTC as a datetime; of one outside the years 0001 to 9999 the nearest.

    Times of commits are within them. A correction of the clock in a forged log need not be.
    """
    within = min(max(time_ms, MIN_MS), MAX_MS - 1)
    return _EPOCH + timedelta(milliseconds=within)


def check_granularity(text: str) -> Granularity:
    """Return `text` as a granularity.

    Raises:
        InvalidInput: it is not one.
    """
    for granularity in GRANULARITIES:
        if isinstance(text, str) and text == granularity:
            return granularity
    raise InvalidInput(f"granularity {shown(text)} is not one of {', '.join(GRANULARITIES)}")


def _granularity(start: int, end: int) -> Granularity:
    if MIN_MS <= start < end <= MAX_MS:
        for granularity in GRANULARITIES:
            if chunk_of(start, granularity) == TimeChunk(start, end):
                return granularity
    raise InvalidInput(f"[{start}, {end}) ms is not a time chunk of any granularity")


def _month_start(year: int, month: int) -> int:
    if month > 12:
        year, month = year + 1, month - 12
    return MAX_MS if year > 9999 else _ms(datetime(year, month, 1, tzinfo=UTC))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1000
