"""Units of work that both of two logs did in a keyed table: what lay below one stays below it.

No I/O. Each log keeps what it did itself, so such a unit has a place of its own in each. What one
of the two had when it did the unit lies below it, wherever it comes to lie (R19.8 item 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eventlog.merging.history import Act, Units
from eventlog.model.records import Segment
from eventlog.state.keyed.repetition import Firsts, repeats
from eventlog.state.keyed.slices import meet, slice_of, span

_MOVES = 1_000  # of units, until an order is given up
_BELOW = -1  # the place of rows of whose order nothing is to be decided


@dataclass(frozen=True, slots=True)
class Row:
    """Rows that a log got.

    Attributes:
        act: with which transaction.
        segment: their segment.
    """

    act: Act
    segment: Segment


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work that both logs did, in one of them.

    Attributes:
        act: what did it.
        twins: what did it in the other log.
        segments: its rows, of both.
        log: what its log got, by chunk, in order.
        before: of each chunk, how many of these it got before the unit.
    """

    act: Act
    twins: Sequence[Act]
    segments: tuple[Segment, ...]
    log: Mapping[str, Sequence[Row]]
    before: Mapping[str, int]

    @property
    def is_alone(self) -> bool:
        """Whether the segments have its rows alone."""
        return all(act.unit is not None for act in (self.act, *self.twins))

    def rows(self, chunk: str) -> Sequence[Row]:
        """Return the rows of a chunk that belong below it."""
        return self.log.get(chunk, ())[: self.before.get(chunk, 0)]


