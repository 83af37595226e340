"""Makes two logs one by their states, where transactions cannot be carried one by one.

No I/O. What both logs did since they parted is compared chunk by chunk. Where only one of them did
something that the other one does not have, its segments are those of both. Where one of them only
added rows, these come beside the segments of the other one. Where neither holds, somebody has to
choose, and what the other side did there is left out (MERGING.md R19.10).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from eventlog.format import keys
from eventlog.keyed import placement, slices
from eventlog.keyed.repetition import repeated
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.merging.log_acts import (
    BOTH,
    CHOSEN,
    PURE,
    Act,
    KnownCommits,
    Runs,
    Units,
    chunks_of,
    dropped_segments,
    kept,
    old_rows,
    union,
)
from eventlog.merging.planning.carried import Carried, MergeConflict
from eventlog.merging.planning.columns import join_columns, translated
from eventlog.merging.planning.keyed.doubles import Doubles
from eventlog.merging.planning.keyed.ties import Ties
from eventlog.merging.planning.merged_settings import (
    SettingChange,
    actions_for,
    settings_of,
    value_of,
)
from eventlog.model.actions import Action, AppReset, AppRise, SetBuckets, SetSchema
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta

Take = Literal["source", "target"]
_SHOWN = 3  # chunks in a text


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What one of two logs did to a part of the table, and what was not taken.

    Attributes:
        root: root URI of the log that did it.
        what: the time chunks, or the property.
        versions: the versions in which it did that.
        rows: rows that this log has live there, in segments that the other one does not have.
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
        commit: the hash of its commit.
        meta: its small state then.
        acts: what it did since they parted.
        has: which transactions it has.
        seen: the version of the other log up to which it has everything.
        live: its live segments, of all chunks that one of the two has changed.
        is_there: returns whether the object of a segment of it is still there.
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

    @property
    def schema(self) -> Schema:
        """Its schema."""
        assert self.meta.schema is not None  # noqa: S101 - every table has one
        return self.meta.schema


@dataclass(slots=True)
class _New:
    """What one log did to chunks, and the other one does not have.

    Attributes:
        acts: the transactions.
        adds: the segments that they added.
        only_adds: whether they did nothing else.
        old: which of the segments repeat rows that the other log had.
    """

    acts: list[Act] = field(default_factory=list)
    adds: list[Segment] = field(default_factory=list)
    only_adds: bool = True
    old: set[str] = field(default_factory=set)

    @property
    def rows(self) -> list[Segment]:
        """The segments without those."""
        return [s for s in self.adds if s.id not in self.old]

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(act.version for act in self.acts))


@dataclass(frozen=True, slots=True)
class Addition:
    """Rows that the target gets above what it has then.

    Attributes:
        segment: their segment in the log that has them.
        mine: whether that is the target.
        again: whether they are there once more, below.
    """

    segment: Segment
    mine: bool
    again: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """How the target becomes what both are.

    Attributes:
        carried: what is to be committed; None if nothing is.
        left_out: what was left out, since it was chosen so.
        room: how many versions the target lacks that the order of slices needs.
    """

    carried: Carried | None
    left_out: tuple[LeftOut, ...] = ()
    room: int = 0


class Uniter:
    """Decides how the target becomes one with the source.

    Args:
        source: the log to merge from, at its newest version.
        target: the log to merge into.
        common: the last version that they share.
        upper: whether the rows of the target come after those of the source in a keyed table,
            where both only added some (R19.8).
        ties: what is done about rows of one key that both wrote; None without a key.
        take: whose state counts where both did something; None: that is a conflict.
        renamed: the id under which a segment is added that is in another place, too, and why.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        *,
        common: int,
        upper: bool,
        ties: Ties | None,
        take: Take | None,
        renamed: Callable[[str, str], str],
    ) -> None:
        self._source, self._target = source, target
        self._common = common
        self._take, self._renamed, self._upper = take, renamed, upper
        self._keyed = target.meta.layout is not None and keyed_of(target.meta.layout) is not None
        self._there, self._here = Units(source.acts), Units(target.acts)
        self._theirs = _unknown(source, target, self._here)
        self._ours = _unknown(target, source, self._there)
        lower, upper_ = (source, target) if upper else (target, source)
        self._doubles = Doubles(lower.acts, upper_.acts) if ties not in (None, "none") else None
        self._repeats = ties == "repeat"
        self._crossed = _crossed(source, self._theirs, target, self._ours)
        # What one of the two dropped by a unit of work that both did, of the rows that both had.
        self._dropped = {
            "source": _dropped(source, self._here, target),
            "target": _dropped(target, self._there, source),
        }
        self._adds: list[Segment] = []
        self._drops: list[Segment] = []
        self._copies: dict[str, tuple[tuple[bool, str], ...]] = {}
        self._still: set[str] = set()
        self._left: list[LeftOut] = []
        self._left_acts: list[Act] = []
        self._left_chunks: set[str] = set()
        self._room, self._pure, self._chose = 0, True, False

    def united(self) -> Union:
        """Return how the target becomes one with the source.

        Raises:
            Conflict: both did something to the same, and nobody has chosen.
        """
        changes = self._changes()
        for chunks in _regions([*self._source.acts, *self._target.acts]):
            self._unite(chunks)
        rises, resets = self._apps()
        carried = Carried(
            self._source.version,
            self._source.commit,
            tuple(self._adds),
            tuple((s.id, s.chunk) for s in self._drops),
            tuple(changes),
            {name: version for a in self._theirs for name, version in a.originals.items()},
            rises,
            operations=tuple(act.transaction.operation for act in self._theirs),
            transactions=sum(act.count for act in self._theirs),
            copies=self._copies,
            still=frozenset(self._still),
            united=self._made,
            resets=resets,
        )
        # Without anything else it is a record, so that nobody compares the two once more.
        seen = all(a.version <= self._target.seen or not a.does_anything for a in self._source.acts)
        empty = seen and not self._chose
        return Union(None if empty else carried, tuple(self._left), self._room)

    @property
    def _made(self) -> str:
        """What it became: see `Act.unites`."""
        plain = PURE if self._pure else BOTH
        return CHOSEN if self._chose else plain  # against choice-taken-for-known

    def _unite(self, chunks: frozenset[str]) -> None:
        their_acts, our_acts = (
            [act for act in acts if act.commit not in self._crossed]
            for acts in (self._theirs, self._ours)
        )
        theirs, ours = (
            _new(one, other, acts, units, chunks, undone=self._dropped[name])
            for one, other, acts, units, name in (
                (self._source, self._target, their_acts, self._here, "source"),
                (self._target, self._source, our_acts, self._there, "target"),
            )
        )
        for base, new in self._ways(theirs, ours):
            rows = self._above(base, new, chunks)
            if rows is None:
                continue
            if base == "source":
                self._become(chunks, rows)
            else:
                self._beside(chunks, rows)
            return
        if self._take == "source":
            self._leave(self._target, self._source, chunks, ours)
            self._become(chunks, ())
        elif self._take == "target":
            self._leave(self._source, self._target, chunks, theirs)
        else:
            first = ", ".join(sorted(chunks)[:_SHOWN])
            raise MergeConflict(
                f"both changed rows of {first} in ways that exclude each other",
                min(theirs.versions, default=self._source.version),
                min(ours.versions, default=None),
            )

    def _ways(self, theirs: _New, ours: _New) -> Iterator[tuple[Take, Sequence[Segment]]]:
        """Yield whose segments may be kept, and what comes above them, the best way first."""
        both_add = theirs.only_adds and ours.only_adds and bool(theirs.old) == bool(ours.old)
        if not ours.acts and (theirs.acts or (self._keyed and self._upper)):
            # With nothing new on both sides the order of rows may differ in a keyed table.
            yield "source", ()
        elif not theirs.acts:
            yield "target", ()
        elif both_add:
            # against both-repeated-old-rows
            ways: list[tuple[Take, Sequence[Segment]]] = [
                ("target", theirs.rows),
                ("source", ours.rows),
            ]
            yield from reversed(ways) if self._keyed and self._upper else ways
        elif theirs.only_adds and not theirs.old:
            yield "target", theirs.adds
        elif ours.only_adds and not ours.old:
            yield "source", ours.adds

    def _above(
        self, base: Take, new: Sequence[Segment], chunks: frozenset[str]
    ) -> Sequence[Addition] | None:
        """Return what comes above the segments of one log; None if that cannot be.

        Args:
            base: which log that is.
            new: new rows of the other one, in order.
            chunks: the chunks.
        """
        one, other = (
            (self._source, self._target) if base == "source" else (self._target, self._source)
        )
        gone = self._dropped["target" if base == "source" else "source"]
        if not chunks.isdisjoint(_merged(one, other, gone)):
            return None
        fresh = {s.id for s in new}
        rows: Sequence[Segment] | None = new
        # against rows-united-above-a-unit
        if self._doubles is not None and (
            self._doubles.broken(one.acts, new, chunks)
            or (self._repeats and self._doubles.overtaken(one.acts, new, other.acts))
        ):
            rows = None
            if self._repeats:  # against unit-repeated-where-rows-count-twice
                rows = self._doubles.above(one.acts, other.acts, new, chunks)
        repeats = [s for s in rows or () if s.id not in fresh]
        if rows is None or not all(s.id in one.live or one.is_there(s) for s in repeats):
            return None
        here = base == "target"
        return [
            Addition(s, mine=here == (s.id not in fresh), again=s.id not in fresh) for s in rows
        ]

    def _leave(self, loser: Side, winner: Side, chunks: frozenset[str], new: _New) -> None:
        self._chose = True
        if not new.acts:
            return
        self._left_acts += new.acts
        self._left_chunks |= chunks
        rows = sum(
            s.rows for s in loser.live.values() if s.chunk in chunks and s.id not in winner.live
        )
        what = ", ".join(sorted(chunks)[:_SHOWN]) + (", …" if len(chunks) > _SHOWN else "")
        self._left.append(LeftOut(loser.uri, f"rows of {what}", new.versions, rows))

    def _beside(self, chunks: frozenset[str], rows: Sequence[Addition]) -> None:
        """The target keeps its segments of these chunks, and gets those rows."""
        gone = [s for i, s in self._target.live.items() if i in self._dropped["source"]]
        self._drops += (s for s in gone if s.chunk in chunks)
        if not rows:
            return
        self._pure = False
        for row in rows:
            if row.again or row.segment.id not in self._target.live:
                self._add_row(row)
        self._still |= chunks

    def _add_row(self, row: Addition) -> None:
        segment = _fresh(row.segment) if self._keyed else row.segment
        if not row.mine:
            segment = self._of_source(segment)
        if row.again:
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "above"))
        self._add(segment, ((row.mine, keys.key_of(row.segment)),))

    def _become(self, chunks: frozenset[str], more: Sequence[Addition]) -> None:
        """The target gets the source's segments of these chunks, and these rows."""
        here = [s for s in self._target.live.values() if s.chunk in chunks]
        there = [
            s
            for s in self._source.live.values()
            if s.chunk in chunks and s.id not in self._dropped["target"]
        ]
        self._pure &= not more
        self._still |= chunks
        if self._keyed:
            self._become_slices(here, there, more)
            return
        wanted = {s.id for s in there}
        kept = {row.segment.id for row in more}
        self._drops += [s for s in here if s.id not in wanted | kept]
        for segment in there:
            if segment.id not in self._target.live:
                self._add(self._of_source(segment), ((False, keys.key_of(segment)),))
        for row in more:
            if row.segment.id not in self._target.live:
                self._add_row(row)

    def _become_slices(
        self, here: Sequence[Segment], there: Sequence[Segment], more: Sequence[Addition]
    ) -> None:
        if not more and self._same(here, there):
            return
        ends = {v for s in there for v in placement.span(s) if v > self._common}
        places = {v: self._common + 1 + n for n, v in enumerate(sorted(ends))}
        self._room = max(self._room, self._common + len(ends) - self._target.version)
        self._drops += here
        for segment in there:
            low, high = (places.get(v, v) for v in placement.span(segment))
            place = msgspec.structs.replace(placement.slice_of(segment), low=low, high=high)
            entry = msgspec.structs.replace(self._of_source(segment), slice=place)
            self._add(entry, ((False, keys.key_of(segment)),))
        for row in more:
            self._add_row(row)

    def _same(self, here: Sequence[Segment], there: Sequence[Segment]) -> bool:
        """Return whether the same rows count in the same slices, in the same order.

        A segment that got another place has another id, and the same object.
        """
        layouts = [keyed_of(s.meta.layout) for s in (self._source, self._target) if s.meta.layout]
        splits = max(splits_of(keyed) for keyed in layouts if keyed is not None)
        one, two = ([_counting(run) for run in slices.runs(x, splits)] for x in (here, there))
        return one == two

    def _of_source(self, segment: Segment) -> Segment:
        found = translated(segment, self._source.schema, self._schema)
        return _fresh(found) if self._keyed else found

    def _add(self, segment: Segment, places: tuple[tuple[bool, str], ...]) -> None:
        if segment.id in self._target.live:  # of slices that get another place
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "moved"))
        while segment.id in self._copies:  # another form of the same rows is there
            segment = msgspec.structs.replace(segment, id=self._renamed(segment.id, "again"))
        self._adds.append(segment)
        self._copies[segment.id] = places

    # ------------------------------------------------------------------------- the small state

    def _changes(self) -> list[Action]:
        found: list[Action] = []
        schema = join_columns(self._source.schema, self._target.schema)
        if isinstance(schema, str):
            acts = [a for a in self._theirs if _of(a, SetSchema)]
            raise MergeConflict(
                f"it has {schema}",
                acts[-1].version if acts else self._source.version,
                lasting=True,
            )
        self._schema = schema
        if schema is not self._target.schema:
            found.append(SetSchema(schema))
        theirs, ours = settings_of(self._theirs), settings_of(self._ours)
        changes = []
        for name in sorted(theirs):
            old, new = value_of(self._target.meta, name), value_of(self._source.meta, name)
            change = SettingChange(name, old, new)
            if old != new and self._chosen(change, theirs[name], ours.get(name)):
                changes.append(change)
        found += actions_for(changes)
        there, here = (
            keyed.buckets if s.meta.layout and (keyed := keyed_of(s.meta.layout)) else 0
            for s in (self._source, self._target)
        )
        if here:
            while here < there:
                found.append(SetBuckets(here, 2 * here))
                here *= 2
        return found

    def _chosen(
        self,
        change: SettingChange,
        theirs: Sequence[SettingChange],
        ours: Sequence[SettingChange] | None,
    ) -> bool:
        """Return whether the source's value of a setting counts."""
        if ours is None:
            return True
        what = change.what
        if self._take is None:
            raise MergeConflict(
                f"it sets {what} to {change.new!r}, and the target has set it to {change.old!r}",
                theirs[-1].version,
                ours[-1].version,
            )
        self._chose = True
        loser, value, acts = (
            (self._target, change.old, ours)
            if self._take == "source"
            else (self._source, change.new, theirs)
        )
        versions = tuple(setting.version for setting in acts)
        self._left.append(LeftOut(loser.uri, f"{what} {value!r}", versions))
        return self._take == "source"

    def _apps(self) -> tuple[dict[str, AppRise], tuple[dict[str, AppReset], ...]]:
        """Return what becomes of the sequences of apps, by the origin and by the restores.

        Units that a restore of the source forgot, or of which nothing was taken, do not count as
        done any more: a restore lowers the sequence so that they can be loaded again. The origin
        names what of the app counts as done above that.
        """
        lost = [a for a in self._left_acts if chunks_of([a]) <= self._left_chunks]
        left = _done(lost)
        theirs = _done(self._theirs)
        ours = _done(act for act in self._ours if act not in lost)
        there, here = self._there.done, self._here.done
        # against units-forgotten-here-done-again
        ours = {app: _common(runs, here.get(app, ())) for app, runs in ours.items()}
        there = {app: _without(runs, left.get(app, ())) for app, runs in there.items()}
        lows = {app: runs[0][0] - 1 for app, runs in left.items()}  # above these they are forgotten
        back: set[str] = set()
        for act in self._theirs:
            for app, seq in act.forgets.items():
                lows[app] = min(seq, lows.get(app, seq))
            back |= act.forgets.keys() | act.recalls.keys()
        rises: dict[str, AppRise] = {}
        first: dict[str, AppReset] = {}
        second: dict[str, AppReset] = {}
        for app in sorted({*theirs, *lows, *back}, key=str.encode):
            done = _common(theirs.get(app, ()), there.get(app, ()))
            done = _without(done, here.get(app, ()))
            if app in lows:
                every = union(there.get(app, ()), ours.get(app, ()))
                done = _without(every, ((0, lows[app]),))
            mark = self._seq(self._target, app)
            if done:
                rises[app] = AppRise(_or_none(mark), done)
                mark = max(mark, done[-1][1])
            low = min(mark, lows.get(app, mark))
            last = max(done[-1][1], low) if done else low
            if app in back and app not in left:
                last = max(last, self._seq(self._source, app))
            if app in lows or last != mark:
                first[app] = AppReset(_or_none(mark), _or_none(low))
            if last != low:
                second[app] = AppReset(_or_none(low), _or_none(last))
        return rises, (first, second) if second else (first,)

    @staticmethod
    def _seq(side: Side, app: str) -> int:
        mark = side.meta.apps.get(app)
        return -1 if mark is None else mark.seq


