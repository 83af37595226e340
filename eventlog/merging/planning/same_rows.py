"""Which segments of two logs have the same rows, after rewrites that only one of the logs did.

No I/O. A segment that both logs have stands for itself: carried segments keep their ids. A rewrite
that only one log did relates its inputs to its outputs. Segments connected by rewrites form a
group. Within a group, the live segments of both logs contain the same rows. The groups are derived
from the two logs and stored nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from eventlog.merging.log_acts import Act, AppliedStep, KnownCommits


class Differs(Exception):
    """The target cannot drop exactly the rows that the source drops; has the reason.

    Attributes:
        version: the version of the target that made the difference; None if no single one did.
    """

    def __init__(self, reason: str, version: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.version = version


class RowGroups:
    """The groups of segments of two logs, and which of them the source has live.

    Args:
        source: the source's commits since the fork point that are merged already.
        target: the target's commits since the fork point.
        ours: the transactions that the target has.
        theirs: the transactions that the source has.

    Attributes:
        chunks: the chunk of each segment that one of the two logs added or dropped.
    """

    def __init__(
        self,
        source: Sequence[AppliedStep],
        target: Sequence[AppliedStep],
        ours: KnownCommits,
        theirs: KnownCommits,
    ) -> None:
        self.chunks: dict[str, str] = {}
        self._parent: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._arrived: set[str] = set()  # added at the source since the fork point
        self._gone: set[str] = set()  # dropped at the source
        self._fresh: dict[str, int] = {}  # the target's own new segments, with their versions
        self._made: set[str] = set()  # added at the target since the fork point
        # Segments whose rows the target dropped: the version, and whether it replaced them.
        self._dropped: dict[str, tuple[int, bool]] = {}
        self._went: dict[str, int] = {}  # the version in which the target first dropped a segment
        there = [act for step in source for act in step.acts]
        here = [act for step in target for act in step.acts]
        both = _rewrites(there).keys() & _rewrites(here).keys()
        for act in here:
            self._at_target(act, carried=theirs.has(act))
        units = _units(act for act in here if not theirs.has(act))
        for act in there:
            self.at_source(act)
            done = units.get(act.unit) if act.unit and not ours.has(act) else None
            if done is not None:
                self.same_unit(act, done)
        for act in (*here, *there):
            if act.rewrites and _outputs(act) not in both:
                self.relate([*(d.id for d in act.drops), *(s.id for s in act.adds)])

    def _at_target(self, act: Act, *, carried: bool) -> None:
        """Note a transaction of the target, its own or one that the source has."""
        self._note(act)
        for drop in act.drops:
            self._went.setdefault(drop.id, act.version)
        for segment in act.adds:
            self._dropped.pop(segment.id, None)
        if not act.restores:
            self._made.update(s.id for s in act.adds)
        if carried or act.rewrites:
            return
        if not act.restores:
            self._fresh.update((s.id, act.version) for s in act.adds)
        self._dropped.update((d.id, (act.version, act.replaces(d.id))) for d in act.drops)

    def _note(self, act: Act) -> None:
        self.chunks.update((s.id, s.chunk) for s in act.adds)
        self.chunks.update((d.id, d.chunk) for d in act.drops)

    def at_source(self, act: Act) -> None:
        """Note a transaction of the source."""
        self._note(act)
        self._gone.difference_update(s.id for s in act.adds)
        self._gone.update(d.id for d in act.drops)
        self._arrived.update(s.id for s in act.adds)
        for segment in act.adds:
            self._fresh.pop(segment.id, None)

    def relate(self, ids: Iterable[str]) -> None:
        """Note that these segments belong to one group."""
        first, *others = [self._find(i) for i in ids] or [""]
        for other in dict.fromkeys(others):
            root = self._find(first)
            if other != root:
                self._parent[other] = root
                self._members[root] += self._members.pop(other)

    def same_unit(self, act: Act, ours: Act) -> None:
        """Note that both logs did one unit of work: its segments of a chunk have the same rows."""
        for chunk in {s.chunk for s in act.adds}:
            mine = [s.id for s in ours.adds if s.chunk == chunk]
            self.relate([*mine, *(s.id for s in act.adds if s.chunk == chunk)])
            for segment_id in mine:
                self._fresh.pop(segment_id, None)

    def counterpart(self, act: Act, missing: Collection[str], live: Collection[str]) -> list[str]:
        """Return the target's live segments that contain the rows that the source drops.

        Args:
            act: the source's transaction, before it is noted.
            missing: the ids of the dropped segments that the target does not have live.
            live: the ids of the target's live segments.

        Raises:
            Differs: the target's segments contain other rows as well, or the target has dropped
                the rows itself.
        """
        forms: list[str] = []
        for root in dict.fromkeys(self._find(i) for i in missing):
            group = self._members[root]
            replaced = any(act.replaces(m) for m in group if m in missing)
            for member in group:
                lost = self._dropped.get(member)
                if lost is not None and (replaced or lost[1]):  # against replaced-on-both-sides
                    raise Differs("has dropped or replaced them itself", lost[0])
                if member in self._fresh:  # against rows-dropped-with-others
                    reason = "has rewritten them together with rows of its own"
                    raise Differs(reason, self._fresh[member])
                if member not in missing and member not in live and self._at_source(member):
                    raise Differs("has rewritten them together with rows that stay")
            forms += [m for m in group if m in live and not self._at_source(m)]
            if not forms and all(m not in self._dropped for m in group):
                raise Differs("does not have them")
        return forms

    def remaining(self, act: Act, ours: Act, live: Collection[str]) -> list[str]:
        """Return the target's live segments that contain rows which a unit of work dropped.

        Both logs did this unit, and the target did not have these rows then. Rows that the target
        had dropped before the unit, and restored later, stay.

        Args:
            act: the source's transaction that did the unit, before it is noted.
            ours: the target's transaction that did the unit.
            live: the ids of the target's live segments.

        Raises:
            Differs: the target's segments contain other rows as well.
        """
        # against restored-above-a-unit-dropped-by-it
        drops = [d for d in act.drops if self._went.get(d.id, ours.version + 1) > ours.version]
        stay = {d.id for d in act.drops if d not in drops}
        remains = [drop.id for drop in drops if drop.id in live]
        for drop in drops:
            group = self._members[self._find(drop.id)]
            rest = [m for m in group if m in live and m not in remains and not self._at_source(m)]
            if drop.id not in live and rest:
                if not stay.isdisjoint(group):
                    raise Differs("has rewritten them together with rows that it restored")
                remains += self.counterpart(act, [drop.id], live)
        return list(dict.fromkeys(remains))

    def _at_source(self, segment_id: str) -> bool:
        there = segment_id in self._arrived or segment_id not in self._made
        return there and segment_id not in self._gone

    def _find(self, segment_id: str) -> str:
        if segment_id not in self._parent:
            self._parent[segment_id] = segment_id
            self._members[segment_id] = [segment_id]
        root = segment_id
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[segment_id] != root:
            self._parent[segment_id], segment_id = root, self._parent[segment_id]
        return root


def _outputs(act: Act) -> frozenset[str]:
    return frozenset(s.id for s in act.adds)


def _rewrites(acts: Iterable[Act]) -> Mapping[frozenset[str], Act]:
    return {_outputs(act): act for act in acts if act.rewrites}


def _units(acts: Iterable[Act]) -> dict[tuple[str, int], Act]:
    return {unit: act for act in acts if (unit := act.unit) is not None}
