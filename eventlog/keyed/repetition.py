"""Which segments of a keyed table repeat others, by their ids (MERGING.md R19.8).

A merge of two logs commits rows of its target once more where they must come after the other log's.
No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from eventlog.format import codec


def again(token: str, segment_id: str) -> str:
    """Return the id of a segment that repeats another one (MERGING.md R19.8).

    Args:
        token: 32 random hexadecimal digits.
        segment_id: the id of the segment that is repeated.
    """
    return token[:8] + _digest(token[:8])[:8] + _digest(segment_id)[:16]


@lru_cache(2**14)
def repeats(segment_id: str) -> bool:
    """Return whether a segment repeats another one, by its id."""
    return segment_id[8:16] == _digest(segment_id[:8])[:8]


def repeated(ids: Iterable[str], others: Iterable[str]) -> set[str]:
    """Return the ids that repeat one of the others, directly or by way of each other."""
    repeating, ids = set(), [i for i in ids if repeats(i)]
    ends = {_digest(i)[:16] for i in others} if ids else set()
    while more := {i for i in ids if i not in repeating and i[16:] in ends}:
        repeating |= more
        ends |= {_digest(i)[:16] for i in more}
    return repeating


class Firsts:
    """Finds the first segment that a segment repeats, among those that were noted."""

    def __init__(self) -> None:
        self._by_end: dict[str, str] = {}

    def note(self, segment_id: str) -> None:
        """Note a segment."""
        self._by_end[_digest(segment_id)[:16]] = segment_id

    def of(self, segment_id: str) -> str:
        """Return the id of the first segment that this one repeats, or its own."""
        while repeats(segment_id) and segment_id[16:] in self._by_end:
            segment_id = self._by_end[segment_id[16:]]
        return segment_id


def _digest(text: str) -> str:
    return codec.sha256(text.encode())