def _or_none(seq: int) -> int | None:
    return None if seq < 0 else seq


def _done(acts: Iterable[Act]) -> dict[str, Runs]:
    """Return the units of work that transactions did."""
    found: dict[str, Runs] = {}
    for act in acts:
        for app, runs in kept(act.units).items():
            found[app] = union(found.get(app, ()), runs)
    return found


def _common(some: Runs, others: Runs) -> Runs:
    """Return the sequences that are in both."""
    return _without(some, _without(some, others))


def _without(runs: Runs, others: Runs) -> Runs:
    """Return the sequences of the runs that are in none of the others."""
    found = []
    for first, last in runs:
        at = first
        for low, high in others:
            if high < at or low > last:
                continue
            if low > at:
                found.append((at, low - 1))
            at = high + 1
        if at <= last:
            found.append((at, last))
    return tuple(found)


def _unknown(one: Side, other: Side, units: Units) -> list[Act]:
    """Return what one log did, and the other one, which did these units, does not have."""
    return [
        act
        for act in one.acts
        if act.does_anything
        and not act.rewrites
        and not act.merges_slices
        and act.version > other.seen
        and not other.has.has(act)
        and not (act.unit is not None and units.shared(act))
    ]


def _crossed(one: Side, its: Sequence[Act], other: Side, others: Sequence[Act]) -> set[str]:
    """Return the commits by which both logs were made one with the other at the same time.

    None of the two knows that of the other one, but all that it brought.
    """
    found = [
        {
            act.commit
            for act in acts
            if act.unites_all and all(map(side.has.names, act.originals.keys() - {act.commit}))
        }
        for acts, side in ((its, other), (others, one))
    ]
    return set().union(*found) if all(found) else set()  # against crossed-unions-taken-for-changes


