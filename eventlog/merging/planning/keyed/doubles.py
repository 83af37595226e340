"""Units of work that each of two logs did in a keyed table, and the rows that lie below them.

No I/O. Each log keeps its own form of such a unit, in its own place. The rows that either log had
when it did the unit lie below the unit in both logs (MERGING.md R19.8 item 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eventlog.keyed.placement import meet, reach, slice_of, span
from eventlog.keyed.repetition import Firsts, repeats
from eventlog.keyed.rule import splits_of
from eventlog.merging.log_acts import Act, Forgetting, Units, dropped_segments
from eventlog.model.entries import Segment

_PASSES = 8  # over all units; if no order is found by then, there is none
_BELOW = -1  # the place of rows that are not in an order: below all others


@dataclass(frozen=True, slots=True)
class Extent:
    """The time chunk and the buckets of the rows of a segment.

    Attributes:
        chunk: the time chunk.
        first: the first bucket.
        last: the last bucket.
    """

    chunk: str
    first: int
    last: int

    def meets(self, other: Extent) -> bool:
        """Return whether both may have rows of the same bucket."""
        return self.first <= other.last and other.first <= self.last and self.chunk == other.chunk


@dataclass(frozen=True, slots=True)
class Row:
    """The rows that a log got by one segment of a transaction.

    Attributes:
        act: the transaction.
        names: the ids of segments that may have these rows: the first forms, not their repeats.
        extent: the buckets of the rows.
    """

    act: Act
    names: tuple[str, ...]
    extent: Extent


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work that both logs did, as one of them did it.

    Attributes:
        act: the transaction of this log that did the unit.
        twins: the transactions of the other log that did it.
        segments: the segments of both forms of the unit: their extents, by name.
        log: the rows that this log got, by chunk, in order.
        before: for each chunk, how many of these rows the log got before the unit.
        repeated: the names of those that the transaction repeats above the unit.
    """

    act: Act
    twins: Sequence[Act]
    segments: Mapping[str, Extent]
    log: Mapping[str, Sequence[Row]]
    before: Mapping[str, int]
    repeated: Collection[str]

    @property
    def is_alone(self) -> bool:
        """Whether the segments have no rows but those of the unit."""
        return all(act.unit is not None for act in (self.act, *self.twins))

    @property
    def chunks(self) -> list[str]:
        """The chunks in which rows may belong below the unit."""
        chunks = dict.fromkeys(extent.chunk for extent in self.segments.values())
        return [chunk for chunk in chunks if chunk in self.before]

    def rows(self, chunk: str) -> Sequence[Row]:
        """Return the rows of a chunk that belong below the unit."""
        rows = self.log.get(chunk, ())[: self.before.get(chunk, 0)]
        # against rows-repeated-with-a-unit-put-below-it
        return [row for row in rows if row.names[0] not in self.repeated]


