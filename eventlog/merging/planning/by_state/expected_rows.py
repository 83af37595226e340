"""Which rows the target must have after a merge, from what each of two logs shows and knows.

No I/O. The planners decide transaction by transaction, or chunk by chunk. The rule here looks at
the rows alone, and plans nothing: a plan that shows other rows is not committed (R19.11).

Rows that both logs show stay, and rows that none of them shows do not come. Rows that one of them
shows are new to the other one if that does not know the transaction that last brought them there;
else it has removed them. This is the rule of an optimized observed-remove set (A. Bieniusa et al.,
"An optimized conflict-free replicated set", 2012): logs that know the same show the same, by
whatever way they were merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from eventlog.keyed.repetition import repeats
from eventlog.merging.log_acts import CHOSEN, UNITED, Act, dropped_segments
from eventlog.merging.planning.by_state.chunk_states import overlapping_chunks
from eventlog.merging.planning.by_state.same_states import by_chunk, firsts_of
from eventlog.merging.planning.by_state.sides import LogDifference, Side
from eventlog.merging.planning.forms import is_part, segment_id
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment

# Rows that come and go together: the id of the segment that had them first or, if they are those of
# a unit of work, its app, its sequence and the first of the chunks that overlap, whoever did it.
_Rows = Hashable


class ExpectedRows:
    """The rows that the target must have after a merge.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        once: whether no row may be there twice. In a keyed table it may: the last one counts.
    """

    def __init__(self, source: LogDifference, target: LogDifference, *, once: bool) -> None:
        self._once = once
        self._contents = _Contents(source.side, target.side)
        self._source, self._target = (_Shown(log, self._contents) for log in (source, target))

    def shown(self, chunks: Iterable[str]) -> list[Segment]:
        """Return the target's live segments in these chunks, before the merge."""
        return self._target.live(chunks)

    def units_gone(
        self, before: Iterable[Segment], after: Iterable[Segment]
    ) -> set[tuple[str, int]]:
        """Return the units of work of which some segments have rows, and others have none."""
        had, has = (
            {rows[:2] for rows in self._contents.of_all(segments) if isinstance(rows, tuple)}
            for segments in (before, after)
        )
        return had - has

    def differ(self, after: Sequence[Segment], chunks: Collection[str]) -> bool:
        """Return whether the target would have other rows than it must have in chunks.

        Where nothing tells what a segment was made of, or whether a log knows what brought it, the
        target may have the rows or not.

        Args:
            after: the segments of these chunks that the target would have.
            chunks: the chunks.
        """
        if self._once and _has_forms_of_one(after):  # against two-forms-of-one-segment-live
            return True
        there, here = self._source.live(chunks), self._target.live(chunks)
        if not self._once and _objects(there) == _objects(here) == _objects(after):
            return False  # slices of the same objects stay, whatever their segments are called
        theirs, ours, result = map(self._contents.of_all, (there, here, after))
        if self._source.is_doubtful(there) or self._target.is_doubtful(here):
            lost = (theirs & ours) - result  # against rows-that-both-show-dropped-in-doubt
            back = result - theirs - ours  # against rows-that-neither-shows-added-in-doubt
            return self._once and bool(lost or back)
        # against rows-replaced-by-a-unit-that-is-undone-dropped
        if self._source.replaced(theirs, ours, self._target):
            return True
        if self._target.replaced(ours, theirs, self._source):
            return True
        free = self._contents.free(chunks, (*there, *here))
        # So do single objects that both show.
        both = Counter[str]() if self._once else _objects(there) & _objects(here)
        same = both if both <= _objects(after) else Counter[str]()
        # against same-objects-told-apart
        free |= self._contents.of_all(s for s in (*there, *here) if s.checksum in same)
        missing: list[_Rows] = []
        excess: list[_Rows] = []
        for rows in (theirs | ours | result) - free:
            must = self._must(rows, rows in theirs, rows in ours)
            if must is not None and must != (rows in result):
                (missing if must else excess).append(rows)
        # against rows-below-others-in-a-slice-taken-for-shown
        hidden = set() if self._once else self._contents.merged(here) - self._contents.alone(after)
        excess = [rows for rows in excess if rows not in hidden]
        if missing or excess:
            objects = self._contents.objects((*there, *here))
            absent, present = (Counter(map(objects.get, x)) for x in (missing, excess))
            if None in absent or absent != present:
                return True
        return self._once and self._contents.are_twice(after, there, here)

    def joined(
        self, chunks: Collection[str], theirs: Sequence[Act], ours: Sequence[Act]
    ) -> tuple[set[str], list[Segment]] | None:
        """Return how the target gets the rows of chunks that neither log has removed.

        Args:
            chunks: the chunks.
            theirs: what the source did there, and the target does not have.
            ours: what the target did there, and the source does not have.

        Returns:
            The ids of the target's segments that go, and the source's segments that come. None:
            both changed the same rows, or segments have rows that go together with others.
        """
        there, here = self._source.live(chunks), self._target.live(chunks)
        if self._source.is_doubtful(there) or self._target.is_doubtful(here):
            return None
        their_gone, our_gone = (self._contents.replaced(acts, chunks) for acts in (theirs, ours))
        # against rows-changed-by-both-joined
        if any(their_gone[rows] or our_gone[rows] for rows in their_gone.keys() & our_gone.keys()):
            return None
        theirs_shown, ours_shown = map(self._contents.all_told_apart, (there, here))
        # against rows-that-came-deleted-and-were-changed-joined
        if self._source.lacks_changed(ours_shown, their_gone, our_gone) or (
            self._target.lacks_changed(theirs_shown, our_gone, their_gone)
        ):
            return None
        removed = {
            *filter(self._source.other_had, theirs_shown - ours_shown),
            *filter(self._target.other_had, ours_shown - theirs_shown),
        }
        wanted = (theirs_shown | ours_shown) - removed
        for first, second in ((here, there), (there, here)):
            kept = self._contents.covering(wanted, first, second)
            if kept is not None:
                ids = {segment.id for segment in here}
                gone = ids - {segment.id for segment in kept}
                return gone, [segment for segment in kept if segment.id not in ids]
        return None

    def _must(self, rows: _Rows, there: bool, here: bool) -> bool | None:
        """Return whether the target must have these rows; None: it may."""
        if there == here:
            return there
        known = (self._source if there else self._target).is_known(rows)
        return None if known is None else not known


