"""Units of work that both of two logs did in a keyed table: what lay below one stays below it.

No I/O. Each log keeps what it did itself, so such a unit has a place of its own in each. What one
of the two had when it did the unit lies below it, wherever it comes to lie (R19.8 item 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eventlog.keyed.placement import meet, reach, slice_of, span
from eventlog.keyed.repetition import Firsts, repeats
from eventlog.keyed.rule import splits_of
from eventlog.merging.log_acts import Act, Units, dropped_segments
from eventlog.model.entries import Segment

_PASSES = 8  # through all units, until an order is given up
_BELOW = -1  # the place of rows of whose order nothing is to be decided


@dataclass(frozen=True, slots=True)
class Extent:
    """Where rows of a segment may lie.

    Attributes:
        chunk: the time chunk.
        first: the first bucket.
        last: the last one.
    """

    chunk: str
    first: int
    last: int

    def meets(self, other: Extent) -> bool:
        """Return whether both may have rows of one bucket."""
        return self.first <= other.last and other.first <= self.last and self.chunk == other.chunk


@dataclass(frozen=True, slots=True)
class Row:
    """Rows that a log got.

    Attributes:
        act: with which transaction.
        names: the ids that they may have, without those that repeat one of these.
        extent: where they lie.
    """

    act: Act
    names: tuple[str, ...]
    extent: Extent


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work that both logs did, in one of them.

    Attributes:
        act: what did it.
        twins: what did it in the other log.
        segments: its rows, of both: names and extents.
        log: what its log got, by chunk, in order.
        before: of each chunk, how many of these it got before the unit.
    """

    act: Act
    twins: Sequence[Act]
    segments: Mapping[str, Extent]
    log: Mapping[str, Sequence[Row]]
    before: Mapping[str, int]

    @property
    def is_alone(self) -> bool:
        """Whether the segments have its rows alone."""
        return all(act.unit is not None for act in (self.act, *self.twins))

    @property
    def chunks(self) -> list[str]:
        """The chunks in which rows may belong below it."""
        chunks = dict.fromkeys(extent.chunk for extent in self.segments.values())
        return [chunk for chunk in chunks if chunk in self.before]

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
        self._twins: dict[int, list[Act]] = {}
        units = Units(lower)
        for act in upper:
            for done in units.shared(act) if act.units else ():
                if done.originals.keys().isdisjoint(act.originals):
                    self._twins.setdefault(id(act), []).append(done)
                    self._twins.setdefault(id(done), []).append(act)
        if not self._twins:
            return
        every = [s for act in (*lower, *upper) if not act.merges_slices for s in act.adds]
        self._splits = max((splits_of(slice_of(s)) for s in every), default=0)
        for act in (*lower, *upper):
            for name in (*(d.id for d in act.drops), *(s.id for s in act.adds)):
                self._firsts.note(name)
        self._lower = {id(act) for act in lower}
        self._numbers = {id(act): n for acts in (lower, upper) for n, act in enumerate(acts)}
        # against rows-of-before-repeated-above-a-unit
        old = [r for act in (*lower, *upper) for r in self._rows(act) if repeats(r.names[0])]
        self._units = self._done(lower, old) | self._done(upper, old)

    def _rows(self, act: Act) -> Iterator[Row]:
        """Yield the rows that a log got with a transaction."""
        forms = [s for one in self._twins.get(id(act), ()) for s in one.adds]
        for segment in _rows_of(act):
            same = (s for s in forms if meet(s, segment))
            names = tuple(self._firsts.of(s.id) for s in (segment, *same))
            yield Row(act, names, self._extent(segment))

    def _extent(self, segment: Segment) -> Extent:
        return Extent(segment.chunk, *reach(segment, self._splits))

    def _done(self, acts: Iterable[Act], old: Iterable[Row]) -> dict[int, Unit]:
        """Return the units of a log that both did, by the identity of what did one.

        Args:
            acts: what the log did, in order.
            old: rows that both had before.
        """
        log: dict[str, list[Row]] = {}
        for row in old:
            log.setdefault(row.extent.chunk, []).append(row)
        found: dict[int, Unit] = {}
        for act in acts:
            twins = self._twins.get(id(act), ())
            if twins:
                # against repeated-rows-taken-for-the-unit
                rows = [s for one in (act, *twins) for s in one.adds if not repeats(s.id)]
                segments = {self._firsts.of(s.id): self._extent(s) for s in rows}
                before = {chunk: len(rows) for chunk, rows in log.items()}
                found[id(act)] = Unit(act, twins, segments, log, before)
            for segment, row in zip(_rows_of(act), self._rows(act), strict=True):
                if not repeats(segment.id):
                    log.setdefault(segment.chunk, []).append(row)
        return found

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
        order = _Order(self._firsts, [*self._undecided(acts), *more])
        for unit in self._units.values():
            found = self._above(unit, order, chunks)
            if found is not None:
                return found[0], unit
        return None

    def overtaken(
        self, acts: Sequence[Act], more: Iterable[Segment], others: Sequence[Act]
    ) -> bool:
        """Return whether a unit would lie above rows in a log that lie above it in one of the two.

        Args:
            acts: what the log did since the two parted, in order.
            more: the segments that are added above that, in order.
            others: what the other log did.
        """
        if not self._units:
            return False
        order = _Order(self._firsts, [*self._undecided(acts), *more])
        return self._overtaken(order, acts) or self._overtaken(order, others)

    def above(
        self,
        acts: Sequence[Act],
        others: Sequence[Act],
        new: Sequence[Segment],
        chunks: Collection[str],
    ) -> list[Segment] | None:
        """Return what comes above a log so that nothing lies above a unit that belongs below it.

        These are the new rows, and after them the unit and what the log had done above it, once
        more: only where a row that is there twice counts as the later one, once.

        Args:
            acts: what the log did since the two parted, in order.
            others: what the other one did.
            new: the new rows, of the other one, in order.
            chunks: look at these alone.

        Returns:
            Segments of the log, and new ones, in order; None if there is no such order.
        """
        had = [s for s in self._undecided(acts) if s.chunk in chunks]
        order, fresh = _Order(self._firsts, [*had, *new]), {s.id for s in new}
        for _ in range(_PASSES):
            before = order
            for unit in self._units.values():
                found = self._above(unit, order, chunks)
                if found is None:
                    continue
                moved = self._moved(order, unit, found[1], fresh)
                if moved == order.segments or not unit.is_alone:
                    return None
                order = _Order(self._firsts, moved)
            if order is before:
                lost = self._overtaken(order, acts) or self._overtaken(order, others)
                raised = self._raised(order.segments, had, fresh)
                gone = {self._firsts.of(name) for name in dropped_segments(acts)}
                kept = (s for s in raised if s.id in fresh or self._firsts.of(s.id) not in gone)
                return None if lost else list(kept)
        return None

    def _above(
        self, unit: Unit, order: _Order, chunks: Collection[str] | None
    ) -> tuple[Row, int] | None:
        """Return the highest rows that lie above a unit and belong below it, and their place."""
        found: tuple[Row, int] | None = None
        units = [(order.places.get(n, _BELOW), extent) for n, extent in unit.segments.items()]
        for chunk in unit.chunks:
            mine = [(place, extent) for place, extent in units if extent.chunk == chunk]
            lowest = min(place for place, _ in mine)
            if chunks is not None and chunk not in chunks:
                continue
            if order.highest(unit.log[chunk])[unit.before[chunk] - 1] <= lowest:
                continue
            for row in unit.rows(chunk):
                at = order.place(row)
                if at <= (lowest if found is None else max(lowest, found[1])):
                    continue
                met = (place for place, extent in mine if extent.meets(row.extent))
                if at > max(met, default=at) and self._counts(row, unit):
                    found = row, at
        return found

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

    def _overtaken(self, order: _Order, acts: Sequence[Act]) -> bool:
        """Return whether a unit lies above rows that lie above it in a log."""
        own = _Order(self._firsts, self._undecided(acts))
        for unit in (self._units[id(act)] for act in acts if id(act) in self._units):
            forms = unit.segments.items()
            for name, extent in forms:
                there = [own.places.get(n, _BELOW) for n, other in forms if extent.meets(other)]
                floor = max(there) + 1 if max(there) > _BELOW else len(own.segments)
                for segment, row in zip(own.segments[floor:], own.names[floor:], strict=True):
                    # against unit-repeated-above-what-came-after
                    if (
                        order.places.get(name, _BELOW) > order.places.get(row, len(order.segments))
                        and extent.meets(self._extent(segment))
                        and not self._belongs(segment, unit)
                    ):
                        return True
        return False

    def _belongs(self, segment: Segment, unit: Unit) -> bool:
        """Return whether rows belong below a unit."""
        return self._firsts.of(segment.id) in self._below(unit, {segment.chunk})

    def _below(self, unit: Unit, chunks: Collection[str]) -> set[str]:
        """Return the rows that belong below a unit."""
        units = [self._units[id(act)] for act in (unit.act, *unit.twins)]
        return {row.names[0] for u in units for chunk in chunks for row in u.rows(chunk)}

    def _moved(self, order: _Order, unit: Unit, at: int, fresh: Collection[str]) -> list[Segment]:
        """Return the order with the unit above a row, and above it what lay above the unit."""
        below = self._below(unit, unit.chunks)
        stay: list[Segment] = []
        move: list[Segment] = []
        extents: set[Extent] = set()
        for segment, name in zip(order.segments[:at], order.names, strict=False):
            extent = self._extent(segment)
            free = name not in below and segment.id not in fresh
            if name in unit.segments or (free and any(map(extent.meets, extents))):
                move.append(segment)
                extents.add(extent)
            else:
                stay.append(segment)
        return [*stay, order.segments[at], *move, *order.segments[at + 1 :]]

    def _raised(
        self, order: Sequence[Segment], had: Sequence[Segment], fresh: Collection[str]
    ) -> list[Segment]:
        """Return what has to come above rows that a log had, so that all have this order."""
        places = {s.id: n for n, s in enumerate(had)}
        above: list[Segment] = []
        raised: set[Extent] = set()
        passed: dict[Extent, int] = {}  # the highest place
        for segment in order:
            at, extent = places.get(segment.id, 0), self._extent(segment)
            late = any(n > at and extent.meets(other) for other, n in passed.items())
            if segment.id in fresh or late or any(map(extent.meets, raised)):
                above.append(segment)
                raised.add(extent)
            else:
                passed[extent] = max(at, passed.get(extent, at))
        return above

    def _undecided(self, acts: Iterable[Act]) -> list[Segment]:
        """Return the rows of a log of whose order nobody has decided, the last form of each."""
        found: list[tuple[int, str, Segment]] = []  # above which version, and the name
        for act in acts:
            if act.merges_slices:
                continue
            adds = list(act.adds)
            # against order-of-a-union-questioned
            if act.is_state and act.carried and act.carried.commit in self._commits:
                found, adds = [], []
            elif act.is_state and act.drops:
                gone = {drop.chunk for drop in act.drops}
                found = [one for one in found if one[2].chunk not in gone]
                adds = sorted((s for s in adds if not slice_of(s).level), key=_place)
            names = {self._firsts.of(s.id) for s in adds}
            found = [one for one in found if one[1] not in names]
            for segment in adds:
                low = span(segment)[0] if not act.is_state else act.version
                at = len(found)
                while at and found[at - 1][0] > low:  # rows of an overwrite lie lower
                    at -= 1
                found.insert(at, (low, self._firsts.of(segment.id), segment))
        return [segment for _, _, segment in found]


class _Order:
    """An order of segments.

    Attributes:
        segments: the segments, the lowest first.
        names: their names.
        places: of each name the place.
    """

    def __init__(self, firsts: Firsts, segments: list[Segment]) -> None:
        self.segments = segments
        self.names = [firsts.of(segment.id) for segment in segments]
        self.places = {name: place for place, name in enumerate(self.names)}
        self._highest: dict[int, list[int]] = {}

    def place(self, row: Row) -> int:
        """Return the place of rows, by whichever of the two logs they come."""
        return max(self.places.get(name, _BELOW) for name in row.names)

    def highest(self, rows: Sequence[Row]) -> list[int]:
        """Return for each number of rows the highest place of the first ones."""
        if id(rows) not in self._highest:
            self._highest[id(rows)] = [*accumulate(map(self.place, rows), max)]
        return self._highest[id(rows)]


def _rows_of(act: Act) -> list[Segment]:
    """Return the new rows of a transaction."""
    if act.merges_slices:
        return []
    if act.is_state:
        return [s for s in act.adds if span(s)[0] == act.version]  # others have an older place
    return list(act.adds)


def _place(segment: Segment) -> tuple[int, int]:
    return span(segment)[0], slice_of(segment).ordinal or 0
