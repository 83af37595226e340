"""What a merge commits on the target for what the source did. No I/O.

The source's commits are looked at in order, and for each that has something new there is a
`Carried`: one transaction of the target. What the target has done already is left out: what the
source has from it, units of work of an app that both have done, and rewrites of what it does not
have live, since they change no rows (MERGING.md R19.5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from eventlog.keyed.rule import keyed_of
from eventlog.merging import history
from eventlog.merging.history import Act, AppliedStep
from eventlog.merging.planning.columns import joined, translated
from eventlog.merging.planning.rows import Differs, RowGroups
from eventlog.merging.planning.settings import (
    Decision,
    SettingChange,
    actions_for,
    decisions,
    settings,
    settings_of,
    value_of,
    with_settings,
)
from eventlog.model.actions import (
    Action,
    AppReset,
    AppRise,
    Replace,
    SetBuckets,
    SetGranularity,
    SetProperties,
    SetSchema,
)
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta
from eventlog.quantities import count_text


class MergeConflict(Exception):
    """What the source did cannot be carried; has the reason.

    Attributes:
        version: the source's version.
        ours: the target's version that stands against it, where it is one.
        lasting: whether it stays, whatever is chosen.
    """

    def __init__(
        self, reason: str, version: int, ours: int | None = None, *, lasting: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.version = version
        self.ours = ours
        self.lasting = lasting


class PastNeeded(Exception):
    """The decision needs what both did since they parted."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """What both logs did since they parted.

    Attributes:
        source: the source's commits, as far as they are carried.
        target: the target's.
        later: the source's that are to be carried.
        seen: the target's version up to which the source has everything, after all of these.
    """

    source: Sequence[AppliedStep]
    target: Sequence[AppliedStep]
    later: Sequence[AppliedStep]
    seen: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two logs that have parted.

    Attributes:
        source: root URI of the source.
        target: that of the target.
        common: the last version that they share.
        origin: the hash of the first version of the source after that.
        own: that of the target; None if it has none.
        schema: the source's newest schema.
        meta: the source's newest small state.
        seen: the target's version up to which the source has everything, before what is carried.
        ours: hashes of commits of the target that the source names in what is carried.
        alone: whether the target has merged nothing else than the source.
    """

    source: str
    target: str
    common: int
    origin: str
    own: str | None
    schema: Schema
    meta: Meta
    seen: int = -1
    ours: frozenset[str] = frozenset()
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Carried:
    """One transaction of the target.

    Attributes:
        version: the source's version up to which it carries.
        commit: the hash of that version's commit.
        adds: segments of the source, with the target's schema.
        drops: ids of segments of the target, and their chunks.
        changes: changes of the small state, in order.
        commits: those in which what it carries was first committed: hashes, with their versions.
        apps: what becomes of the sequences of apps.
        resets: for each restore that it needs, what becomes of the sequences of apps after that.
        deletes: for a rewrite, the number of rows that it deletes; None: it is none.
        operations: the source's.
        transactions: number of transactions that it carries, by however many logs they came.
        copies: for adds that are no segments of the source: where their objects lie, as (whether
            that is at the target, key), the first that is there.
        seen: for drops of a keyed table, the target's version that the source had seen; None: the
            newest.
        still: chunks to which nothing may be added meanwhile.
        united: where it makes the two one by their states: "source" where each chunk that it
            changes becomes what it is at the source, else "both".
    """

    version: int
    commit: str
    adds: tuple[Segment, ...] = ()
    drops: tuple[tuple[str, str], ...] = ()
    changes: tuple[Action, ...] = ()
    commits: Mapping[str, int] = field(default_factory=dict)
    apps: Mapping[str, AppRise] = field(default_factory=dict)
    deletes: int | None = None
    operations: tuple[str, ...] = ()
    transactions: int = 0
    copies: Mapping[str, tuple[tuple[bool, str], ...]] = field(default_factory=dict)
    seen: int | None = None
    still: frozenset[str] = frozenset()
    united: str | None = None
    resets: Sequence[Mapping[str, AppReset]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the target would be the same without it."""
        return not (self.adds or self.drops or self.changes or self.apps)

    def then(self, later: Carried) -> Carried:
        """Return the one transaction that has the effect of both."""
        seen = [version for version in (self.seen, later.seen) if version is not None]
        dropped = {i for i, _ in later.drops}
        added = {s.id for s in self.adds}
        back = {s.id for s in later.adds} & {i for i, _ in self.drops}
        apps = dict(self.apps)
        for app, rise in later.apps.items():
            known = apps.get(app, rise)
            apps[app] = AppRise(known.old, history.union(known.done, rise.done))
        return Carried(
            later.version,
            later.commit,
            (
                *(s for s in self.adds if s.id not in dropped),
                *(s for s in later.adds if s.id not in back),
            ),
            (
                *(d for d in self.drops if d[0] not in back),
                *(d for d in later.drops if d[0] not in added),
            ),
            (*self.changes, *later.changes),
            {**self.commits, **later.commits},
            dict(sorted(apps.items(), key=lambda item: item[0].encode())),
            operations=(*self.operations, *later.operations),
            transactions=self.transactions + later.transactions,
            copies={**self.copies, **later.copies},
            seen=min(seen, default=None),
            still=self.still | later.still,
        )


class Planner:
    """Decides what of the source's commits is carried, in their order.

    It knows what the target will be after what it has decided before.

    Args:
        pair: the two logs.
        meta: the target's small state.
        live: those of the segments in question that the target has live.
        past: what both did since they parted; None if nothing so far needs it.

    Attributes:
        skipped: of how many transactions of a version the target has everything.
        declined: how many rewrites of a version it does without, since the rows are the same.
    """

    def __init__(
        self, pair: Pair, meta: Meta, live: Collection[str], past: Divergence | None
    ) -> None:
        self.skipped: dict[int, int] = {}
        self.declined: dict[int, int] = {}
        self._pair, self._meta, self._live = pair, meta, set(live)
        self._past = past
        self._unit: Act | None = None  # the target's own, where it did the same
        self._rows: RowGroups | None = None
        self._units = history.Units(())  # what the target has
        self._decisions: dict[str, Decision] = {}
        self._has: history.KnownCommits | None = None  # of all logs
        self._alone_acts: list[Act] = []  # of the target, and not of the source
        self._alone_ids: set[str] = set()
        if past is not None:
            self._has, theirs = history.KnownCommits(past.target), history.KnownCommits(past.source)
            self._rows = RowGroups(past.source, past.target, self._has, theirs)
            acts = [act for step in past.target for act in step.acts]
            self._units = history.Units(acts)
            self._alone_acts = [act for act in acts if not theirs.has(act)]
            self._alone_ids = {act.transaction.id for act in self._alone_acts}
            self._decisions = self._decide(past)
        self._seqs = {name: mark.seq for name, mark in meta.apps.items()}

    def carry(self, step: AppliedStep) -> Carried | None:
        """Return what is to be committed for a commit of the source; None if nothing is.

        Raises:
            Conflict: it cannot be carried.
            PastNeeded: give what both did since they parted.
        """
        carried = Carried(step.version, step.commit)
        for act in step.acts:
            if self._is_new(act):
                part = self._act(act)
            else:
                self._count(self.skipped, act, act.does_anything)
                part = self._known(act)
            if part is not None:
                carried = carried.then(part)
                if len(step.acts) == 1:
                    carried = replace(carried, deletes=part.deletes)
            if self._rows is not None:
                self._rows.at_source(act)
        if carried.is_empty:
            return None
        return replace(carried, version=step.version, commit=step.commit)

    def rest(self) -> Carried | None:
        """Return what has to be committed with the last of them; None if nothing has."""
        return None

    def _known(self, act: Act) -> Carried | None:
        """Return what is to be committed where the target has what a transaction did."""
        if self._unit is None or self._rows is None or not act.drops:
            return None
        try:
            # against rows-before-a-unit-kept
            gone = self._rows.remaining(act, self._unit, self._live)
        except Differs as differs:
            raise MergeConflict(
                f"it drops rows by a unit of work that both did, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        self._live.difference_update(gone)
        drops = tuple((i, self._rows.chunks[i]) for i in gone)
        return Carried(act.version, "", drops=drops) if drops else None

    @staticmethod
    def _count(counts: dict[int, int], act: Act, number: int) -> None:
        counts[act.version] = counts.get(act.version, 0) + number

    def _is_new(self, act: Act) -> bool:
        """Return whether the target does not have what a transaction did."""
        self._unit = None
        if not act.does_anything and (act.carried is not None or not act.units):
            return False
        if self._has_it(act):
            return False
        if act.is_state:
            raise MergeConflict("it made two logs one by their states", act.version)
        return not self._is_done(act)

    def _has_it(self, act: Act) -> bool:
        """Return whether the target has what a transaction did, by itself or from another log."""
        ours, named = self._pair.ours, act.originals
        direct = act.carried is not None and not act.unites and act.carried.commit in ours
        if direct or ours.issuperset(named):
            return True  # against own-rows-carried-back
        part = not ours.isdisjoint(named)
        if self._has is None:
            if not self._pair.alone:
                raise PastNeeded
        elif self._has.has(act):
            return True
        else:
            part |= self._has.has_part(act)
        if part:  # against rest-of-several-transactions-left-out
            raise MergeConflict(
                "it carries several transactions of another log, and the target has some of them",
                act.version,
            )
        return False

    def _is_done(self, act: Act) -> bool:
        """Return whether the target has done a unit of work itself."""
        kept = history.kept(act.units)
        published = len(kept) < len(act.units)  # against published-append-carried-again
        # against first-of-several-units-not-looked-up
        if not published and all(self._seqs.get(a, -1) < done[0][0] for a, done in kept.items()):
            return False
        if self._past is None or self._rows is None:
            raise PastNeeded
        shared = self._units.shared(act)
        if not shared:  # against unit-of-work-done-on-both-sides
            return False
        done = shared[-1]
        if act.unit is None:
            raise MergeConflict(
                "it carries several transactions of another log, and the target has done one of "
                "them itself",
                act.version,
                done.version,
            )
        if done.unit is not None:  # else it is not known which of the rows are the same
            self._rows.same_unit(act, done)
            self._unit = done
        return True

    def _act(self, act: Act) -> Carried | None:
        """Return what is to be committed for one transaction, and note it."""
        if act.resets:  # against units-forgotten-elsewhere-skipped
            raise MergeConflict(
                "it restores a version and lets units of work be loaded again", act.version
            )
        if act.restores and (ours := self._own_write()) is not None:
            # What it brings back or drops the target may have rewritten with rows of its own.
            raise MergeConflict(
                "it restores a version, and the target has taken writes of its own",
                act.version,
                ours.version,
            )
        changes = self._changes(act)
        if act.rewrites and not self._applies(act):  # against rewrite-of-what-is-not-there
            self._count(self.declined, act, 1)
            if self._rows is not None:
                self._rows.relate([*(d.id for d in act.drops), *(s.id for s in act.adds)])
            adds: tuple[Segment, ...] = ()
            drops: tuple[tuple[str, str], ...] = ()
            exact = False
        else:
            drops, exact = self._drops(act)
            adds = tuple(s for s in act.adds if s.id not in self._live)
            self._live.difference_update(i for i, _ in drops)
            self._live.update(s.id for s in adds)
        if not (adds or drops or changes):
            return None
        schema = self._meta.schema
        assert schema is not None  # noqa: S101 - every table has one
        replaces = [a for a in act.transaction.actions if isinstance(a, Replace)]
        whole = exact and not changes and len(adds) == len(act.adds)
        return Carried(
            act.version,
            "",
            tuple(translated(s, self._pair.schema, schema) for s in adds),
            drops,
            tuple(changes),
            act.originals,
            self._rises(act),
            replaces[0].deletes if replaces and whole else None,
            (act.transaction.operation,),
            act.count,
        )

    def _own_write(self) -> Act | None:
        """Return what the target did itself to its segments, the first of it."""
        if self._pair.own is None:
            return None
        if self._past is None:
            raise PastNeeded
        own = self._alone_acts
        return next((act for act in own if act.adds or act.drops), None)

    def _applies(self, act: Act) -> bool:
        return all(drop.id in self._live for drop in act.drops)

    def _drops(self, act: Act) -> tuple[tuple[tuple[str, str], ...], bool]:
        """Return what the target drops, and whether these are the source's own drops."""
        here = [(d.id, d.chunk) for d in act.drops if d.id in self._live]
        missing = [d.id for d in act.drops if d.id not in self._live]
        if not missing:
            return tuple(here), True
        if self._rows is None:
            raise PastNeeded
        try:
            more = self._rows.counterpart(act, missing, self._live)
        except Differs as differs:
            dropped = count_text(len(act.drops), "segment")
            raise MergeConflict(
                f"it drops {dropped}, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        return (*here, *((i, self._rows.chunks[i]) for i in dict.fromkeys(more))), False

    def _rises(self, act: Act) -> dict[str, AppRise]:
        """Return what becomes of the sequences of the apps whose work is carried."""
        rises = {}
        for app, done in history.kept(act.units).items():
            old, last = self._seqs.get(app), done[-1][1]
            rises[app] = AppRise(old, done)
            self._seqs[app] = last if old is None else max(old, last)
        return dict(sorted(rises.items(), key=lambda item: item[0].encode()))

    def _changes(self, act: Act) -> list[Action]:
        """Return the changes of the small state that the target makes, and note them."""
        found: list[Action] = []
        for action in act.transaction.actions:
            made: Action | None = None
            if isinstance(action, SetSchema):
                made = self._schema(action, act.version)
            elif isinstance(action, SetProperties | SetGranularity):
                found += self._settings(action, act.version)
            elif isinstance(action, SetBuckets):
                made = self._buckets(action)
            if made is not None:
                found.append(made)
        return found

    def _buckets(self, action: SetBuckets) -> SetBuckets | None:
        layout = self._meta.layout
        keyed = None if layout is None else keyed_of(layout)
        if layout is None or keyed is None or keyed.buckets >= action.new:
            return None  # the target has split them, too
        keyed = msgspec.structs.replace(keyed, buckets=action.new)
        self._meta = msgspec.structs.replace(
            self._meta, layout=msgspec.structs.replace(layout, keyed=keyed)
        )
        return action

    def _schema(self, action: SetSchema, version: int) -> SetSchema | None:
        assert self._meta.schema is not None  # noqa: S101 - every table has one
        schema = joined(action.schema, self._meta.schema)
        if isinstance(schema, str):
            raise MergeConflict(f"it has {schema}", version)
        if schema is self._meta.schema:
            return None
        self._meta = msgspec.structs.replace(self._meta, schema=schema)
        return SetSchema(schema)

    def _settings(self, action: Action, version: int) -> list[Action]:
        """Return the changes of properties or of the granularity that the target makes."""
        made = []
        for change in settings(action, version):
            now, end = (value_of(meta, change.name) for meta in (self._meta, self._pair.meta))
            if now == end:
                continue  # and leave out the steps on the way
            if self._past is None and self._pair.own is not None:
                raise PastNeeded
            new = change.new if self._past is None else self._decided(change, now, end)
            if new != now:
                made.append(replace(change, old=now, new=new))
        self._meta = with_settings(self._meta, made)
        return actions_for(made)

    def _decide(self, past: Divergence) -> dict[str, Decision]:
        """Return whose value counts of each setting that both sides changed."""
        known, theirs = (
            history.KnownCommits(past.target),
            history.KnownCommits((*past.source, *past.later)),
        )
        later = (act for step in past.later for act in step.acts)
        ours = (act for step in past.target for act in step.acts)
        return decisions(
            settings_of(later, known.has),
            settings_of(ours, lambda act: act.version <= past.seen or theirs.has(act)),
            self._pair.meta,
            self._meta,
        )

    def _decided(self, change: SettingChange, now: str | None, end: str | None) -> str | None:
        """Return the value that the target has after a change of the source."""
        decision = self._decisions[change.name]
        if decision.choice == "conflict":
            raise MergeConflict(
                f"it sets {change.what} to {change.new!r}, and the target has set it to {now!r}",
                change.version,
                decision.against,
            )
        if decision.choice == "keep":
            return now
        return change.new if now == change.old else end
