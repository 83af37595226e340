"""The two logs of a union, and what each did that the other one does not have. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eventlog.keyed.repetition import repeated
from eventlog.merging.log_acts import (
    Act,
    KnownCommits,
    Units,
    dropped_segments,
    shrunk_segments,
)
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta

Take = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What one of two logs did to a part of the table, and what the union leaves out.

    Attributes:
        root: root URI of the log that did it.
        what: the time chunks, or the property.
        versions: the versions in which it did that.
        rows: number of rows that this log has live there, in segments that the other one lacks.
    """

    root: str
    what: str
    versions: tuple[int, ...]
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two logs.

    Attributes:
        uri: its root.
        version: its newest version.
        commit: the hash of the commit of that version.
        meta: its small state at that version.
        acts: its transactions since the fork point, in order.
        has: which transactions it has, from whatever log.
        seen: the version of the other log up to which it has everything.
        live: its live segments by id, of all chunks that one of the two has changed.
        is_there: returns whether the object of one of its segments still exists.
        forked: of the source, the schema of the last version that both share; None: the newest.
    """

    uri: str
    version: int
    commit: str
    meta: Meta
    acts: Sequence[Act]
    has: KnownCommits
    seen: int
    live: Mapping[str, Segment]
    is_there: Callable[[Segment], bool]
    forked: Schema | None = None

    @property
    def schema(self) -> Schema:
        """Its schema."""
        assert self.meta.schema is not None  # noqa: S101 - every table has one
        return self.meta.schema


@dataclass(frozen=True, slots=True)
class LogDifference:
    """What one log did, compared with the other one.

    Attributes:
        side: the log.
        other: the other log.
        units: the units of work that the log has done.
        other_units: the units of work that the other log has done.
        acts: the log's transactions that the other one does not have, without rewrites, merges
            of slices, and units of work that both did.
        dropped: the segments that the log dropped by units of work that both did, with the segments
            that repeat them.
        doubtful: further such segments, of units that came to the other log at once with other
            transactions, which may have restored the rows.
        replaced: the segments that the log dropped by transactions which the other one has, too.
    """

    side: Side
    other: Side
    units: Units
    other_units: Units
    acts: Sequence[Act]
    dropped: Collection[str]
    doubtful: Collection[str]
    replaced: Collection[str]

    @property
    def shared_units(self) -> list[Act]:
        """The units of work that both did, and whose doing here the other log does not have."""
        return [
            act
            for act in self.side.acts
            if act.unit is not None
            and act.version > self.other.seen
            and not self.other.has.has(act)
            and self.other_units.shared(act)
        ]


def differences(source: Side, target: Side) -> tuple[LogDifference, LogDifference]:
    """Return what the source did, compared with the target, and what the target did."""
    sides = (source, target)
    units = [Units(side.acts) for side in sides]
    missing = [_missing_acts(sides[n], sides[1 - n], units[1 - n]) for n in (0, 1)]
    source_difference, target_difference = (
        LogDifference(
            sides[n],
            sides[1 - n],
            units[n],
            units[1 - n],
            missing[n],
            *_dropped_by_units(sides[n], sides[1 - n], units[1 - n]),
            _dropped_by_others(sides[n], missing[n]),
        )
        for n in (0, 1)
    )
    return source_difference, target_difference


def _missing_acts(side: Side, other: Side, other_units: Units) -> list[Act]:
    """Return what one log did, and the other log does not have."""
    missing = []
    for act in side.acts:
        is_seen = act.version <= other.seen
        is_done = act.unit is not None and other_units.shared(act)
        changes = act.does_anything and not (act.rewrites or act.merges_slices)
        if changes and not (is_seen or is_done or other.has.has(act)):
            missing.append(act)
    return missing


def _dropped_by_units(side: Side, other: Side, other_units: Units) -> tuple[set[str], set[str]]:
    """Return the segments that a log dropped by units of work that both did, and their repeats.

    Those of which nothing tells whether the other log has restored them come second.

    The other log did not have these rows when it did the unit. Left out are rows that it had
    dropped by then and restored later. Left out are also rows of a unit that the other log has
    from a third one: it has what the third log restored later, too.
    """
    dropped_there: dict[str, int] = {}  # by the other log: the first version in which it did
    for act in other.acts:
        for drop in act.drops:
            # A union drops what it puts elsewhere, too; what is live again was restored.
            # against rows-restored-above-a-union-dropped
            if not act.is_state or drop.id in other.live:
                dropped_there.setdefault(drop.id, act.version)
    gone: set[str] = set()
    doubtful: set[str] = set()
    shrunk = shrunk_segments(side.acts)
    for name, act in (shrunk | dropped_segments(side.acts)).items():
        # against rows-restored-in-a-third-log-dropped
        known = act.version <= other.seen or other.has.has(act)
        twins = other_units.shared(act) if act.unit and not known else ()
        # against restored-above-a-unit-dropped-by-the-other
        twins = [t for t in twins if dropped_there.get(name, t.version + 1) > t.version]
        # against rewritten-rows-of-a-unit-taken-for-all
        if name not in shrunk and any(twin.unit is not None for twin in twins):
            gone.add(name)
        elif twins:  # against restored-at-once-with-a-unit-dropped
            doubtful.add(name)
    names = [*other.live, *(s.id for act in side.acts for s in act.adds)]
    gone |= repeated(names, gone)
    return gone, (doubtful | repeated(names, doubtful)) - gone


def _dropped_by_others(side: Side, acts: Sequence[Act]) -> set[str]:
    """Return the segments that a log dropped by other transactions than these."""
    these = {id(act) for act in acts}
    # against rows-dropped-by-both-added
    return {name for name, act in dropped_segments(side.acts).items() if id(act) not in these}


def crossed_unions(source: LogDifference, target: LogDifference) -> set[str]:
    """Return the commits by which each log was united with the other one at the same time.

    Neither log has the commit of the other one, but each has all that the other's union applied.
    """
    crossed = [
        {
            act.commit
            for act in log.acts
            if act.unites_all and all(map(log.other.has.names, act.originals.keys() - {act.commit}))
        }
        for log in (source, target)
    ]
    # against crossed-unions-taken-for-changes
    return set().union(*crossed) if all(crossed) else set()