class _Contents:
    """The rows that segments have, as far as the commits of two logs tell.

    Args:
        source: one log.
        target: the other log.
    """

    def __init__(self, source: Side, target: Side) -> None:
        acts = [act for side in (source, target) for act in side.acts]
        self._firsts = firsts_of(source, target)
        self._rows: dict[str, frozenset[_Rows]] = {}
        self._makers: dict[str, str] = {}
        self._told_apart: dict[str, frozenset[_Rows]] = {}
        # Units of one chunk may have other chunks in a log with another granularity.
        self._place = {c: min(chunks) for chunks in overlapping_chunks(acts) for c in chunks}
        self._units: dict[str, set[_Rows]] = {}  # by the first of the chunks that overlap
        self._apps: dict[str, set[str]] = {}  # by segment: whose units of work may have added it
        for act in acts:
            for segment in act.adds:
                apps = {*act.units, *act.forgets, *act.recalls}
                self._apps[segment.id] = self._apps.get(segment.id, set()) | apps
        forgotten = {app for act in acts for app in act.forgets}
        for act in acts:
            if len(act.originals) == 1 and not act.is_state:
                self._note_writes(act, forgotten)
        for act in acts:
            if len(act.originals) == 1 and (act.rewrites or act.merges_slices):
                self._note_rewrite(act)
        # Of segments that came with several transactions nothing tells which of these made them.
        self._unknown: set[_Rows] = {
            name
            for act in acts
            if act.is_state or len(act.originals) > 1
            for name in (self._firsts.of(s.id) for s in act.adds)
            if name not in self._rows
        }

    def _note_writes(self, act: Act, forgotten: Collection[str]) -> None:
        """Note the rows that a transaction wrote, unless it brought back what was there before.

        Args:
            act: the transaction.
            forgotten: the apps of which a unit of work may have been done with other rows again.
        """
        if act.rewrites or act.merges_slices or act.restores:
            return
        done = act.unit if act.unit is not None and act.unit[0] not in forgotten else None
        for segment in act.unit_segments:
            if segment.id not in self._rows:
                place = self._place[segment.chunk]
                unit = None if is_part(segment.id) else done
                rows = segment.id if unit is None else (*unit, place)
                self._rows[segment.id] = frozenset([rows])
                if unit is not None:
                    self._makers[segment.id] = act.transaction.id
                    self._units.setdefault(place, set()).add(rows)

    def _note_rewrite(self, act: Act) -> None:
        """Note that the new segments have the rows of those that were dropped."""
        for segment in act.adds:
            if segment.id not in self._rows:
                inputs = [d.id for d in act.drops if _overlap(d.chunk, segment.chunk)]
                self._rows[segment.id] = frozenset().union(*map(self.of, inputs))
                outputs = [s.id for s in act.adds if _overlap(s.chunk, segment.chunk)]
                own = frozenset([segment.id] if len(outputs) > 1 else ())
                self._told_apart[segment.id] = own.union(*map(self.told_apart, inputs))
                self._makers[segment.id] = act.transaction.id

    def of(self, segment_id: str) -> frozenset[_Rows]:
        """Return the rows of a segment."""
        first = self._firsts.of(segment_id)
        return self._rows.get(first) or frozenset([first])

    def told_apart(self, segment_id: str) -> frozenset[_Rows]:
        """Return the rows of a segment, and those that it alone has of rows that were rewritten.

        Nothing tells which of several segments that a rewrite made has which rows of its inputs.
        """
        return self._told_apart.get(segment_id, frozenset()) | self.of(segment_id)

    def all_told_apart(self, segments: Iterable[Segment]) -> frozenset[_Rows]:
        """Return the same of some segments."""
        return frozenset().union(*(self.told_apart(s.id) for s in segments))

    def of_all(self, segments: Iterable[Segment]) -> frozenset[_Rows]:
        """Return the rows of some segments."""
        return frozenset().union(*(self.of(s.id) for s in segments))

    def unknown(self, segment: Segment) -> set[_Rows]:
        """Return those rows of a segment that may have been made of others."""
        # against rows-rewritten-from-an-unknown-form-taken-for-known
        return {
            rows
            for rows in self.of(segment.id)
            if rows in self._unknown or (isinstance(rows, str) and self._is_lost(rows))
        }

    def _is_lost(self, segment_id: str) -> bool:
        """Return whether a segment repeats another one that neither log tells of."""
        return repeats(segment_id) and segment_id not in self._rows

    def free(self, chunks: Collection[str], segments: Iterable[Segment]) -> set[_Rows]:
        """Return the rows that the target may have or not.

        A segment of which nothing tells what it was made of may have the rows of a unit of work.
        """
        places = {self._place.get(chunk, chunk) for chunk in chunks}
        units = set().union(*(self._units.get(place, set()) for place in places))
        unknown = set().union(*map(self.unknown, segments))
        return units | unknown if units and unknown else set()

    def replaced(self, acts: Iterable[Act], chunks: Collection[str]) -> dict[_Rows, bool]:
        """Return the rows that transactions removed from chunks, and whether others came instead.

        Args:
            acts: the transactions.
            chunks: the chunks.
        """
        removed: dict[_Rows, bool] = {}
        for act in acts:
            stay = self.all_told_apart(act.adds)
            for drop in (drop for drop in act.drops if drop.chunk in chunks):
                for rows in self.told_apart(drop.id) - stay:
                    removed[rows] = removed.get(rows, False) or act.replaces(drop.id)
        return removed

    def covering(
        self, wanted: frozenset[_Rows], first: Sequence[Segment], second: Sequence[Segment]
    ) -> list[Segment] | None:
        """Return segments that have just the wanted rows; None: there are none.

        Args:
            wanted: the rows.
            first: segments of one log, which are taken if they can be.
            second: segments of the other log.
        """
        kept = [s for s in first if self.told_apart(s.id) <= wanted]
        covered = self.all_told_apart(kept)
        rest = [s for s in second if self.told_apart(s.id) <= wanted - covered]
        return [*kept, *rest] if covered | self.all_told_apart(rest) == wanted else None

    def alone(self, segments: Iterable[Segment]) -> set[_Rows]:
        """Return the rows of which a segment has no others."""
        return {rows for s in segments if len(of := self.of(s.id)) == 1 for rows in of}

    def merged(self, segments: Iterable[Segment]) -> set[_Rows]:
        """Return the rows that segments have with others, which may hide them in a keyed table."""
        return {rows for s in segments if len(of := self.of(s.id)) > 1 for rows in of}

    def objects(self, segments: Iterable[Segment]) -> dict[_Rows, str]:
        """Return the checksums of the objects that have certain rows and no others."""
        alone = ((self.of(s.id), s.checksum) for s in segments)
        return {row: checksum for rows, checksum in alone if len(rows) == 1 for row in rows}

    def are_twice(self, segments: Sequence[Segment], *logs: Iterable[Segment]) -> bool:
        """Return whether two of the segments, which no log shows both, have the same rows.

        They also may have them if they are equal objects, nothing tells what one of them was made
        of, and both may be of units of work of one app.

        Args:
            segments: the segments.
            logs: what each of the two logs shows.
        """
        shown = [{s.id for s in log} for log in logs]
        makers: dict[_Rows, dict[str, list[set[int]]]] = {}
        objects: dict[str, list[tuple[Segment, set[int]]]] = {}
        for segment in segments:
            by = {n for n, names in enumerate(shown) if segment.id in names}
            maker = self._makers.get(segment.id, segment.id)
            for rows in self.of(segment.id):
                others = makers.setdefault(rows, {})
                # against rows-of-one-log-in-several-segments-taken-for-twice
                if any(not by & log for m, logs in others.items() if m != maker for log in logs):
                    return True
                if by not in others.setdefault(maker, []):
                    others[maker].append(by)
            twins = objects.setdefault(segment.checksum, [])
            if any(not by & log and self._may_be_one(segment, twin) for twin, log in twins):
                return True
            twins.append((segment, by))
        return False

    def _may_be_one(self, one: Segment, other: Segment) -> bool:
        """Return whether equal objects may have the rows of one unit of work."""
        is_clear = not (self.unknown(one) or self.unknown(other))
        # against equal-rows-of-two-writers-taken-for-a-unit
        apps = self._apps.get(one.id, set()) & self._apps.get(other.id, set())
        return bool(apps) and not is_clear