def _dropped(one: Side, units: Units, other: Side) -> set[str]:
    """Return what one log dropped by units of work that the other one did, too, with its repeats.

    The other one did not have these rows when it did the unit. What it had dropped by then, and
    restored later, is not among them.
    """
    went: dict[str, int] = {}
    for act in other.acts:
        if not act.is_state:
            for drop in act.drops:
                went.setdefault(drop.id, act.version)
    gone: set[str] = set()
    for name, act in dropped_segments(one.acts).items():
        twins = units.shared(act) if act.unit else ()
        # against restored-above-a-unit-dropped-by-the-other
        if any(went.get(name, twin.version + 1) > twin.version for twin in twins):
            gone.add(name)
    return gone | repeated((*other.live, *(s.id for act in one.acts for s in act.adds)), gone)


def _merged(one: Side, other: Side, gone: Collection[str]) -> set[str]:
    """Return the chunks in which a log has made some of these rows one with others.

    Not those from before it was made one with the other log by their states.
    """
    commits = {act.commit for act in other.acts}
    added: dict[str, str] = {}
    for act in one.acts:
        # against choice-between-merged-rows-asked-again
        if act.is_state and act.carried and act.carried.commit in commits:
            added = {}
        added.update((s.id, s.chunk) for s in act.adds if s.id in gone)
    lost = dropped_segments(one.acts) if added else {}
    return {chunk for i, chunk in added.items() if i not in one.live and i not in lost}