class Doubles:
    """What must lie below the units of work that two logs did, each by itself.

    Args:
        lower: what the lower log did since they parted (R19.8).
        upper: what the upper one did.
    """

    def __init__(self, lower: Sequence[Act], upper: Sequence[Act]) -> None:
        self._firsts = Firsts()
        self._commits = {act.commit for act in (*lower, *upper)}
        self._units: dict[int, Unit] = {}  # by the identity of what did one
        units = Units(lower)
        twins: dict[int, list[Act]] = {}
        for act in upper:
            for done in units.shared(act) if act.units else ():
                if done.originals.keys().isdisjoint(act.originals):
                    twins.setdefault(id(act), []).append(done)
                    twins.setdefault(id(done), []).append(act)
        if not twins:
            return
        for act in (*lower, *upper):
            for name in (*(d.id for d in act.drops), *(s.id for s in act.adds)):
                self._firsts.note(name)
        self._lower = {id(act) for act in lower}
        self._numbers = {id(act): n for acts in (lower, upper) for n, act in enumerate(acts)}
        # against rows-of-before-repeated-above-a-unit
        old = [r for act in (*lower, *upper) for r in _rows(act) if self._is_old(r.segment)]
        self._units = {**_units(lower, twins, old), **_units(upper, twins, old)}

    def _is_old(self, segment: Segment) -> bool:
        """Return whether rows repeat some that both had when they parted."""
        return repeats(self._firsts.of(segment.id))

    def broken(
        self, acts: Iterable[Act], more: Iterable[Segment], chunks: Collection[str] | None = None
    ) -> tuple[Row, Unit] | None:
        """Return what would lie above a unit that it belongs below in a log; None if nothing would.

        Args:
            acts: what the log did since the two parted, in order.
            more: the segments that are added above that, in order.
            chunks: look at these alone; None: at all.
        """
        if not self._units:
            return None
        found = self._broken([*self._undecided(acts), *more], chunks)
        return None if found is None else found[:2]

    def above(
        self,
        acts: Sequence[Act],
        others: Sequence[Act],
        new: Sequence[Segment],
        chunks: Collection[str],
    ) -> list[Segment] | None:
        """Return what comes above a log so that nothing lies above a unit that belongs below it.

        These are the new rows, and after them the unit and what the log had done above it, once
        more: a row that is there twice counts as the later one.

        Args:
            acts: what the log did since the two parted, in order.
            others: what the other one did.
            new: the new rows, of the other one, in order.
            chunks: look at these alone.

        Returns:
            Segments of the log, and new ones, in order; None if there is no such order.
        """
        had = [s for s in self._undecided(acts) if s.chunk in chunks]
        order = [*had, *new]
        fresh = {s.id for s in new}
        for _ in range(_MOVES):
            found = self._broken(order, chunks)
            if found is None:
                lost = self._overtaken(order, acts) or self._overtaken(order, others)
                return None if lost else _raised(order, had, fresh)
            _, unit, at = found
            moved = self._moved(order, unit, at, fresh)
            if moved == order or not unit.is_alone:
                break
            order = moved
        return None

    def _broken(
        self, order: Sequence[Segment], chunks: Collection[str] | None
    ) -> tuple[Row, Unit, int] | None:
        """Return rows that lie above a unit that they belong below, and their place."""
        places = {self._firsts.of(s.id): n for n, s in enumerate(order)}
        at: dict[int, list[int]] = {}  # the places of the rows of a chunk in a log
        highest: dict[int, list[int]] = {}
        for unit in self._units.values():
            for segment in unit.segments:
                chunk = segment.chunk
                if not unit.rows(chunk) or (chunks is not None and chunk not in chunks):
                    continue
                rows, place = unit.log[chunk], places.get(self._firsts.of(segment.id), _BELOW)
                if id(rows) not in at:
                    found = at[id(rows)] = [self._place(row, places) for row in rows]
                    highest[id(rows)] = [*accumulate(found, max)]
                if highest[id(rows)][unit.before[chunk] - 1] <= place:
                    continue
                for row, n in zip(unit.rows(chunk), at[id(rows)], strict=False):
                    if n > place and self._is_above(row, n, unit, places):
                        return row, unit, n
        return None

    def _is_above(self, row: Row, at: int, unit: Unit, places: Mapping[str, int]) -> bool:
        met = (s for s in unit.segments if meet(s, row.segment))
        top = max((places.get(self._firsts.of(s.id), _BELOW) for s in met), default=at)
        return at > top and self._counts(row, unit)

    def _counts(self, row: Row, unit: Unit) -> bool:
        """Return whether rows lie below a unit although the other log may have them above it.

        That is so only where they are a unit that both did, too. Of the two orders that one counts
        whose log did the later unit itself, and so had the other one; else that of the lower log.
        """
        other = self._units.get(id(row.act))
        if other is None:
            return True
        first, second = (max(u.twins, key=self._number) for u in (other, unit))
        if self._number(first) <= self._number(second):
            return True
        own, theirs = unit.act.carried is None, first.carried is None
        return own > theirs or (own == theirs and id(unit.act) in self._lower)

    def _number(self, act: Act) -> int:
        return self._numbers[id(act)]

    def _place(self, row: Row, places: Mapping[str, int]) -> int:
        """Return the place of rows, by whichever of the two logs they come."""
        unit = self._units.get(id(row.act))
        forms = [s for s in unit.segments if meet(s, row.segment)] if unit is not None else []
        return max(places.get(self._firsts.of(s.id), _BELOW) for s in (row.segment, *forms))

    def _overtaken(self, order: Sequence[Segment], acts: Iterable[Act]) -> bool:
        """Return whether a unit lies above rows that came above it in a log."""
        places = {self._firsts.of(s.id): n for n, s in enumerate(order)}
        units: list[tuple[int, Segment, Unit]] = []
        for act in acts:
            unit = self._units.get(id(act))
            for segment in act.adds if units and unit is None and not act.merges_slices else ():
                at = places.get(self._firsts.of(segment.id), len(order))
                for place, other, of in units:
                    # against unit-repeated-above-what-came-after
                    if place > at and meet(other, segment) and not self._belongs(segment, of):
                        return True
            if unit is not None:
                found = ((places.get(self._firsts.of(s.id), _BELOW), s) for s in unit.segments)
                units += ((place, s, unit) for place, s in found)
        return False

    def _belongs(self, segment: Segment, unit: Unit) -> bool:
        """Return whether rows belong below a unit."""
        return self._firsts.of(segment.id) in self._below(unit, {segment.chunk})

    def _below(self, unit: Unit, chunks: Collection[str]) -> set[str]:
        """Return the rows that belong below a unit."""
        units = (self._units[id(act)] for act in (unit.act, *unit.twins))
        return {self._firsts.of(r.segment.id) for u in units for c in chunks for r in u.rows(c)}

    def _moved(
        self, order: Sequence[Segment], unit: Unit, at: int, fresh: Collection[str]
    ) -> list[Segment]:
        """Return the order with the unit above a row, and above it what lay above the unit."""
        names = {self._firsts.of(s.id) for s in unit.segments}
        below = self._below(unit, {s.chunk for s in order})
        stay: list[Segment] = []
        move: list[Segment] = []
        for segment in order[:at]:
            name = self._firsts.of(segment.id)
            follows = any(meet(segment, other) for other in move)
            if name in names or (follows and name not in below and segment.id not in fresh):
                move.append(segment)
            else:
                stay.append(segment)
        return [*stay, order[at], *move, *order[at + 1 :]]

    def _undecided(self, acts: Iterable[Act]) -> list[Segment]:
        """Return the rows of a log of whose order nobody has decided, the last form of each."""
        found: dict[str, Segment] = {}
        for act in acts:
            if act.merges_slices:
                continue
            adds = [s for s in act.adds if span(s)[0] == act.version]  # others have an older place
            # against order-of-a-union-questioned
            if act.is_state and act.carried and act.carried.commit in self._commits:
                found = {}
            elif act.is_state and act.drops:
                gone = {drop.chunk for drop in act.drops}
                found = {name: s for name, s in found.items() if s.chunk not in gone}
                placed = (s for s in act.adds if span(s)[0] != act.version)
                adds = [*sorted((s for s in placed if not slice_of(s).level), key=_order), *adds]
            for segment in adds:
                name = self._firsts.of(segment.id)
                found.pop(name, None)
                found[name] = segment
        return list(found.values())