class Doubles:
    """The units of work that each of two logs did by itself, and the rows below them.

    Args:
        lower: the transactions of the lower log since the fork point (R19.8).
        upper: the transactions of the upper log since the fork point.
    """

    def __init__(self, lower: Sequence[Act], upper: Sequence[Act]) -> None:
        self._firsts = Firsts()
        self._commits = {act.commit for act in (*lower, *upper)}
        self._units: dict[int, Unit] = {}  # by the identity of the transaction
        self._twins: dict[int, list[Act]] = {}
        units, forgetting = Units(lower), Forgetting(upper)
        for act in upper:
            # What its log has forgotten says nothing of the order.
            for done in units.shared(act) if forgetting.rest(act) else ():
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
        """Yield the rows that a log got by a transaction."""
        forms = [s for one in self._twins.get(id(act), ()) for s in one.adds]
        for segment in _rows_of(act):
            same = (s for s in forms if meet(s, segment))
            names = tuple(self._firsts.of(s.id) for s in (segment, *same))
            yield Row(act, names, self._extent(segment))

    def _extent(self, segment: Segment) -> Extent:
        return Extent(segment.chunk, *reach(segment, self._splits))

    def _done(self, acts: Iterable[Act], old: Iterable[Row]) -> dict[int, Unit]:
        """Return the units that both logs did, as one log did them, by transaction.

        Args:
            acts: the transactions of the log, in order.
            old: rows that both logs had before.
        """
        log: dict[str, list[Row]] = {}
        for row in old:
            log.setdefault(row.extent.chunk, []).append(row)
        done: dict[int, Unit] = {}
        for act in acts:
            twins = self._twins.get(id(act), ())
            if twins:
                # against repeated-rows-taken-for-the-unit
                rows = [s for form in (act, *twins) for s in form.adds if not repeats(s.id)]
                segments = {self._firsts.of(s.id): self._extent(s) for s in rows}
                before = {chunk: len(rows) for chunk, rows in log.items()}
                again = {self._firsts.of(s.id) for s in act.adds if repeats(s.id)}
                done[id(act)] = Unit(act, twins, segments, log, before, again)
            for segment, row in zip(_rows_of(act), self._rows(act), strict=True):
                if not repeats(segment.id):
                    log.setdefault(segment.chunk, []).append(row)
        return done

    def broken(
        self, acts: Iterable[Act], more: Iterable[Segment], chunks: Collection[str] | None = None
    ) -> tuple[Row, Unit] | None:
        """Return rows that would lie above a unit which they belong below; None: there are none.

        Args:
            acts: the transactions of a log since the fork point, in order.
            more: the segments that are to be added above these, in order.
            chunks: the chunks to look at; None: all.
        """
        if not self._units:
            return None
        order = _Order(self._firsts, [*self._undecided(acts), *more])
        for unit in self._units.values():
            highest = self._above(unit, order, chunks)
            if highest is not None:
                return highest[0], unit
        return None

    def overtaken(
        self, acts: Sequence[Act], more: Iterable[Segment], others: Sequence[Act]
    ) -> bool:
        """Return whether a unit would lie above rows that lie above the unit in one of the logs.

        Args:
            acts: the transactions of a log since the fork point, in order.
            more: the segments that are to be added above these, in order.
            others: the transactions of the other log.
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
        """Return what to add above a log so that no rows lie above a unit which they belong below.

        These are the new rows. Where they belong below a unit, the unit and what the log has above
        it follow once more. So the table must be one in which of two equal rows the later one
        counts.

        Args:
            acts: the transactions of the log since the fork point, in order.
            others: the transactions of the other log.
            new: the new rows, which are the other log's, in order.
            chunks: the chunks to look at.

        Returns:
            Segments of the log, and new ones, in order; None if there is no such order.
        """
        had = [s for s in self._undecided(acts) if s.chunk in chunks]
        order, fresh = _Order(self._firsts, [*had, *new]), {s.id for s in new}
        for _ in range(_PASSES):
            before = order
            for unit in self._units.values():
                highest = self._above(unit, order, chunks)
                if highest is None:
                    continue
                moved = self._moved(order, unit, highest[1], fresh)
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
        """Return the highest rows that lie above a unit but belong below it, and their place."""
        highest: tuple[Row, int] | None = None
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
                if at <= (lowest if highest is None else max(lowest, highest[1])):
                    continue
                met = (place for place, extent in mine if extent.meets(row.extent))
                if at > max(met, default=at) and self._counts(row, unit):
                    highest = row, at
        return highest

    def _counts(self, row: Row, unit: Unit) -> bool:
        """Return whether rows belong below a unit, even if the other log has them above it.

        The other log may have them above the unit only if they are a unit that both did, too. Of
        the two orders, the order of the log counts that did the later unit itself, and so had the
        earlier one; if that decides nothing, the order of the lower log.
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
        """Return whether a unit lies above rows which lie above the unit in a log.

        Args:
            order: an order of segments.
            acts: the transactions of the log.
        """
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
        """Return the order with the unit moved above a place, and with it what lay above the unit.

        Args:
            order: an order of segments.
            unit: the unit.
            at: the place of rows that belong below the unit.
            fresh: the ids of new segments, which stay.
        """
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
        """Return the segments to add above those of a log, so that all of them have this order.

        Args:
            order: the order.
            had: the segments that the log has, in its order.
            fresh: the ids of new segments.
        """
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
        """Return the rows of a log whose order no union has decided, the last form of each."""
        rows: list[tuple[int, str, Segment]] = []  # above which version, and the name
        for act in acts:
            if act.merges_slices:
                continue
            adds = list(act.adds)
            # against order-of-a-union-questioned
            if act.is_state and act.carried and act.carried.commit in self._commits:
                rows, adds = [], []
            elif act.is_state and act.drops:
                gone = {drop.chunk for drop in act.drops}
                rows = [row for row in rows if row[2].chunk not in gone]
                adds = sorted((s for s in adds if not slice_of(s).level), key=_place)
            names = {self._firsts.of(s.id) for s in adds}
            rows = [row for row in rows if row[1] not in names]
            for segment in adds:
                low = span(segment)[0] if not act.is_state else act.version
                at = len(rows)
                while at and rows[at - 1][0] > low:  # rows of an overwrite lie lower
                    at -= 1
                rows.insert(at, (low, self._firsts.of(segment.id), segment))
        return [segment for _, _, segment in rows]


class _Order:
    """An order of segments.

    Attributes:
        segments: the segments, the lowest first.
        names: the names of their first forms.
        places: the place of each name.
    """

    def __init__(self, firsts: Firsts, segments: list[Segment]) -> None:
        self.segments = segments
        self.names = [firsts.of(segment.id) for segment in segments]
        self.places = {name: place for place, name in enumerate(self.names)}
        self._highest: dict[int, list[int]] = {}

    def place(self, row: Row) -> int:
        """Return the place of rows, in the form of whichever log; `_BELOW` if they have none."""
        return max(self.places.get(name, _BELOW) for name in row.names)

    def highest(self, rows: Sequence[Row]) -> list[int]:
        """Return for each of these rows the highest place among it and those before it."""
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
