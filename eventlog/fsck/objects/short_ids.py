"""A set of the ids of a long history, in eight of the sixteen bytes of each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable


class ShortIds:
    """Ids that were noted, by their first half: they are random, so others hardly ever match."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._sorted = True

    def note(self, ids: Iterable[str]) -> None:
        """Note ids of 32 hexadecimal digits."""
        self._ids.extend(map(_short, ids))
        self._sorted = False

    def __contains__(self, one: str) -> bool:
        """Return whether an id was noted."""
        if not self._sorted:
            self._ids = array("Q", sorted(self._ids))
            self._sorted = True
        wanted = _short(one)
        at = bisect_left(self._ids, wanted)
        return at < len(self._ids) and self._ids[at] == wanted


def _short(one: str) -> int:
    return int(one[:16], 16)