class _Shown:
    """The rows that a log shows, and what brought them there.

    Args:
        log: what the log did, compared with the other one.
        contents: the rows of segments.
    """

    def __init__(self, log: LogDifference, contents: _Contents) -> None:
        self._log, self._contents = log, contents
        self._live = by_chunk(log.side.live.values())
        self._brought, self._met = _brought(log.side, contents)
        self._units_dropped = {
            rows: act.unit
            for name, act in dropped_segments(log.side.acts).items()
            if act.unit is not None
            for rows in contents.of(name)
        }
        names = (*log.other.live, *_names(log.other.acts))
        self._other_had = {rows for name in names for rows in contents.told_apart(name)}
        self._added = {segment.id for act in log.side.acts for segment in act.adds}

    def live(self, chunks: Iterable[str]) -> list[Segment]:
        """Return its live segments in these chunks."""
        return [segment for chunk in chunks for segment in self._live.get(chunk, ())]

    def other_had(self, rows: _Rows) -> bool:
        """Return whether the other log had rows that this log shows.

        It may have added a segment without rows that it deleted in the same transaction.
        """
        is_new = rows in self._brought or rows in self._added
        # against rows-deleted-as-they-came-taken-for-new
        came_without = rows in self._brought and self.is_known(rows) is True
        return rows in self._other_had or not is_new or came_without

    def lacks_changed(
        self, others: Collection[_Rows], gone: Mapping[_Rows, bool], others_gone: Collection[_Rows]
    ) -> bool:
        """Return whether the other log lacks rows, by something it knows, that the log replaced.

        The other log did not remove them: it got their segment when they were deleted already. Rows
        from before the fork point are not meant: both logs had these.

        Args:
            others: the rows that the other log shows.
            gone: the rows that the log removed, and whether others came instead.
            others_gone: those that the other log removed.
        """
        return any(
            replaced
            and rows not in others
            and rows not in others_gone
            and rows in self._brought
            and self.is_known(rows) is True
            for rows, replaced in gone.items()
        )

    def is_known(self, rows: _Rows) -> bool | None:
        """Return whether the other log knows what last brought rows here; None: nothing tells."""
        act = self._brought.get(rows)
        known = True if act is None else self._knows(act, is_unit=isinstance(rows, tuple))
        # One of several transactions that came at once may have brought the rows back.
        again = known and any(self._knows(met) is not True for met in self._met.get(rows, ()))
        return None if again else known

    def _knows(self, act: Act, *, is_unit: bool = False) -> bool | None:
        """Return whether the other log knows a transaction of this one; None: nothing tells.

        Args:
            act: the transaction.
            is_unit: whether it is enough that the other log did its unit of work.
        """
        other = self._log.other
        if other.has.has(act) or act.version <= other.seen:
            return True
        if act.transaction.info.get(UNITED) == CHOSEN:
            return False  # even if all that came with the choice is known
        shares = bool(self._log.other_units.shared(act))
        if shares and act.unit is not None and is_unit:
            return True
        return None if shares or other.has.has_part(act) else False

    def replaced(self, rows: frozenset[_Rows], others: frozenset[_Rows], other: _Shown) -> bool:
        """Return whether rows of the other log went here by a unit of work that it has undone.

        Then neither these nor those of the unit would be left.

        Args:
            rows: what this log shows.
            others: what the other one shows.
            other: the other one.
        """
        undone = {u[:2] for u in rows - others if isinstance(u, tuple) and self.is_known(u)}
        return bool(undone) and any(
            self._units_dropped.get(gone) in undone and other.is_known(gone)
            for gone in others - rows
        )

    def is_doubtful(self, live: Iterable[Segment]) -> bool:
        """Return whether the other log may have rows of the log in another form.

        These are rows that it never had in this form, although it knows what brought them.
        """
        for segment in live:
            for rows in self._contents.unknown(segment) - self._other_had:
                act = self._brought.get(rows)
                # against rows-in-a-form-that-a-union-brought-told-apart
                if act is None or self._knows(act):
                    return True
        return False