def _new(
    one: Side,
    other: Side,
    acts: Sequence[Act],
    units: Units,
    chunks: frozenset[str],
    *,
    undone: Collection[str],
) -> _New:
    """Return what one log did to these chunks, and the other one, with its units, has not.

    Without what it dropped by a unit that the other one did, too.
    """
    found = _New()
    old = old_rows(acts, acts)
    gone = (d.id for a in other.acts if not a.merges_slices for d in a.drops if d.chunk in chunks)
    replaced = repeated(old, gone) | set(undone)
    for act in acts:
        adds = [s for s in act.adds if s.chunk in chunks and s.id not in replaced]
        drops = [d for d in act.drops if d.chunk in chunks]
        # What came and went again within it is in none of the two.
        several = len(act.originals) > 1 or act.count > 1
        parts = [t for t in other.acts if several and t.originals.keys() & act.originals.keys()]
        # against one-of-several-units-seen
        parts = parts + (units.shared(act) if several else [])
        met = not chunks.isdisjoint(chunks_of(parts))
        if adds or drops or met:
            found.acts.append(act)
            found.adds += adds
            # Rows of a keyed table that lie below their version are those of an overwrite.
            low = any(s.slice and placement.span(s)[0] < s.version for s in adds)
            found.old.update(s.id for s in adds if s.id in old)
            found.only_adds &= not (drops or met or low or act.restores)
    if found.only_adds:
        there = (s.id in one.live or one.is_there(s) for s in found.rows)
        found.only_adds = all(there)
    return found


def _counting(run: slices.Run) -> tuple[str, int, int, list[str]]:
    """Return of a run of slices which objects count there, in their order."""
    objects = [s.checksum for s in run.segments]  # against another-place-taken-for-other-rows
    return run.chunk, run.first, run.last, objects


def _of(act: Act, kind: type) -> bool:
    return any(isinstance(action, kind) for action in act.transaction.actions)


def _fresh(entry: Segment) -> Segment:
    """Return the entry of new rows: the commit says their versions."""
    new = msgspec.structs.replace(
        placement.slice_of(entry), low=None, high=None, level=0, ordinal=None
    )
    return msgspec.structs.replace(entry, slice=new)


def _regions(acts: Iterable[Act]) -> list[frozenset[str]]:
    """Return the changed chunks, those together that overlap."""
    found: list[set[str]] = []
    end = 0
    for name in sorted(chunks_of(acts), key=lambda n: (parse_chunk(n).start, -parse_chunk(n).end)):
        chunk = parse_chunk(name)
        if found and chunk.start < end:
            found[-1].add(name)
            end = max(end, chunk.end)
        else:
            found.append({name})
            end = chunk.end
    return [frozenset(names) for names in found]
