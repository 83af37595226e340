"""The fork point of a source and a target, and the first commit of each after it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot


@dataclass(slots=True)
class ForkPoint:
    """The point at which a source and a target diverged.

    Attributes:
        common: the newest version that both share, as far as is known.
        origin: the hash of the source's commit after `common`; None if there is none, or it is
            unknown.
        own: the hash of the target's commit after `common`; None likewise.
    """

    common: int
    origin: str | None = None
    own: str | None = None

    def advance(self, source: Log, source_head: Snapshot, target: Log, head: Snapshot) -> bool:
        """Find both hashes, and a later fork point if the target has followed the source since.

        A target without commits of its own may have followed the source, so that both share more
        versions than was known. Costs one small GET for each hash that is unknown, and two for each
        step of the search.

        Args:
            source: the source's log.
            source_head: the source's head, the same at each call.
            target: the target's log.
            head: the target's newest known head.

        Returns:
            Whether the two logs share more versions than was known before.
        """
        if self.origin is None:
            self.origin = source.hash_at(source_head, self.common + 1)
        if self.origin is None:
            return False
        if self.own is None:  # else it stays
            self.own = target.hash_at(head, self.common + 1)
        if self.own != self.origin:  # against target-that-followed-the-source
            return False
        last = min(head.state.header.version, source_head.state.header.version)
        versions = range(self.common + 1, last + 1)
        self.common += bisect_left(
            versions,
            True,
            key=lambda v: target.hash_at(head, v) != source.hash_at(source_head, v),
        )
        self.own = target.hash_at(head, self.common + 1)
        self.origin = source.hash_at(source_head, self.common + 1)
        return True