def _brought(side: Side, contents: _Contents) -> tuple[dict[_Rows, Act], dict[_Rows, list[Act]]]:
    """Return what last brought rows to a log since the fork point.

    Second come the later transactions of which one may have dropped the rows and brought them back.
    """
    live: dict[str, str] = {}  # ids, with their chunks
    seen: set[str] = set()
    for act in side.acts:
        live |= {drop.id: drop.chunk for drop in act.drops if drop.id not in seen}
        seen.update(_names([act]))
    live |= {s.id: s.chunk for s in side.live.values() if s.id not in seen}
    shown = Counter(rows for name in live for rows in contents.of(name))
    brought: dict[_Rows, Act] = {}
    met: dict[_Rows, list[Act]] = {}
    for act in side.acts:
        new = {rows for rows in contents.of_all(act.adds) if shown[rows] <= 0}
        for drop in act.drops:
            if live.pop(drop.id, None) is not None:
                shown.subtract(contents.of(drop.id))
        for segment in act.adds:
            live[segment.id] = segment.chunk
            shown.update(contents.of(segment.id))
        if len(act.originals) > 1 or act.is_state:
            chunks = act.met(live.values())
            chosen = {chunk for chunk in chunks if act.chose([chunk])}
            new |= {rows for name, c in live.items() if c in chosen for rows in contents.of(name)}
            rest = {rows for name, c in live.items() if c in chunks for rows in contents.of(name)}
            for rows in rest - new:
                met.setdefault(rows, []).append(act)
        brought.update(dict.fromkeys(new, act))
        for rows in new:
            met.pop(rows, None)
    return brought, met


def _names(acts: Iterable[Act]) -> Iterator[str]:
    """Yield the ids of the segments that transactions added or dropped."""
    for act in acts:
        yield from (s.id for s in act.adds)
        yield from (d.id for d in act.drops)


def _has_forms_of_one(segments: Iterable[Segment]) -> bool:
    """Return whether two of the segments are forms of one that is not divided."""
    forms = {segment.id for segment in segments if not is_part(segment.id)}
    return len({*map(segment_id, forms)}) < len(forms)


def _objects(segments: Iterable[Segment]) -> Counter[str]:
    return Counter(segment.checksum for segment in segments)


def _overlap(one: str, other: str) -> bool:
    first, second = parse_chunk(one), parse_chunk(other)
    return first.start < second.end and second.start < first.end