def _order(segment: Segment) -> tuple[int, int]:
    return span(segment)[0], slice_of(segment).ordinal or 0


def _raised(
    order: Sequence[Segment], had: Sequence[Segment], fresh: Collection[str]
) -> list[Segment]:
    """Return what has to come above rows that a log had, so that all have this order."""
    places = {s.id: n for n, s in enumerate(had)}
    above: list[Segment] = []
    passed: list[Segment] = []
    for segment in order:
        at = places.get(segment.id, 0)
        late = any(places[s.id] > at and meet(s, segment) for s in passed)
        if segment.id in fresh or late or any(meet(s, segment) for s in above):
            above.append(segment)
        else:
            passed.append(segment)
    return above


def _rows(act: Act) -> Iterator[Row]:
    """Yield the rows that a log got with a transaction."""
    for segment in act.adds if not act.merges_slices else ():
        if span(segment)[0] == act.version:  # else they have an older place
            yield Row(act, segment)


def _units(
    acts: Iterable[Act], twins: Mapping[int, Sequence[Act]], old: Iterable[Row]
) -> dict[int, Unit]:
    """Return the units of a log that both did, by the identity of what did one.

    Args:
        acts: what the log did, in order.
        twins: likewise, what did it in the other log.
        old: rows that both had before.
    """
    log: dict[str, list[Row]] = {}
    for row in old:
        log.setdefault(row.segment.chunk, []).append(row)
    found: dict[int, Unit] = {}
    for act in acts:
        if act.merges_slices:
            continue
        if id(act) in twins:
            same = (act, *twins[id(act)])
            # against repeated-rows-taken-for-the-unit
            segments = tuple(s for one in same for s in one.adds if not repeats(s.id))
            before = {chunk: len(rows) for chunk, rows in log.items()}
            found[id(act)] = Unit(act, twins[id(act)], segments, log, before)
        for row in _rows(act):
            if not repeats(row.segment.id):
                log.setdefault(row.segment.chunk, []).append(row)
    return found
